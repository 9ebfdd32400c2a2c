#!/usr/bin/env python3
"""PyTorch's own memory tests, natively and then with gapless: upstream.py [options] FOLDER

FOLDER holds test files of PyTorch (test_cuda.py and its neighbours, of the release at hand or near it), which are no
part of this repository; in FOLDER/site may lie Python packages that they need and the machine lacks.  Which of their
tests are run, and why, is in upstream_tests.py.

Tests run first with PyTorch's allocator; those that pass there run again behind `gapless run`, with nothing allowed but
the shim (GAPLESS_DOOR=a).  What natively fails or is skipped does not count.  A few tests share a process at first, as all
do where PyTorch runs them: its start takes longer than they.  One that does not pass there gets a process of its own, and a
second one.

One that still fails with gapless is run with strategy:caching_allocator, which makes the segments that PyTorch's own
allocator makes: what passes so fails otherwise for their numbers and sizes alone, and is counted apart.  What fails there
too is tried a last time beside none, so that neighbours on the card cannot spoil it.  The last line reads "N passed, N
failed" and speaks of those that count.
"""

import argparse
import concurrent.futures
import functools
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple, Optional

import upstream_tests

HERE = pathlib.Path(__file__).resolve().parent
WORKER = HERE / "upstream_worker.py"
HIDDEN = (
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "GAPLESS_CONF",
    "GAPLESS",
    "GAPLESS_DOOR",
)
COMPANY = 8  # tests in a process at first
MISSING = ("AttributeError", "ImportError", "ModuleNotFoundError", "NameError")


class Ending(NamedTuple):
    """How one run of one test ended; outcome: ok, fail, skip, or late: not run, since the time was up."""

    outcome: str
    error: str
    text: str
    seconds: float


class Result(NamedTuple):
    """A test by name, natively and with gapless; gapless is None where the native run did not pass."""

    name: str
    native: Ending
    gapless: Optional[Ending]
    segments: bool = False  # it passes with gapless where segments are as PyTorch makes them


class Runner:
    """Starts worker processes; `end` is when no more are to be started."""

    launcher = ("-m", "gapless", "run")
    def __init__(self, folder, limit, end):
        self.folder, self.limit, self.end = folder, limit, end
        self.scratch = tempfile.TemporaryDirectory(prefix="gapless-upstream-")

    def environment(self, gapless, conf=""):
        """The user's, without settings for allocators; extensions are built by each process for itself."""
        environ = {name: value for name, value in os.environ.items() if name not in HIDDEN}
        environ.update({"GAPLESS_DOOR": "a", "GAPLESS_CONF": conf} if gapless else {"GAPLESS": "0"})
        extensions = tempfile.mkdtemp(dir=self.scratch.name)
        environ.update(PYTORCH_PRINT_REPRO_ON_FAILURE="0", TORCH_EXTENSIONS_DIR=extensions)
        return environ

    def start(self, words, gapless, limit, conf=""):
        """Runs the worker on `words`; (status, what it printed).  What a test started ends with it."""
        launcher = self.launcher if gapless else ()
        command = [sys.executable, *launcher, str(WORKER), str(self.folder), *words]
        with tempfile.TemporaryFile("w+", dir=self.scratch.name, errors="replace") as output:
            process = subprocess.Popen(command, env=self.environment(gapless, conf), cwd=self.scratch.name,
                                       stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                       start_new_session=True)
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                status = None
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            output.seek(0)
            return status, output.read()

    def answers(self, words, gapless, limit, conf=""):
        """The lines of JSON that the worker wrote; with its status and output."""
        with tempfile.NamedTemporaryFile("r", dir=self.scratch.name, suffix=".json") as file:
            status, output = self.start([file.name, *words], gapless, limit, conf)
            return [json.loads(line) for line in file.read().splitlines()], status, output

    def answer(self, words, gapless, limit, conf=""):
        """The one line, or None."""
        found, status, output = self.answers(words, gapless, limit, conf)
        return found[0] if found else None, status, output

    def run(self, name, gapless, conf=""):
        """One test, once."""
        begin = time.monotonic()
        limit = min(self.limit, self.end - begin)
        if limit <= 5:
            return Ending("late", "not run: the time was up", "", 0.0)
        found, status, output = self.answer(["run", name], gapless, limit, conf)
        seconds = time.monotonic() - begin
        if found is None or (status != 0 and found["outcome"] == "ok"):
            return Ending("fail", how_it_ended(status, output, limit), output, seconds)
        return Ending(found["outcome"], found["error"], found["text"] + output, seconds)

    def passed_together(self, names, gapless):
        """The tests that pass or are skipped in one process, by name; {} where it does not come to a good end."""
        begin = time.monotonic()
        limit = min(self.limit, self.end - begin)
        found, status, _ = self.answers(["run", *names], gapless, limit) if limit > 5 else ([], 1, "")
        if status != 0:
            return {}
        seconds = (time.monotonic() - begin) / len(names)
        good = ((name, one) for name, one in zip(names, found) if one["outcome"] in ("ok", "skip"))
        return {name: Ending(one["outcome"], one["error"], one["text"], seconds) for name, one in good}

    def together(self, names):
        """Natively, then with gapless what passed; those that pass in company, by name."""
        native = self.passed_together(names, False)
        ready = [name for name in names if name in native and native[name].outcome == "ok"]
        gapless = self.passed_together(ready, True) if ready else {}
        skipped = {name: Result(name, one, None) for name, one in native.items() if one.outcome == "skip"}
        return {**skipped, **{name: Result(name, native[name], one) for name, one in gapless.items() if one.outcome == "ok"}}

    def has_time(self):
        return time.monotonic() + 10 < self.end

    def both(self, name):
        """Natively, then with gapless where that passed."""
        native = self.run(name, False)
        return Result(name, native, self.run(name, True) if native.outcome == "ok" else None)


