#!/usr/bin/env python3
"""The strategies side by side, over a folder of histories: bench/strategies.py [FOLDER] [--out FILE]

For each history the least cap of each strategy, in multiples of the peak of live bytes P, and its time in the driver without a
cap, waits for events included (a segment's free waits inside its call): what `gapless replay --policy LIST --min-cap --check off
--conf ""` says, as a table in Markdown.  The strategy heuristic must be within 1 % of the best of the others in least cap, and
within 10 % (or 0.1 ms) in that time; the exit code is 1 where it is not.
"""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENDINGS = (".pickle", ".pickle.xz", ".pickle.gz", ".pickle.zst", ".json.gz")
OTHERS = ("gapless", "native", "pooled")
CAP, TIME, TIME_US = 1.01, 1.10, 100


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=os.path.join(ROOT, "tests/data"))
    parser.add_argument("--out", metavar="FILE", help="write the table there too")
    parser.add_argument("--gapless", default=os.path.join(ROOT, "build/gapless"),
                        help="the command; default: build/gapless")
    return parser.parse_args()


def replays(command, path):
    """The results of each device with requests: a dictionary by policy."""
    options = ["--policy", ",".join(OTHERS + ("heuristic",)), "--min-cap", "--check", "off", "--conf", "", "--json"]
    ran = subprocess.run([command, "replay", path, *options], capture_output=True, text=True, check=False)
    devices = {}
    for line in ran.stdout.splitlines():
        result = json.loads(line)
        if result.get("peak_live_bytes"):
            devices.setdefault(result["device"], {})[result["policy"]] = result
    if not ran.stdout:
        print(ran.stderr.strip(), file=sys.stderr)
    return list(devices.values())


def time_us(result):
    return result["driver_time_us"] + result["stall_us"]


def row(name, results):
    """The cells of a history, and whether the heuristic is as good as it must be."""
    ours = results["heuristic"]
    least = min(results[other]["least_cap_bytes"] for other in OTHERS if results[other]["least_cap_bytes"])
    quickest = min(time_us(results[other]) for other in OTHERS)
    good = bool(ours["least_cap_bytes"]) and ours["least_cap_bytes"] <= CAP * least
    good = good and time_us(ours) <= max(TIME * quickest, quickest + TIME_US)
    caps = [f"{results[policy]['least_cap_bytes'] / ours['peak_live_bytes']:.4f}" for policy in (*OTHERS, "heuristic")]
    times = [f"{time_us(results[policy]) / 1000:.1f}" for policy in (*OTHERS, "heuristic")]
    return [name, *caps, *times, "yes" if good else "NO"], good


def main():
    args = arguments()
    names = (*OTHERS, "heuristic")
    lines = ["| history | " + " | ".join(f"{name}, x P" for name in names) + " | "
             + " | ".join(f"{name}, ms" for name in names) + " | within |",
             "|---" * 10 + "|"]
    missed = 0
    for file in sorted(os.listdir(args.folder)):
        if not file.endswith(ENDINGS):
            continue
        for results in replays(args.gapless, os.path.join(args.folder, file)):
            cells, good = row(file.split(".pickle")[0].split(".json")[0], results)
            missed += not good
            lines.append("| " + " | ".join(cells) + " |")
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as out:
            out.write(text)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
