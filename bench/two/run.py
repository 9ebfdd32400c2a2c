#!/usr/bin/env python3
"""gapless on two cards of one machine: bench/two/run.py [--part PART]... [--out FOLDER] [--minutes N] [--dry]

  collectives  NCCL's all-reduce, all-gather, send and receive beside memory of cudaMalloc in the same process, while pages move
  peers        who reaches whose memory, before and after it was mapped; the speed of copies from card to card
  sharing      tensors of one process in another, closed in any order, and processes that are killed; user buffers of NCCL
  training     FSDP on both cards at 1.01 P a rank in turns with PyTorch's own allocator: losses, memory, speed
  histories    what peers and training recorded, replayed; explain and tune over the ranks

Every check is a line at once, and a line of FOLDER/two.jsonl; the table (Markdown) goes to FOLDER/two.md.  The last line is
`N passed, N failed`; the exit code is 1 when something failed, 77 where there are no two cards.  Each program has a limit of time, and
all of it --minutes.  --dry: what needs no card, on the CPU.
"""
import argparse
import datetime
import glob
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PARTS = ("collectives", "peers", "sharing", "training", "histories")
TIGHT = 1.01
LEAST_SPEED = 0.97
ROUNDS = 9
TAIL = 20


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "two"), metavar="FOLDER")
    parser.add_argument("--minutes", type=float, default=4.5, help="begin nothing later, and end by then; default: 4.5")
    parser.add_argument("--commit", default=commit_of_tree())
    parser.add_argument("--dry", action="store_true")
    return parser.parse_args()


def commit_of_tree():
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


class Failed(Exception):
    """Something that a part cannot go on after."""


class Board:
    """What was found: printed as it comes, and written to the table."""

    def __init__(self, args):
        self.out, self.dry = os.path.abspath(args.out), args.dry
        self.marks = {"commit": args.commit, "date": str(datetime.date.today())}
        self.begun = time.monotonic()
        self.end = self.begun + 60 * args.minutes
        self.rows, self.part = [], ""
        self.work = os.path.join(self.out, "two-work")
        shutil.rmtree(self.work, ignore_errors=True)
        os.makedirs(self.work)
        open(os.path.join(self.out, "two.jsonl"), "w", encoding="utf-8").close()

    def left(self):
        return self.end - time.monotonic()

    def path(self, *names):
        return os.path.join(self.work, *names)

    def check(self, name, ok, words="", figures=None):
        row = {"part": self.part, "check": name, "ok": bool(ok), "words": words, "figures": figures or {}, **self.marks}
        self.rows.append(row)
        with open(os.path.join(self.out, "two.jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{'ok   ' if ok else 'FAIL '} {self.part}: {name}{': ' + words if words else ''}", flush=True)
        return bool(ok)

    def failed(self):
        return sum(not row["ok"] for row in self.rows)

    def write_table(self):
        lines = [f"gapless on two cards; commit {self.marks['commit']}, {self.marks['date']}", "", "| part | check | result | |", "| --- | --- | --- | --- |"]
        for row in self.rows:
            cells = row["part"], row["check"], "passed" if row["ok"] else "**failed**", row["words"].replace("|", "/").replace("\n", " ")
            lines.append("| " + " | ".join(cells) + " |")
        lines += ["", f"{len(self.rows) - self.failed()} passed, {self.failed()} failed ({time.monotonic() - self.begun:.0f} s)", ""]
        with open(os.path.join(self.out, "two.md"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines))


# ---- programs ----

def environment(board, allocator, **variables):
    """GAPLESS=0 or 1 says whose memory it is; what the machine sets of NCCL stays."""
    own = {"GAPLESS": "1" if allocator == "gapless" else "0", "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "4", "TWO_DRY": str(int(board.dry)),
           "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "NCCL_DEBUG": "WARN", "TOKENIZERS_PARALLELISM": "false",
           "HF_HUB_OFFLINE": "1", "GAPLESS_CONF": "", **variables}
    usual = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
    return {**usual, **os.environ, **own}


def family(pid):
    """A process and all that it has started."""
    found = [pid]
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            with open(path, encoding="utf-8") as file:
                children = file.read().split()
        except OSError:  # it has just ended
            children = []
        for child in children:
            found += family(int(child))
    return found


class Program:
    """A program of this folder, by itself or as two ranks of torchrun."""

    def __init__(self, board, name, script, *words, ranks=1, allocator="gapless", seconds=60, **variables):
        self.board, self.name, self.part = board, name, board.part
        self.report, self.log = board.path(name + ".report"), board.path(name + ".log")
        self.seconds = min(seconds, board.left())
        self.begun = time.monotonic()
        self.pids, self.heard = [], 0
        launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(ranks)]
        command = [sys.executable, *(launcher if ranks > 1 else []), os.path.join(HERE, script), *words]
        # The program's own alarm goes off first, and says where it hangs
        own = environment(board, allocator, TWO_REPORT=self.report, TWO_LOG=self.log, TWO_SECONDS=str(max(1, self.seconds - 3)), **variables)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, cwd=HERE, env=own, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)

    def listen(self):
        """Takes what it has told since the last time."""
        if not os.path.exists(self.report):
            return
        with open(self.report, "rb") as file:
            file.seek(self.heard)
            text = file.read()
        whole = text[:text.rfind(b"\n") + 1]
        self.heard += len(whole)
        for line in map(json.loads, whole.splitlines()):
            if "pid" in line:
                self.pids.append(line["pid"])
            else:
                self.board.check(line["check"], line["ok"], line["words"], line["figures"])

    def runs(self):
        return self.process.poll() is None

    def is_late(self):
        return time.monotonic() - self.begun > self.seconds

    def stop(self):
        """The program, its ranks, which torchrun starts in sessions of their own, and theirs."""
        self.listen()
        mine = set(family(self.process.pid)) if self.runs() else set()
        for pid in mine.union(self.pids):
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        self.process.wait()

    def tail(self):
        """The last lines of each rank's errors, else of all that was printed."""
        folder, name = os.path.split(self.log)
        own = [os.path.join(folder, one) for one in sorted(os.listdir(folder)) if one.startswith(name + ".")]
        said = []
        for path in [path for path in own if os.path.getsize(path)] or [self.log]:
            with open(path, encoding="utf-8", errors="replace") as file:
                said += [f"--- {os.path.basename(path)}"] + file.read().splitlines()[-TAIL:]
        return "\n".join(said)

    def conclude(self):
        """A program that did not come to its end is one more failure."""
        self.listen()
        status = self.process.poll()
        words = f"status {status}" if status is not None else f"no end within {self.seconds:.0f} s"
        self.stop()
        if status != 0:
            self.board.check(f"{self.name} came to its end", False, words)
            print(self.tail(), flush=True)
        return status == 0


