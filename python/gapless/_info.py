"""What `gapless info` knows from Python: the door, the settings in force and who set them.

Nothing is compiled, and neither torch nor CUDA is started by looking.
"""

import json
import os
import subprocess
import sys
from typing import Any, Dict, List

from . import __version__, _cache, _environment, _library, _shim
from .cli import binary


def _shim_state(torch: "_shim.Torch") -> Dict[str, Any]:
    try:
        made = _shim.plan(torch)
    except _shim.NoShim as reason:
        return {"door": "b", "shim": None, "why": str(reason)}
    path = _shim.cached(made.name)
    return {"door": "a", "shim": path, "why": "" if path else "compiled at the first start of CUDA"}


def _in_process() -> Dict[str, Any]:
    state: Any = getattr(sys.modules.get("gapless._torch"), "state", None)
    door = state.door if state is not None else None
    return {
        "open_door": door.name if door is not None else None,
        "description": door.description if door is not None else "",
        "reason": state.reason if state is not None else "",
    }


def _settings() -> List[Dict[str, str]]:
    """The values in force that somebody has set, by the parser of the library."""
    try:
        result = subprocess.run([binary(), "conf", "--json"], capture_output=True, text=True, timeout=20, check=False)
        values = json.loads(result.stdout)["values"]
    except (OSError, ValueError, KeyError, subprocess.SubprocessError):
        return []
    return [
        {"key": key, "value": found["text"], "from": found["set_by"]}
        for key, found in values.items()
        if not found["default"]
    ]


def collect() -> Dict[str, Any]:
    """See gapless.info()."""
    torch = _shim.Torch.on_disk()
    found: Dict[str, Any] = {
        "version": __version__,
        "library": _library.path(),
        "cache": _cache.folder(),
        "asked_by": _environment.asking() or None,
        "settings": _settings(),
        **_in_process(),
    }
    found["torch"] = {**torch._asdict(), **_shim_state(torch)} if torch is not None else None
    return found


def _lines(found: Dict[str, Any]) -> List[str]:
    torch = found["torch"]
    lines = [f"Python package: {found['version']}, library {found['library']}"]
    if torch is None:
        lines.append("PyTorch: not installed")
    else:
        lines.append(f"PyTorch: {torch['version']} (CUDA {torch['cuda']})")
        door = {"a": "a, the shim: every memory function of torch.cuda", "b": "b, CUDAPluggableAllocator"}[
            torch["door"]
        ]
        lines.append(f"  door: {door}")
        lines.append(f"  shim: {torch['shim'] or 'none yet'}{'; ' + torch['why'] if torch['why'] else ''}")
    lines.append(f"cache: {found['cache'] or 'no safe folder'}")
    lines.append(f"asked for by: {found['asked_by'] or 'nothing (GAPLESS=1, backend:gapless or gapless run would)'}")
    lines.append(
        "settings in force:" if found["settings"] else "settings in force: the defaults (gapless conf lists them)"
    )
    lines += [f"  {item['key']} = {item['value']} (from {item['from']})" for item in found["settings"]]
    return lines


def _machine() -> Any:
    """What the cards and the driver can do, as the program finds it: it opens each card, so programs are not told."""
    result = subprocess.run([binary(), "info", "--json"], capture_output=True, text=True, check=False)
    return json.loads(result.stdout) if result.returncode == 0 else None


def main(arguments: List[str]) -> int:
    """The command: what the program says, then what Python knows; --json: one object of both."""
    if arguments == ["--json"]:
        print(json.dumps({**collect(), "machine": _machine()}, indent=1))
        return 0
    code = subprocess.call([binary(), "info", *arguments]) if os.access(binary(), os.X_OK) else 0
    if code == 0 and not set(arguments) & {"-h", "--help"}:
        print("\n" + "\n".join(_lines(collect())))
    return code
