#!/usr/bin/env python3
"""Conversion beside chunks of one page, over a folder of histories: bench/conversion.py [FOLDER] [--out PREFIX]

For each history the least cap with convert:off and with convert:gated, in multiples of the peak of live bytes P; at a
common cap (1.005 P, else the next of CAPS that both fit under) the time in the driver, page maker included, what was
exchanged, and the time that requests waited.  Asked is a least cap of at most 1.002 P (graphs: 1.02, since pools in use
keep their pages; reported only where a history is wrapped or short), and a tenth of the driver time.  A table in Markdown
goes to standard output; with --out PREFIX it goes to PREFIX.md, and everything else to PREFIX.json.  The exit code is 1 when
a least cap is missed.
"""
import argparse
import concurrent.futures
import json
import os
import sys

import figures

CONFS = {"off": "convert:off", "gated": "convert:gated"}
CAPS = ("1.005xP", "1.01xP", "1.03xP", "1.1xP")
CAP, CAP_PINNED, SHARE = 1.002, 1.02, 0.1
LEGEND = (f"Asked: {CAP} P (graphs {CAP_PINNED}), a tenth of the driver's time.  Driver time is at the cap named; *copied* are"
          " live bytes that moved, *waits* what requests waited for events and gates (at a lag of 20 ms).  Histories that are"
          " wrapped or short, or smaller than 500 pages, where a page is more than 0.2 %, are reported only.")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=os.path.join(figures.ROOT, "tests/data"))
    parser.add_argument("--out", metavar="PREFIX", help="write PREFIX.md and PREFIX.json")
    parser.add_argument("--gapless", default=os.path.join(figures.ROOT, "build/gapless"),
                        help="the command; default: build/gapless")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="replays at a time; default: all processors")
    parser.add_argument("--conf", default="", help="more configuration for convert:gated, as chunk_max:64MiB")
    return parser.parse_args()


def replay(given, path, kind, *options):
    conf = CONFS[kind] + ("," + given.conf if given.conf and kind == "gated" else "")
    options = ["--policy", "gapless", "--check", "off", "--conf", conf, *options]
    return figures.device(figures.run(given.gapless, path, options))


def measure(given, path):
    """The least caps, and both runs at the first cap that both fit under."""
    result = {kind: {"least": replay(given, path, kind, "--min-cap")} for kind in CONFS}
    for cap in CAPS:
        for kind in CONFS:
            result[kind]["at"] = replay(given, path, kind, "--cap", cap)
        result["cap"] = cap
        if all(result[kind]["at"].get("fitted") for kind in CONFS):
            break
    return result


def driver_us(at):
    return at.get("driver_time_us", 0) + at.get("background_time_us", 0)


def asked_of(path, name, least):
    small = least.get("peak_live_bytes", 0) < 500 * 2**21
    if name.startswith("graphs"):
        return CAP_PINNED
    return None if small or path.endswith(".json.gz") or least.get("wrapped") else CAP


def row(path, result):
    name = os.path.basename(path).split(".pickle")[0].split(".json")[0]
    off, gated = result["off"], result["gated"]
    if not gated["least"].get("peak_live_bytes"):
        return name, []
    text, good = figures.mark(gated["least"].get("least_cap_factor"), asked_of(path, name, gated["least"]), "{:.4f}")
    before, after = driver_us(off["at"]), driver_us(gated["at"])
    moved = gated["at"].get("conversion", {})
    cells = [f"{gated['least']['peak_live_bytes'] / 2**30:.2f}", f"{off['least'].get('least_cap_factor') or 0:.4f}",
             text, result["cap"], f"{before / 1000:.1f}", f"{after / 1000:.1f}", f"{after / before:.2f}" if before else "-",
             str(moved.get("chunks", "-")), f"{moved.get('copied_bytes', 0) / 2**20:.0f}",
             f"{off['at'].get('stall_us', 0) / 1000:.0f}", f"{gated['at'].get('stall_us', 0) / 1000:.0f}"]
    return name, [(cell, good if i == 2 else None) for i, cell in enumerate(cells)]


def table(rows):
    head = ["history", "P, GiB", "least cap / P, off", "gated", "cap", "driver ms, off", "gated", "share", "chunks",
            "copied, MiB", "waits, ms: off", "gated"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join([name, *[text for text, _ in cells]]) + " |" for name, cells in rows if cells]
    return "\n".join(lines + ["", LEGEND])


def main():
    given = arguments()
    paths = figures.histories(given.folder)
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        results = dict(zip(paths, pool.map(lambda path: measure(given, path), paths)))
    rows = [row(path, results[path]) for path in paths]
    text = table(rows)
    print(text)
    if given.out:
        with open(given.out + ".md", "w", encoding="utf-8") as file:
            file.write(text + "\n")
        named = {os.path.basename(path): result for path, result in results.items()}
        with open(given.out + ".json", "w", encoding="utf-8") as file:
            json.dump({"bench": "conversion", "where": figures.where(), "results": named}, file)
            file.write("\n")
    return 1 if any(good is False for _, cells in rows for _, good in cells) else 0


if __name__ == "__main__":
    sys.exit(main())