def finish(*programs):
    """Waits for all of them."""
    going = list(programs)
    while going:
        time.sleep(0.05)
        for program in list(going):
            program.listen()
            if not program.runs() or program.is_late():
                program.conclude()
                going.remove(program)


# ---- the parts ----

def collectives(board):
    finish(Program(board, "collectives", "collectives.py", "figures", ranks=2, seconds=75))


def peers(board):
    finish(Program(board, "peers", "peers.py", seconds=60, GAPLESS_CONF=f"trace:{board.path('peers.trace')}", TWO_HISTORY=board.path("peers.pickle")))


def sharing(board):
    """Contents only, no figures: all at the same time."""
    finish(Program(board, "sharing", "sharing.py", seconds=90),
           Program(board, "registered", "collectives.py", "registered", ranks=2, seconds=60),
           Program(board, "captured", "collectives.py", "captured", ranks=2, seconds=60))


class Trainer:
    """Two ranks that are told what to do; an answer is a list, one for each rank."""

    def __init__(self, board, name, allocator, **variables):
        self.board, self.number = board, 0
        self.folder = board.path(name + "-orders")
        os.makedirs(self.folder)
        self.program = Program(board, name, "training.py", ranks=2, allocator=allocator, seconds=150, TWO_ORDERS=self.folder, **variables)

    def tell(self, do, **words):
        """Begins it; hear() waits for the end."""
        path = os.path.join(self.folder, str(self.number))
        self.number += 1
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump({"do": do, **words}, file)
        os.rename(path + ".part", path + ".json")

    def hear(self):
        return [self.answer_of(rank) for rank in range(2)]

    def order(self, do, **words):
        self.tell(do, **words)
        return self.hear()

    def answer_of(self, rank):
        path = os.path.join(self.folder, f"{self.number - 1}-{rank}.json")
        while not os.path.exists(path):
            time.sleep(0.002)
            if not self.program.runs() or self.program.is_late():
                raise Failed(f"{self.program.name} gave no answer to order {self.number - 1}")
        with open(path, encoding="utf-8") as file:
            answer = json.load(file)
        if "failed" in answer:
            raise Failed(f"{self.program.name}, order {self.number - 1}: {answer['failed'].strip().splitlines()[-1]}")
        return answer

    def play(self, rounds=2, **words):
        """A new model, and what its last round says: losses and peaks are those of all."""
        self.order("build", **words)
        return [self.order("round") for _ in range(rounds)][-1]


def caps_of(answers):
    return [int(TIGHT * answer["active"]) for answer in answers]


