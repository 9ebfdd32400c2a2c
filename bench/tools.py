#!/usr/bin/env python3
"""How long explain and tune take, and how well explain tells memory apart: bench/tools.py [FOLDER] [--out PREFIX]

FOLDER holds histories (default: tests/data).  Times are of the whole command, on a machine that does nothing else:

  explain   the words, and the words with advice, of the largest history
  tune      each history by itself, and all at once; nothing is remembered between runs
  known     llama_sft.stacks: weights, gradients and optimiser states beside the model's count of parameters; what is unknown

A table in Markdown goes to standard output; with --out PREFIX it goes to PREFIX.md and everything else to PREFIX.json.  The exit code
is 1 when a figure is missed.
"""
import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENDINGS = (".pickle", ".pickle.xz", ".pickle.gz", ".pickle.zst", ".json.gz")
WORDS_S, ADVICE_S = 2, 15
TUNE_S, TUNE_EVENTS, TUNE_ALL_S = 10, 100_000, 120
KNOWN, UNKNOWN = 0.02, 0.05


def llama_parameters(hidden=2048, layers=12, inner=5632, words=32000):
    """Of the recorded model: attention without grouped heads, a gated inner layer, norms, two tables of words."""
    layer = 4 * hidden * hidden + 3 * hidden * inner + 2 * hidden
    return layers * layer + 2 * words * hidden + hidden


LLAMA_BYTES = 2 * llama_parameters()  # bfloat16


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=os.path.join(ROOT, "tests/data"))
    parser.add_argument("--out", metavar="PREFIX", help="write PREFIX.md and PREFIX.json")
    parser.add_argument("--gapless", default=os.path.join(ROOT, "build/gapless"))
    return parser.parse_args()


def commit():
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


class Bench:
    def __init__(self, args):
        self.args, self.rows = args, []
        self.names = sorted(name for name in os.listdir(args.folder) if name.endswith(ENDINGS))
        if not self.names:
            sys.exit(f"{args.folder}: no histories")

    def run(self, *words):
        """(seconds, objects).  Beside the files, so that results name no folder."""
        begun = time.monotonic()
        done = subprocess.run([os.path.abspath(self.args.gapless), *words, "--json", "--quiet"], cwd=self.args.folder,
                              capture_output=True, text=True, check=False)
        if done.returncode == 2 or not done.stdout:
            sys.exit(done.stderr)
        return time.monotonic() - begun, [json.loads(line) for line in done.stdout.splitlines()]

    def put(self, what, asked, reached, unit="s"):
        self.rows.append({"what": what, "unit": unit, "asked": asked, "reached": reached, "met": reached <= asked})
        print(f"{what}: {reached:.2f} {unit}", file=sys.stderr, flush=True)

    def explain(self):
        largest = max(self.names, key=lambda name: os.path.getsize(os.path.join(self.args.folder, name)))
        self.put(f"words of explain, {largest}", WORDS_S, self.run("explain", largest, "--no-advice")[0])
        self.put(f"words and advice, {largest}", ADVICE_S, self.run("explain", largest)[0])

    def tune(self):
        for name in self.names:
            seconds, objects = self.run("tune", name, "--no-cache")
            events = sum(one.get("events") or 0 for one in objects)
            self.put(f"tune, {name}, {events:,} events", TUNE_S * max(1, events / TUNE_EVENTS), seconds)
        self.put("tune, all", TUNE_ALL_S, self.run("tune", *self.names, "--no-cache")[0])

    def known(self):
        name = next((one for one in self.names if one.startswith("llama_sft.stacks")), None)
        if not name:
            return
        found = self.run("explain", name, "--no-advice")[1][0]
        told = {kind: one["bytes"] for kind, one in found["categories"].items()}
        for kind, times in (("weights", 1), ("gradients", 1), ("optimiser_states", 2)):
            off = abs(told[kind] / (times * LLAMA_BYTES) - 1)
            self.put(f"{kind} against the count of parameters", 100 * KNOWN, 100 * off, "% off")
        self.put("unknown", 100 * UNKNOWN, 100 * found["categories"]["unknown"]["peak_bytes"] / found["peak_live_bytes"], "% of the peak")

    def table(self):
        yield f"gapless {commit()}, {datetime.date.today()}, {os.cpu_count()} processors ({platform.machine()})"
        yield ""
        yield "| what | asked at most | reached | |"
        yield "|---|---|---|---|"
        for row in self.rows:
            yield f"| {row['what']} | {row['asked']:.3g} {row['unit']} | {row['reached']:.2f} | {'' if row['met'] else 'missed'} |"


def main():
    bench = Bench(arguments())
    bench.explain()
    bench.known()
    bench.tune()
    text = "\n".join(bench.table()) + "\n"
    if bench.args.out:
        with open(bench.args.out + ".md", "w", encoding="utf-8") as file:
            file.write(text)
        with open(bench.args.out + ".json", "w", encoding="utf-8") as file:
            json.dump({"commit": commit(), "rows": bench.rows}, file, indent=1)
            file.write("\n")
    print(text)
    return not all(row["met"] for row in bench.rows)


if __name__ == "__main__":
    sys.exit(main())
