"""Compiles the shim; a program of its own: python -I _build.py JOB.json

It is run apart from the program that wants the shim, holds the entry's lock through a descriptor that it inherits, and
goes on when its parent has lost patience: the next start finds the result.  The library appears by one rename.  On
failure the compiler's words stay in the log, beside a mark that says so.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, Dict, List, Optional

Job = Dict[str, Any]  # of _shim.py: paths, and words of command lines
LIMIT_SECONDS = 300
CXX_LIBRARY = "libstdc++.so.6"  # torch's, which is in the process already
# How the C++ library is linked: by its name, since a compiler may prefer an archive; or as the compiler likes.
RUNTIMES = (["-nodefaultlibs", "-Wl,--no-as-needed", f"-l:{CXX_LIBRARY}", "-lm", "-lc", "-lgcc_s", "-lgcc"], [])


def run(command: List[str], log: BinaryIO) -> bool:
    """True when the command succeeded; its words go to the log."""
    result = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    if result.returncode:
        log.write(" ".join(command).encode() + b"\n" + result.stdout)
    return result.returncode == 0


def compile_as_one(job: Job, standard: str, folder: str, log: BinaryIO) -> Optional[List[str]]:
    """All sources in one text: torch's headers, which take nearly all the time, are read once."""
    unity, target = os.path.join(folder, "all.cpp"), os.path.join(folder, "all.o")
    with open(unity, "w", encoding="utf-8") as file:
        file.writelines(f'#include "{source}"\n' for source in job["sources"])
    return [target] if run([*job["compiler"], standard, *job["compile"], "-c", unity, "-o", target], log) else None


def compile_each(job: Job, standard: str, folder: str, log: BinaryIO) -> Optional[List[str]]:
    """One object a source, as many at a time as there are processors."""
    objects = [os.path.join(folder, os.path.basename(source) + ".o") for source in job["sources"]]
    commands = [
        [*job["compiler"], standard, *job["compile"], "-c", source, "-o", target]
        for source, target in zip(job["sources"], objects, strict=True)
    ]
    with ThreadPoolExecutor(max(1, min(len(commands), len(os.sched_getaffinity(0))))) as pool:
        done = list(pool.map(lambda command: run(command, log), commands))
    return objects if all(done) else None


def shares_library(library: str, log: BinaryIO) -> bool:
    """Does it use the C++ library of the process? With a second one inside, the two take each other's locales for theirs."""
    with open(library, "rb") as file:
        if CXX_LIBRARY.encode() in file.read():
            return True
    log.write(f"the compiler links a C++ library of its own into the shim, not {CXX_LIBRARY}\n".encode())
    return False


def link(job: Job, objects: List[str], folder: str, log: BinaryIO) -> Optional[str]:
    """The path of the library, or None."""
    library = os.path.join(folder, "shim.so")
    for runtime in RUNTIMES:
        if run([*job["compiler"], *objects, *job["link"], *runtime, "-o", library], log):
            return library if shares_library(library, log) else None
    return None


def build(job: Job, folder: str, log: BinaryIO) -> Optional[str]:
    """Compiles and links in a folder of its own; the path of the library, or None."""
    for standard in job["standards"]:
        objects = compile_as_one(job, standard, folder, log) or compile_each(job, standard, folder, log)
        if objects:
            return link(job, objects, folder, log)
    return None


def main(path: str) -> int:
    """Builds what a job file describes."""
    with open(path, encoding="utf-8") as file:
        job = json.load(file)
    os.unlink(path)
    folder = tempfile.mkdtemp(prefix=".build-", dir=os.path.dirname(job["library"]))
    try:
        with open(job["log"], "wb") as log:
            library = build(job, folder, log)
        if library is None:
            open(job["failed"], "wb").close()
            return 1
        os.chmod(library, 0o600)
        os.replace(library, job["library"])
        return 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
