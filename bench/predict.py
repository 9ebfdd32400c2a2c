#!/usr/bin/env python3
"""What replay predicts beside what a real card does: bench/predict.py [FOLDER] [--out PREFIX]

Each history is driven twice through the same allocator at 1.005 P: on the simulated card, and through the real driver with
requests of the recorded sizes at the recorded pace, the device kept behind the program by the same lag.  Driver calls by kind,
driver time and stalls stand side by side.  Then the least cap that the simulation finds is tried on the card (raised by 0.2 %).
A table in Markdown goes to standard output; with --out PREFIX it goes to PREFIX.md and everything else to PREFIX.json.
The exit code is 1 when a figure is missed.
"""
import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENDINGS = (".pickle", ".pickle.xz", ".pickle.gz", ".pickle.zst", ".json.gz")
CAP = "1.005xP"
WITHIN = 0.20        # calls and time, of the prediction
LEAST_SLACK = 1.002  # the card may need this much more than the simulation says
LEAST_PACE = ("--speed", "4")  # nothing is timed then
LONGEST_MS = 30
GROWTH_CALLER_MS = 5
FEW_STALLS = 5  # below this a share means nothing


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=os.path.join(ROOT, "tests/data"))
    parser.add_argument("--out", metavar="PREFIX", help="write PREFIX.md and PREFIX.json")
    parser.add_argument("--gapless", default=os.path.join(ROOT, "build/gapless"))
    parser.add_argument("--backend", default="cuda", help="the real card; default: cuda")
    parser.add_argument("--lag", type=int, default=2000, metavar="US", help="of both; default: 2000")
    parser.add_argument("--runs", type=int, default=1, help="of each history on the card; the median counts")
    parser.add_argument("--least", action="store_true", help="also try the least caps on the card")
    parser.add_argument("--conf", default="", help="settings of gapless, on both")
    parser.add_argument("--only", help="histories whose names match this regular expression")
    return parser.parse_args()


def histories(args):
    names = sorted(name for name in os.listdir(args.folder) if name.endswith(ENDINGS) and re.search(args.only or "", name))
    if not names:
        sys.exit(f"{args.folder}: no histories")
    return names


def replay(args, name, *options):
    """The first device's result.  Run beside the file, so that results name no folder."""
    command = [os.path.abspath(args.gapless), "replay", name, "--policy", "gapless", "--check", "off", "--json", "--quiet"]
    conf = ["--conf", args.conf] if args.conf else []
    done = subprocess.run([*command, *conf, "--lag", str(args.lag), *options], cwd=args.folder, capture_output=True, text=True,
                          check=False)
    if not done.stdout:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout.splitlines()[0])


def median(results, key):
    return statistics.median(result[key] or 0 for result in results)


def off_by(measured, predicted):
    return measured / predicted - 1 if predicted else 0.0


def fits_least(args, name, row, on_card):
    least = row["least_cap_bytes"] = replay(args, name, "--min-cap")["least_cap_bytes"]
    if not least:
        return False
    return replay(args, name, "--cap", str(int(least * LEAST_SLACK)), *LEAST_PACE, *on_card)["fitted"]


def compare(args, name):
    on_card = ("--backend", args.backend)
    row = {"file": name, "lag_us": args.lag, "predicted": replay(args, name, "--cap", CAP)}
    row["measured"] = [replay(args, name, "--cap", CAP, *on_card) for _ in range(args.runs)]
    row["free"] = replay(args, name, *on_card)
    if args.least:
        row["least_fits"] = fits_least(args, name, row, on_card)
    return row


