#!/bin/bash
# The expected table: history x policy -> what is held without a cap, the least cap, driver calls.
#   replay.sh COMMAND          fails when the table differs from replay.csv, and prints the difference
#   replay.sh COMMAND --write  writes replay.csv: review it as a diff (tools/golden.sh does this)
# A change of policy shows as numbers in the patch.
set -u
command=$1
here=$(cd "$(dirname "$0")" && pwd)
data=$here/../data
histories=(gnn streams graphs oom ring llama_sft.stacks llama_sft diffusion_serve unet_multires unet_multires.expandable streams.expandable rlhf_cut)

field() { sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" <<<"$2"; }

table() {
  echo history,policy,peak_live_bytes,peak_reserved_factor,least_cap_factor,driver_calls
  for name in "${histories[@]}"; do
    "$command" replay "$data/$name.pickle.xz" --policy gapless,native,expandable --min-cap --check off --json | while read -r line; do
      policy=$(field policy "$line")
      printf '%s,%s,%s,%.4f,%.4f,%s\n' "$name" "${policy//\"/}" "$(field peak_live_bytes "$line")" \
        "$(field peak_reserved_factor "$line")" "$(field least_cap_factor "$line")" "$(field driver_calls "$line")"
    done
  done
}

if [ "${2:-}" = --write ]; then
  table >"$here/replay.csv"
else
  diff -u "$here/replay.csv" <(table)
fi
