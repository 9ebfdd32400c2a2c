#!/usr/bin/env python3
"""A long run of everything that looks for faults by itself: tools/soak.py [--operations N] [--seeds N] [--seconds N] [--out FILE]

Runs the soak program (tests/soak) with each strategy, the torture programs with N made-up scripts of which every call fails in turn, and, where they
are built, the fuzz targets for some seconds each.  The last line sums up: inputs tried, faults injected, operations run,
findings, bytes lost.  The status is 0 only when nothing was found and nothing was left out.  --out keeps the figures, with date
and commit; a tree with changes is told apart.
"""
import argparse
import datetime
import glob
import json
import os
import platform
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", cwd=ROOT, **more)


def programs(folder, prefix):
    found = sorted(glob.glob(os.path.join(ROOT, folder, "tests", "**", prefix + "*"), recursive=True))
    return [path for path in found if os.path.isfile(path) and os.access(path, os.X_OK)]


def complain(what, result):
    sys.stderr.write(f"{what}: status {result.returncode}\n{result.stdout[-2000:]}{result.stderr[-4000:]}")


STRATEGIES = ["", "strategy:caching_allocator", "strategy:caching_allocator,expandable_segments:True", "strategy:pooled",
              "strategy:heuristic"]


def soak_one(operations, seed, conf):
    """The figures of one run of the soak program, and what it says."""
    result = run([os.path.join(ROOT, "build", "tests", "soak"), "--operations", str(operations), "--seed", str(seed),
                  "--conf", conf])
    if result.returncode:
        complain(f"soak {conf}", result)
    try:
        parts = json.loads(result.stdout)
    except ValueError:
        return {"operations": 0, "findings": 1, "bytes_lost": 0}
    runs = [part for part in parts.values() if isinstance(part, dict)]
    findings = sum(part["findings"] for part in runs) + (not parts["same_addresses"])
    return {"operations": sum(part["operations"] for part in runs), "findings": max(findings, int(result.returncode != 0)),
            "bytes_lost": sum(part["bytes_lost"] for part in runs), "conf": conf, "parts": parts}


def soak(operations, seed):
    """All operations with the default strategy, a twentieth of them with each of the others."""
    runs = [soak_one(operations // 20 if conf else operations, seed, conf) for conf in STRATEGIES]
    total = {key: sum(one[key] for one in runs) for key in ("operations", "findings", "bytes_lost")}
    return {**total, "runs": runs}


def torture(seeds):
    """Faults injected and programs that failed."""
    faults, failed = 0, 0
    names = programs("build-debug", "torture_")
    for path in names:
        result = run([path], env={**os.environ, "GAP_TORTURE_SEEDS": str(seeds)})
        faults += sum(int(n) for n in re.findall(r"(\d+) runs with a fault", result.stdout + result.stderr))
        if result.returncode:
            failed += 1
            complain(os.path.basename(path), result)
    return {"programs": len(names), "faults": faults, "findings": failed}


def fuzz(seconds):
    """Inputs tried and targets that broke; without the targets the kept corpus is all that is tried, by `make test`."""
    inputs, failed = 0, 0
    names = programs("build-fuzz", "fuzz_") if seconds else []
    for path in names:
        name = os.path.basename(path)[len("fuzz_"):]
        folder = os.path.join(os.path.dirname(path), "corpus", name)
        os.makedirs(folder, exist_ok=True)
        result = run([path, f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=4096", "-print_final_stats=1",
                      f"-artifact_prefix={os.path.dirname(path)}/", folder,
                      os.path.join(ROOT, "tests", "fuzz", "corpus", name)])
        inputs += sum(int(n) for n in re.findall(r"stat::number_of_executed_units:\s*(\d+)", result.stderr))
        if result.returncode:
            failed += 1
            complain(name, result)
    return {"targets": len(names), "inputs": inputs, "findings": failed}


def about():
    commit = run(["git", "describe", "--always", "--dirty", "--abbrev=12"]).stdout.strip() or "unknown"
    return {"date": datetime.date.today().isoformat(), "commit": commit, "machine": platform.machine(),
            "system": platform.release()}


def arguments():
    parser = argparse.ArgumentParser(description="long runs, faults and fuzzing; one line sums up")
    parser.add_argument("--operations", type=int, default=100000000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=100, help="made-up scripts of which every call fails")
    parser.add_argument("--seconds", type=int, default=60, help="for each fuzz target; 0: none")
    parser.add_argument("--out", help="a file for the figures, JSON")
    return parser.parse_args()


def save(figures, path):
    """As they are so far: a long run that is ended loses nothing."""
    if not path:
        return
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(figures, file, indent=1)
        file.write("\n")


def main():
    asked = arguments()
    figures = about()
    for name, run_part in (("soak", lambda: soak(asked.operations, asked.seed)), ("torture", lambda: torture(asked.seeds)),
                           ("fuzz", lambda: fuzz(asked.seconds))):
        figures[name] = run_part()
        save(figures, asked.out)
        print(f"{name}: {figures[name]['findings']} findings", flush=True)
    parts = [figures["soak"], figures["torture"], figures["fuzz"]]
    findings = sum(part["findings"] for part in parts)
    left_out = figures["torture"]["programs"] == 0 or (asked.seconds > 0 and figures["fuzz"]["targets"] == 0)
    if left_out:
        print("some parts are not built and were left out")
    print(f"{figures['fuzz']['inputs']:,} inputs tried, {figures['torture']['faults']:,} faults injected, "
          f"{figures['soak']['operations']:,} operations run, {findings} findings, {figures['soak']['bytes_lost']} bytes lost "
          f"({figures['date']}, {figures['commit']})")
    return 1 if findings or left_out or figures["soak"]["bytes_lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
