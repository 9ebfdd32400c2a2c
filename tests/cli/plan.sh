#!/bin/bash
# What `gapless plan` prints: plan.sh COMMAND [--write].
. "$(dirname "$0")/golden.inc"

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$data" || exit 1
golden plan-csv           plan minimalloc/input.12.csv
golden plan-steps         plan gnn.pickle.xz --steps 3..3 --time-limit 60
golden plan-pools         plan graphs.pickle.xz --time-limit 60
golden plan-apart         plan streams.pickle.xz --apart --time-limit 0
golden plan-above         plan minimalloc/input.12.csv --capacity 11 --time-limit 0
golden plan-ring          plan ring.pickle.xz --time-limit 60
golden plan-no-step       plan gnn.pickle.xz --steps 3..99
golden plan-bad-steps     plan gnn.pickle.xz --steps 5..3
golden plan-bad-file      plan README.md
golden plan-bad-option    plan gnn.pickle.xz --colour red
golden plan-near-option   plan gnn.pickle.xz --stepz 3..3
golden plan-no-value      plan gnn.pickle.xz --steps
golden plan-no-file       plan
golden plan-two-files     plan a b
golden plan-cannot-write  plan minimalloc/input.12.csv -o /nowhere/plan
golden help-plan          help plan

# The same search gives the same file, and the JSON object has what scripts ask for.
"$command" plan gnn.pickle.xz --quiet --json --time-limit 60 -o "$out/one" >"$out/json" || failures=$((failures + 1))
"$command" plan gnn.pickle.xz --quiet --time-limit 60 -o "$out/two" >/dev/null || failures=$((failures + 1))
cmp "$out/one" "$out/two" || failures=$((failures + 1))
for field in plan_bytes bound_bytes gap proved steps_found; do
  grep -q "\"$field\":" "$out/json" || { echo "no $field in the JSON object"; failures=$((failures + 1)); }
done
finish
