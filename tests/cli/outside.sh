#!/bin/bash
# What lies outside the command: odd names of files, disks that are full, outputs that are closed.  outside.sh COMMAND
command=$1
data=$(cd "$(dirname "$0")/../data" && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$out" || exit 1
failures=0

fail() {
  echo "$1"
  failures=$((failures + 1))
}

# expect STATUS ARGUMENTS...
expect() {
  local status=$1
  shift
  "$command" "$@" >said 2>said.err
  [ $? = "$status" ] || fail "$*: not $status: $(cat said.err)"
}

# A name that is no UTF-8: JSON and XML are well-formed all the same, and tell the name.
odd=$(printf 'odd\377\303.xz')
cp "$data/cs336b_mem_snapshot.pickle.xz" "$odd" || exit 1
expect 0 tune "$odd" --no-cache --threads 1 --quiet --out tuned
valid() { python3 -c 'import json, sys; sys.exit(not all("odd\ufffd\ufffd.xz" in json.dumps(json.loads(line), ensure_ascii=False) for line in open(sys.argv[1], encoding="utf-8")))' said; }
if command -v python3 >/dev/null; then
  for line in "explain --no-advice" "tune --no-cache --threads 1" "plan --time-limit 0" "check --max-peak 1TiB" \
    "diff $data/cs336b_mem_snapshot.pickle.xz" "replay --policy ideal"; do
    expect 0 $line "$odd" --quiet --json
    [ -s said ] || fail "$line: no JSON"
    valid || fail "$line: $(head -c 200 said)"
  done
  expect 0 convert "$odd" "$odd.trace" --json
  valid || fail "convert: $(cat said)"
  expect 0 tune --merge tuned --json
  valid || fail "tune --merge: $(head -c 200 said)"
  expect 0 check "$odd" --max-peak 1TiB --junit junit.xml
  python3 -c 'import xml.etree.ElementTree as x; x.parse("junit.xml")' || fail "no XML"
fi

# An answer that nobody can read is none.
if [ -c /dev/full ]; then
  for line in "help" "--version" "explain $data/oom.pickle.xz --no-advice" "check $data/gnn.pickle.xz --max-peak 1TiB" \
    "plan $data/minimalloc/input.12.csv" "plan $data/minimalloc/input.12.csv -o -"; do
    "$command" $line >/dev/full 2>said.err
    [ $? = 2 ] || fail "$line: a full disk is not told"
    grep -q "cannot write standard output" said.err || fail "$line: $(cat said.err)"
  done
fi

# On standard output there is the plan and nothing else.
expect 0 plan "$data/minimalloc/input.12.csv" -o plan
"$command" plan "$data/minimalloc/input.12.csv" -o - 2>/dev/null | cmp - plan || fail "more than a plan"

# What cannot be written to the end leaves what was there.
expect 0 check "$data/gnn.pickle.xz" --save figures
cp plan plan.before && cp figures figures.before
for line in "plan $data/gnn.pickle.xz --time-limit 0 -o plan" "check $data/oom.pickle.xz --save figures"; do
  (trap '' XFSZ && ulimit -f 0 && "$command" $line --quiet >/dev/null 2>&1)
  [ $? = 2 ] || fail "$line: no room is not told"
done
cmp plan plan.before && cmp figures figures.before || fail "what was there is gone"
[ -z "$(ls ./*.new 2>/dev/null)" ] || fail "left behind: $(ls ./*.new)"

# says STATUS WORDS ARGUMENTS...
says() {
  local words=$2
  expect "$1" "${@:3}"
  cat said said.err | tr -s '\n ' ' ' | grep -qF -- "$words" || fail "${*:3}: does not say '$words'"
}

# A file that holds nothing is no program that fits, and none that keeps within limits.
printf '\x80\x04}(X\x08\x00\x00\x00segments]X\x0d\x00\x00\x00device_traces]u.' >nothing
printf 'Thread,Time,Action,Pointer,Size,Stream\n' >log
for file in nothing log "$data/flexgen_oom_snapshot.pickle.xz"; do
  says 2 "no requests were recorded" replay "$file"
  says 2 "no requests were recorded" tune "$file" --no-cache
done
for file in nothing log; do
  says 2 "there is nothing to compare" diff "$data/oom.pickle.xz" "$file"
  says 2 "no requests were recorded" plan "$file"
  says 2 "neither segments nor events" check "$file" --max-peak 1GiB --max-end 1GiB
  says 0 "UNKNOWN. The file holds nothing of this device" explain "$file"
  says 1 '"verdict":"unknown"' explain "$file" --size 1GiB --json
done
: >empty
for line in replay explain plan "tune --no-cache" "check --max-peak 1" "diff $data/oom.pickle.xz"; do
  says 2 "empty: it is empty" $line empty
done

# Names in a file that somebody sent do not steer the terminal.
frame='}(X\x08\x00\x00\x00filenameX\x06\x00\x00\x00a\x1b[.pyX\x04\x00\x00\x00lineK\x03X\x04\x00\x00\x00nameX\x03\x00\x00\x00f\x1b]u'
event='}(X\x06\x00\x00\x00actionX\x05\x00\x00\x00allocX\x04\x00\x00\x00addrM\x00\x10X\x04\x00\x00\x00sizeM\x00\x10X\x06\x00\x00\x00streamK\x00X\x07\x00\x00\x00time_usK\x01X\x06\x00\x00\x00frames](%beu'
printf "\\x80\\x04}(X\\x08\\x00\\x00\\x00segments]X\\x0d\\x00\\x00\\x00device_traces](](${event/\%b/$frame}eeu." >steering
for line in "explain" "diff --rows 0 $data/oom.pickle.xz"; do
  expect $([ "$line" = explain ] && echo 0 || echo 1) $line steering --quiet
  grep -q 'a?\[.py:3 f?\]' said || fail "$line: $(cat said)"
  grep -q $'\x1b' said && fail "$line steers the terminal"
done

# Pipes can be read once.
printf 'lower,upper,size,alignment\n0,5,3,4\n0,5,2,4\n' >aligned
says 0 "plan 6 B" plan aligned
says 0 "plan 6 B" plan - <aligned
says 0 "plan 6 B" plan <(cat aligned)
says 0 "requests 2,851" plan <(xz -dc "$data/gnn.pickle.xz") --time-limit 0
says 2 'no mark in it begins with "Optimiser"' plan "$data/gnn.pickle.xz" --mark Optimiser
says 0 "of 33 (mark)" plan "$data/gnn.pickle.xz" --mark Optimizer --time-limit 0
exit $((failures > 0))
