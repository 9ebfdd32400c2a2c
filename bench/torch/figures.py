#!/usr/bin/env python3
"""PyTorch with gapless beside PyTorch's own allocator on one card: bench/torch/figures.py [--part PART]... [--out FOLDER]

Two processes take turns, one with each allocator, so that what warms up or drifts does so for both.  Parts:

  latency    pairs, churn and threads below Python
  workloads  six programs (workloads.py): native without a cap, gapless without one, gapless at 1.005 P; P is native's peak of active
             bytes in the same round.  A run's time is that of all steps but the first, in which the model is built
  bits       the same with deterministic algorithms: native twice, gapless at 1.005 P; equal results where native's two are
  overflow   not unless it is asked for: some steps of each with deterministic algorithms, native and then gapless on 0.75 P with
             host memory for the rest (overflow:on); with a safe point between steps and optimisers called cold, too, where there are some
  predicted  native's histories replayed without a GPU: driver calls and stalls at 1.005 P, beside those measured by `workloads`

Every run is a line of FOLDER/torch.jsonl; --append keeps the lines that are there, so that rounds of several calls count together.
The table (Markdown) goes to FOLDER/torch.md and standard output.  --table prints it from what is there and runs nothing.  --fill FOLDER takes
what is not there (parts, workloads of a part) from another folder, --readme writes what the README's first screen says of PyTorch.  The exit
code is 1 when a figure is missed.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import readme

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WORKLOADS = ("gnn", "prefetch_streams", "llama_sft", "diffusion_serve", "unet_multires", "rlhf")
PARTS = ("latency", "workloads", "bits", "predicted")
TIGHT = 1.005
SHORT = 0.75  # of P, for overflow
SHORT_STEPS = 6
WITH_OPTIMISER = ("llama_sft", "rlhf")
LAG_US = 2000
SIDES = {"native": {}, "gapless": {"GAPLESS": "1"}}
CAPS = {"pair of 512 B": 200, "churn of 2,000 live blocks": 300, "16 threads on one stream": 300}  # ns, at most


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=(*PARTS, "overflow"), help="default: all but overflow")
    parser.add_argument("--only", action="append", choices=WORKLOADS, help="these workloads; default: all six")
    parser.add_argument("--rounds", type=int, default=7, help="after a warm-up; the medians count; default: 7")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no round of a workload after so long")
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "torch-figures"), metavar="FOLDER")
    parser.add_argument("--append", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--fill", action="append", default=[], metavar="FOLDER")
    parser.add_argument("--readme", nargs="?", const=os.path.join(ROOT, "README.md"), metavar="FILE", help="default FILE: README.md")
    parser.add_argument("--machine", default="an H200 with torch 2.11", help="for --readme: where it was measured; default: %(default)s")
    parser.add_argument("--conf", default="", help="gapless' settings; in a folder of its own, since rows do not mix")
    parser.add_argument("--commit", default=commit_of_tree())
    return parser.parse_args()


def commit_of_tree():
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


# ---- the two processes ----

class Side:
    """A worker process with one of the allocators."""

    def __init__(self, name, **variables):
        read, write = os.pipe()
        environment = {**os.environ, **SIDES[name], **variables}
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "worker.py"), str(write)], stdin=subprocess.PIPE,
                                        stdout=sys.stderr, pass_fds=(write,), env=environment, text=True)
        os.close(write)
        self.answers = os.fdopen(read)

    def ask(self, do, **words):
        self.tell(do, **words)
        return self.hear()

    def tell(self, do, **words):
        self.process.stdin.write(json.dumps({"do": do, **words}) + "\n")
        self.process.stdin.flush()

    def hear(self):
        line = self.answers.readline()
        if not line:
            raise RuntimeError(f"the process ended: {self.process.wait()}")
        answer = json.loads(line)
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


class Pair:
    """Both, for a with statement."""

    def __init__(self, **variables):
        self.variables = variables

    def __enter__(self):
        self.sides = {name: Side(name, **self.variables) for name in SIDES}
        return self.sides

    def __exit__(self, *_):
        for side in self.sides.values():
            side.close()


class Rows:
    """What was measured: a file of JSON lines, written as it comes."""

    def __init__(self, args):
        os.makedirs(args.out, exist_ok=True)
        self.path = os.path.join(args.out, "torch.jsonl")
        self.marks = {"commit": args.commit, "date": str(datetime.date.today()), **({"conf": args.conf} if args.conf else {})}
        keep = (args.append or args.table) and os.path.exists(self.path)
        self.all = self._read(self.path) if keep else []
        if not keep:
            open(self.path, "w", encoding="utf-8").close()

    @staticmethod
    def _read(path):
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def fill(self, folder):
        """With another folder's rows, where there are none of that part and workload; predictions go with the workloads that they are of."""
        there = {(row["part"], row.get("workload")) for row in self.all}
        there |= {("predicted", name) for part, name in there if part == "workloads"}
        self.all += [row for row in self._read(os.path.join(folder, "torch.jsonl")) if (row["part"], row.get("workload")) not in there]

    def add(self, **row):
        row.update(self.marks)
        self.all.append(row)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def find(self, **wanted):
        return [row for row in self.all if all(row.get(key) == value for key, value in wanted.items())]


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---- the parts ----

