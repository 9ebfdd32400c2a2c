"""The command `gapless`: `run` and what `info` adds are Python's; every other subcommand is the program inside the
package."""

import os
import subprocess
import sys
from typing import List, Optional

from . import _library
from ._say import say


def binary() -> str:
    """The program that does the rest; GAPLESS_COMMAND names another one."""
    return os.environ.get("GAPLESS_COMMAND") or os.path.join(_library.PACKAGE, "_bin", "gapless")


def _overview(words: List[str]) -> int:
    """The list of commands, with the one that is Python's; it goes to where the program writes its own."""
    said = subprocess.run([binary(), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    run = "\nfrom Python:\n  run      a program with gapless as PyTorch's allocator: gapless run python3 train.py\n"
    sys.stdout.write(said.stdout + (run if said.stdout else ""))
    sys.stderr.write(said.stderr + ("" if said.stdout else run))
    return said.returncode


def main(arguments: Optional[List[str]] = None) -> int:
    """Dispatches; returns the exit code, or does not return."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["run"] or words == ["help", "run"]:
        from . import _run

        return _run.main(words[1:] if words[0] == "run" else ["--help"])
    if words[:1] == ["info"]:
        from . import _info

        return _info.main(words[1:])
    if not os.access(binary(), os.X_OK):
        say(f"{binary()} is not there; GAPLESS_COMMAND may name it")
        return 2
    if words in ([], ["help"], ["--help"], ["-h"]):
        return _overview(words)
    sys.stdout.flush()
    os.execv(binary(), ["gapless", *words])


if __name__ == "__main__":
    sys.exit(main())
