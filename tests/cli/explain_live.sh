#!/bin/bash
# `gapless explain PID`: explain_live.sh COMMAND.  Asks an example program that runs on host memory.
command=$1
program=$(dirname "$command")/examples/watched
[ -x "$program" ] || { echo "no $program: the examples are not built"; exit 77; }
export XDG_RUNTIME_DIR=$PWD/runtime
rm -rf "$XDG_RUNTIME_DIR" && mkdir -m 700 "$XDG_RUNTIME_DIR" || exit 1
failures=0

fail() {
  echo "$1"
  failures=$((failures + 1))
}

# expect STATUS WORDS ARGUMENTS...: the command ends with the status and says the words.
expect() {
  local status=$1 words=$2 said
  shift 2
  said=$("$command" explain "$@" --quiet 2>&1)
  [ $? = "$status" ] || fail "explain $*: not $status: $said"
  tr -s '\n ' ' ' <<<"$said" | grep -qF -- "$words" || fail "explain $*: does not say '$words': $said"
}

LINGER=30 "$program" --backend host >watched.out &
process=$!
trap 'kill -9 $process 2>/dev/null' EXIT
for _ in $(seq 100); do
  grep -q live watched.out 2>/dev/null && break
  sleep 0.05
done

expect 0 "Process $process (watched), device 0" "$process"
expect 0 "1 request was refused so far" "$process" --no-advice
expect 0 "asked for 100 MiB" "$process" --no-advice
expect 0 "24 MiB live" "$process" --no-advice
expect 1 "LIMIT. A limit, not the card" "$process" --size 60MiB --no-advice
expect 0 "A request of 20 MiB would be served" "$process" --size 20MiB --no-advice
expect 2 "there is no device 3: the process has 1" "$process" --device 3
expect 2 "no gapless process" 1
expect 2 "no gapless process" $$
expect 2 "no process of this number, and no file of this name" 2147483646

"$command" explain "$process" --json --quiet >live.json || fail "--json failed"
for member in '"live_bytes":25165824' '"idle_stuck_bytes":8388608' '"idle_returnable_bytes":' '"limit_bytes":67108864' \
  '"has_history":false' '"contradictions":0' '"live":true' '"refusals":1' "\"number\":$process"; do
  grep -qF "$member" live.json || fail "--json lacks $member: $(cat live.json)"
done

# And all of it on a page.
"$command" report "$process" --json --quiet >report.json || fail "report failed"
for member in "\"file\":\"process $process\"" '"name":"end"' '"live_bytes":25165824' '"kind":"paged"' '"timeline":null'; do
  grep -qF "$member" report.json || fail "report --json lacks $member"
done

# A file of that name comes first.
cp "$(dirname "$0")/../data/made/small.4.pickle" "$process" || exit 1
"$command" explain "$process" --no-advice --quiet | grep -q Process && fail "a file of this name was passed over"
rm "$process"

kill -9 $process
wait $process 2>/dev/null
expect 2 "no process of this number" "$process"
LINGER=0 "$program" --backend host >/dev/null || fail "the second program failed" # its door sweeps away the one of the killed one
[ -z "$(ls "$XDG_RUNTIME_DIR/gapless")" ] || fail "left behind: $(ls "$XDG_RUNTIME_DIR/gapless")"
exit $((failures > 0))
