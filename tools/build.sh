#!/bin/sh
# Configures a preset where that has not been done, and builds: tools/build.sh PRESET [TARGET]...
#
# On a terminal Ninja shows its bar; in a log only warnings and errors appear.
set -eu
preset=$1
shift
cd "$(dirname "$0")/.."
folder=build
[ "$preset" = release ] || folder=build-$preset
mkdir -p "$folder"
log=$folder/build.log

if [ ! -f "$folder/build.ninja" ] || [ CMakePresets.json -nt "$folder/build.ninja" ]; then
  echo "building $folder ..."
  cmake --preset "$preset" --log-level=WARNING >"$log" || { cat "$log" && exit 1; }
fi
if [ -t 1 ]; then exec ninja -C "$folder" "$@"; fi
status=0
ninja --quiet -C "$folder" "$@" >"$log" 2>&1 || status=$?
grep -v -e '^ninja: no work to do' -e '^-- ' "$log" || true
exit $status
