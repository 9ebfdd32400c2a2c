"""What the tests of the Python package share.  GAP_BUILD names the build folder with the library and the command."""

import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GAP_BUILD", ROOT / "build")).resolve()
LIBRARY = BUILD / "libgapless.so"
COMMAND = BUILD / "gapless"
CONF_VARIABLES = (
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "GAPLESS_CONF",
    "GAPLESS",
    "GAPLESS_CACHE",
    "GAPLESS_DOOR",
    "XDG_CACHE_HOME",
    "PYTHONPATH",
    "CXX",
    "CUDA_HOME",
    "CUDA_PATH",
)

os.environ.update(GAPLESS_LIBRARY=str(LIBRARY), GAPLESS_COMMAND=str(COMMAND), PYTHONDONTWRITEBYTECODE="1")
for _name in CONF_VARIABLES:
    os.environ.pop(_name, None)
sys.path.insert(0, str(ROOT / "python"))


class Site:
    """A Python environment of its own with the package (by link) and its .pth file, as an installation leaves them."""

    def __init__(self, folder):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.python = folder / "bin" / "python"
        self.packages = folder / "lib" / "python{}.{}".format(*sys.version_info[:2]) / "site-packages"
        (self.packages / "gapless").symlink_to(ROOT / "python" / "gapless")
        shutil.copy(ROOT / "python" / "gapless.pth", self.packages)
        self.fake_torch = self.packages.parent / "fake"
        self.fake_torch.mkdir()
        shutil.copytree(ROOT / "tests" / "py" / "fake_torch", self.fake_torch / "torch")
        self.libraries = folder / "libraries"
        self._make_platform()

    def _make_platform(self):
        """What a machine with torch, a CUDA toolkit and a driver has, as far as building a shim looks at it."""
        torch, cuda = self.fake_torch / "torch", self.packages.parent / "cuda"
        for path in ("c10/core/Allocator.h", "c10/core/CachingDeviceAllocator.h", "c10/cuda/CUDACachingAllocator.h"):
            (torch / "include" / path).parent.mkdir(parents=True, exist_ok=True)
            (torch / "include" / path).write_text("#pragma once\n")
        (cuda / "include" / "crt").mkdir(parents=True)
        for name in ("cuda_runtime_api.h", "crt/host_defines.h"):
            (cuda / "include" / name).write_text("#pragma once\n")
        self.cuda = cuda
        for path in (torch / "lib" / "libc10.so", torch / "lib" / "libc10_cuda.so", self.libraries / "libcuda.so.1"):
            path.parent.mkdir(exist_ok=True)
            subprocess.run(
                [
                    os.environ.get("CC", "cc"),
                    "-shared",
                    "-fPIC",
                    "-x",
                    "c",
                    "-",
                    "-o",
                    str(path),
                    f"-Wl,-soname,{path.name}",
                ],
                input=b"int nothing;",
                check=True,
            )

    def environment(self, cache, **variables):
        """A clean environment with a cache of its own."""
        environ = {name: value for name, value in os.environ.items() if name not in CONF_VARIABLES}
        environ.update(GAPLESS_CACHE=str(cache), **variables)
        return environ

    def run(self, code, cache, *, torch=True, check=True, flags=(), **variables):
        """Runs a text of Python; the fake torch can be imported unless `torch` is false."""
        if torch:
            variables.setdefault("PYTHONPATH", str(self.fake_torch))
        result = subprocess.run(
            [str(self.python), *flags, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=self.environment(cache, **variables),
        )
        if check and result.returncode:
            raise AssertionError(f"status {result.returncode}\n{result.stdout}\n{result.stderr}")
        return result


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The environment that most tests run their programs in."""
    return Site(tmp_path_factory.mktemp("site") / "venv")


@pytest.fixture
def run(site, tmp_path):
    """Site.run with a cache of the test's own."""

    def call(code, **arguments):
        cache = arguments.pop("cache", None) or tmp_path / "cache"
        return site.run(code, cache, **arguments)

    return call
