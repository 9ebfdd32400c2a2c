"""Switching gapless on inside PyTorch: when, by which door, and what the settings become.

Nothing is decided before CUDA starts (torch._C._cuda_init), because a program may write os.environ until then, and
because a process that never uses CUDA should neither compile nor fork with a driver open.  gapless.enable() decides at
once.
"""

import os
import sys
import threading
from types import ModuleType
from typing import Any, Callable, Optional

from . import _environment, _nccl
from ._library import check_conf, knows_key, reduce_conf
from ._say import say

_MARK = "_gapless_attached"
_SETTERS = ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings")
# These start CUDA below Python, and tell the allocator of that moment only
_STARTERS = (
    "_cuda_record_memory_history",
    "_cuda_record_memory_history_legacy",
    "_cuda_attach_out_of_memory_observer",
)


class State:
    """What this process has decided; guarded by `lock` where it changes."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.wanted: Optional[bool] = None  # enable() and disable(); None: the environment says
        self.door: Any = None  # _shim.Shim or _pluggable.Pluggable once opened
        self.settled: Optional[str] = None  # what torch's parsers were made to read last
        self.conf: Optional[str] = None  # the program's own string, from configure() or a setter
        self.setters: dict = {}  # torch's own functions by name
        self.reason = ""  # why gapless is not used, when it was asked for


state = State()


def attach(torch: ModuleType) -> None:
    """Wraps CUDA's start and the setters of an imported torch; once."""
    core = torch._C
    if getattr(core, _MARK, False) or not hasattr(core, "_cuda_init"):
        return  # a build without CUDA has nothing to serve
    setattr(core, _MARK, True)
    core._cuda_init = _wrap_start(torch, core._cuda_init)
    for name in _STARTERS:
        if hasattr(core, name):
            setattr(core, name, _wrap_starter(torch, getattr(core, name)))
    for name in _SETTERS:
        if hasattr(core, name):
            state.setters[name] = getattr(core, name)
            setattr(core, name, _wrap_setter(torch, state.setters[name]))
    _nccl.attach(torch)


def _wrap_start(torch: ModuleType, start: Callable[..., Any]) -> Callable[..., Any]:
    def _cuda_init(*arguments: Any) -> Any:
        try:
            _before_start(torch)
        except Exception as reason:  # pylint: disable=broad-except
            state.door = None
            _stay_out(str(reason) or type(reason).__name__)
        result = start(*arguments)
        _after_start()
        return result

    return _cuda_init


def _wrap_starter(torch: ModuleType, function: Callable[..., Any]) -> Callable[..., Any]:
    def starter(*arguments: Any, **named: Any) -> Any:
        if wanted() and not torch.cuda.is_initialized():
            torch.cuda.init()
        return function(*arguments, **named)

    return starter


def _wrap_setter(torch: ModuleType, setter: Callable[[str], Any]) -> Callable[[str], Any]:
    def set_allocator_settings(settings: str) -> Any:
        if not _takes_settings(torch, settings):
            return setter(settings)
        _let_refuse(setter, settings)
        configure(settings)
        return _tell_parsers(setter, settings)

    return set_allocator_settings


def _takes_settings(torch: ModuleType, settings: str) -> bool:
    """Whether a string for the setter is ours; one that asks for gapless before CUDA starts switches it on."""
    if state.door is not None or wanted():
        return True
    if state.wanted is False or _environment.switch() is False:
        return False
    if _environment.asks(settings) and not torch.cuda.is_initialized():
        state.wanted = True
        return True
    return False


def wanted() -> bool:
    """Whether gapless is to serve this process."""
    if _environment.switch() is False:
        return False
    return bool(_environment.asking()) if state.wanted is None else state.wanted


# ---- torch's own parsers ----


def settle_parsers(shield: _environment.Hidden) -> None:
    """Makes torch's parsers read their part of the string now, while they do not find the variables themselves."""
    setter = next(iter(state.setters.values()), None)
    if setter is not None and state.settled != shield.string:
        state.settled = shield.string
        _apply_items(setter, shield.string)


