"""The runner of PyTorch's own memory tests (tests/gpu/torch/upstream.py), over tests made for it and the small torch."""

import importlib
import os
import sys
import time

import pytest
from conftest import ROOT

TESTS = '''
import os, subprocess, sys, time, unittest
OURS = os.environ["GAPLESS"] == "1"

class TestCuda(unittest.TestCase):
    def test_memory_passes(self):
        pass

    def test_memory_fails_with_us(self):
        self.assertEqual(OURS, False, "a reason")

    def test_memory_fails_natively(self):
        self.fail()

    def test_memory_needs_another_release(self):
        unittest.a_name_that_is_not_there

    def test_memory_is_skipped(self):
        self.skipTest("why")

    def test_memory_crashes_with_us(self):
        if OURS:
            os.kill(os.getpid(), 11)

    def test_memory_crashes_at_exit_with_us(self):
        import atexit
        if OURS:
            atexit.register(os._exit, 3)

    def test_memory_hangs_with_us(self):
        if OURS:
            subprocess.run(["sleep", "1000"])

    def test_memory_fails_among_others(self):
        mark = os.path.join(os.path.dirname(__file__), "mark")
        if OURS and not os.path.exists(mark):
            open(mark, "w").close()
            self.fail()

    @unittest.expectedFailure
    def test_memory_is_expected_to_fail(self):
        self.fail()

    def test_memory_counts_segments(self):
        as_torch = not OURS or os.environ["GAPLESS_CONF"] == "strategy:caching_allocator"
        self.assertEqual(4 if as_torch else 1, 4)

    def test_out_of_memory_retry(self):
        pass

    def test_arithmetic(self):
        self.fail("not chosen")
'''


@pytest.fixture
def upstream(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "gpu" / "torch"))
    return importlib.import_module("upstream")


@pytest.fixture
def runner(upstream, site, tmp_path, monkeypatch):
    """Without the launcher: the sides are told apart by the variable that it sets."""

    class Plain(upstream.Runner):
        launcher = ()

        def environment(self, gapless, conf=""):
            paths = os.pathsep.join([str(site.fake_torch), str(ROOT / "python")])
            return dict(super().environment(gapless, conf), GAPLESS=str(int(gapless)), PYTHONPATH=paths)

    (tmp_path / "test_cuda.py").write_text(TESTS)
    return Plain(tmp_path, 8, time.monotonic() + 100)


def test_every_ending(upstream, runner, capsys):
    names = upstream.collect(runner, ["test_cuda"])
    short = [name.rpartition(".")[2].removeprefix("test_") for name in names]
    assert "arithmetic" not in short and "out_of_memory_retry" in short and len(names) == 12
    shown = []
    found = upstream.run_all(runner, names, 4, lambda result, note="": shown.append(result.name + note))
    sides = {name.removeprefix("test_cuda.TestCuda.test_"): result for name, result in found.items()}

    def outcomes(name):
        native, gapless = sides[name].native, sides[name].gapless
        return native.outcome, gapless and gapless.outcome, gapless and gapless.error

    assert outcomes("memory_passes") == ("ok", "ok", "")
    assert outcomes("memory_fails_with_us") == ("ok", "fail", "AssertionError: True != False : a reason")
    assert outcomes("memory_fails_natively") == ("fail", None, None)
    assert outcomes("memory_needs_another_release") == ("fail", None, None)
    assert outcomes("memory_is_skipped") == ("skip", None, None)
    assert outcomes("memory_crashes_with_us")[:2] == ("ok", "fail")
    assert "by signal 11" in outcomes("memory_crashes_with_us")[2]
    assert "with status 3" in outcomes("memory_crashes_at_exit_with_us")[2]
    assert "no end within" in outcomes("memory_hangs_with_us")[2]
    assert outcomes("memory_fails_among_others") == ("ok", "ok", "")
    assert outcomes("memory_is_expected_to_fail") == ("ok", "ok", "")
    notes = {line.rpartition("test_")[2] for line in shown if line.endswith(")")}
    assert "memory_fails_among_others (again)" in notes and "memory_fails_among_others (alone)" not in notes
    assert "memory_fails_with_us (alone)" in notes and "memory_counts_segments (alone)" not in notes
    assert not any(note.startswith("memory_needs_another_release") for note in notes)
    assert outcomes("memory_counts_segments")[1] == "fail" and sides["memory_counts_segments"].segments
    assert upstream.report(["test_cuda"], [found[name] for name in names]) == (4, 5)
    text = capsys.readouterr().out
    assert "all                           12       9        4   44.4 %" in text
    assert "with those that pass with strategy:caching_allocator: 55.6 %" in text
    assert text.count("not with gapless: ") == 4 and text.count("only with strategy:caching_allocator: ") == 1


def test_nothing_starts_when_the_time_is_up(upstream, runner):
    late = type(runner)(runner.folder, 8, time.monotonic() + 2)
    result = late.both("test_cuda.TestCuda.test_memory_passes")
    assert result.native.error == "not run: the time was up" and result.gapless is None
    assert upstream.is_late(result) and not upstream.counts(result) and not upstream.fails(result)


def test_what_was_late_is_said_and_run_another_time(upstream, runner, tmp_path, capsys):
    names = [f"test_cuda.TestCuda.test_{name}" for name in ("memory_passes", "memory_fails_natively", "out_of_memory_retry")]
    late = type(runner)(runner.folder, 8, time.monotonic() + 2)
    results = [runner.both(names[0]), late.both(names[1]), runner.both(names[2])._replace(gapless=late.run(names[2], True))]
    assert upstream.report(["test_cuda"], results) == (1, 0)
    assert f"counted nowhere: 2: {names[1]}, {names[2]}" in capsys.readouterr().out
    upstream.write_json(tmp_path / "found.json", results)
    found = upstream.read_json(tmp_path / "found.json")
    assert found[names[0]] == results[0] and [upstream.is_late(found[name]) for name in names] == [False, True, True]
    # Its names are known: nothing is collected.
    assert upstream.main([str(tmp_path), "--go-on", str(tmp_path / "found.json"), "--only", "memory_", "--list"]) == 0
    assert capsys.readouterr().out.split() == names


def test_command_line(upstream, tmp_path, capsys):
    assert upstream.main([str(tmp_path)]) == 77
    assert "no test to run" in capsys.readouterr().out
    (tmp_path / "test_cuda.py").write_text("import a_module_that_is_not_there\n")
    assert upstream.main([str(tmp_path), "--list"]) == 77
    assert "test_cuda: not collected: the process ended with status 1: ModuleNotFoundError" in capsys.readouterr().out
    assert sys.modules["upstream_tests"].is_chosen("test_cuda.TestMemPool.test_mempool_id")
