#!/bin/bash
# What `gapless convert` prints and writes: convert.sh COMMAND [--write]
. "$(dirname "$0")/golden.inc"

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$data" || exit 1
fail() { echo "$*"; failures=$((failures + 1)); }

golden convert-formats     convert --formats
golden convert-losses      convert graphs.pickle.xz /dev/null --to minimalloc
golden convert-all-kept    convert made/small.rmm.csv /dev/null --to pickle
golden convert-about       convert gnn.pickle.xz /dev/null --to rmm --json
golden convert-rmm         convert made/small.4.pickle - --to rmm
golden convert-json        convert made/small.rmm.csv - --to json
golden convert-minimalloc  convert made/small.4.pickle - --to minimalloc --device 0
golden convert-device      convert made/small.4.pickle - --to perfetto --device 1
golden convert-perfetto    convert made/small.4.pickle - --to perfetto
input=made/small.rmm.csv golden convert-input convert - - --to minimalloc --quiet
golden convert-no-format   convert gnn.pickle.xz out.txt
golden convert-bad-format  convert gnn.pickle.xz out.txt --to parquet
golden convert-no-device   convert gnn.pickle.xz /dev/null --to rmm --device 4
golden convert-bad-file    convert README.md /dev/null --to rmm
golden convert-empty       convert - /dev/null --to rmm
golden convert-bad-option  convert gnn.pickle.xz /dev/null --too rmm
golden convert-one-name    convert gnn.pickle.xz
golden convert-three-names convert a b c
golden convert-no-folder   convert gnn.pickle.xz /nowhere/x.pickle
golden help-convert        help convert

# There and back: the same log, the same verification, whatever it is packed with.
"$command" convert gnn.pickle.xz "$out/a.csv" --quiet || fail "no log"
"$command" convert "$out/a.csv" "$out/a.pickle.xz" --quiet || fail "no pickle"
"$command" convert "$out/a.pickle.xz" - --to rmm --quiet | cmp - "$out/a.csv" || fail "the log has changed"
for ending in trace pickle pickle.gz pickle.xz pickle.zst; do
  "$command" convert streams.pickle.xz "$out/b.$ending" --quiet || fail "no $ending"
  "$command" replay "$out/b.$ending" --verify --quiet || fail "$ending: verified otherwise"
done
"$command" convert - - --to pickle --quiet <"$out/b.pickle" | cmp - "$out/b.pickle" || fail "a pickle has changed"

# A trace whose end was lost is used up to there, and said so.
"$command" convert llama_sft.pickle.xz "$out/c.trace" --quiet
head -c 200000 "$out/c.trace" >"$out/torn.trace"
"$command" convert "$out/torn.trace" /dev/null --to rmm | grep -q 'ends in the middle, at byte' || fail "convert: torn"
"$command" check "$out/torn.trace" --max-peak 1TiB | grep -q 'its end is missing' || fail "check: torn"
"$command" diff "$out/torn.trace" gnn.pickle.xz | grep -q 'A .*its end is missing' || fail "diff: torn"
head -c 30000 "$out/c.trace" >"$out/torn.trace" # no event is left whole
"$command" diff "$out/torn.trace" gnn.pickle.xz 2>&1 | grep -q 'ends in the middle: there is nothing to compare' ||
  fail "diff: torn off"

# Other commands read logs and blocks.
"$command" explain "$out/a.csv" --no-advice | grep -q '^UNKNOWN' || fail "explain does not read logs"
"$command" plan "$out/a.csv" --time-limit 1 | grep -q 'lower bound  20.80 GiB' || fail "plan does not read logs"
"$command" replay minimalloc/B.1048576.csv --policy ideal | grep -q '510 events' || fail "replay does not read blocks"
"$command" replay "$out/a.csv" --verify >/dev/null && fail "a log cannot be verified"

# Python reads what was written: the same keys and values as in the file it came from.
if command -v python3 >/dev/null; then
  "$command" convert llama_sft.stacks.pickle.xz "$out/c.pickle" --quiet
  python3 - "$out/c.pickle" llama_sft.stacks.pickle.xz <<'EOF' || fail "Python reads something else"
import lzma, pickle, sys
ours, torchs = pickle.load(open(sys.argv[1], "rb")), pickle.load(lzma.open(sys.argv[2]))
assert list(ours) == list(torchs), list(ours)
assert ours["external_annotations"] == torchs["external_annotations"]
for one, other in zip(ours["device_traces"][0], torchs["device_traces"][0], strict=True):
    assert one == {key: other[key] for key in other if key not in ("compile_context", "user_metadata")}, (one, other)
for one, other in zip(ours["segments"], torchs["segments"], strict=True):
    assert one.keys() == other.keys() and {**one, "frames": other["frames"]} == other, one
for key, value in ours["allocator_settings"].items():
    assert value == torchs["allocator_settings"][key], key
EOF
fi
finish
