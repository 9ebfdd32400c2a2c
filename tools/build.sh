#!/bin/sh
# Configures a preset and builds: tools/build.sh PRESET [TARGET]...
#
# It is configured every time (under half a second), because what was missing at first may have been installed since.
# On a terminal Ninja shows its bar; in a log only warnings and errors appear.
set -eu
preset=$1
shift
cd "$(dirname "$0")/.."
folder=build
[ "$preset" = release ] || folder=build-$preset
mkdir -p "$folder"
log=$folder/build.log

[ -f "$folder/build.ninja" ] || echo "building $folder ..."
cmake --preset "$preset" --log-level=WARNING >"$log" || { cat "$log" && exit 1; }
if [ -t 1 ]; then exec ninja -C "$folder" "$@"; fi
status=0
ninja --quiet -C "$folder" "$@" >"$log" 2>&1 || status=$?
grep -v -e '^ninja: no work to do' -e '^-- ' "$log" || true
exit $status
