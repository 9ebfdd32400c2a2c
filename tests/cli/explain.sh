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
golden explain-ranks         explain made/rank0.pickle.xz made/rank1.pickle.xz --no-advice
golden explain-devices       explain made/ranks.pickle.xz --no-advice --size 7GiB --cap 7.95GiB
golden explain-one-of-two    explain made/ranks.pickle.xz --no-advice --device 0
golden explain-ranks-bad     explain made/rank0.pickle.xz README.md --no-advice
golden help-explain          help explain

# The refusal of oom.pickle.xz was met under 26 GiB: gapless serves it there, PyTorch's own policy needs more.
advice=$("$command" explain oom.pickle.xz --cap 26GiB --quiet)
for line in '[yes] gapless' '[yes] a limit of' '[yes] a batch' '[yes] gradient checkpointing' '[yes] optimiser states' '[yes] a card of'; do
  grep -qF "$line" <<<"$advice" || { echo "no advice: $line"; failures=$((failures + 1)); }
done
# Whichever way the ranks were written down, the same one limits.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$command" convert made/ranks.pickle.xz "$scratch/ranks.trace" --quiet
for files in made/ranks.pickle.xz "$scratch/ranks.trace" 'made/rank1.pickle.xz made/rank0.pickle.xz'; do
  # shellcheck disable=SC2086
  job=$("$command" explain $files --no-advice --json | tail -n 1)
  for part in '"device":1},"even":false' '"need_bytes":281018368,"usual_bytes":247463936' '"activations":33554432' '"site":"model.py:20 forward","excess_bytes":33554432'; do
    grep -qF "$part" <<<"$job" || { echo "explain $files: no $part in $job"; failures=$((failures + 1)); }
  done
done
"$command" explain made/rank1.pickle.xz made/ranks.pickle.xz --device 1 --no-advice --json | tail -n 1 | grep -qF '"even":true' || {
  echo "equal ranks are not told as such"
  failures=$((failures + 1))
}
"$command" explain made/rank1.pickle.xz made/small.3.pickle --no-advice | grep -qF 'made/small.3.pickle, device 0, limits the job: 4 GiB were refused' || {
  echo "a rank that was refused does not come first"
  failures=$((failures + 1))
}
"$command" explain ring.pickle.xz --quiet | grep -qF 'the part that is missing' || {
  echo "a ring that wrapped is tried as if it were whole"
  failures=$((failures + 1))
}
finish