def compare_losses(board, trainers):
    """With deterministic algorithms; bit by bit, where PyTorch agrees with itself."""
    one, two = (trainers["native"].play(deterministic=True) for _ in range(2))
    ours = trainers["gapless"].play(deterministic=True, caps=caps_of(one))
    losses = [[answer["losses"] for answer in answers] for answers in (one, two, ours)]
    far = max(abs(a - b) / abs(a) for mine, theirs in zip(losses[0], losses[2]) for a, b in zip(mine, theirs))
    agrees = losses[0] == losses[1]
    same = losses[2] == losses[0] if agrees else far < 0.01
    words = f"{len(losses[0][0])} losses a rank, " + ("identical" if losses[2] == losses[0] else f"at most {far:.2e} apart")
    board.check("the same losses", same, words + ("" if agrees else "; PyTorch's own differ from run to run"), {"apart": far, "native_agrees": agrees})


def say_memory(board, peaks, caps, answers):
    """`peaks`: P of each rank."""
    held = [answer["held"] / peak for answer, peak in zip(answers, peaks)]
    stolen, stalls = ([answer.get(name, 0) for answer in answers] for name in ("pages_stolen", "stalls"))
    within = all(answer["held"] <= cap for answer, cap in zip(answers, caps))
    board.check("runs at 1.01 P", within, f"P {[f'{peak / 2**30:.2f} GiB' for peak in peaks]}, held {[f'{one:.4f} P' for one in held]}, in the last "
                f"round pages stolen {stolen}, stalls {stalls}", {"peak": peaks, "held": held, "pages_stolen": stolen, "stalls": stalls})


def compare_speed(board, trainers):
    native, ours = trainers["native"], trainers["gapless"]
    first = native.play()
    caps = caps_of(first)
    ours.play(caps=caps)
    seconds = {"native": [], "gapless": []}
    for number in range(ROUNDS):
        for name in ("native", "gapless") if number % 2 else ("gapless", "native"):
            last = trainers[name].order("round")
            seconds[name].append(max(sum(answer["seconds"]) for answer in last))
            if name == "gapless":
                answers = last
    say_memory(board, [answer["active"] for answer in first], caps, answers)
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    speed = medians["native"] / medians["gapless"]
    board.check("speed at 1.01 P", speed >= LEAST_SPEED or board.dry, f"{speed:.3f} ({1000 * medians['gapless']:.0f} ms a round beside "
                f"{1000 * medians['native']:.0f}, medians of {ROUNDS})", {"speed": speed, "asked": LEAST_SPEED, "seconds": seconds})


def record(board, trainers):
    """First of all, so that the histories have a beginning; at the same time, which warms up too."""
    for name in ("native", "traced"):
        trainers[name].tell("record", path=board.path(name + "-rank{rank}.pickle"))
    trainers["gapless"].play(rounds=1)
    for name in ("native", "traced"):
        answers = trainers[name].hear()
        board.check(f"recorded, {name}", board.dry or all(os.path.getsize(answer["path"]) for answer in answers))
    trainers["traced"].tell("end")


def training(board):
    trainers = {"native": Trainer(board, "native", "native"), "gapless": Trainer(board, "gapless", "gapless"),
                "traced": Trainer(board, "traced", "gapless", TWO_TRACE=board.path("rank{rank}.trace"))}
    try:
        for step in (record, compare_losses, compare_speed):
            step(board, trainers)
        for name in ("native", "gapless"):
            trainers[name].tell("end")
    except Failed as error:
        board.check("the training goes on", False, str(error))
        for trainer in trainers.values():
            print(trainer.program.tail(), flush=True)
            trainer.program.stop()
        return
    finish(*(trainer.program for trainer in trainers.values()))


# ---- histories ----

def tool(board, *words, seconds=60):
    """The command's output as objects, one a line; what it says of an error is the failure's words."""
    command = [sys.executable, "-m", "gapless", *words, "--json", "--quiet"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=max(1, min(seconds, board.left())))
    except subprocess.TimeoutExpired:
        raise Failed(f"gapless {words[0]}: no end") from None
    if done.returncode == 2 or not done.stdout:
        raise Failed(f"gapless {words[0]}: status {done.returncode}: {done.stderr.strip()[-300:]}")
    return [json.loads(line) for line in done.stdout.splitlines()], done.returncode


