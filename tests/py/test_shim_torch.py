"""The shim itself against the PyTorch that is installed, without a card: tests/gpu/torch/check.py --without-card, all that launches no kernel."""

import importlib.util
import os
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

torch = pytest.importorskip("torch", minversion="2.8")
if torch.version.cuda is None:
    pytest.skip("this PyTorch is built without CUDA", allow_module_level=True)
for _compiler in ("gcc", "g++"):
    if shutil.which(_compiler) is None:
        pytest.skip(f"no {_compiler}", allow_module_level=True)
if importlib.util.find_spec("nvidia") is None and not os.path.exists("/usr/local/cuda/include/cuda_runtime_api.h"):
    pytest.skip("no cuda_runtime_api.h", allow_module_level=True)


def test_all_that_launches_no_kernel(tmp_path):
    program = ROOT / "tests" / "gpu" / "torch" / "check.py"
    result = subprocess.run(
        [sys.executable, str(program), "--without-card", str(tmp_path)],
        env={name: value for name, value in os.environ.items() if not name.startswith("GAPLESS")},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
    assert result.stdout.splitlines()[-1].endswith(" passed, 0 failed")