def measure_latency(args, rows):
    with Pair() as sides:
        sides["native"].ask("latency")  # compiles what both need
        warm_up(sides, "latency")
        for number in range(args.rounds):
            for name, side in sides.items():
                rows.add(part="latency", side=name, ns=side.ask("latency"))
            say(f"latency: round {number + 1} of {args.rounds}")


def warm_up(sides, *words, **more):
    """Both at once."""
    for side in sides.values():
        side.tell(*words, **more)
    for side in sides.values():
        side.hear()


def play_round(sides, rows, name):
    """Native says what P is this time."""
    native = sides["native"].ask("run", name=name)
    peak = native["figures"]["active_bytes.all.peak"]
    for side, mode, cap in (("native", "free", None), ("gapless", "free", None), ("gapless", "tight", int(TIGHT * peak))):
        result = native if side == "native" else sides[side].ask("run", name=name, cap=cap)
        rows.add(part="workloads", workload=name, side=side, mode=mode, cap=cap, peak=peak, **result)


def measure_workloads(args, rows):
    with Pair() as sides:
        for name in args.only or WORKLOADS:
            warm_up(sides, "run", name=name)
            begun = time.monotonic()
            for number in range(args.rounds):
                if time.monotonic() - begun > args.seconds:
                    break
                play_round(sides, rows, name)
            say(f"{name}: {len(rows.find(part='workloads', workload=name, side='native'))} rounds in all, {time.monotonic() - begun:.0f} s")


def measure_bits(args, rows):
    with Pair(CUBLAS_WORKSPACE_CONFIG=":4096:8") as sides:
        for name in args.only or WORKLOADS:
            one, two = (sides["native"].ask("run", name=name, bits=True) for _ in range(2))
            cap = int(TIGHT * max(one["figures"]["active_bytes.all.peak"], two["figures"]["active_bytes.all.peak"]))
            ours = sides["gapless"].ask("run", name=name, bits=True, cap=cap)
            rows.add(part="bits", workload=name, native=[one["digest"], two["digest"]], gapless=ours["digest"], ok=ours["ok"],
                     error=ours["error"], cap=cap)
            say(f"{name}: results compared")


def measure_overflow(args, rows):
    """The quick ones first: a round that is cut short has most of them."""
    conf = ",".join(filter(None, (args.conf, "overflow:on")))
    begun = time.monotonic()
    with Pair(CUBLAS_WORKSPACE_CONFIG=":4096:8", GAPLESS_CONF=conf) as sides:
        for name in args.only or ("prefetch_streams", "rlhf", "diffusion_serve", "gnn", "llama_sft", "unet_multires"):
            if time.monotonic() - begun > args.seconds:
                say(f"{name}: no time is left")
                continue
            native = [sides["native"].ask("run", name=name, bits=True, steps=SHORT_STEPS) for _ in range(2)]
            peak = max(run["figures"]["active_bytes.all.peak"] for run in native)
            for cold in (False, True) if name in WITH_OPTIMISER else (False,):
                ours = sides["gapless"].ask("run", name=name, bits=True, steps=SHORT_STEPS, cap=int(SHORT * peak), cold=cold)
                rows.add(part="overflow", workload=name, cold=cold, peak=peak, native=[run["digest"] for run in native],
                         native_seconds=native[1]["seconds"], **ours)
            say(f"{name}: {time.monotonic() - begun:.0f} s")


