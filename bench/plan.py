#!/usr/bin/env python3
"""What gapless plan reaches: bench/plan.py [FOLDER...] [--out PREFIX]

For each history and each MiniMalloc CSV file of the folders: blocks, the lower bound, what the best greedy order and the
plan are over it, and the time.  The number at the end of a CSV file's name (A.1048576.csv) is the capacity to meet, as in the
MiniMalloc repository; the bound itself is asked of a history, and LIMIT over it is enough.  A table in Markdown goes to
standard output; with --out PREFIX it goes to PREFIX.md and everything to PREFIX.json.  The exit code is 1 when a plan misses.
"""
import argparse
import json
import os
import re
import subprocess
import sys

from figures import where

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENDINGS = (".csv", ".pickle", ".pickle.xz", ".pickle.gz", ".pickle.zst")
LIMIT = 0.005
HEAD = ("file", "blocks", "lower bound", "capacity", "greedy", "plan", "method", "time", "")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", metavar="FOLDER", default=[os.path.join(ROOT, "tests/data"),
                                                                         os.path.join(ROOT, "tests/data/minimalloc")])
    parser.add_argument("--out", metavar="PREFIX", help="write PREFIX.md and PREFIX.json")
    parser.add_argument("--gapless", default=os.path.join(ROOT, "build/gapless"), help="default: build/gapless")
    parser.add_argument("--time-limit", type=int, default=10, metavar="SEC", help="of each; default: 10")
    return parser.parse_args()


def inputs(folders):
    paths = [os.path.join(folder, name) for folder in folders for name in sorted(os.listdir(folder))
             if name.endswith(ENDINGS)]
    return paths if paths else sys.exit(f"{' '.join(folders)}: nothing to place")


def capacity_of(path):
    found = re.search(r"\.(\d+)\.csv$", path)
    return int(found.group(1)) if found else None


def run(given, path):
    """The command's object, or what it said when it gave none.  Run beside the file: results name no folder."""
    folder, name = os.path.split(os.path.abspath(path))
    capacity = capacity_of(path)
    options = ["--capacity", str(capacity)] if capacity else []
    done = subprocess.run([os.path.abspath(given.gapless), "plan", name, "--json", "--quiet", "--time-limit",
                           str(given.time_limit), *options], capture_output=True, text=True, check=False, cwd=folder)
    if not done.stdout.startswith("{"):
        return {"file": name, "error": done.stderr.strip() or f"exit code {done.returncode}"}
    return {**json.loads(done.stdout), "capacity_bytes": capacity}


def is_met(result):
    if "error" in result:
        return False
    return result["plan_bytes"] <= (result["capacity_bytes"] or result["bound_bytes"] * (1 + LIMIT))


def percent_over(size, bound):
    return f"{100 * (size / bound - 1):.3f} %"


def row(result):
    if "error" in result:
        return [result["file"], *["-"] * (len(HEAD) - 2), f"**{result['error']}**"]
    bound, capacity = result["bound_bytes"], result["capacity_bytes"]
    return [result["file"], f"{result['requests']:,}", f"{bound:,}", f"{capacity:,}" if capacity else "-",
            percent_over(result["greedy_bytes"], bound), percent_over(result["plan_bytes"], bound), result["method"],
            f"{result['search_ms'] / 1000:.1f} s", "" if is_met(result) else "**!**"]


def table(results):
    lines = [HEAD, ["---"] * len(HEAD), *map(row, results)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def write(prefix, results):
    with open(prefix + ".md", "w", encoding="utf-8") as out:
        out.write(table(results))
    with open(prefix + ".json", "w", encoding="utf-8") as out:
        json.dump({"bench": "plan", "where": where(), "results": results}, out, indent=1)
        out.write("\n")


def main():
    given = arguments()
    if not os.access(given.gapless, os.X_OK):
        sys.exit(f"{given.gapless}: not there; make builds it")
    results = [run(given, path) for path in inputs(given.folders)]
    print(table(results), end="")
    if given.out:
        write(given.out, results)
    return 0 if all(map(is_met, results)) else 1


if __name__ == "__main__":
    sys.exit(main())