def _let_refuse(setter: Callable[[str], Any], settings: str) -> None:
    """Keys that nobody knows are warned of in a variable; of a call programs expect torch's answer, an exception."""
    for item in _items(settings):
        if not knows_key(item):
            setter(item)


def _tell_parsers(setter: Callable[[str], Any], settings: str) -> Any:
    return _apply_items(setter, reduce_conf(settings)[0])


def _apply_items(setter: Callable[[str], Any], text: str) -> None:
    """Applies the items that this release of torch knows: it refuses a whole string for one that it does not."""
    known = []
    for item in _items(text):
        try:
            setter(item)
            known.append(item)
        except (ValueError, RuntimeError, IndexError):
            pass
    setter(",".join(known))  # each call resets what the one before said


def _items(text: str) -> "list[str]":
    """Splits at the commas outside brackets."""
    items, depth = [""], 0
    for char in text:
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            items.append("")
        else:
            items[-1] += char
    return [item for item in items if item]


# ---- the start of CUDA ----


def _before_start(torch: ModuleType) -> None:
    with state.lock:
        if state.door is None and wanted():
            _open(torch)
        if state.door is not None:
            state.door.about_to_start(torch)


def _after_start() -> None:
    with state.lock:
        if state.door is None:
            return
        reason = state.door.started()
        if reason:
            state.door = None
            _stay_out(reason)
        else:
            _environment.watch(_reconfigure)
            _watch_optimizers()


def _watch_optimizers() -> None:
    from . import _cold

    _cold.watch()


def _stay_out(reason: str) -> None:
    state.reason = reason
    say(f"not used: {reason}; PyTorch's own allocator stays")


def _open(torch: ModuleType) -> bool:
    """Opens a door; False, with a line, when torch's own allocator has to stay."""
    from ._doors import open_door

    chosen = torch._C._cuda_getAllocatorBackend()
    if chosen != "native":
        _stay_out(f"the program chose the allocator '{chosen}' itself")
        return False
    with _environment.Hidden() as shield:
        settle_parsers(shield)
    door, reason = open_door(torch, state.conf)
    if door is None:
        _stay_out(reason)
        return False
    state.door, state.reason = door, ""
    _show_settings()
    return True


def _show_settings() -> None:
    """The snapshot's allocator_settings carry the user's string."""
    state.door.show_settings(state.conf if state.conf is not None else _environment.in_force()[1])


# ---- by hand ----


def enable() -> bool:
    """See gapless.enable()."""
    from . import _hook

    if _environment.switch() is False:
        say(f"not used: {_environment.SWITCH}={os.environ[_environment.SWITCH]} is set; PyTorch's own allocator stays")
        return False
    with state.lock:
        state.wanted = True
        _hook.install()
        torch = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "_C"):
            return True  # decided when CUDA starts
        return _enable_in(torch)


def _enable_in(torch: ModuleType) -> bool:
    if not hasattr(torch._C, "_cuda_init"):
        _stay_out("this PyTorch is built without CUDA")
        return False
    if state.door is not None:
        return state.door.resume()
    if torch.cuda.is_initialized():
        _stay_out("enable() came too late: CUDA has started already")
        return False
    return _open(torch)


def disable() -> bool:
    """See gapless.disable()."""
    with state.lock:
        state.wanted = False
        if state.door is None:
            return True
        reason = state.door.suspend()
        if reason:
            say(f"still used: {reason}")
        return not reason


def configure(conf: str) -> None:
    """See gapless.configure()."""
    from . import heap

    with state.lock:
        if not is_serving():
            check_conf(conf)  # a mistake is an exception where it is made, not a line when CUDA starts
        if state.door is not None:
            state.door.configure(conf)
        heap.configure_default(conf, done=state.door is not None)
        state.conf = conf
        if state.door is not None:
            _show_settings()


def _reconfigure(_variable: str) -> None:
    """A write to os.environ after CUDA's start; a bad string is said and changes nothing."""
    with state.lock:
        if state.door is not None:
            state.door.reload_environment()
            if state.conf is None:
                _show_settings()


def is_serving() -> bool:
    """Whether gapless serves torch's new blocks now."""
    return state.door is not None and state.wanted is not False and state.door.serving()