def replay(path, cap):
    conf = ["--conf", SIDES["gapless"]["GAPLESS_CONF"]] if "GAPLESS_CONF" in SIDES["gapless"] else []
    done = subprocess.run([sys.executable, "-m", "gapless", "replay", path, "--policy", "gapless", "--check", "off", "--json", "--quiet",
                           *conf, "--lag", str(LAG_US), "--cap", str(cap)], capture_output=True, text=True, check=False)
    if not done.stdout:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[0])


def measure_predicted(args, rows):
    side = Side("native")
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only or WORKLOADS:
            side.ask("run", name=name)
            path = side.ask("record", name=name, path=os.path.join(folder, name + ".pickle"))["path"]
            caps = [row["cap"] for row in rows.find(part="workloads", workload=name, mode="tight")]
            found = replay(path, caps[-1] if caps else f"{TIGHT}xP")
            rows.add(part="predicted", workload=name,
                     **{key: found[key] for key in ("fitted", "driver_calls", "stalls", "cap_bytes", "peak_live_bytes", "driver_time_us",
                                                    "background_time_us", "longest_call_us")})
            say(f"{name}: recorded and replayed")
    side.close()


# ---- the table ----

def whole(row):
    return sum(row["seconds"][1:])


def with_first(row):
    return sum(row["seconds"])


