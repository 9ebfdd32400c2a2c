"""gapless run PROGRAM ARGS...: a program with GAPLESS=1, and its children too.

PROGRAM is a Python script, ``-m MODULE``, ``-c CODE`` or any executable (python3, torchrun, ...).  Where this package
is installed, the .pth file beside it does the rest in every Python that it starts; elsewhere (a source tree, another
interpreter of the same machine) a folder in PYTHONPATH does.
"""

import os
import shutil
import sys
from typing import Dict, List, Optional

from . import _hook, _library
from ._say import say

USAGE = """usage: gapless run [--conf STRING] PROGRAM [ARGUMENTS]

Runs a program with gapless as PyTorch's allocator.  PROGRAM is a Python script, -m MODULE, -c CODE, or an executable
such as python3 or torchrun.  --conf STRING is put into GAPLESS_CONF ("max_memory:90%,reserve:1G"; see gapless conf).
"""


def _is_script(path: str) -> bool:
    if path.endswith((".py", ".pyz")):
        return True
    return os.path.isfile(path) and not os.access(path, os.X_OK)


def command_of(arguments: List[str]) -> Optional[List[str]]:
    """What to execute; None when the program does not exist."""
    program = arguments[0]
    if program in ("-m", "-c"):
        return [sys.executable, *arguments]
    if _is_script(program):
        return [sys.executable, *arguments] if os.path.exists(program) else None
    found = shutil.which(program)
    return [found, *arguments[1:]] if found else None


def environment(conf: Optional[str]) -> Dict[str, str]:
    """The program's environment."""
    environ = dict(os.environ, GAPLESS="1")
    if conf is not None:
        environ["GAPLESS_CONF"] = conf
    if not _hook.is_installed():
        folders = [os.path.join(_library.PACKAGE, "_site"), os.path.dirname(_library.PACKAGE)]
        environ["PYTHONPATH"] = os.pathsep.join(folders + [path for path in (os.environ.get("PYTHONPATH"),) if path])
    return environ


def main(arguments: List[str]) -> int:
    """Replaces this process by the program."""
    conf = None
    if arguments and arguments[0] in ("-h", "--help"):
        sys.stdout.write(USAGE)
        return 0
    while arguments and arguments[0].startswith("--conf"):
        option, equals, value = arguments.pop(0).partition("=")
        if option != "--conf" or not (equals or arguments):
            break
        conf = value if equals else arguments.pop(0)
    if not arguments or arguments[0].startswith("--"):
        sys.stderr.write(USAGE)
        return 2
    command = command_of(arguments)
    if command is None:
        say(f'run: there is no program "{arguments[0]}"')
        return 127
    sys.stdout.flush()
    try:
        os.execve(command[0], command, environment(conf))
    except OSError as reason:
        say(f"run: {command[0]}: {reason.strerror}")
        return 126
