"""trace_frames: which lines of Python asked for a block and freed it, in the trace and in the ring, however the program ends."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap

import pytest
from conftest import COMMAND, ROOT

START = """
import gapless, gc, os, signal, sys, threading, time
heap = gapless.Heap("sim", environment=False,
                    conf=f"trace:{sys.argv[1]}/kept.trace,trace_ring:{sys.argv[1]}/kept.ring,trace_frames:True")

def ask(mib):
    return heap.alloc(mib << 20)

def killed():
    time.sleep(0.3)  # the trace is written every tenth of a second; the ring needs no time
    os.kill(os.getpid(), signal.SIGKILL)
"""


def play(folder, code, status):
    program = folder / "program.py"
    program.write_text(START + textwrap.dedent(code))
    ran = subprocess.run(
        [sys.executable, str(program), str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == status, ran.stderr
    return ran.stdout


@pytest.fixture(params=["kept.trace", "kept.ring"])
def kind(request):
    return request.param


def entries_of(folder, kind):
    """As PyTorch's own snapshots have them."""
    made = folder / "made.pickle"
    subprocess.run([COMMAND, "convert", str(folder / kind), str(made), "--quiet"], check=True, timeout=60)
    return pickle.loads(made.read_bytes())["device_traces"][0]


def own(entry):
    """The functions of the program that an entry names, innermost first."""
    return [frame["name"] for frame in entry["frames"] if frame["filename"].endswith("program.py")]


def test_a_killed_program_leaves_its_stacks(tmp_path, kind):
    code = """
        def step():
            block = ask(3)
            heap.free(block)
        step()
        ask(5)
        killed()
    """
    play(tmp_path, code, -signal.SIGKILL)
    entries = entries_of(tmp_path, kind)
    of_blocks = [(e["action"], own(e)) for e in entries if not e["action"].startswith("segment")]
    assert of_blocks == [
        ("alloc", ["ask", "step", "<module>"]),
        ("free_requested", ["step", "<module>"]),
        ("free_completed", ["step", "<module>"]),
        ("alloc", ["ask", "<module>"]),
    ]
    lines = {frame["line"] for e in entries for frame in e["frames"] if frame["name"] == "ask"}
    text = (tmp_path / "program.py").read_text().splitlines()
    assert [text[line - 1].strip() for line in lines] == ["return heap.alloc(mib << 20)"]


def test_threads_have_stacks_of_their_own(tmp_path, kind):
    """Python collects garbage in between, and what it finds frees memory too."""
    code = """
        class Block:
            def __init__(self):
                self.address, self.me = heap.alloc(512), self
            def __del__(self):
                heap.free(self.address)

        def worker_0(): many()
        def worker_1(): many()
        def worker_2(): many()

        def many():
            for i in range(400):
                Block()
                if i % 100 == 0:
                    gc.collect()

        gc.set_threshold(50)
        threads = [threading.Thread(target=f) for f in (worker_0, worker_1, worker_2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        gc.collect()
        heap.check()
        print(heap.usage().live_bytes)
        heap.close()
    """
    assert play(tmp_path, code, 0) == "0\n"
    allocs = [own(e) for e in entries_of(tmp_path, kind) if e["action"] == "alloc"]
    assert len(allocs) == 1200
    for worker in ("worker_0", "worker_1", "worker_2"):
        assert sum(names == ["__init__", "many", worker] for names in allocs) == 400


def test_a_forked_child_has_nothing_to_do_with_it(tmp_path, kind):
    code = """
        ask(1)
        child = os.fork()
        if child == 0:
            other = gapless.Heap("sim", environment=False)
            other.free(other.alloc(4096))
            os._exit(0)
        print(os.waitpid(child, 0)[1])
        ask(2)
        killed()
    """
    play(tmp_path, code, -signal.SIGKILL)
    allocs = [own(e) for e in entries_of(tmp_path, kind) if e["action"] == "alloc"]
    assert allocs == [["ask", "<module>"]] * 2


def test_an_exception_on_its_way_stays(tmp_path, kind):
    code = """
        class Guard:
            def __exit__(self, *what):
                heap.free(self.block)
            def __enter__(self):
                self.block = ask(1)
        try:
            with Guard():
                raise KeyError("mine")
        except KeyError as error:
            print(error)
        heap.close()
    """
    assert play(tmp_path, code, 0) == "'mine'\n"
    frees = [own(e) for e in entries_of(tmp_path, kind) if e["action"] == "free_requested"]
    assert frees == [["__exit__", "<module>"]]
