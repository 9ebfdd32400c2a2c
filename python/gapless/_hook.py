"""The import of torch: before it torch's parsers are shielded from our keys, after it CUDA's start is watched.

The .pth file beside the package puts a finder in front that calls find() for the name torch and does nothing else;
where the package runs without it (from a source tree), install() does the same.
"""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Optional

from . import _environment
from ._say import say


class Finder:
    """Stands in sys.meta_path, speaks of torch only."""

    def find_spec(self, name: str, path: Any = None, target: Optional[ModuleType] = None) -> Optional[ModuleSpec]:
        """The spec of torch with our steps around its execution; None for all other names."""
        return find(name, path, target) if name == "torch" else None


def _is_ours(finder: object) -> bool:
    """A Finder, or the .pth file's: two environments may have brought one each."""
    return isinstance(finder, Finder) or type(finder).__name__ == "GaplessFinder"


def is_installed() -> bool:
    """Whether the import of torch is watched."""
    return any(map(_is_ours, sys.meta_path))


def install() -> None:
    """Watches the import of torch, or takes the torch that is there already."""
    if "torch" in sys.modules:
        attach(sys.modules["torch"])
    elif not is_installed():
        sys.meta_path.insert(0, Finder())


def find(name: str, path: Any = None, target: Optional[ModuleType] = None) -> Optional[ModuleSpec]:
    """Asks the other finders, and wraps the loader that they give."""
    for finder in sys.meta_path:
        if _is_ours(finder) or not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec(name, path, target)
        if spec is not None:
            _wrap(spec)
            return spec
    return None


def _wrap(spec: ModuleSpec) -> None:
    execute = getattr(spec.loader, "exec_module", None)
    if execute is None:
        return

    def exec_module(module: ModuleType) -> None:
        shield = _shield()
        try:
            execute(module)
            if shield is not None or "_C" in vars(module):
                attach(module, shield)
        finally:
            if shield is not None:
                shield.__exit__()

    try:
        spec.loader.exec_module = exec_module  # type: ignore
    except AttributeError:
        pass  # a loader without attributes of its own: torch is imported as if we were not here


def _shield() -> Optional[_environment.Hidden]:
    try:
        return _environment.Hidden().__enter__() if _environment.asking() else None
    except Exception as reason:  # pylint: disable=broad-except
        say(f"not used: {reason}; PyTorch's own allocator stays")
        return _environment.Hidden("").__enter__() if _environment.mentions() else None


def attach(module: ModuleType, shield: Optional[_environment.Hidden] = None) -> None:
    """Takes hold of an imported torch; what goes wrong is said in a line and leaves torch as it is."""
    try:
        from . import _torch

        _torch.attach(module)
        if shield is not None:
            _torch.settle_parsers(shield)
    except Exception as reason:  # pylint: disable=broad-except
        say(f"not used: {reason}; PyTorch's own allocator stays")