def verified(file):
    """Whether the replay of PyTorch's own policy agrees with every event; else where it does not."""
    done = subprocess.run([sys.executable, "-m", "gapless", "replay", file, "--verify"], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode == 0, "event for event" if done.returncode == 0 else (done.stdout + done.stderr)[-400:].strip()


def replay_ranks(board, files):
    """What PyTorch's own allocator did comes out event for event, and gapless would fit."""
    for rank, file in enumerate(files):
        same, words = verified(file)
        board.check(f"rank {rank}'s history verified", same, words)
        rows, _ = tool(board, "replay", file, "--policy", "gapless", "--check", "off", "--cap", f"{TIGHT}xP")
        most = max(rows, key=lambda row: row["peak_live_bytes"])
        board.check(f"rank {rank}'s history fits at 1.01 P", all(row["fitted"] for row in rows), f"P {most['peak_live_bytes'] / 2**30:.2f} GiB, "
                    f"{most['driver_calls']:,} driver calls, {most['stalls']} stalls")


def peaks_of(board, file):
    """By device, of what it really uses."""
    rows, _ = tool(board, "replay", file, "--policy", "ideal", "--check", "off")
    return {row["device"]: row["peak_live_bytes"] for row in rows if row["peak_live_bytes"] > 64 << 20}


def replay_traces(board, pickles, traces):
    """PyTorch's recorder and our own saw the same training."""
    for rank, (pickle, trace) in enumerate(zip(pickles, traces)):
        one, two = (max(peaks_of(board, file).values()) for file in (pickle, trace))
        board.check(f"rank {rank}'s trace and snapshot agree", abs(one / two - 1) < 0.01, f"P {two / 2**30:.3f} and {one / 2**30:.3f} GiB")


def replay_both_devices(board, files):
    for file in files:
        peaks = peaks_of(board, file)
        board.check(f"both devices in {os.path.basename(file)}", set(peaks) == {0, 1}, f"{ {device: f'{peak / 2**30:.2f} GiB' for device, peak in peaks.items()} }")


def who_limits(board, files):
    """The second rank was given the longer texts."""
    for words in (("explain", *files, "--no-advice"), ("tune", *files, "--no-cache")):
        job = tool(board, *words, seconds=100)[0][-1]
        limits = job["limits"]
        board.check(f"{words[0]} says which rank limits", os.path.basename(limits["file"]) == os.path.basename(files[1]), job["why"].replace(board.work + os.sep, ""))


def histories(board):
    native, traced = ([board.path(f"{name}-rank{rank}.pickle") for rank in range(2)] for name in ("native", "traced"))
    jobs = ((replay_both_devices, [board.path("peers.pickle"), board.path("peers.trace")]), (replay_ranks, native),
            (replay_traces, traced, [board.path(f"rank{rank}.trace") for rank in range(2)]), (who_limits, native))
    for job, *files in jobs:
        missing = [file for some in files for file in some if not os.path.exists(file)]
        try:
            if missing:
                raise Failed(f"not recorded: {', '.join(map(os.path.basename, missing))}")
            job(board, *files)
        except (Failed, KeyError, ValueError, TypeError, subprocess.TimeoutExpired) as error:
            board.check(job.__name__, False, f"{type(error).__name__}: {error}")


# ---- the whole ----

LOOK = """
import torch
print(torch.cuda.device_count())
if torch.cuda.device_count() > 1:
    torch.cuda.init()
    backend = torch.cuda.get_allocator_backend()
    print(backend, len(torch.cuda.memory_stats()) if backend == "gapless" else 0)
"""


def start_once(board):
    try:
        return subprocess.run([sys.executable, "-c", LOOK], env=environment(board, "gapless"), capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess([], 1, "2", "no end within 60 s")


def look(board):
    """How many cards there are.  The first start with gapless compiles its part for this PyTorch; one that takes too long goes on without
    it, and the next finds it."""
    for _ in range(3):
        done = start_once(board)
        words = done.stdout.split()
        cards = int(words[0]) if words else 0
        if cards < 2:
            return cards
        started = done.returncode == 0 and words[1] == "gapless" and int(words[2]) > 100
        if started:
            break
    board.check("PyTorch starts with gapless", started, " ".join(words) if started else done.stderr[-2000:].strip())
    return cards


def run_part(board, name):
    board.part, begun = name, time.monotonic()
    if board.left() < 5:
        board.check("has time to begin", False, "the limit of --minutes is reached")
        return
    try:
        globals()[name](board)
    except Exception as error:  # pylint: disable=broad-except
        board.check("goes on", False, f"{type(error).__name__}: {error}")
    print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
    board.write_table()  # after each: a run that is cut short loses nothing



def main():
    args = arguments()
    board = Board(args)
    board.part = "start"
    if not args.dry:
        cards = look(board)
        if not board.rows:
            print(f"skipped: two cards are wanted, here is {cards}")
            return 77
        if board.failed():
            print("0 passed, 1 failed")
            return 1
    for name in args.part or (("collectives", "training") if args.dry else PARTS):
        run_part(board, name)
    board.write_table()
    print(f"{len(board.rows) - board.failed()} passed, {board.failed()} failed")
    return int(board.failed() > 0)


if __name__ == "__main__":
    sys.exit(main())
