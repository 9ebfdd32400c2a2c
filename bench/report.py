#!/usr/bin/env python3
"""What a report costs: bench/report.py [FOLDER] [--out PREFIX] [--mib N]

  largest   the largest history of FOLDER (default: tests/data), unpacked: a page with replays
  history   a snapshot of --mib MiB (default: 1024) with a stack at every event, made by bench/big_snapshot.py
  blocks    the same size without a history: millions of blocks with stacks

Time and memory are of the whole command, from start to exit, with default options.  The snapshots are made in a temporary folder
(TMPDIR), which needs room for them.  A table in Markdown goes to standard output; with --out PREFIX it goes to PREFIX.md and
everything else to PREFIX.json.  The exit code is 1 when a figure is missed.
"""
import argparse
import bz2
import datetime
import gzip
import json
import lzma
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OPENERS = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}
MIB = 1 << 20
LARGEST_S, LARGEST_MB, BIG_S, BIG_TIMES, PAGE_MB = 3, 500, 30, 2, 20


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=os.path.join(ROOT, "tests/data"))
    parser.add_argument("--out", metavar="PREFIX", help="write PREFIX.md and PREFIX.json")
    parser.add_argument("--gapless", default=os.path.join(ROOT, "build/gapless"))
    parser.add_argument("--mib", type=int, default=1024, help="size of the synthetic snapshots; 0: none")
    return parser.parse_args()


def commit():
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def unpacked(path, folder):
    """The file itself, or what is in it, in `folder`."""
    opener = OPENERS.get(os.path.splitext(path)[1])
    if not opener:
        return path
    out = os.path.join(folder, os.path.basename(os.path.splitext(path)[0]))
    with opener(path) as packed, open(out, "wb") as plain:
        shutil.copyfileobj(packed, plain)
    return out


def largest(folder, temporary):
    best = None
    for name in sorted(os.listdir(folder)):
        if ".pickle" not in name:
            continue
        path = unpacked(os.path.join(folder, name), temporary)
        if best and os.path.getsize(path) <= os.path.getsize(best):
            if path.startswith(temporary):
                os.unlink(path)
            continue
        if best and best.startswith(temporary):
            os.unlink(best)
        best = path
    return best or sys.exit(f"{folder}: no histories")


def measure(command, path, page):
    """Seconds, CPU seconds and peak bytes of one report."""
    begun = time.monotonic()
    process = subprocess.Popen([os.path.abspath(command), "report", path, "--quiet", "-o", page])
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{path}: exit code {process.returncode}")
    return {"file": os.path.basename(path), "file_bytes": os.path.getsize(path), "seconds": seconds,
            "cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_bytes": usage.ru_maxrss * 1024,
            "page_bytes": os.path.getsize(page)}


def rows_of(what, one, seconds, most_bytes):
    """(what, asked at most, reached, unit)"""
    yield f"{what}, {one['file_bytes'] / MIB:.0f} MiB: time", seconds, one["seconds"], "s"
    yield f"{what}: memory", most_bytes / 1e6, one["peak_bytes"] / 1e6, "MB"
    yield f"{what}: page", PAGE_MB, one["page_bytes"] / 1e6, "MB"


def table(rows, runs):
    yield f"gapless {commit()}, {datetime.date.today()}, {os.cpu_count()} processors ({platform.machine()}), load {os.getloadavg()[0]:.1f}"
    yield ""
    yield "| what | asked at most | reached | |"
    yield "|---|---|---|---|"
    for what, asked, reached, unit in rows:
        yield f"| {what} | {asked:.4g} {unit} | {reached:.4g} | {'' if reached <= asked else 'missed'} |"
    yield ""
    yield "CPU time: " + ", ".join(f"{what} {one['cpu_seconds']:.1f} s" for what, one in runs.items()) + "."


def main():
    given = arguments()
    rows, runs = [], {}
    with tempfile.TemporaryDirectory() as folder:
        page = os.path.join(folder, "page.html")
        runs["largest history"] = measure(given.gapless, largest(given.folder, folder), page)
        rows += rows_of("largest history", runs["largest history"], LARGEST_S, LARGEST_MB * 1e6)
        for what, options in (("history", []), ("blocks", ["--no-history"])) if given.mib else ():
            snapshot = os.path.join(folder, what + ".pickle")
            maker = os.path.join(ROOT, "bench/big_snapshot.py")
            subprocess.run([sys.executable, maker, snapshot, "--mib", str(given.mib), *options], check=True)
            runs[what] = measure(given.gapless, snapshot, page)
            rows += rows_of(what, runs[what], BIG_S, BIG_TIMES * runs[what]["file_bytes"])
            os.unlink(snapshot)
    text = "\n".join(table(rows, runs)) + "\n"
    if given.out:
        with open(given.out + ".md", "w", encoding="utf-8") as file:
            file.write(text)
        with open(given.out + ".json", "w", encoding="utf-8") as file:
            json.dump({"commit": commit(), "runs": runs}, file, indent=1)
            file.write("\n")
    print(text)
    return not all(reached <= asked for _, asked, reached, _ in rows)


if __name__ == "__main__":
    sys.exit(main())
