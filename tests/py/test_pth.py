"""The .pth file's rules: silent and cheap when nothing asks, nothing imported, no exception escapes, torch found as
before."""

import pathlib
import subprocess
import time

from conftest import ROOT

PTH = ROOT / "python" / "gapless.pth"
LOADED = "import sys; print(sorted(name for name in sys.modules if 'gapless' in name or name in ('ctypes', 'torch')))"


def test_one_line_that_site_executes():
    lines = PTH.read_text().splitlines()
    assert len(lines) == 1 and lines[0].startswith("import ")


def test_imports_nothing(run):
    assert run(LOADED, torch=False).stdout == "[]\n"


def test_imports_nothing_when_asked_before_torch_is(run):
    assert run(LOADED, torch=False, GAPLESS="1", PYTORCH_CUDA_ALLOC_CONF="backend:gapless").stdout == "[]\n"


def test_finder_is_there(run):
    assert run("import sys; print(type(sys.meta_path[0]).__name__)", torch=False).stdout == "GaplessFinder\n"


def test_switched_off_leaves_nothing(run):
    for word in ("0", "False", "off", "no"):
        assert "GaplessFinder" not in run("import sys; print(sys.meta_path)", torch=False, GAPLESS=word).stdout


def test_takes_less_than_a_fifth_of_a_millisecond():
    """The line as site.py runs it, in processor time, since other programs share the machine."""
    import sys

    line, finders = PTH.read_text(), list(sys.meta_path)
    times = []
    for _ in range(100):
        begin = time.thread_time_ns()
        exec(line, {})
        times.append((time.thread_time_ns() - begin) / 1000)
        sys.meta_path[:] = finders
    times.sort()
    print(f"switched off: {times[0]:.0f} us at best, {times[50]:.0f} us in the middle")
    assert times[0] < 200


def test_switched_off_takes_less_still(monkeypatch):
    import sys

    line, finders = PTH.read_text(), list(sys.meta_path)
    monkeypatch.setenv("GAPLESS", "0")
    exec(line, {})
    assert sys.meta_path == finders


def test_cost_of_other_imports():
    """What the finder adds to an import of something else."""
    import sys

    finders = list(sys.meta_path)
    try:
        exec(PTH.read_text(), {})
        finder = sys.meta_path[0]
        begin = time.thread_time()
        for _ in range(1000):
            assert finder.find_spec("json", None, None) is None
        assert time.thread_time() - begin < 0.05
    finally:
        sys.meta_path[:] = finders


def test_no_exception_escapes(site, tmp_path):
    """The package is gone, or broken: torch is imported as if nothing were there."""
    for name, text in (("missing", None), ("broken", "raise SystemError('broken')"), ("no_hook", "")):
        folder = tmp_path / name
        folder.mkdir()
        if text is not None:
            (folder / "gapless").mkdir()
            (folder / "gapless" / "__init__.py").write_text(text)
        line = PTH.read_text().strip()
        code = f"import sys\nsys.path[:0] = [{str(folder)!r}, {str(site.fake_torch)!r}]\n"
        if text is None:
            code += "sys.path = [path for path in sys.path if 'site-packages' not in path]\n"
        code += f"exec({line!r})\nimport torch\nprint(torch.__version__)"
        assert site.run(code, tmp_path, torch=False, flags=("-S",)).stdout == "2.11.0+fake\n"


def test_standard_error_stays_empty(run):
    for variables in ({}, {"GAPLESS": "0"}, {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"}):
        result = run("import torch; torch.cuda.init(); print(torch._C.parsed)", **variables)
        assert result.stderr == ""


def test_torch_keeps_its_spec(run):
    code = """
        import importlib.util
        spec = importlib.util.find_spec("torch")
        print(type(spec.loader).__name__, spec.submodule_search_locations is not None)
        import torch
        print(torch.__spec__.name, torch.__file__ == torch.__spec__.origin, torch.cuda.__name__)
    """
    assert run(code).stdout.splitlines() == ["SourceFileLoader True", "torch True torch.cuda"]


def test_missing_torch_is_missing(run):
    code = """
        import importlib.util
        assert importlib.util.find_spec("torch") is None
        try:
            import torch
        except ModuleNotFoundError as error:
            print(error.name)
    """
    assert run(code, torch=False).stdout == "torch\n"


def test_failing_import_of_torch_is_as_without_us(site, run):
    broken = pathlib.Path(site.fake_torch).parent / "broken"
    (broken / "torch").mkdir(parents=True, exist_ok=True)
    (broken / "torch" / "__init__.py").write_text("raise ImportError('libcudart.so: cannot open')")
    code = """
        for _ in range(2):
            try:
                import torch
            except ImportError as error:
                print(error)
    """
    for variables in ({}, {"GAPLESS": "1"}):
        result = run(code, PYTHONPATH=str(broken), **variables)
        assert result.stdout.splitlines() == ["libcudart.so: cannot open"] * 2 and result.stderr == ""


def test_python_without_site_packages_still_starts(site):
    assert subprocess.run([str(site.python), "-I", "-c", "pass"], check=False).returncode == 0
