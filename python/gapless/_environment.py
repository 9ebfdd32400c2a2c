"""The environment: does it ask for gapless, what is hidden from torch's own parsers, and later writes to os.environ."""

import os
import re
from typing import Callable, Mapping, Optional, Tuple

TORCH_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
OWN_VARIABLE = "GAPLESS_CONF"
VARIABLES = TORCH_VARIABLES + (OWN_VARIABLE,)
SWITCH = "GAPLESS"
_WORDS = re.compile(r"\b(gapless|caching_allocator|pooled|heuristic)\b")
_OFF = ("0", "false", "off", "no")


def switch(environ: Mapping[str, str] = os.environ) -> Optional[bool]:
    """GAPLESS as True or False; None when it is not set or empty."""
    word = environ.get(SWITCH, "").strip().lower()
    return None if not word else word not in _OFF


def asking(environ: Mapping[str, str] = os.environ) -> str:
    """What asks for gapless ("GAPLESS=1", or the name of a variable), or "" when nothing does.

    The library is loaded only where one of the words stands in a variable.
    """
    on = switch(environ)
    if on is not None:
        return f"{SWITCH}={environ[SWITCH]}" if on else ""
    for name in VARIABLES:
        if environ.get(name) and asks(environ[name]):
            return name
    return ""


def asks(string: str) -> bool:
    """Whether a configuration string asks for gapless, as the library's parser reads it."""
    if not _WORDS.search(string):
        return False  # most strings: torch's own keys
    from ._library import reduce_conf

    return reduce_conf(string)[1]


def mentions(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether torch would trip over a word of ours, by a look that needs no library: where that cannot be loaded."""
    return any(_WORDS.search(environ.get(name, "")) for name in TORCH_VARIABLES)


def in_force(environ: Mapping[str, str] = os.environ) -> Tuple[str, str]:
    """The variable that torch would read, and its string: the first that is set."""
    for name in TORCH_VARIABLES:
        if name in environ:
            return name, environ[name]
    return TORCH_VARIABLES[0], ""


class Hidden:
    """While entered, C code does not find torch's variables; `string` is what torch's own parsers are to apply instead.

    os.environ keeps the user's strings all the time, so they are what programs and child processes see.
    """

    def __init__(self, string: Optional[str] = None) -> None:
        from ._library import reduce_conf

        self._names = [name for name in TORCH_VARIABLES if name in os.environ]
        self.string = reduce_conf(in_force()[1])[0] if string is None else string

    def __enter__(self) -> "Hidden":
        for name in self._names:
            os.unsetenv(name)
        return self

    def __exit__(self, *_exception: object) -> None:
        for name in self._names:
            if name in os.environ:
                os.putenv(name, os.environ[name])


_listener: Optional[Callable[[str], None]] = None


def _changed(key: object) -> None:
    if _listener is not None and key in VARIABLES:
        _listener(str(key))


class _Watched(type(os.environ)):  # type: ignore[misc]
    """os.environ, telling of writes to the configuration's variables."""

    def __setitem__(self, key: str, value: str) -> None:
        super().__setitem__(key, value)
        _changed(key)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        _changed(key)


def watch(listener: Optional[Callable[[str], None]]) -> None:
    """Calls ``listener(name)`` after each write to a variable through os.environ; None: no more."""
    global _listener
    _listener = listener
    if listener is not None:
        os.environ.__class__ = _Watched
    elif isinstance(os.environ, _Watched):
        os.environ.__class__ = type(os.environ).__mro__[1]
