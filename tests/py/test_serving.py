"""The serving example: the answers are those of generate(), with prompts that share, and with too little memory."""

import json
import os
import subprocess
import sys

import pytest

from conftest import ROOT

pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.0")


def serve(*words):
    environ = dict(os.environ, PYTHONPATH=str(ROOT / "python"), OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
    command = [sys.executable, str(ROOT / "examples" / "serving.py"), "--check", *words]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_prompts_share():
    result = serve("--trace", str(ROOT / "examples" / "serving_trace.jsonl"), "--speed", "0.5")
    assert result["same_as_generate"] == 1
    assert result["hit_rate"] > 0.05
    assert result["batch_mean"] > 1


@pytest.mark.parametrize("host", ("8", "0"), ids=("swapped", "started again"))
def test_who_finds_no_room_comes_back(host, tmp_path):
    """All begin, and grow to more than there is."""
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps({"at": 0, "prompt": 9 + i, "new": 110}) + "\n" for i in range(14)))
    result = serve("--trace", str(trace), "--cache", "4", "--host", host, "--block-major")
    assert result["same_as_generate"] == 1
    assert result["preempted"] > 0
