#!/bin/sh
# Configures a preset where that has not been done, and builds: tools/build.sh PRESET [TARGET]...
set -eu
preset=$1
shift
cd "$(dirname "$0")/.."
folder=build
[ "$preset" = release ] || folder=build-$preset
if [ ! -f "$folder/build.ninja" ] || [ CMakePresets.json -nt "$folder/build.ninja" ]; then
  cmake --preset "$preset" --log-level=WARNING >/dev/null
fi
# Ninja's own bar on a terminal; in a log only what goes wrong.
if [ -t 1 ]; then exec ninja -C "$folder" "$@"; fi
exec ninja --quiet -C "$folder" "$@"
