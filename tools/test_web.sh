#!/bin/bash
# Tests the report page: tools/test_web.sh [FILE...]
#
# Types, lint, a rebuild that must give the committed page, and the page in the system's Chromium.  The last line sums up, and
# the status is 0 only when nothing failed.  Where Node or its packages are missing it says so and counts one skip.
set -u
cd "$(dirname "$0")/../web" || exit 1
log=$(mktemp)
trap 'rm -f "$log"' EXIT

skip() {
  echo "web: skipped: $1"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
}
recent='const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)'
command -v node >/dev/null 2>&1 || skip "Node is not installed"
node -e "$recent" || skip "Node $(node --version) is older than 20.19"
[ -d node_modules/vite ] || skip "web/node_modules is not there: tools/setup.sh web"

[ $# -gt 0 ] || set -- tests/*.test.js
node --test --test-concurrency=1 --test-reporter=tap "$@" >"$log" 2>&1 </dev/null
status=$?
number() { sed -n "s/^# $1 \([0-9]*\)$/\1/p" "$log" | tail -n 1; }
passed=$(number pass) failed=$(($(number fail) + $(number cancelled)))
skipped=$(grep -c '# SKIP ' "$log") # of a group that is skipped, node counts no test
[ "$status" = 0 ] || [ "$failed" != 0 ] || failed=1
sed -n 's/^ *# \(.* frames a second\|.* MB: .*\)$/web: \1/p; s/^ *ok [0-9]* - \(.*\) # SKIP \(.*\)$/web: skipped: \1: \2/p' "$log"
[ "$failed" = 0 ] || cat "$log"
summary="${passed:-0} passed, $failed failed"
[ "$skipped" = 0 ] || summary="$summary, $skipped skipped"
echo "$summary"
[ "$failed" = 0 ]
