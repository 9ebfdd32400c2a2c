"""The shim against PyTorch on a card: every group in a process of its own, several at a time.

usage: check.py [FOLDER [group ...]]      FOLDER: where things are built (default: a temporary one)

Prints what failed, the figures, and `N passed, N failed`; the exit status is 0 when nothing failed, 77 without a card.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
GROUPS = ["compiled", "ipc", "basics", "graphs", "history", "pools", "late"]


def run_group(folder, name):
    environment = dict(os.environ, GAPLESS_TEST_BUILD=str(folder))
    start = time.monotonic()
    try:
        done = subprocess.run([sys.executable, HERE / f"{name}.py"], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=float(os.environ.get("GAPLESS_TEST_SECONDS", 200)))
        text, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        text, status = (error.stdout or b"").decode(errors="replace"), "no end"
    return name, text, status, time.monotonic() - start


def judge(text, status):
    """(passed, failed): a group that did not come to its last line has failed once more than it says."""
    last = re.findall(r"^(\d+) passed, (\d+) failed$", text, re.M)
    if last and status in (0, 1):
        return int(last[-1][0]), int(last[-1][1])
    return len(re.findall(r"^ok ", text, re.M)), len(re.findall(r"^FAIL ", text, re.M)) + 1


def main():
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        print("no PyTorch with a card: skipped")
        return 77
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="gapless-torch-")).resolve()
    if not (folder / "shim.so").exists():
        start = time.monotonic()
        subprocess.run([sys.executable, HERE / "build.py", folder], check=True)
        print(f"built in {time.monotonic() - start:.1f} s", flush=True)
    passed = failed = 0
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for name, text, status, seconds in pool.map(lambda g: run_group(folder, g), sys.argv[2:] or GROUPS):
            good, bad = judge(text, status)
            passed, failed = passed + good, failed + bad
            lines = text.splitlines()
            shown = lines if bad else [line for line in lines if not line.startswith("ok ")]
            print(f"== {name}: {good} passed, {bad} failed, {seconds:.1f} s, status {status}")
            print("\n".join(shown[-120:]), flush=True)
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
