#!/bin/bash
# What `gapless tune` prints: tune.sh COMMAND [--write].  Figures depend on every policy and are looked at line by line; errors are compared.
. "$(dirname "$0")/golden.inc"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export XDG_CACHE_HOME=$scratch/home
cd "$data" || exit 1

fail() {
  echo "$1"
  failures=$((failures + 1))
}

# says NAME PATTERN: the last output of `tune` has such a line.
says() { grep -qE -- "$2" "$scratch/out" || fail "$1: no line \"$2\""; }
# tune CODE ARGUMENTS...
tune() {
  local wanted=$1 code
  shift
  timeout "$limit" "$command" tune "$@" >"$scratch/out" 2>"$scratch/err"
  code=$?
  [ "$code" = "$wanted" ] || fail "tune $*: exit code $code instead of $wanted: $(cat "$scratch/err")"
}

tune 0 graphs.pickle.xz
says first '^graphs.pickle.xz: 6,311 events, live at the peak \(P\) 856.70 MiB; [0-9]{3} settings, [0-9]+ replays'
says first '^  as recorded +1.38 GiB +1\.6'
says first '^  ideal +858 MiB +1.0000'
says first '^  PYTORCH_CUDA_ALLOC_CONF=.+:'
says first '^  is best for PyTorch: .*, [0-9.]+ % less than the 1.38 GiB of what was recorded'
says first '^  gapless would need'
[ -n "$(find "$scratch/home/gapless/tune" -name '*.jsonl' -perm 600)" ] || fail "the cache holds nothing, or shows it to others"

tune 0 graphs.pickle.xz
says again ' settings, 0 replays'
tune 0 graphs.pickle.xz --no-cache --threads 1 --out "$scratch/graphs.jsonl"
says fresh ' settings, [1-9][0-9]+ replays'
tune 0 - --json <ring.pickle.xz
says input '"settings_tried":2[0-9][0-9],'
tune 0 ring.pickle.xz --cache "$scratch/own" --out "$scratch/ring.jsonl"
says ring "^  Nothing is to be gained from PyTorch's settings"
says ring 'ring overwrote its oldest entries'

# Joined, in either order, without the histories.
tune 0 --merge "$scratch/ring.jsonl" "$scratch/graphs.jsonl"
cp "$scratch/out" "$scratch/forward"
says merged '^One setting for all 2'
tune 0 --merge "$scratch/graphs.jsonl" "$scratch/ring.jsonl"
cmp -s "$scratch/out" "$scratch/forward" || fail "the order of --merge matters"
tune 0 --merge "$scratch/graphs.jsonl" "$scratch/ring.jsonl" --json
[ "$(wc -l <"$scratch/out")" = 3 ] || fail "--json: not a line for each history and one for all"
tune 0 --merge "$scratch/graphs.jsonl" --all
[ "$(grep -c max_split_size_mb "$scratch/out")" -gt 80 ] || fail "--all does not list every setting"

# Of the ranks of a job the one that needs most, whether each has a file or one file has them all.
for ranks in 'made/rank0.pickle.xz made/rank1.pickle.xz' made/ranks.pickle.xz; do
  # shellcheck disable=SC2086
  tune 0 $ranks --no-cache
  says ranks '^  made/ranks?1?.pickle.xz, device 1, limits: it needs 268 MiB, [0-9.]+ MiB more than the next, made/ranks?0?.pickle.xz, device 0'
  says ranks '32 MiB more are live at its peak'
done
tune 0 made/rank0.pickle.xz made/ranks.pickle.xz --json
grep -q '"limits":{"file":"made/ranks.pickle.xz","device":1,"most_bytes":281018368,' <(tail -n 1 "$scratch/out") || fail "--json: no rank limits"
tune 0 made/rank1.pickle.xz made/ranks.pickle.xz
says even 'No rank limits the others'

# A result that lost its end is incomplete, and says so.
head -n 100 "$scratch/graphs.jsonl" >"$scratch/cut.jsonl"
tune 1 --merge "$scratch/cut.jsonl"
says cut 'settings the results are incomplete'
head -c 5000 "$scratch/graphs.jsonl" >"$scratch/torn.jsonl"
tune 2 --merge "$scratch/torn.jsonl"
grep -q 'torn.jsonl: line [0-9]*: no JSON' "$scratch/err" || fail "a torn result: $(cat "$scratch/err")"
tune 2 README.md ring.pickle.xz
says others '^ring.pickle.xz: '

golden tune-bad-file    tune README.md --no-cache
golden tune-bad-merge   tune --merge README.md
golden tune-bad-option  tune ring.pickle.xz --trheads 2
golden tune-bad-threads tune ring.pickle.xz --threads 0
golden tune-no-value    tune ring.pickle.xz --cache
golden tune-no-file     tune
golden tune-two-caches  tune ring.pickle.xz --cache x --no-cache
golden help-tune        help tune
finish
