#!/usr/bin/env python3
"""The figures that replays give, over a folder of histories: bench/figures.py [FOLDER] [--out PREFIX]

For each history: does the native model agree with what was recorded; the least cap at several lags; memory held
without a cap; the price of growth; the share of driver time after live memory first passed 0.9 P, at 1.01 P and without
a cap.  A table in Markdown goes to standard output; with --out PREFIX it goes to PREFIX.md and everything else to
PREFIX.json.  The exit code is 1 when a figure is missed.
"""
import argparse
import concurrent.futures
import datetime
import json
import os
import platform
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENDINGS = (".pickle", ".pickle.xz", ".pickle.gz", ".pickle.zst", ".json.gz")
LAGS_MS = (0, 2, 20, 50)
LATE_CAP = "1.01xP"
# Pools that graphs pin and several streams are asked less; limits_of() says what is asked of which history.
CAP, CAP_NO_LAG, CAP_PINNED = 1.005, 1.003, 1.03
HELD, HELD_STREAMS = 1.05, 1.15
GROWTH_MS, GROWTH_CALLER_MS = 35, 5
LATE_CAPPED, LATE_FREE = 0.03, 0.003
LEGEND = (f"graphs: {CAP_PINNED} P; held of streams: {HELD_STREAMS}.  Reported only: late shares of graphs and streams,"
          " caps and held of wrapped histories, caps of the short JSON form.  (?): the caller's growth is of the whole "
          "run, asked is only the time in which the page maker is ahead.")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=os.path.join(ROOT, "tests/data"))
    parser.add_argument("--out", metavar="PREFIX", help="write PREFIX.md and PREFIX.json")
    parser.add_argument("--gapless", default=os.path.join(ROOT, "build/gapless"),
                        help="the command; default: build/gapless")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="replays at a time; default: all processors")
    parser.add_argument("--quick", action="store_true", help="no least caps, which take longest")
    return parser.parse_args()


def histories(folder):
    names = sorted(name for name in os.listdir(folder) if name.endswith(ENDINGS))
    if not names:
        sys.exit(f"{folder}: no histories")
    return [os.path.join(folder, name) for name in names]


def tasks(path, quick):
    """Name of the task and the options of its replay."""
    yield "verify", ["--verify", "--check", "off"]
    yield "free", ["--policy", "gapless", "--check", "off"]
    yield "late", ["--policy", "gapless", "--check", "off", "--cap", LATE_CAP]
    for lag in () if quick else LAGS_MS:
        yield f"cap{lag}", ["--policy", "gapless", "--check", "off", "--min-cap", "--lag", str(lag * 1000)]


def run(command, path, options):
    """The object of each device; or what the command said when it gave none.  Run beside the file: results name no folder."""
    folder, name = os.path.split(os.path.abspath(path))
    done = subprocess.run([os.path.abspath(command), "replay", name, "--json", "--quiet", *options], capture_output=True,
                          text=True, check=False, cwd=folder)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return lines if lines else {"error": done.stderr.strip() or f"exit code {done.returncode}"}


def show_progress(done, total, name):
    if sys.stderr.isatty():
        print(f"\r{done}/{total} {name:<60.60}", end="\n" if done == total else "", file=sys.stderr, flush=True)
    elif done % 20 == 0 or done == total:
        print(f"{done}/{total}", file=sys.stderr, flush=True)


def run_all(given, paths):
    todo = [(path, name, options) for path in paths for name, options in tasks(path, given.quick)]
    todo.sort(key=lambda task: -os.path.getsize(task[0]) * (10 if task[1].startswith("cap") else 1))  # longest first
    results = {path: {} for path in paths}
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        futures = {pool.submit(run, given.gapless, path, options): (path, name) for path, name, options in todo}
        for count, future in enumerate(concurrent.futures.as_completed(futures), 1):
            path, name = futures[future]
            results[path][name] = future.result()
            show_progress(count, len(todo), f"{os.path.basename(path)} {name}")
    return results


def device(result, index=0):
    """A device's object, {} where there is none."""
    return result[index] if isinstance(result, list) and index < len(result) else {}


def mark(value, limit, form, scale=1.0):
    """A figure as text, with a mark where it passes its limit (None: reported only), and whether it does."""
    if value is None:
        return "-", None
    good = None if limit is None else value <= limit
    return form.format(value * scale) + ("" if good is not False else " **!**"), good