def how_it_ended(status, output, limit):
    if status is None:
        return f"no end within {limit:.0f} s"
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
    return f"the process ended {f'by signal {-status}' if status < 0 else f'with status {status}'}: {last[:200]}"


def is_late(result):
    return "late" in (result.native.outcome, result.gapless and result.gapless.outcome)


def counts(result):
    """Does it pass natively, and has it run with gapless?"""
    return result.native.outcome == "ok" and not is_late(result)


def fails(result):
    return counts(result) and result.gapless.outcome != "ok"


def worth_another(result):
    """Whether it failed with an error that chance or neighbours on the card can make: a missing name is none of those."""
    last = result.gapless or result.native
    return last.outcome == "fail" and not last.error.startswith(MISSING)


def again(runner, result):
    """Once more: only the part that failed.  What there is no time for stays as it was."""
    more = result._replace(gapless=runner.run(result.name, True)) if counts(result) else runner.both(result.name)
    return result if is_late(more) else more


def with_torchs_segments(runner, result):
    """Says of a test that failed whether it did for the segments' sake."""
    return result._replace(segments=runner.run(result.name, True, "strategy:caching_allocator").outcome == "ok")


def companies(names):
    """Tests of one file, a few at a time; those that fill the card are in none."""
    names = [name for name in names if not upstream_tests.wants_the_card(name)]
    files = [list(group) for _, group in itertools.groupby(names, lambda name: name.partition(".")[0])]
    return [group[at : at + COMPANY] for group in files for at in range(0, len(group), COMPANY)]


def run_all(runner, names, jobs, show):
    """All results by name."""
    results = {}

    def keep(result, note=""):
        results[result.name] = result
        show(result, note)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for found in pool.map(runner.together, companies(names)):
            for result in found.values():
                keep(result)
        rest = [name for name in names if name not in results and not upstream_tests.wants_the_card(name)]
        for result in pool.map(runner.both, rest):
            keep(result)
        bad = [result for result in results.values() if worth_another(result)] if runner.has_time() else []
        for result in pool.map(functools.partial(again, runner), bad):
            keep(result, " (again)")
        bad = [result for result in results.values() if fails(result)] if runner.has_time() else []
        for result in pool.map(functools.partial(with_torchs_segments, runner), bad):
            results[result.name] = result
    for name in names:
        if upstream_tests.wants_the_card(name):
            keep(runner.both(name))
        elif worth_another(results[name]) and not results[name].segments and runner.has_time():
            keep(again(runner, results[name]), " (alone)")
    return results


def show_line(result, note=""):
    words = [f"native {result.native.outcome} {result.native.seconds:.0f} s"]
    if result.gapless:
        words.append(f"gapless {result.gapless.outcome} {result.gapless.seconds:.0f} s")
    print(f"{result.name}{note}: {', '.join(words)}", flush=True)


def make_shim(runner):
    """Lets the shim be compiled once, before many processes would wait for it; an error's text, or ""."""
    said = ""
    for _ in range(4):
        found, status, output = runner.answer(["door"], True, 120)
        if found and found["door"] == "a":
            return ""
        said = f"{found or status}\n{output}"
        time.sleep(10)
    return f"the shim does not open: {said}"


