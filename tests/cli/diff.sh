#!/bin/bash
# What `gapless diff` prints: diff.sh COMMAND [--write]
. "$(dirname "$0")/golden.inc"

cd "$data" || exit 1
golden diff-held        diff unet_multires.pickle.xz unet_multires.expandable.pickle.xz
golden diff-batch       diff llama_sft.stacks.pickle.xz oom.pickle.xz --rows 4
golden diff-steps       diff made/training.pickle --steps 1,3
golden diff-same        diff gnn.pickle.xz gnn.pickle.xz --tolerance 0
golden diff-ranks       diff llama_sft.pickle.xz llama_sft.stacks.pickle.xz --tolerance 1%
golden diff-snapshot    diff flexgen_oom_snapshot.pickle.xz cs336_medium_1024_training.pickle.xz --rows 3
golden diff-streams     diff streams.pickle.xz streams.expandable.pickle.xz
golden diff-json        diff made/training.pickle --steps 1,3 --json
input=gnn.pickle.xz golden diff-input diff - gnn.pickle.xz
golden diff-devices     diff made/small.4.pickle --devices 0,1
golden diff-no-step     diff made/training.pickle --steps 1,99
golden diff-no-device   diff gnn.pickle.xz ring.pickle.xz --devices 3
golden diff-bad-file    diff gnn.pickle.xz README.md
golden diff-bad-steps   diff gnn.pickle.xz --steps first
golden diff-bad-percent diff gnn.pickle.xz ring.pickle.xz --tolerance much
golden diff-bad-option  diff gnn.pickle.xz ring.pickle.xz --tolerant 3
golden diff-no-file     diff
golden diff-one-file    diff gnn.pickle.xz
golden diff-three-files diff a b c
golden diff-two-inputs  diff - -
golden help-diff        help diff
finish