def second_half(row):
    return sum(row["seconds"][len(row["seconds"]) // 2:])


def spread(values):
    """Of a side against itself: half the distance between the quartiles over the median."""
    if len(values) < 4:
        return (max(values) - min(values)) / 2 / statistics.median(values) if len(values) > 1 else 0.0
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 2 / statistics.median(values)


class Table:
    def __init__(self, rows):
        self.rows, self.lines, self.missed = rows, [], []

    def put(self, *cells):
        self.lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")

    def head(self, *cells):
        self.lines.append("")
        self.put(*cells)
        self.put(*["---"] * len(cells))

    def judge(self, met, what):
        if not met:
            self.missed.append(what)
        return "" if met else " **missed**"


def put_latency(table):
    found = table.rows.find(part="latency")
    if not found:
        return
    rounds = len(found) // 2
    table.head(f"ns, median of {rounds}", "native", "gapless", "asked")
    for what in found[0]["ns"]:
        native, ours = (statistics.median(row["ns"][what] for row in found if row["side"] == side) for side in SIDES)
        most = CAPS.get(what)
        table.put(what, f"{native:.0f}", f"{ours:.0f}{table.judge(not most or ours <= most, what)}", most or "")


def put_workload(table, name):
    native = table.rows.find(part="workloads", workload=name, side="native")
    free, tight = (table.rows.find(part="workloads", workload=name, side="gapless", mode=mode) for mode in ("free", "tight"))
    if not native:
        return
    ran = all(row["ok"] for row in tight)
    cells = [name, f"{statistics.median(row['peak'] for row in native) / 2**30:.2f}", len(native)]
    held = {}
    for side, found in (("native", native), ("free", free)):
        held[side] = statistics.median(row["figures"]["reserved_bytes.all.peak"] / row["peak"] for row in found)
    most = 1.15 if name == "prefetch_streams" else 1.05
    cells += [f"{held['native']:.3f}", f"{held['free']:.3f}{table.judge(held['free'] < most + 0.0005, name + ' held')}"]
    waits = sum(row["figures"]["num_sync_all_streams"] + row["figures"]["num_alloc_retries"] for row in tight)
    cells.append((f"{sum(row['ok'] for row in tight)} of {len(tight)}, {waits} device-wide stalls")
                 + table.judge(ran and not waits, name + " at 1.005 P"))
    for asked, found, measure, what in ((1.00, free, whole, "free"), (0.97, tight, whole, "tight"),
                                        (0.99, tight, second_half, "2nd half"), (0, tight, with_first, "with the first step")):
        noise = spread([measure(row) for row in native])
        speed = statistics.median(map(measure, native)) / statistics.median(map(measure, found))
        least = max(asked - noise, 0.98 if asked == 1 else 0)
        cells.append(f"{speed:.3f} ± {noise:.3f}{table.judge(speed >= least, f'{name} speed, {what}')}")
    table.put(*cells)


def put_workloads(table):
    if not table.rows.find(part="workloads"):
        return
    table.head("workload", "P, GiB", "rounds", "native held / P", "gapless held / P (1.05; streams 1.15)", "runs at 1.005 P",
               "speed without a cap (1.00)", "at 1.005 P (0.97)", "its second half (0.99)", "with the first step")
    for name in WORKLOADS:
        put_workload(table, name)


def put_bits(table):
    found = table.rows.find(part="bits")
    if not found:
        return
    table.head("workload", "results with deterministic algorithms, at 1.005 P")
    for row in found:
        agree = row["native"][0] == row["native"][1]
        same = row["ok"] and row["gapless"] == row["native"][0]
        words = "native differs from itself" if not agree else "identical bits" if same else row["error"] or "different"
        table.put(row["workload"], words + table.judge(same or not agree, row["workload"] + " bits"))


def put_overflow(table):
    found = table.rows.find(part="overflow")
    if not found:
        return
    table.head("workload on 0.75 P", "P, GiB", "runs", "results", "speed of native's", "in host memory at most, x P",
               "requests there, GiB", "moved out / back, GiB")
    for row in found:
        agree, figures = row["native"][0] == row["native"][1], row["figures"]
        same = row["ok"] and row["digest"] == row["native"][0]
        words = "native differs from itself" if not agree else "identical bits" if same else "different"
        gib = {key: figures.get(key, 0) / 2**30 for key in ("overflow_placed_bytes", "overflow_out_bytes", "overflow_back_bytes")}
        name = row["workload"] + (", states cold" if row["cold"] else "")
        steps = len(row["seconds"]) - 1
        speed = sum(row["native_seconds"][1:steps + 1]) / sum(row["seconds"][1:]) if steps > 0 else 0
        table.put(name, f"{row['peak'] / 2**30:.2f}", (row["error"] or "yes").split("\n")[0][:60] + table.judge(row["ok"], name + " on 0.75 P"),
                  words + table.judge(same or not agree, name + " bits on 0.75 P"), f"{speed:.3f}",
                  f"{figures.get('overflow_bytes_peak', 0) / row['peak']:.3f}", f"{gib['overflow_placed_bytes']:.2f}",
                  f"{gib['overflow_out_bytes']:.2f} / {gib['overflow_back_bytes']:.2f}")


def put_predicted(table):
    found = table.rows.find(part="predicted")
    if not found:
        return
    table.head("workload, 1.005 P", "driver calls: predicted / measured", "stalls: predicted / measured")
    for row in found:
        runs = table.rows.find(part="workloads", workload=row["workload"], mode="tight")
        if not runs:
            continue
        calls, stalls = (statistics.median(run["figures"][key] for run in runs) for key in ("driver_calls", "stalls"))
        near = abs(calls / row["driver_calls"] - 1) <= 0.2
        few = abs(stalls - row["stalls"]) <= max(5, 0.2 * row["stalls"])  # of fewer a share means nothing
        table.put(row["workload"], f"{row['driver_calls']:,} / {calls:,.0f}{table.judge(near, row['workload'] + ' calls')}",
                  f"{row['stalls']} / {stalls:.0f}{table.judge(few, row['workload'] + ' stalls')}")


def write_table(args, rows):
    table = Table(rows)
    for put in (put_latency, put_workloads, put_bits, put_overflow, put_predicted):
        put(table)
    commits, confs = (", ".join(sorted({row[key] for row in rows.all if key in row})) for key in ("commit", "conf"))
    head = f"PyTorch with gapless{confs and f' ({confs})'} beside its own allocator, in turns; commit {commits}\n"
    text = head + "\n".join(table.lines) + f"\n\nMissed: {', '.join(table.missed) or 'nothing'}\n"
    with open(os.path.join(args.out, "torch.md"), "w", encoding="utf-8") as file:
        file.write(text)
    return text, bool(table.missed)


def main():
    args = arguments()
    if args.conf:
        SIDES["gapless"]["GAPLESS_CONF"] = args.conf
    rows = Rows(args)
    measures = {"latency": measure_latency, "workloads": measure_workloads, "bits": measure_bits, "overflow": measure_overflow,
                "predicted": measure_predicted}
    failed = False
    for part in [] if args.table else args.part or PARTS:
        try:
            measures[part](args, rows)
        except RuntimeError as error:
            say(f"{part}: {error}")
            failed = True
        write_table(args, rows)  # after each: a run that is cut short loses nothing
    for folder in args.fill:
        rows.fill(folder)
    text, missed = write_table(args, rows)
    print(text)
    if args.readme:
        readme.write(args.readme, readme.paragraph(rows, args.machine, WORKLOADS, whole))
    return failed or missed


if __name__ == "__main__":
    sys.exit(main())
