#!/bin/bash
# What is installed serves a program that knows nothing of this tree: by pkg-config and by find_package, in C and in C++, also
# after the installed tree was moved; DESTDIR only goes in front.
set -eu
build=$(cd "$(dirname "$1")" && pwd)
examples=$(cd "$(dirname "$0")/../../examples" && pwd)
here=$PWD/tree
rm -rf "$here" && mkdir "$here"
fail() { echo "install: $*" >&2 && exit 1; }
silently() { "$@" >"$here/log" 2>&1 || { cat "$here/log" >&2 && fail "$*"; }; }

silently cmake --install "$build" --prefix "$here/usr"
DESTDIR=$here/stage silently cmake --install "$build" --prefix /opt/gapless
[ -f "$here/stage/opt/gapless/include/gapless/gapless.h" ] || fail "DESTDIR is not honoured"
[ ! -e "$here/usr/include/gapless/tools.h" ] || fail "tools.h is not for programs"
[ ! -e "$here/usr/include/gapless/explain.h" ] || fail "explain.h is not for programs"
for file in man/man1/gapless.1 man/man1/gapless-top.1 man/man5/gapless.conf.5 bash-completion/completions/gapless \
  zsh/site-functions/_gapless fish/vendor_completions.d/gapless.fish gapless/grafana/gapless.json gapless/prometheus/gapless.rules.yml; do
  [ -s "$here/usr/share/$file" ] || fail "share/$file is missing"
done
for header in "$here"/usr/include/gapless/*.h; do
  silently ${CC:-cc} -std=c99 -Wall -Wextra -Werror -fsyntax-only -x c -I "$here/usr/include" "$header"
done

by_pkg_config() { # ROOT
  pc=$(find "$1" -name gapless.pc)
  PKG_CONFIG_PATH=$(dirname "$pc")
  export PKG_CONFIG_PATH
  [ "$(pkg-config --modversion gapless)" = "$(sed -n 's/^project(gapless VERSION \([0-9.]*\) .*/\1/p' "$examples/../CMakeLists.txt")" ] ||
    fail "pkg-config tells another version"
  # shellcheck disable=SC2046
  silently ${CC:-cc} -o "$here/hello" "$examples/hello.c" "$examples/device.c" $(pkg-config --cflags --libs gapless) -ldl
  LD_LIBRARY_PATH=$(pkg-config --variable=libdir gapless) silently "$here/hello" --backend host
  grep -qx ok "$here/log" || fail "hello, built with pkg-config, does not say ok"
}

by_find_package() { # ROOT
  mkdir -p "$here/project"
  cat >"$here/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(user LANGUAGES C CXX)
find_package(gapless 0.1 REQUIRED)
add_executable(statistics $examples/statistics.c $examples/device.c)
add_executable(buffer $examples/buffer.cpp $examples/device.c)
foreach(program statistics buffer)
  target_link_libraries(\${program} gapless::gapless \${CMAKE_DL_LIBS})
endforeach()
END
  rm -rf "$here/out"
  silently cmake -S "$here/project" -B "$here/out" -G Ninja -DCMAKE_PREFIX_PATH="$1"
  silently cmake --build "$here/out"
  for program in statistics buffer; do
    silently "$here/out/$program" --backend host
    tail -n 1 "$here/log" | grep -qx ok || fail "$program, built with find_package, does not say ok"
  done
}

by_pkg_config "$here/usr"
by_find_package "$here/usr"
mv "$here/usr" "$here/elsewhere"
by_pkg_config "$here/elsewhere"
by_find_package "$here/elsewhere"
rm -rf "$here"
