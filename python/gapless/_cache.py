"""The folder for what is built on the user's machine, and the lock of one entry in it.

Libraries from here are loaded into programs, so the folder must be nobody else's: owned by this user, writable by no
other, no symbolic link.  Where the home is read-only (or is not safe so), a folder under the temporary one serves.
"""

import fcntl
import os
import stat
import tempfile
from typing import Iterator, Optional


def _candidates() -> Iterator[str]:
    if os.environ.get("GAPLESS_CACHE"):
        yield os.environ["GAPLESS_CACHE"]
        return  # the user's word is not second-guessed
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if os.path.isabs(base):
        yield os.path.join(base, "gapless")
    yield os.path.join(tempfile.gettempdir(), f"gapless-{os.geteuid()}")


def is_safe(path: str) -> bool:
    """A real folder of this user that nobody else can write."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def is_safe_file(path: str) -> bool:
    """A plain file of this user that nobody else can write."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _usable(path: str) -> bool:
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return False
    return is_safe(path) and os.access(path, os.W_OK | os.X_OK)


def folder() -> Optional[str]:
    """The first candidate that is there or can be made, and is safe."""
    return next((path for path in _candidates() if _usable(path)), None)


def readable() -> "list[str]":
    """Safe folders that exist, writable or not: a read-only home may hold what an image has brought along."""
    return [path for path in _candidates() if is_safe(path)]


def lock(path: str) -> Optional[int]:
    """The descriptor of an exclusive lock, which lives as long as any copy of it; None when somebody else has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        pass  # a file system without locks: two may build at once, and the renames are atomic
    return descriptor