def caller_growth(us):
    """Asked is what the caller waits for once the page maker is ahead.  Replays give the whole run, start included: a
    figure within the limit is taken as met, one above it decides nothing."""
    text, good = mark(us, GROWTH_CALLER_MS * 1000, "{:.1f}", 1e-3)
    return (text.replace("**!**", "(?)"), None) if good is False else (text, good)


def limits_of(path, name, free):
    graphs, streams = name.startswith("graphs"), name.startswith("streams")
    complete = not free.get("wrapped")
    short = path.endswith(".json.gz")
    cap = None if short or not complete else CAP_PINNED if graphs else CAP
    return {"cap": cap, "cap_no_lag": cap if graphs or cap is None else CAP_NO_LAG,
            "held": HELD_STREAMS if streams else HELD if complete and not graphs else None,
            "late": not (graphs or streams) and complete}


def verdict(result):
    """What a verification said; histories that cannot be compared are no failure."""
    at = device(result)
    said = at.get("verified", "missing")
    if said is True:
        return f"{at['verified_events']} agree", True
    if said is None:
        return "cannot be compared", None
    return at.get("difference") or (result.get("error", "?") if isinstance(result, dict) else "?"), False


def row(path, result):
    name = os.path.basename(path).split(".pickle")[0].split(".json")[0]
    free, late = device(result["free"]), device(result["late"])
    limits = limits_of(path, name, free)
    cells = [verdict(result["verify"])]
    for lag in LAGS_MS:
        factor = device(result.get(f"cap{lag}", {})).get("least_cap_factor")
        cells.append(mark(factor, limits["cap_no_lag"] if lag == 0 else limits["cap"], "{:.4f}"))
    cells.append(mark(free.get("peak_reserved_factor"), limits["held"], "{:.4f}"))
    cells.append(mark(free.get("growth_us_per_gib"), GROWTH_MS * 1000, "{:.1f}", 1e-3))
    cells.append(caller_growth(free.get("growth_caller_us_per_gib")))
    fitted = late.get("fitted")
    share = late.get("late_driver_share") if fitted else None
    asked = limits["late"]
    cells.append(("does not fit **!**" if asked else "does not fit", False if asked else None) if fitted is False else
                 mark(share, LATE_CAPPED if asked else None, "{:.2f} %", 100))
    cells.append(mark(free.get("late_driver_share"), LATE_FREE if asked else None, "{:.2f} %", 100))
    return name, cells


def table(rows):
    asked = ["every event", str(CAP_NO_LAG), *[str(CAP)] * (len(LAGS_MS) - 1), str(HELD), str(GROWTH_MS),
             str(GROWTH_CALLER_MS), f"{LATE_CAPPED * 100:g} %", f"{LATE_FREE * 100:g} %"]
    head = ["history", "native model", *[f"least cap / P, {lag} ms" for lag in LAGS_MS], "held / P", "growth, ms a GiB",
            "of it the caller", f"late driver share, {LATE_CAP}", "the same, no cap"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), "| *asked* | " + " | ".join(asked) + " |"]
    lines += ["| " + " | ".join([name, *[text.replace("|", "/") for text, _ in cells]]) + " |" for name, cells in rows]
    met = sum(good is True for _, cells in rows for _, good in cells)
    missed = sum(good is False for _, cells in rows for _, good in cells)
    lines += ["", f"{met} figures met, {missed} not (**!**).  " + LEGEND]
    return "\n".join(lines)


def where():
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True,
                            text=True, check=False).stdout.strip()
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return {"commit": commit or "unknown", "time": now, "machine": platform.machine(), "cores": os.cpu_count(),
            "kernel": platform.release()}


def main():
    given = arguments()
    if not os.access(given.gapless, os.X_OK):
        sys.exit(f"{given.gapless}: not there; make builds it")
    paths = histories(given.folder)
    results = run_all(given, paths)
    rows = [row(path, results[path]) for path in paths]
    text = table(rows)
    print(text)
    if given.out:
        with open(given.out + ".md", "w", encoding="utf-8") as file:
            file.write(text + "\n")
        named = {os.path.basename(path): results[path] for path in paths}
        with open(given.out + ".json", "w", encoding="utf-8") as file:
            json.dump({"bench": "figures", "where": where(), "results": named}, file)
            file.write("\n")
    return 1 if any(good is False for _, cells in rows for _, good in cells) else 0


if __name__ == "__main__":
    sys.exit(main())
