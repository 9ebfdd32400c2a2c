"""The shim against PyTorch on a card: every group in a process of its own, several at a time.

usage: check.py [--without-card] [FOLDER [group ...]]      FOLDER: where things are built (default: a temporary one)

--without-card: the tests that launch no kernel, on host memory behind a stand-in for the driver (nocard.c), with the real torch.
Prints what failed, the figures, and `N passed, N failed`; the exit status is 0 when nothing failed, 77 without torch or a card.
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
GROUPS = ["compiled", "ipc", "basics", "graphs", "history", "pools", "late", "caching", "profiler",
          "threads", "programs", "overflow", "sleep"]
ALONE = ["sleep"]  # fills the card: after all others
KERNEL_FREE = {
    "bare": [],
    "caching": ["whole_blocks", "last_resort", "two_limits"],
    "two": [],
    "basics": ["waits_for_cuda", "all_figures", "figures_follow_blocks", "empty_cache", "summary_text", "out_of_memory",
               "memory_callbacks", "absurd_sizes", "accelerator", "every_function"],
    "graphs": ["checkpoint_restores_addresses"],
    "history": ["snapshot_without_history", "sizes_of_segments", "history", "ring_and_skipped_actions",
                "context_of_what_is_given_back", "out_of_memory_entry", "viewer", "trackers", "metadata"],
    "programs": ["installed_where_caching_is_off"],
    "overflow": ["where_they_lie"],
    "sleep": ["what_torch_sees", "block_by_block", "freed_while_it_sleeps"],
    "profiler": ["free_of_what_was_there_before", "events_of_blocks", "nothing_is_kept_of_a_profile", "event_of_an_error"],
    "pools": ["use_mem_pool", "other_threads_stay_outside", "use_on_oom", "out_of_memory_names_pools",
              "one_fraction_for_both_allocators"],
}


def environment_of(folder, name, card):
    environment = dict(os.environ, GAPLESS_TEST_BUILD=str(folder))
    if not card:
        environment["NOCARD_DEVICES"] = "2" if name == "two" else "1"
        environment["LD_LIBRARY_PATH"] = str(folder)
        environment["LD_PRELOAD"] = f"{folder}/nocard.so:{folder}/libgapless.so.0"
    return environment


def run_group(folder, name, card):
    environment = environment_of(folder, name, card)
    names = [] if card else [f"test_{test}" for test in KERNEL_FREE[name]]
    start = time.monotonic()
    try:
        done = subprocess.run([sys.executable, HERE / f"{name}.py", *names], env=environment, stdout=subprocess.PIPE,
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


def can_run(card):
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available() if card else torch.version.cuda is not None


def build(folder, card):
    if (folder / "shim.so").exists() and (card or (folder / "nocard.so").exists()):
        return
    start = time.monotonic()
    subprocess.run([sys.executable, HERE / "build.py", folder, *([] if card else ["nocard"])], check=True)
    print(f"built in {time.monotonic() - start:.1f} s", flush=True)


def report(name, text, status, seconds):
    """Prints a group's result; its (passed, failed)."""
    good, bad = judge(text, status)
    lines = text.splitlines()
    shown = lines if bad else [line for line in lines if not line.startswith("ok ")]
    print(f"== {name}: {good} passed, {bad} failed, {seconds:.1f} s, status {status}")
    print("\n".join(shown[-120:]), flush=True)
    return good, bad


def run_all(pool, folder, groups, card):
    """Results as groups end, in order; those that need the card for themselves come last."""
    for names in ([name for name in groups if name not in ALONE], [name for name in groups if name in ALONE]):
        yield from pool.map(lambda name: run_group(folder, name, card), names)


def main():
    words = [word for word in sys.argv[1:] if word != "--without-card"]
    card = len(words) == len(sys.argv) - 1
    if not can_run(card):
        print("no PyTorch with a card: skipped")
        return 77
    folder = pathlib.Path(words[0] if words else tempfile.mkdtemp(prefix="gapless-torch-")).resolve()
    build(folder, card)
    passed = failed = 0
    groups = words[1:] or (GROUPS if card else list(KERNEL_FREE))
    with concurrent.futures.ThreadPoolExecutor(8 if card else 2) as pool:
        for result in run_all(pool, folder, groups, card):
            good, bad = report(*result)
            passed, failed = passed + good, failed + bad
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
