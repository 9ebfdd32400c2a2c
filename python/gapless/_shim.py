"""Door (a): a C++ subclass of torch's CUDAAllocator, compiled on first use against the installed torch and kept in a
cache.

shim/torch/README.md is the agreement about sources, flags and entry points.
"""

import ctypes
import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from types import ModuleType
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import _cache, _library
from ._errors import error
from ._say import say
from .heap import Heap

ABI = 1
WAIT_SECONDS = 15.0
_RETRY_SECONDS = 24 * 3600.0  # a torch that the shim does not compile against is not tried at every start
_HEADERS = ("c10/core/Allocator.h", "c10/core/CachingDeviceAllocator.h", "c10/cuda/CUDACachingAllocator.h")


class NoShim(Exception):
    """It cannot be had on this machine; door (b) may open."""


class Refused(Exception):
    """It is there, and torch or the driver says no: torch's own allocator stays."""


class Torch(NamedTuple):
    """The installed torch, as far as the shim depends on it."""

    root: str
    version: str
    git_version: str
    cuda: str
    abi: int  # of libstdc++'s strings

    @classmethod
    def of(cls, torch: ModuleType) -> "Torch":
        """From an imported torch."""
        return cls(
            os.path.dirname(torch.__file__ or ""),
            str(torch.__version__),
            str(torch.version.git_version),
            str(torch.version.cuda),
            int(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True)),
        )

    @classmethod
    def on_disk(cls) -> "Optional[Torch]":
        """Without importing it; None where there is none."""
        from importlib.util import find_spec

        spec = find_spec("torch")
        if spec is None or not spec.origin:
            return None
        root = os.path.dirname(spec.origin)
        found: Dict[str, Any] = {}
        try:
            with open(os.path.join(root, "version.py"), encoding="utf-8") as file:
                exec(file.read(), found)  # what torch itself would execute
        except Exception:  # pylint: disable=broad-except
            return None
        return cls(root, str(found.get("__version__")), str(found.get("git_version")), str(found.get("cuda")), 1)


# ---- what it is built from ----


def sources() -> str:
    """The folder of the shim's sources: inside the package, or in the source tree."""
    inside = os.path.join(_library.PACKAGE, "_shim_sources")
    tree = os.path.normpath(os.path.join(_library.PACKAGE, "..", "..", "shim", "torch"))
    return inside if os.path.isdir(inside) else tree


def compiler() -> Optional[List[str]]:
    """CXX, or the first C++ compiler of the path."""
    named = os.environ.get("CXX", "").split()
    if named:
        return named if shutil.which(named[0]) else None
    return next(([found] for found in map(shutil.which, ("c++", "g++", "clang++")) if found), None)


def cuda_includes(torch: Torch) -> List[str]:
    """Folders with cuda_runtime_api.h, which no torch wheel carries itself, and crt/host_defines.h; [] where there are
    none.

    pip installs the former with torch and the latter with CUDA's compiler only: where it is missing ours stands in.
    """
    site = os.path.dirname(torch.root)
    homes = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", "")]
    heads = [os.path.join(home, "include") for home in homes if home]
    heads += sorted(glob.glob(os.path.join(site, "nvidia", "cu[0-9]*", "include")), reverse=True)
    heads += [os.path.join(site, "nvidia", "cuda_runtime", "include"), "/usr/local/cuda/include"]
    head = next((path for path in heads if os.path.isfile(os.path.join(path, "cuda_runtime_api.h"))), None)
    if head is None:
        return []
    beside = [os.path.join(site, "nvidia", name, "include") for name in ("cuda_nvcc", "cuda_crt")]
    ours = os.path.join(_library.PACKAGE, "_crt")
    owner = next(path for path in (head, *beside, ours) if os.path.isfile(os.path.join(path, "crt", "host_defines.h")))
    return [head] if owner == head else [head, owner]


def _digest(paths: List[str]) -> str:
    total = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            total.update(os.path.basename(path).encode() + b"\0" + file.read())
    return total.hexdigest()


def _builder() -> str:
    return os.path.join(_library.PACKAGE, "_build.py")


class Plan(NamedTuple):
    """How the shim of this torch is built, and the name that it has in the cache."""

    name: str
    job: Dict[str, Any]


