#!/usr/bin/env bash
# Writes the samples again: web/samples/make.sh COMMAND (build/gapless), from the histories in tests/data.
set -euo pipefail
command=$(realpath "$1")
cd "$(dirname "$0")/../.."
sample() { # sample NAME FILE...; where somebody built his Python says nothing
  "$command" report --quiet --json --seconds 60 --top 20 "${@:2}" -o "web/samples/$1.json"
  sed -i 's|/[a-z]*/build-static/|/build-static/|g' "web/samples/$1.json"
}
sample oom tests/data/oom.pickle.xz
sample streams tests/data/tr_exp_streams.json.gz
sample devices tests/data/made/ranks.pickle.xz
sample snapshot tests/data/flexgen_oom_snapshot.pickle.xz
sample gapless tests/data/made/watched.trace
sample diff tests/data/llama_sft.stacks.pickle.xz tests/data/cs336b_mem_snapshot.pickle.xz
