#!/usr/bin/env python3
"""The KV cache under whole traces of requests: bench/kv.py [--command FILE] [--out NAME] [--part waste|hits] [--requests N] FOLDER

FOLDER holds traces as `gapless kv replay` reads them, in any depth.  Writes NAME.json and NAME.md: what each trace wastes in both layouts, with sharing and
without, and for those with ids of blocks the hit rates at several cache sizes beside those of an independent model (tests/support/kv_model.py).
"""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from kv_model import model  # noqa: E402

SIZES = (500_000, 1_500_000, 5_100_000, 15_400_000, 25_600_000)
ASKED_WASTE = 1.02


def replay(command, *arguments):
    result = subprocess.run([command, "kv", "replay", "--json", *arguments], capture_output=True, text=True, check=False)
    if result.returncode > 1:
        sys.exit(result.stderr)
    return json.loads(result.stdout)


def traces(folder):
    for path, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            if ".csv" in name or ".jsonl" in name:
                yield os.path.join(path, name)


def waste_rows(command, trace, requests):
    for sharing in ("off", "fast"):
        for layout in ("per-layer", "block-major"):
            got = replay(command, trace, "--layout", layout, "--sharing", sharing, *(("--requests", str(requests)) if requests else ()))
            got["file"] = os.path.basename(trace)
            got["sharing"] = sharing
            yield got


def hit_rows(command, trace, page_tokens):
    for size in SIZES:
        got = replay(command, trace, "--one-by-one", "--no-partial", "--page-tokens", str(page_tokens), "--cache-tokens", str(size),
                     "--model", "2x1x16")  # the shape does not matter, and no card holds the largest caches of a real one
        want = model(trace, page_tokens, got["kv_pages"])
        yield {"file": os.path.basename(trace), "page_tokens": page_tokens, "cache_tokens": size,
               "kv_pages_asked": got["hits"]["kv_pages_asked"], "kv_pages_hit": got["hits"]["kv_pages_hit"], "model_hit": want["hits"],
               "evicted": got["evictions"], "model_evicted": want["evicted"],
               "ceiling": got["hits"]["ceiling_kv_pages"], "model_ceiling": want["ceiling"] / want["asked"],
               "equal": got["hits"]["kv_pages_hit"] == want["hits"] and got["evictions"] == want["evicted"]}


def waste_table(rows):
    yield "| trace | sharing | layout | held / live, median | p90 | tails | gaps | tables | hit rate | evictions | preemptions | peak sequences | host, us a step |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for r in rows:
        w = r["waste"]
        yield (f"| {r['file']} | {r['sharing']} | {r['layout']} | {w['held_to_live']['median']:.4f} | {w['held_to_live']['p90']:.4f} "
               f"| {w['tail']:.2%} | {w['free']:.2%} | {w['tables']:.2%} | {r['hits']['rate']:.2%} | {r['evictions']:,} | {r['preemptions']:,} "
               f"| {r['peak_sequences']} | {r['host_ns_per_step']['median'] / 1000:.1f} |")


def hit_table(rows):
    yield "| trace | tokens a KV page | cache, tokens | hit rate | the model's | evicted | the model's | equal | ceiling | exact |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for r in rows:
        yield (f"| {r['file']} | {r['page_tokens']} | {r['cache_tokens']:,} | {r['kv_pages_hit'] / r['kv_pages_asked']:.3%} "
               f"| {r['model_hit'] / r['kv_pages_asked']:.3%} | {r['evicted']:,} | {r['model_evicted']:,} | {'yes' if r['equal'] else 'NO'} "
               f"| {r['ceiling']:.2%} | {r['model_ceiling']:.2%} |")


def write(out, waste, hits):
    """After each row: a long run that is cut short leaves what it has."""
    with open(out + ".json", "w", encoding="utf-8") as file:
        json.dump({"waste": waste, "hits": hits}, file, indent=1)
        file.write("\n")
    with open(out + ".md", "w", encoding="utf-8") as file:
        tables = [*(waste_table(waste) if waste else ()), "", *(hit_table(hits) if hits else ())]
        file.write("\n".join(["# The KV cache under traces of requests", "", *tables]).rstrip() + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--command", default=os.path.join(ROOT, "build", "gapless"))
    parser.add_argument("--out", default="kv_traces")
    parser.add_argument("--part", choices=("waste", "hits"), help="only this half")
    parser.add_argument("--requests", type=int, help="of each trace the first so many, for the waste")
    parser.add_argument("folder")
    options = parser.parse_args()
    waste, hits = [], []
    for trace in traces(options.folder):
        for row in waste_rows(options.command, trace, options.requests) if options.part != "hits" else ():
            waste.append(row)
            write(options.out, waste, hits)
        for page_tokens in (512, 16) if ".jsonl" in trace and options.part != "waste" else ():
            for row in hit_rows(options.command, trace, page_tokens):
                hits.append(row)
                write(options.out, waste, hits)
    good = all(r["equal"] for r in hits) and all(r["waste"]["held_to_live"]["median"] <= ASKED_WASTE for r in waste)
    print(f"{len(waste)} replays, {len(hits)} hit rates: {'as asked' if good else 'NOT AS ASKED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
