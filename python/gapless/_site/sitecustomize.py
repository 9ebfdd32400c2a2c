"""For `gapless run` where the .pth file is not installed: hooks the import of torch, then hands on to the sitecustomize
that this one stands before."""

import os
import sys
from importlib.machinery import PathFinder

try:
    from gapless import _hook

    if os.environ.get("GAPLESS", "").lower() not in ("", "0", "false", "off", "no"):
        _hook.install()
except Exception:  # pylint: disable=broad-except
    pass

_here = os.path.dirname(os.path.abspath(__file__))
_spec = PathFinder.find_spec("sitecustomize", [path for path in sys.path if os.path.abspath(path) != _here])
if _spec is not None and _spec.loader is not None:
    _spec.loader.exec_module(sys.modules[__name__])
