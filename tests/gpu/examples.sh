#!/bin/bash
# Builds the examples with a plain compiler and runs them: tests/gpu/examples.sh FOLDER-OF-LIBGAPLESS [BACKEND]
#
# A backend is cuda unless named.  C++ is left out where there is no compiler for it.  The last line counts; the status is 0
# only when none failed.
set -u
cd "$(dirname "$0")/../.." || exit 2
library=$(cd "$1" && pwd) || exit 2
backend=${2:-cuda}
out=$(mktemp -d) || exit 2
trap 'rm -rf "$out"' EXIT
passed=0 failed=0 skipped=0

"${CC:-cc}" -c -Iinclude -o "$out/device.o" examples/device.c || exit 1
for source in examples/*.c examples/*.cpp; do
  name=$(basename "${source%.*}")
  compiler=${CC:-cc}
  [ "$name" = device ] && continue
  case $source in *.cpp)
    compiler=${CXX:-c++}
    command -v "$compiler" >/dev/null || { skipped=$((skipped + 1)) && continue; } ;;
  esac
  if "$compiler" -Iinclude -o "$out/$name" "$source" "$out/device.o" "-L$library" -lgapless "-Wl,-rpath,$library" -ldl &&
    "$out/$name" --backend "$backend" >"$out/log" 2>&1 && tail -n 1 "$out/log" | grep -qx ok; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $name" && tail -n 5 "$out/log"
  fi
done
echo "examples: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
