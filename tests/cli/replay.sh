#!/bin/bash
# What `gapless replay` prints, with times masked: replay.sh COMMAND [--write]
. "$(dirname "$0")/golden.inc"

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$data" || exit 1
golden replay-fits        replay oom.pickle.xz --policy native,ideal --min-cap
golden replay-does-not    replay oom.pickle.xz --policy native --cap 26GiB
golden replay-card        replay oom.pickle.xz --policy ideal,native --card 24G
golden replay-factor      replay gnn.pickle.xz --policy gapless --cap 1.005xP
golden replay-strategies   replay oom.pickle.xz --policy pooled,heuristic --cap 1.02xP
golden replay-overflow    replay oom.pickle.xz --policy gapless --cap 0.75xP --conf overflow:on
golden replay-verify      replay gnn.pickle.xz --verify
# One size altered: event 7 is named, and the next file is not looked at.
altered() { gzip -dc tr_native.json.gz | sed 's/"segment_alloc", 140299410079744, 20971520/"segment_alloc", 140299410079744, 23068672/'; }
input=<(altered) golden replay-differs replay - gnn.pickle.xz --verify
golden replay-expandable  replay tr_exp_cap.json.gz --policy native --verify
# The size of an alloc: what its free says later contradicts it, so the history cannot be replayed, and yet event 11 is named.
longer() { gzip -dc tr_exp_cap.json.gz | sed 's/"alloc", \([0-9]*\), 11283466/"alloc", \1, 11283474/'; }
input=<(longer) golden replay-contradicts replay - --verify
golden replay-cannot      replay ring.pickle.xz --verify
"$command" plan gnn.pickle.xz --quiet --time-limit 60 -o "$out/whole.plan" >/dev/null
golden replay-plan        replay gnn.pickle.xz --policy gapless --conf "plan:$out/whole.plan"
"$command" plan gnn.pickle.xz --steps 3..3 --quiet --time-limit 60 -o "$out/step.plan" >/dev/null
golden replay-plan-step   replay gnn.pickle.xz --policy gapless --conf "plan:$out/step.plan"
golden replay-no-plan     replay gnn.pickle.xz --policy gapless --conf plan:nowhere.plan
golden replay-json        replay oom.pickle.xz --policy native --cap 26GiB --json
golden replay-quiet       replay gnn.pickle.xz --policy ideal --quiet
golden replay-bad-file    replay README.md gnn.pickle.xz --policy ideal
golden replay-bad-cap     replay gnn.pickle.xz --cap lots
golden replay-bad-policy  replay gnn.pickle.xz --policy gapless,nativ
golden replay-bad-conf    replay gnn.pickle.xz --policy native --conf max_split_size_mb:1
golden replay-unknown-key replay gnn.pickle.xz --policy ideal --conf grow_limt:2
golden replay-bad-option  replay gnn.pickle.xz --polcy native
golden replay-no-value    replay gnn.pickle.xz --cap
golden replay-no-file     replay
golden replay-bad-backend replay gnn.pickle.xz --backend cpu
golden replay-bad-speed   replay gnn.pickle.xz --speed fast
golden replay-two-limits  replay gnn.pickle.xz --cap 1GiB --card 24G
finish
