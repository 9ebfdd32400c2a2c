"""The launcher and the command."""

import json
import os
import subprocess
import sys

import pytest
from conftest import COMMAND, ROOT

SHOW = "import os, sys; print(os.environ['GAPLESS'], os.environ.get('GAPLESS_CONF'), sys.argv[1:])"


@pytest.fixture
def gapless(site, tmp_path):
    """Runs `gapless ARGUMENTS` in the environment where it is installed."""

    def call(*arguments, python=None, **variables):
        environ = site.environment(tmp_path / "cache", PATH=f"{site.python.parent}:{os.environ['PATH']}", **variables)
        return subprocess.run(
            [str(python or site.python), "-m", "gapless", *map(str, arguments)],
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


def test_script(gapless, tmp_path):
    script = tmp_path / "my train.py"
    script.write_text(SHOW)
    result = gapless("run", script, "--lr", "a b")
    assert result.stdout == "1 None ['--lr', 'a b']\n" and result.returncode == 0


def test_script_without_a_suffix(gapless, tmp_path):
    script = tmp_path / "train"
    script.write_text(SHOW)
    assert gapless("run", script).stdout == "1 None []\n"


def test_module_and_code_and_executable(gapless, tmp_path):
    (tmp_path / "mine.py").write_text(SHOW)
    assert gapless("run", "-m", "mine", "x", PYTHONPATH=str(tmp_path)).stdout == "1 None ['x']\n"
    assert gapless("run", "-c", SHOW, "x").stdout == "1 None ['x']\n"
    assert gapless("run", "python", "-c", SHOW).stdout == "1 None []\n"
    assert gapless("run", "sh", "-c", "echo $GAPLESS $0", "zero").stdout == "1 zero\n"


def test_settings(gapless):
    assert gapless("run", "--conf", "max_memory:90%", "-c", SHOW).stdout == "1 max_memory:90% []\n"
    assert gapless("run", "--conf=max_memory:90%", "-c", SHOW).stdout == "1 max_memory:90% []\n"


def test_status_is_the_programs(gapless):
    assert gapless("run", "-c", "raise SystemExit(7)").returncode == 7
    assert gapless("run", "sh", "-c", "kill -TERM $$").returncode == -15


def test_what_cannot_run(gapless, tmp_path):
    missing = gapless("run", tmp_path / "missing.py")
    assert missing.returncode == 127 and "there is no program" in missing.stderr
    assert gapless("run").returncode == 2 and gapless("run", "--unknown").returncode == 2
    assert gapless("run", "--help").stdout.startswith("usage: gapless run")


def test_torch_of_the_program_is_hooked(gapless, site):
    code = "import torch; torch.cuda.init(); print(torch._C.started)"
    result = gapless("run", "python", "-c", code, PYTHONPATH=str(site.fake_torch))
    assert result.stdout == "1\n" and result.stderr.count("PyTorch's own allocator stays") == 1


def test_without_the_pth_file(site, tmp_path):
    """From a source tree: a folder in PYTHONPATH hooks torch, and an own sitecustomize still runs."""
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    code = "import torch; torch.cuda.init(); print(torch._C.started)"
    environ = site.environment(
        tmp_path / "cache", PYTHONPATH=os.pathsep.join([str(ROOT / "python"), str(tmp_path), str(site.fake_torch)])
    )
    result = subprocess.run(
        [sys.executable, "-m", "gapless", "run", sys.executable, "-c", code],
        env=environ,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.stdout.splitlines() == ["mine", "mine", "1"], result.stderr  # the launcher's, and the program's
    assert result.stderr.count("PyTorch's own allocator stays") == 1


def test_other_subcommands_are_the_programs(gapless):
    expected = subprocess.run(
        [str(COMMAND), "conf", "max_split_size_mb:1"], capture_output=True, text=True, check=False
    )
    result = gapless("conf", "max_split_size_mb:1")
    assert (result.stdout, result.stderr, result.returncode) == (expected.stdout, expected.stderr, expected.returncode)
    assert result.returncode == 1 and gapless("replai").returncode == 2
    assert gapless("help", "replay").stdout.startswith("usage: gapless replay")


def test_the_list_of_commands_has_run_too(gapless):
    for words in (["help"], ["--help"], []):
        result = gapless(*words)
        text = result.stdout if words else result.stderr
        assert "\n  run  " in text and "\n  replay  " in text and result.returncode == (0 if words else 2)


def test_info_says_what_the_machine_can_do(gapless, tmp_path):
    """Over a driver without a card (tests/support/fake_cuda.h) that lacks virtual memory management."""
    driver = COMMAND.parent / "tests" / "libfakecuda.so"
    if not driver.exists():
        pytest.skip("the fake driver is not built (ninja fakecuda)")
    (tmp_path / "libcuda.so.1").symlink_to(driver)
    variables = {"LD_LIBRARY_PATH": str(tmp_path), "FAKE_CUDA_CARDS": "1", "FAKE_CUDA_LACKS": "1"}
    text = gapless("info", **variables).stdout
    assert "GPU 0: Fake 0" in text and "virtual memory management                  no; idle memory cannot move" in text
    machine = json.loads(gapless("info", "--json", **variables).stdout)["machine"]
    assert machine["error"] is None and [card["vmm"] for card in machine["cards"]] == [False]


def test_info(gapless, site):
    text = gapless(
        "info", PYTHONPATH=str(site.fake_torch), CUDA_HOME=str(site.cuda), GAPLESS_CONF="gapless,max_memory:90%"
    ).stdout
    for words in (
        "gapless 0.1.0",
        "PyTorch: 2.11.0+fake (CUDA 13.0)",
        "door: a",
        "none yet; compiled at the first start",
        "asked for by: GAPLESS_CONF",
        "max_memory = 90% (from GAPLESS_CONF)",
    ):
        assert words in text, text


def test_info_for_programs(gapless, site):
    found = json.loads(gapless("info", "--json", PYTHONPATH=str(site.fake_torch), CXX="/nowhere/c++").stdout)
    assert found["torch"]["door"] == "b" and "no C++ compiler" in found["torch"]["why"]
    assert found["asked_by"] is None and found["open_door"] is None and found["settings"] == []
    assert json.loads(gapless("info", "--json").stdout)["torch"] is None
