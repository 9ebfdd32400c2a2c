#!/bin/bash
# What `gapless check` prints: check.sh COMMAND [--write]
. "$(dirname "$0")/golden.inc"

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$data" || exit 1

golden check-passed       check gnn.pickle.xz --max-peak 21GiB --max-growth 0 --max-refusals 0
golden check-failed       check oom.pickle.xz gnn.pickle.xz --max-peak 26GiB --max-waste 10% --max-refusals 0
golden check-missing      check flexgen_oom_snapshot.pickle.xz --max-calls 5 --max-peak 12GiB
golden check-allowed      check flexgen_oom_snapshot.pickle.xz --max-calls 5 --allow-missing
golden check-ring         check ring.pickle.xz --max-peak 20GiB
golden check-baseline     check llama_sft.stacks.pickle.xz --baseline llama_sft.pickle.xz
golden check-over         check llama_sft.stacks.pickle.xz --baseline llama_sft.pickle.xz --max-calls +10% \
  --max-waste +1% --max-held +1GiB --max-end +0 --max-growth 1MB
golden check-tolerance    check unet_multires.pickle.xz --baseline unet_multires.expandable.pickle.xz --tolerance 0
golden check-json         check oom.pickle.xz --max-peak 26GiB --max-refusals 0 --json
input=gnn.pickle.xz golden check-input check - --max-peak 1GiB
golden check-devices      check made/small.4.pickle --max-peak 1GiB --device 1
golden check-no-rule      check gnn.pickle.xz
golden check-no-file      check --max-peak 3GiB
golden check-no-baseline  check gnn.pickle.xz --max-peak +5%
golden check-bad-limit    check gnn.pickle.xz --max-peak much
golden check-bad-points   check gnn.pickle.xz --max-waste 3GiB
golden check-bad-option   check gnn.pickle.xz --max-peek 3GiB
golden check-bad-file     check README.md --max-peak 3GiB
golden check-bad-baseline check gnn.pickle.xz --baseline README.md
golden check-bad-save     check gnn.pickle.xz --save /nowhere/figures
golden check-bad-junit    check gnn.pickle.xz --max-peak 30GiB --junit /nowhere/results
golden check-save-two     check gnn.pickle.xz ring.pickle.xz --save figures
golden help-check         help check

# A file keeps within its own saved figures; what JUnit readers get is well-formed and counts right.
"$command" check streams.pickle.xz --save "$out/figures" || { echo "nothing saved"; failures=$((failures + 1)); }
"$command" check streams.pickle.xz --baseline "$out/figures" --tolerance 0 >/dev/null || failures=$((failures + 1))
"$command" check gnn.pickle.xz --baseline "$out/figures" >/dev/null && failures=$((failures + 1))
"$command" check oom.pickle.xz flexgen_oom_snapshot.pickle.xz --max-refusals 0 --junit "$out/results" >/dev/null
grep -q 'tests="2" failures="1" errors="1" skipped="0"' "$out/results" || { cat "$out/results"; failures=$((failures + 1)); }
if command -v python3 >/dev/null; then
  python3 -c 'import sys, xml.etree.ElementTree as x; sys.exit(len(list(x.parse(sys.argv[1]).iter("testcase"))) != 2)' \
    "$out/results" || { echo "no XML"; failures=$((failures + 1)); }
fi
finish
