#!/bin/bash
# What `gapless explain` prints: explain.sh COMMAND [--write].  Advice, which depends on every policy, is looked at line by line.
. "$(dirname "$0")/golden.inc"

cd "$data" || exit 1
golden explain-oom           explain oom.pickle.xz --no-advice
golden explain-two-kinds     explain cs336_medium_1024_training.pickle.xz --no-advice
golden explain-full          explain flexgen_oom_snapshot.pickle.xz
golden explain-contradictory explain mosaic_output.pickle.xz
golden explain-stacks        explain llama_sft.stacks.pickle.xz --no-advice
golden explain-no-stacks     explain gnn.pickle.xz --no-advice
golden explain-ring          explain ring.pickle.xz --no-advice
golden explain-graphs        explain graphs.pickle.xz --no-advice
golden explain-streams       explain streams.pickle.xz --no-advice
golden explain-expandable    explain unet_multires.expandable.pickle.xz --no-advice
golden explain-limits        explain tr_native_cap.json.gz --no-advice
golden explain-growth        explain made/training.pickle --no-advice
golden explain-trace         explain made/watched.trace --no-advice
golden explain-torn          explain made/watched.torn.trace --no-advice --json
golden explain-card          explain oom.pickle.xz --no-advice --card 24G
golden explain-size          explain oom.pickle.xz --no-advice --size 2GiB --cap 26GiB
golden explain-json          explain oom.pickle.xz --no-advice --json --size 2GiB
input=cs336b_mem_snapshot.pickle.xz golden explain-input explain - --no-advice
golden explain-device        explain oom.pickle.xz --device 3
golden explain-bad-file      explain README.md
golden explain-bad-size      explain oom.pickle.xz --size lots
golden explain-bad-card      explain oom.pickle.xz --card 23G
golden explain-bad-option    explain oom.pickle.xz --no-advise
golden explain-no-value      explain oom.pickle.xz --size
golden explain-no-file       explain
golden explain-two-files     explain oom.pickle.xz gnn.pickle.xz
golden help-explain          help explain

# The refusal of oom.pickle.xz was met under 26 GiB: gapless serves it there, PyTorch's own policy needs more.
advice=$("$command" explain oom.pickle.xz --cap 26GiB --quiet)
for line in '[yes] gapless' '[yes] a limit of' '[yes] a batch' '[yes] gradient checkpointing' '[yes] optimiser states' '[yes] a card of'; do
  grep -qF "$line" <<<"$advice" || { echo "no advice: $line"; failures=$((failures + 1)); }
done
"$command" explain ring.pickle.xz --quiet | grep -qF 'the part that is missing' || {
  echo "a ring that wrapped is tried as if it were whole"
  failures=$((failures + 1))
}
finish
