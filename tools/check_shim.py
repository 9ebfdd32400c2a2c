#!/usr/bin/env python3
"""Compiles and links the PyTorch shim against the headers of several torch releases.  Not part of the tests: it downloads wheels.

usage: check_shim.py [--cache FOLDER] [--lib FOLDER] [version ...]

FOLDER (default: gapless-torch-headers in the temporary folder) keeps include/ and two libraries of each wheel, 60 MB a release;
the wheels themselves go at once.  --lib: where libgapless.so is (default: build/); without it nothing is linked.  Without versions: the
newest patch of each minor release from 2.8 on.  Prints a line for each release; the exit status is the number that failed.
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST = (2, 8)
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
CUDA_PACKAGES = ("nvidia-cuda-runtime", "nvidia-cuda-crt")


def download(requirement, folder, *options):
    """One wheel, without what it depends on; its path."""
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", "--only-binary", ":all:",
               *platforms, *options, "-d", folder, requirement]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return glob.glob(os.path.join(folder, "*.whl"))[0]


def unpack(requirement, target, wanted, *options):
    """Keeps the files of a wheel that `wanted` names; nothing is left when it fails."""
    if os.path.isdir(target):
        return
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(download(requirement, folder, *options)) as wheel:
            part = target + ".part"
            shutil.rmtree(part, ignore_errors=True)
            wheel.extractall(part, [name for name in wheel.namelist() if wanted(name)])
    os.rename(part, target)


def torch_parts(name):
    return name.startswith("torch/include/") or name in ("torch/lib/libc10.so", "torch/lib/libc10_cuda.so")


def releases():
    """The newest patch of each minor release."""
    text = subprocess.run([sys.executable, "-m", "pip", "index", "versions", "torch"], capture_output=True, text=True,
                          check=True).stdout
    newest = {}
    for version in re.findall(r"\b(\d+\.\d+\.\d+)\b", text.split("Available versions:")[1]):
        numbers = tuple(map(int, version.split(".")))
        if numbers[:2] >= OLDEST:
            newest[numbers[:2]] = max(newest.get(numbers[:2], numbers), numbers)
    return [".".join(map(str, numbers)) for numbers in sorted(newest.values())]


def compile_one(source, target, standard, includes):
    """None, or the compiler's words."""
    command = [os.environ.get("CXX", "g++"), f"-std={standard}", "-O1", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra",
               "-Wshadow", "-Werror", "-D_GLIBCXX_USE_CXX11_ABI=1", f"-I{ROOT}/include", *includes, "-c", source, "-o", target]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr if done.returncode else None


def link(objects, folder, libraries, target):
    if not os.path.exists(os.path.join(libraries, "libgapless.so")):
        return None
    command = [os.environ.get("CXX", "g++"), "-shared", "-o", target, *objects, f"-L{libraries}", "-lgapless",
               f"-L{folder}/torch/lib", "-lc10", "-lc10_cuda", "-Wl,-z,nodelete", "-Wl,-z,now"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr if done.returncode else None


def check(folder, includes, libraries):
    """(language standard, None) or (standard, what went wrong)."""
    sources = sorted(glob.glob(os.path.join(ROOT, "shim", "torch", "*.cpp")))
    for standard in ("c++17", "c++20"):
        with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = [os.path.join(work, os.path.basename(source) + ".o") for source in sources]
            words = list(pool.map(lambda pair: compile_one(*pair, standard, includes), zip(sources, objects)))
            wrong = next((word for word in words if word), None) or link(objects, folder, libraries, os.path.join(work, "shim.so"))
        if not wrong:
            break
    return standard, wrong


def main():
    parser = argparse.ArgumentParser(description="compile the PyTorch shim against torch releases")
    parser.add_argument("--cache", default=os.path.join(tempfile.gettempdir(), "gapless-torch-headers"))
    parser.add_argument("--lib", default=os.path.join(ROOT, "build"))
    parser.add_argument("versions", nargs="*")
    options = parser.parse_args()
    os.makedirs(options.cache, exist_ok=True)
    cuda = [os.path.join(options.cache, name) for name in CUDA_PACKAGES]
    for name, folder in zip(CUDA_PACKAGES, cuda):
        unpack(name, folder, lambda file: file.endswith((".h", ".hpp")))
    cuda_includes = [word for folder in cuda for word in ("-isystem", glob.glob(os.path.join(folder, "nvidia", "*", "include"))[0])]
    failed = 0
    for version in options.versions or releases():
        folder = os.path.join(options.cache, version)
        unpack(f"torch=={version}", folder, torch_parts, "--python-version", "3.12")
        standard, wrong = check(folder, ["-isystem", os.path.join(folder, "torch", "include"), *cuda_includes], options.lib)
        failed += wrong is not None
        print(f"torch {version}: {'failed' if wrong else 'fine'} with {standard}", flush=True)
        if wrong:
            print("\n".join(line for line in wrong.splitlines() if "error" in line or "warning" in line)[:2000], flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
