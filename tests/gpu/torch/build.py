"""Builds libgapless.so, the shim and what the tests need in C++, with nothing but a compiler and the torch that is installed.

usage: build.py FOLDER [library|nocard]    prints what went wrong; the folder then holds libgapless.so, shim.so, help.so

nocard: besides, nocard.so and a driver whose calls do nothing, so that tests without kernels run where no card is.
"""

import concurrent.futures
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tools"))
from check_layers import LIBRARY  # noqa: E402  pylint: disable=wrong-import-position


def run(*command):
    subprocess.run([str(word) for word in command], check=True)


def library(folder):
    """The runtime library, each source on a core of its own."""
    sources = [s for part in sorted(LIBRARY) for s in sorted((ROOT / "src" / part).rglob("*.c"))]
    flags = ["-std=gnu17", "-O2", "-g1", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-D_GNU_SOURCE", "-DGAP_BUILD",
             f"-I{ROOT}/include", f"-I{ROOT}/src"]

    def compile_one(source):
        target = folder / ("-".join(source.relative_to(ROOT / "src").parts) + ".o")
        run("gcc", *flags, "-c", source, "-o", target)
        return target

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        objects = list(pool.map(compile_one, sources))
    run("gcc", "-shared", "-o", folder / "libgapless.so.0", *objects, "-Wl,-soname,libgapless.so.0",
        f"-Wl,--version-script={ROOT}/src/gapless.map", "-lpthread", "-ldl", "-lm")
    link = folder / "libgapless.so"
    link.unlink(missing_ok=True)
    link.symlink_to("libgapless.so.0")


def cuda_include():
    """Folders with cuda_runtime_api.h and what it includes; a plain installation of torch lacks crt/, which the package has."""
    import site

    candidates = [pathlib.Path("/usr/local/cuda/include")]
    for base in site.getsitepackages():
        candidates.append(pathlib.Path(base) / "nvidia" / "cu13" / "include")
        candidates.append(pathlib.Path(base) / "nvidia" / "cuda_runtime" / "include")
    found = next((c for c in candidates if (c / "cuda_runtime_api.h").exists()), None)
    if not found:
        raise SystemExit("no cuda_runtime_api.h")
    return [found] if (found / "crt" / "host_defines.h").exists() else [found, ROOT / "python" / "gapless" / "_crt"]


def shim(folder):
    """shim/torch/README.md, the part on building; each source on a core of its own."""
    import torch

    torch_root = pathlib.Path(torch.__file__).parent
    minor = int(torch.__version__.split(".")[1])
    standard = "-std=c++17" if minor < 14 else "-std=c++20"
    flags = ["-O2", "-fPIC", "-fvisibility=hidden", "-DNDEBUG",
             f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", f"-I{ROOT}/include",
             "-isystem", torch_root / "include"]
    for include in cuda_include():
        flags += ["-isystem", include]
    link = [f"-L{folder}", f"-L{torch_root}/lib", "-lc10", "-lc10_cuda",
            "-Wl,-z,nodelete", "-Wl,-z,now", f"-Wl,-rpath,{folder}:{torch_root}/lib"]
    here = pathlib.Path(__file__).parent
    sources = sorted((ROOT / "shim" / "torch").glob("*.cpp")) + [here / "help.cpp"]

    def compile_one(source):
        target = folder / (source.name + ".o")
        run("g++", standard, *flags, "-c", source, "-o", target)
        return target

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        objects = list(pool.map(compile_one, sources))
    run("g++", "-shared", "-o", folder / "shim.so", *objects[:-1], "-lgapless", *link)
    run("g++", "-shared", "-o", folder / "help.so", objects[-1], *link)


def nocard(folder):
    """What is preloaded, and empty libraries of the driver with every name that torch may look for."""
    import torch

    includes = [f"-I{include}" for include in cuda_include()]
    run("gcc", "-shared", "-fPIC", "-O1", "-w", *includes, f"-I{ROOT}/include", pathlib.Path(__file__).parent / "nocard.c",
        "-o", folder / "nocard.so")
    used = (pathlib.Path(torch.__file__).parent / "lib" / "libc10_cuda.so").read_bytes()
    used += (pathlib.Path(torch.__file__).parent / "include" / "c10" / "cuda" / "driver_api.h").read_bytes()
    for prefix, library_name in ((b"cu", "libcuda.so.1"), (b"nvml", "libnvidia-ml.so.1")):
        names = sorted({name.decode() for name in re.findall(rb"\b%s[A-Z]\w+" % prefix, used)} | {"cuDevicePrimaryCtxGetState"})
        source = folder / (library_name + ".c")
        source.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in names))
        run("gcc", "-shared", "-fPIC", "-w", source, "-o", folder / library_name)


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1]).resolve()
    target.mkdir(parents=True, exist_ok=True)
    library(target)
    if sys.argv[2:] != ["library"]:
        shim(target)
    if sys.argv[2:] == ["nocard"]:
        nocard(target)
