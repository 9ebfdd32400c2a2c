#!/bin/bash
# Tests the Python package: tools/test_python.sh [PYTHON]...
#
# Without arguments it takes every CPython from 3.10 on that is found: python3, Debian's, and those of pyenv, one of each minor
# release.  An interpreter without pytest is lent Debian's, which is pure Python; where there is none, it is left out.  Nothing
# comes from PyPI.  The library and the command are those of build/; the last line sums up, and the status is 0 only when
# nothing failed.
set -u
cd "$(dirname "$0")/.." || exit 1
debian=/usr/lib/python3/dist-packages
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT

release_of() { "$1" -c 'import sys; v = sys.version_info; print("%d.%d" % v[:2] if v >= (3, 10) else "")' 2>/dev/null; }

# One interpreter a line, the first of each release.
interpreters() {
  local python release seen=' '
  for python in "$@"; do
    release=$(release_of "$python") && [ -n "$release" ] || continue
    case $seen in *" $release "*) continue ;; esac
    seen="$seen$release "
    echo "$python"
  done
}
found() {
  command -v python3
  echo /usr/bin/python3
  command -v python3.{10..19} 2>/dev/null
  ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python 2>/dev/null
}

has_pytest() { [ -e "$log/pytest/pytest" ] || "$1" -c 'import pytest' 2>/dev/null; }
lend_pytest() { # a folder with Debian's pytest and what it imports, and nothing else of Debian's
  local name
  mkdir -p "$log/pytest"
  for name in pytest _pytest pluggy iniconfig packaging attr attrs py py.py exceptiongroup tomli pyparsing; do
    [ ! -e "$debian/$name" ] || ln -sf "$debian/$name" "$log/pytest/$name"
  done
}

test_one() { # PYTHON: its output goes to a file of its own, the counts to another
  local python=$1 release path=
  release=$(release_of "$python")
  "$python" -c 'import pytest' 2>/dev/null || path=$log/pytest
  PYTHONPATH=$path PYTHONDONTWRITEBYTECODE=1 GAP_BUILD=$PWD/build "$python" -W ignore::DeprecationWarning -m pytest tests/py -rs \
    --junit-xml="$log/$release.xml" -o junit_family=xunit1 >"$log/$release.log" 2>&1 </dev/null
}
export -f test_one release_of
export log

attribute() { sed -n "s/.*<testsuite [^>]*\b$1=\"\([0-9]*\)\".*/\1/p" "$2" | head -n 1; }

mapfile -t pythons < <(if [ $# -gt 0 ]; then printf '%s\n' "$@"; else found; fi)
mapfile -t pythons < <(interpreters "${pythons[@]}")
lend_pytest
able=() left_out=()
for python in "${pythons[@]}"; do
  if has_pytest "$python"; then able+=("$python"); else left_out+=("$python"); fi
done
printf '%s\0' "${able[@]}" | xargs -0 -P "$(nproc)" -n 1 bash -c 'test_one "$1"' _

passed=0 failed=0 skipped=${#left_out[@]}
for python in "${left_out[@]}"; do
  echo "python $(release_of "$python") left out: it has no pytest, and Debian's (python3-pytest) is not installed"
done
for python in "${able[@]}"; do
  release=$(release_of "$python")
  result=$log/$release.xml
  if [ ! -s "$result" ]; then
    printf 'python %-5s did not run\n' "$release"
    cat "$log/$release.log"
    failed=$((failed + 1))
    continue
  fi
  tests=$(attribute tests "$result") not_run=$(attribute skipped "$result")
  bad=$(($(attribute failures "$result") + $(attribute errors "$result")))
  printf 'python %-5s %d tests, %d failed, %d skipped (%s)\n' "$release" "$tests" "$bad" "$not_run" "$python"
  [ "$bad" = 0 ] && grep '^SKIPPED' "$log/$release.log" | sed 's/^/  /'
  [ "$bad" = 0 ] || cat "$log/$release.log"
  passed=$((passed + tests - bad - not_run)) failed=$((failed + bad)) skipped=$((skipped + not_run))
done
summary="$passed passed, $failed failed"
[ "$skipped" = 0 ] || summary="$summary, $skipped skipped"
echo "$summary"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