def judge(row):
    """What is missed, by name."""
    predicted, measured = row["predicted"], row["measured"]
    misses = []
    if not all(result["fitted"] for result in measured):
        misses.append("cap")
    if abs(off_by(median(measured, "driver_calls"), predicted["driver_calls"])) > WITHIN:
        misses.append("calls")
    time = [result["driver_time_us"] + result["background_time_us"] for result in measured]
    if abs(off_by(statistics.median(time), predicted["driver_time_us"] + predicted["background_time_us"])) > WITHIN:
        misses.append("time")
    stalls = median(measured, "stalls")
    if abs(stalls - predicted["stalls"]) > max(FEW_STALLS, WITHIN * predicted["stalls"]):
        misses.append("stalls")
    if median(measured, "longest_call_us") > LONGEST_MS * 1000:
        misses.append("longest call")
    if row.get("least_fits") is False:
        misses.append("least cap")
    return misses


def both(name, row, key, scale=1):
    return f"{row['predicted'][key] / scale:,.{0 if scale == 1 else 1}f} / {median(row['measured'], key) / scale:,.{0 if scale == 1 else 1}f}"


def total_ms(result):
    return (result["driver_time_us"] + result["background_time_us"]) / 1000


def table(rows):
    yield ("| history | fits 1.005 P | driver calls: predicted / measured | driver time, ms | stalls | longest call, ms | "
           "growth without a cap: ms a GiB, of it the caller | least cap +0.2 % | missed |")
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        free, measured = row["free"], row["measured"]
        times = f"{total_ms(row['predicted']):.0f} / {statistics.median(map(total_ms, measured)):.0f}"
        growth = f"{(free['growth_us_per_gib'] or 0) / 1000:.1f}, {(free['growth_caller_us_per_gib'] or 0) / 1000:.1f}"
        least = {True: "fits", False: "FAILS", None: "-"}[row.get("least_fits")]
        yield (f"| {row['file'].split('.pickle')[0]} | {'yes' if all(r['fitted'] for r in measured) else 'NO'} | "
               f"{both('calls', row, 'driver_calls')} | {times} | {both('stalls', row, 'stalls')} | "
               f"{both('longest', row, 'longest_call_us', 1000)} | {growth} | {least} | {', '.join(judge(row)) or '-'} |")


def prices(rows):
    """Mean price of each kind of call, simulated and real."""
    kinds = sorted({kind for row in rows for kind in row["predicted"]["calls"]})
    for kind in kinds:
        cells = []
        for results in ([row["predicted"] for row in rows], [result for row in rows for result in row["measured"]]):
            found = [result["calls"][kind] for result in results if kind in result["calls"]]
            calls = sum(one["calls"] + one["background_calls"] for one in found)
            cells.append((calls, sum(one["us"] + one["background_us"] for one in found) / calls if calls else 0))
        yield kind, cells


def write(args, rows):
    lines = list(table(rows)) + ["", "| call | simulated: calls, us each | real: calls, us each |", "|---|---|---|"]
    lines += [f"| {kind} | {a[0]:,}, {a[1]:.1f} | {b[0]:,}, {b[1]:.1f} |" for kind, (a, b) in prices(rows)]
    text = "\n".join(lines) + "\n"
    if args.out:
        with open(args.out + ".md", "w", encoding="utf-8") as file:
            said = f", {args.conf}" if args.conf else ""
            file.write(f"Simulated against {args.backend}{said}, lag {args.lag} us, {datetime.date.today()}\n\n{text}")
        with open(args.out + ".json", "w", encoding="utf-8") as file:
            json.dump(rows, file)
            file.write("\n")
    return text


def main():
    args = arguments()
    rows = []
    names = histories(args)
    text = ""
    for index, name in enumerate(names):
        begun = time.monotonic()
        try:
            rows.append(compare(args, name))
            text = write(args, rows)  # after each: a run that is cut short loses nothing
        except RuntimeError as error:
            print(f"{name}: {error}", file=sys.stderr)
        print(f"[{index + 1}/{len(names)}] {name}: {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)
    print(text)
    missed = sum(bool(judge(row)) for row in rows)
    print(f"{len(rows) - missed} passed, {missed + len(names) - len(rows)} failed")
    return missed > 0 or len(rows) < len(names)


if __name__ == "__main__":
    sys.exit(main())
