#!/bin/sh
# Finds what the build lacks and installs it: tools/setup.sh [build|test|python|web|bench|fuzz|coverage|lint]...
#
# A part is asked for by what it needs (a program, a header, a pkg-config module), so nothing is installed where another
# distribution or a hand-made build already has it.  Missing things are installed with apt-get when that can be done
# without a question (as root, or by sudo that asks no password); else one line says what to install, and the status is 2.
set -u

missing= # without it the part cannot be done
wished=  # without it some tests are skipped
need_program() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
wish_program() { command -v "$1" >/dev/null 2>&1 || wished="$wished $2"; }
wish_module() { pkg-config --exists "$1" 2>/dev/null || wished="$wished $2"; }
need_module() { pkg-config --exists "$1" 2>/dev/null || missing="$missing $2"; }
need_header() { echo "#include <$1>" | ${CC:-cc} -E -x c - >/dev/null 2>&1 || missing="$missing $2"; }

need_modules() { # pairs MODULE:PACKAGE; one call when all are there
  modules=
  for pair in "$@"; do modules="$modules ${pair%%:*}"; done
  # shellcheck disable=SC2086
  pkg-config --exists $modules 2>/dev/null && return
  for pair in "$@"; do need_module "${pair%%:*}" "${pair##*:}"; done
}

need_build() {
  need_program "${CC:-cc}" gcc
  need_header stdio.h libc6-dev
  need_program cmake cmake
  need_program ninja ninja-build
  need_program pkg-config pkg-config
  need_modules jansson:libjansson-dev libzstd:libzstd-dev liblzma:liblzma-dev zlib:zlib1g-dev
}
need_test() {
  need_build
  need_program "${CXX:-c++}" g++
  need_program python3 python3
  need_modules cmocka:libcmocka-dev
  wish_program clang-format clang-format
  wish_module hiredis libhiredis-dev # the plug-in for remote servers, and a server to try it on
  wish_module openssl libssl-dev
  wish_program openssl openssl
  wish_program redis-server redis-server
}
need_python() { # Debian's pytest serves every interpreter that has none of its own
  need_test
  [ ! -e /usr/lib/python3/dist-packages/pytest ] || return 0
  debians="python3-pytest python3-exceptiongroup python3-tomli"
  if python3 -c 'import pytest' 2>/dev/null; then wished="$wished $debians"; else missing="$missing $debians"; fi
}
need_web() { # what is in Node's registry is installed below
  need_program node nodejs
  need_program npm npm
  command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || missing="$missing chromium fonts-dejavu-core"
}
need_bench() {
  need_build
  need_header mimalloc.h libmimalloc-dev
}
need_fuzz() {
  need_test
  need_program clang clang
  ls "$(clang -print-resource-dir 2>/dev/null)"/lib/*/libclang_rt.fuzzer*.a >/dev/null 2>&1 ||
    missing="$missing libclang-rt-14-dev"
}
need_coverage() {
  need_test
  need_program gcovr gcovr
}
need_lint() {
  need_test
  need_program clang-format clang-format
  need_program clang-tidy clang-tidy
}

# Runs a command as root without asking anybody anything; fails where that is impossible.  The proxy's variables are
# handed on by env, since sudo clears them.  RUNLEVEL=1: what is installed does not start its services.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive "$@"
  else
    sudo -n env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" "$@"
  fi
}
can_install() {
  command -v apt-get >/dev/null 2>&1 || return 1
  [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; }
}
apt_install() {
  as_root apt-get -qq -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 --no-install-recommends install "$@"
}

# The package lists may be absent or stale, so a failed first try is repeated after an update.
install() {
  log=$(mktemp)
  echo "setup: installing $*"
  if apt_install "$@" >"$log" 2>&1 </dev/null ||
    { as_root apt-get -qq update >>"$log" 2>&1 </dev/null && apt_install "$@" >>"$log" 2>&1 </dev/null; }; then
    rm -f "$log"
    return 0
  fi
  tail -n 20 "$log" >&2
  rm -f "$log"
  return 1
}

# The packages that web/package-lock.json names, installed again only when it has changed.
install_web() {
  modules=web/node_modules
  ! cmp -s web/package-lock.json $modules/.gapless-lock || return 0
  echo "setup: installing web/node_modules"
  (cd web && npm ci --ignore-scripts --no-audit --no-fund --loglevel error) >&2 </dev/null &&
    cp web/package-lock.json $modules/.gapless-lock
}

web=
for part in "${@:-build}"; do
  [ "$part" != web ] || web=yes
  case $part in
    build | test | python | web | bench | fuzz | coverage | lint) "need_$part" ;;
    *) echo "setup: unknown part '$part': build, test, python, web, bench, fuzz, coverage or lint" >&2 && exit 2 ;;
  esac
done
if [ -n "$missing" ]; then
  packages=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
  # shellcheck disable=SC2086
  if ! can_install || ! install $packages; then
    echo "setup: please install (Debian's names): $packages" >&2
    exit 2
  fi
fi
if [ -n "$wished" ]; then
  packages=$(printf '%s\n' $wished | sort -u | tr '\n' ' ')
  # shellcheck disable=SC2086
  { can_install && install $packages; } || echo "setup: without these some tests are skipped (Debian's names): $packages" >&2
fi
[ -z "$web" ] || install_web || { echo "setup: npm ci in web/ failed" >&2 && exit 2; }