def collect(runner, files):
    """The chosen tests of these files, as FILE.CLASS.TEST."""
    names = []
    with concurrent.futures.ThreadPoolExecutor(max(1, len(files))) as pool:
        answers = pool.map(lambda file: runner.answer(["list", file], False, 180), files)
        for file, (found, status, output) in zip(files, answers):
            if found is None:
                print(f"{file}: not collected: {how_it_ended(status, output, 180)}")
            names += [name for name in found or [] if upstream_tests.is_chosen(name)]
    return names


def share(good, all_):
    return f"{100.0 * good / all_:.1f} %" if all_ else "-"


def report(files, results):
    """Prints the table, then each test that passes natively and fails with gapless; (passed, failed)."""
    print(f"\n{'file':24}{'chosen':>8}{'native':>8}{'gapless':>9}{'share':>9}")
    rows = [(file, [r for r in results if r.name.startswith(file + ".")]) for file in files]
    for title, part in rows + [("all", results)]:
        native = [r for r in part if counts(r)]
        good = sum(r.gapless.outcome == "ok" for r in native)
        print(f"{title:24}{len(part):8}{len(native):8}{good:9}{share(good, len(native)):>9}")
    bad = [r for r in results if fails(r)]
    segments = sum(r.segments for r in bad)
    if segments:
        native = sum(map(counts, results))
        print(f"with those that pass with strategy:caching_allocator: {share(native - len(bad) + segments, native)}")
    for result in sorted(bad, key=lambda r: r.segments):
        how = "only with strategy:caching_allocator" if result.segments else "not with gapless"
        print(f"{how}: {result.name}: {result.gapless.error}")
    late = [r.name for r in results if is_late(r)]
    if late:
        print(f"not run, since the time was up, and counted nowhere: {len(late)}: {', '.join(late)}")
    return sum(map(counts, results)) - len(bad), len(bad)


def write_json(path, results):
    """Everything, texts included, for those who look into a failure."""

    def plain(ending):
        return ending and {**ending._asdict(), "text": "" if ending.outcome == "ok" else ending.text[-6000:]}

    rows = [dict(r._asdict(), native=plain(r.native), gapless=plain(r.gapless)) for r in results]
    lines = ",\n".join(json.dumps(row) for row in rows)
    pathlib.Path(path).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def read_json(path):
    """All that an earlier run has found, by name."""

    def ending(row):
        return row and Ending(**row)

    rows = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    found = [Result(row["name"], ending(row["native"]), ending(row["gapless"]), row["segments"]) for row in rows]
    return {result.name: result for result in found}


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=pathlib.Path, help="where PyTorch's test files are")
    parser.add_argument("--files", help="comma-separated, without .py (default: all but the slow ones)")
    parser.add_argument("--only", default="", help="tests whose name has this text")
    parser.add_argument("--json", help="write all results to this file")
    parser.add_argument("--go-on", metavar="FILE", help="take the results of an earlier run's --json and run what it had no time for")
    parser.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 2), help="processes at a time")
    parser.add_argument("--limit", type=float, default=120, metavar="S", help="seconds a test (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=6, help="no test starts after these (default %(default)s)")
    parser.add_argument("--list", action="store_true", help="print the chosen tests and end")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    begin = time.monotonic()
    runner = Runner(options.folder.resolve(), options.limit, begin + 60 * options.minutes)
    there = sorted(path.stem for path in options.folder.glob("test_*.py") if path.stem not in upstream_tests.SLOW)
    files = options.files.split(",") if options.files else there
    before = read_json(options.go_on) if options.go_on else {}  # names are known then: to collect them takes a minute
    names = [name for name in list(before) or collect(runner, files) if options.only in name]
    if options.list or not names:
        print("\n".join(names) or "no test to run")
        return 0 if names else 77
    reason = make_shim(runner)
    if reason:
        print(reason)
        return 1
    found = {name: result for name, result in before.items() if not is_late(result)}
    found.update(run_all(runner, [name for name in names if name not in found], options.jobs, show_line))
    results = [found[name] for name in names]
    good, bad = report(files, results)
    if options.json:
        write_json(options.json, results)
    print(f"{len(names)} tests in {time.monotonic() - begin:.0f} s\n{good} passed, {bad} failed")
    return bad != 0 or any(map(is_late, results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