def plan(torch: Torch) -> Plan:
    """Raises NoShim where something is missing."""
    if torch.cuda in ("None", ""):
        raise NoShim("this PyTorch is built without CUDA")
    command = compiler()
    if command is None:
        raise NoShim("no C++ compiler is found (CXX, c++, g++, clang++)")
    cuda = cuda_includes(torch)
    if not cuda:
        raise NoShim(
            "cuda_runtime_api.h is found nowhere (CUDA_HOME, the package nvidia-cuda-runtime, /usr/local/cuda)"
        )
    include = os.path.join(torch.root, "include")
    files = sorted(glob.glob(os.path.join(sources(), "*.cpp")))
    headers = [os.path.join(include, name) for name in _HEADERS]
    ours = sorted(
        glob.glob(os.path.join(sources(), "*.h")) + glob.glob(os.path.join(_library.include(), "gapless", "*.h"))
    )
    if not files or not all(map(os.path.isfile, headers)):
        raise NoShim("the shim's sources or torch's headers are missing")
    job = _job(torch, command, files, [_library.include()], [include, *cuda])
    key = json.dumps(
        [
            ABI,
            torch,
            _compiler_version(command),
            job["standards"],
            job["compile"],
            _library.version(),
            _digest(files + headers + ours + [_builder()]),
        ]
    )
    name = f"torch-{torch.version}-{hashlib.sha256(key.encode()).hexdigest()[:20]}"
    return Plan(name, job)


