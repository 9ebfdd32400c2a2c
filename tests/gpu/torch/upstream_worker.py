"""One process of upstream.py: upstream_worker.py FOLDER ANSWER (list FILE | run FILE.CLASS.TEST... | door)

The answer goes as JSON into the file ANSWER, a line as it comes, since tests print what they like; `run` gives a line a test.
"""

import gc
import importlib
import inspect
import json
import os
import sys
import unittest

# names that newer releases of PyTorch have renamed, for test files that are older than the torch at hand
RENAMED = {"test_cudagraph_trees": ("torch.testing._internal.inductor_utils", "HAS_CUDA", "HAS_CUDA_AND_TRITON")}


def prepare(folder):
    """Makes the test files and what they need importable, in spawned children too; what is installed goes first."""
    sys.path.insert(0, folder)
    sys.path.append(os.path.join(folder, "site"))
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in (os.environ.get("PYTHONPATH"), sys.path[-1]) if path)


def load(file):
    """The test file as a module."""
    if file in RENAMED:
        name, old, new = RENAMED[file]
        module = importlib.import_module(name)
        if not hasattr(module, old):
            setattr(module, old, getattr(module, new))
    return importlib.import_module(file)


def names_of(file):
    """FILE.CLASS.TEST of all tests in a file: those that PyTorch makes for devices and parameters too."""
    found = []
    for class_name, class_ in vars(load(file)).items():
        if inspect.isclass(class_) and issubclass(class_, unittest.TestCase):
            found += [f"{file}.{class_name}.{name}" for name in unittest.defaultTestLoader.getTestCaseNames(class_)]
    return found


def first_lines(text):
    """What a traceback says in the end, on one line: PyTorch's own assertions need two of its lines."""
    lines = text.splitlines()
    frames = [index for index, line in enumerate(lines) if line.startswith("  File ")]
    rest = lines[frames[-1] + 1 if frames else 0 :]
    said = [line.strip() for line in rest if line and not line.startswith(" ")]
    return " ".join(said[:2])[:300]


def cuda_has_started():
    import torch

    return torch.cuda.is_initialized()


def door():
    """Gapless' door that is open in this process, or None."""
    import gapless

    return gapless.info()["open_door"]


def run(name):
    """Runs one test; what became of it."""
    file, class_name, test = name.split(".")
    result = unittest.TestResult()
    suite = unittest.TestSuite([getattr(load(file), class_name)(test)])
    suite.run(result)
    bad = result.errors + result.failures
    if bad:
        return {"outcome": "fail", "error": first_lines(bad[0][1]), "text": bad[0][1]}
    if result.unexpectedSuccesses:
        return {"outcome": "fail", "error": "an unexpected success", "text": ""}
    if result.skipped or not result.testsRun:
        return {"outcome": "skip", "error": result.skipped[0][1] if result.skipped else "", "text": ""}
    return {"outcome": "ok", "error": "", "text": ""}


def judged(name):
    """run(), and whether gapless served it where it was asked for."""
    found = run(name)
    if found["outcome"] == "ok" and os.environ.get("GAPLESS") == "1" and cuda_has_started() and door() != "a":
        return {"outcome": "fail", "error": f"passed, but by door {door()}", "text": ""}
    return found


def run_each(*names):
    """One after the other; what a test leaves behind the next one finds."""
    for name in names:
        yield judged(name)
        gc.collect()


def open_and_say():
    """Starts CUDA as any program does."""
    import torch

    torch.cuda.init()
    return {"door": door()}


def main():
    folder, answer, verb, *words = sys.argv[1:]
    prepare(folder)
    sys.argv[1:] = []  # PyTorch's test files read the command line
    found = {"list": names_of, "run": run_each, "door": open_and_say}[verb](*words)
    with open(answer, "w", encoding="utf-8") as file:
        for line in found if verb == "run" else [found]:
            file.write(json.dumps(line) + "\n")
            file.flush()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