def _compiler_version(command: List[str]) -> str:
    try:
        result = subprocess.run(
            [*command, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError) as reason:
        raise NoShim(f"{command[0]} does not work: {reason}") from None
    return result.stdout.partition("\n")[0]


def _job(torch: Torch, command: List[str], files: List[str], own: List[str], system: List[str]) -> Dict[str, Any]:
    release = tuple(int(part) for part in torch.version.split("+")[0].split(".")[:2] if part.isdigit())
    library, lib = os.path.dirname(_library.path()), os.path.join(torch.root, "lib")
    return {
        "compiler": command,
        "sources": files,
        "standards": ["-std=c++20"] if release >= (2, 12) else ["-std=c++17", "-std=c++20"],
        "compile": [
            "-O2",
            "-fPIC",
            "-fvisibility=hidden",
            "-fno-plt",
            "-DNDEBUG",
            f"-D_GLIBCXX_USE_CXX11_ABI={torch.abi}",
            *(f"-I{path}" for path in own),
            *(part for path in system for part in ("-isystem", path)),
        ],
        "link": [
            "-shared",
            f"-L{library}",
            "-lgapless",
            f"-L{lib}",
            "-lc10",
            "-lc10_cuda",
            "-Wl,-z,nodelete,-z,relro,-z,now",
            f"-Wl,-rpath,{library}:{lib}",
            "-ldl",
            "-lpthread",
        ],
    }


# ---- the cache ----


def _paths(folder: str, name: str) -> Tuple[str, ...]:
    return tuple(os.path.join(folder, name + suffix) for suffix in (".so", ".failed", ".lock", ".log"))


def cached(name: str) -> Optional[str]:
    """The library of this name in a safe folder, or None."""
    for folder in _cache.readable():
        path = _paths(folder, name)[0]
        if _cache.is_safe_file(path):
            return path
    return None


def _failed(path: str) -> bool:
    try:
        return time.time() - os.stat(path).st_mtime < _RETRY_SECONDS
    except OSError:
        return False


def obtain(torch: Torch) -> str:
    """The path of the shim, built if need be; NoShim after at most WAIT_SECONDS."""
    made = plan(torch)
    path = cached(made.name)
    if path is not None:
        return path
    folder = _cache.folder()
    if folder is None:
        raise NoShim(
            "no safe folder to keep the shim in (GAPLESS_CACHE, XDG_CACHE_HOME, the home, the temporary folder)"
        )
    library, failed, _, log = _paths(folder, made.name)
    if _failed(failed):
        raise NoShim(f"the shim did not compile against PyTorch {torch.version} (see {log})")
    return _wait(
        made, folder, f"compiling the shim for PyTorch {torch.version}, once, at most {WAIT_SECONDS:.0f} s ..."
    )


def _wait(made: Plan, folder: str, progress: str) -> str:
    """Builds, with a line that says so, or waits for another process that does."""
    library, failed, lock, log = _paths(folder, made.name)
    deadline = time.monotonic() + WAIT_SECONDS
    builder: Optional[subprocess.Popen] = None
    while time.monotonic() < deadline:
        if _cache.is_safe_file(library):
            return library
        if builder is None:
            builder = _start(made, folder, lock)
            if builder is not None:
                say(progress)
        elif builder.poll() is not None and not os.path.exists(library):
            raise NoShim(f"the shim does not compile here (see {log})")
        if builder is None and _failed(failed):
            raise NoShim(f"the shim does not compile here (see {log})")
        time.sleep(0.02)
    raise NoShim("the shim is still being compiled, and the next start will find it")


def _start(made: Plan, folder: str, lock: str) -> Optional[subprocess.Popen]:
    """Starts the builder with the lock in its hands; None when somebody else builds."""
    descriptor = _cache.lock(lock)
    if descriptor is None:
        return None
    try:
        library, failed, _, log = _paths(folder, made.name)
        if _cache.is_safe_file(library):
            return None  # the one before us has finished it
        job = os.path.join(folder, f".{made.name}.{os.getpid()}.json")
        with open(
            os.open(job, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w", encoding="utf-8"
        ) as file:
            json.dump({**made.job, "library": library, "failed": failed, "log": log}, file)
        return subprocess.Popen(
            [sys.executable, "-I", "-S", _builder(), job],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(descriptor,),
        )
    finally:
        os.close(descriptor)


# ---- the loaded shim ----

_ENTRIES: Dict[str, Tuple[Any, List[Any]]] = {
    "gapless_torch_abi": (c_int, []),
    "gapless_torch_install": (c_char_p, [c_char_p]),
    "gapless_torch_uninstall": (c_char_p, []),
    "gapless_torch_state": (c_int, []),
    "gapless_torch_reason": (c_char_p, []),
    "gapless_torch_heap": (c_void_p, []),
    "gapless_torch_configure": (c_int, [c_char_p]),
    "gapless_torch_settings": (None, [c_char_p]),
    "gapless_torch_pool_flags": (c_int, [c_uint64, c_uint64, c_uint, c_char_p]),
    "gapless_torch_explain": (c_size_t, [c_int, c_char_p, c_size_t]),
}
_SERVING = 2
_FAILED = 4


def load(path: str) -> ctypes.CDLL:
    """Loads a built shim; loading alone has no effect."""
    try:
        library = ctypes.CDLL(path)
        for name, (result, arguments) in _ENTRIES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as reason:
        raise NoShim(f"the shim cannot be loaded: {reason}") from None
    if library.gapless_torch_abi() != ABI:
        raise NoShim(f"the shim speaks version {library.gapless_torch_abi()}, not {ABI}")
    return library


class Shim:
    """torch's allocator, replaced."""

    name = "a"

    def __init__(self, torch: ModuleType, conf: Optional[str]) -> None:
        self.path = obtain(Torch.of(torch))
        self.description = f"shim ({self.path})"
        self._library = load(self.path)
        self._heap: Optional[Heap] = None
        self._install(conf)

    def _install(self, conf: Optional[str]) -> None:
        reason = self._library.gapless_torch_install(conf.encode() if conf is not None else None)
        if reason:
            raise Refused(reason.decode(errors="replace"))

    def about_to_start(self, torch: ModuleType) -> None:
        """Raises Refused when the program has swapped the allocator after us."""
        chosen = torch._C._cuda_getAllocatorBackend()
        if chosen == "pluggable":
            raise Refused("the program chose the allocator 'pluggable' itself")

    def started(self) -> str:
        """ "" when it serves, else why not."""
        if self._library.gapless_torch_state() != _FAILED:
            return ""
        return (self._library.gapless_torch_reason() or b"").decode(errors="replace") or "the driver says no"

    def serving(self) -> bool:
        """Whether new blocks are ours now."""
        return self._library.gapless_torch_state() == _SERVING

    def heap(self) -> Optional[Heap]:
        """The heap behind it, once CUDA has started."""
        handle = self._library.gapless_torch_heap()
        if handle and self._heap is None:
            self._heap = Heap._borrow(c_void_p(handle))
        return self._heap

    def configure(self, conf: str) -> None:
        """Applies a string: at once, or at the start."""
        with _library.messages() as lines:
            code = self._library.gapless_torch_configure(conf.encode())
        _library.check_said(code, lines)

    def reload_environment(self) -> None:
        """Reads the variables again; before the start they are read then anyhow."""
        heap = self.heap()
        if heap is not None:
            heap.reload_environment()

    def show_settings(self, text: str) -> None:
        """What the snapshot shows as PYTORCH_CUDA_ALLOC_CONF."""
        self._library.gapless_torch_settings(text.encode(errors="surrogateescape"))

    def explain(self, device: int) -> str:
        """The diagnosis of the last OutOfMemoryError."""
        text = ctypes.create_string_buffer(16384)
        self._library.gapless_torch_explain(device, text, len(text))
        return text.value.decode(errors="replace")

    def pool_flags(self, pool: Tuple[int, int], flags: int, tag: Optional[str]) -> None:
        """Flags and tag of a MemPool that has no block yet."""
        code = self._library.gapless_torch_pool_flags(pool[0], pool[1], flags, tag.encode() if tag else None)
        if code < 0:
            raise error(code, "the pool is in use already")

    def suspend(self) -> str:
        """New blocks come from torch's own allocator; "" or why not."""
        return (self._library.gapless_torch_uninstall() or b"").decode(errors="replace")

    def resume(self) -> bool:
        """Takes over again."""
        try:
            self._install(None)
        except Refused as reason:
            say(f"not used: {reason}; PyTorch's own allocator stays")
            return False
        return True
