#!/usr/bin/env python3
"""Checks what other people's programs see: tools/check_api.py ROOT [LIBRARY]

Every public header compiles alone as C99 and as C++11 without a warning; the error codes of the header are those of
errors.def; a built library exports what its headers declare and nothing else, and needs no library beyond the C library.
"""
import glob
import os
import re
import subprocess
import sys

LANGUAGES = (("CC", "cc", "c", "c99"), ("CXX", "c++", "c++", "c++11"))
NEEDED = re.compile(r"^(libc|libm|libdl|libpthread|ld-linux.*|libgcc_s|lib(a|t|ub|l)san)\.so")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


def check_headers(root):
    headers = sorted(glob.glob(os.path.join(root, "include/gapless/*.h")))
    if not headers:
        yield "include/gapless: no header found"
    for header in headers:
        for variable, default, language, standard in LANGUAGES:
            compiler = os.environ.get(variable) or default
            result = run(compiler, "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                         "-fsyntax-only", "-I", os.path.join(root, "include"), header)
            if result.returncode:
                yield f"{os.path.relpath(header, root)} as {standard}:\n{result.stderr}"


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def check_errors(root):
    listed = re.findall(r"^GAP_ERROR\((\w+),\s*(-?\d+),", read(root, "src/base/errors.def"), re.M)
    declared = re.findall(r"^\s*(GAP_(?:OK|E\w+))\s*=\s*(-?\d+)", read(root, "include/gapless/gapless.h"), re.M)
    if not listed or sorted(listed) != sorted(declared):
        odd = sorted(set(listed) ^ set(declared))
        yield f"errors.def and gapless.h differ: {odd or 'a name is there twice, or there are none'}"


def exported(library):
    for line in run("nm", "-D", "--defined-only", library).stdout.splitlines():
        kind, name = line.split()[-2:]
        if kind != "A":  # the name of a version
            yield name.split("@")[0]


def declared(root):
    """The functions of the library's headers: all but tools.h, which is the command's."""
    for header in sorted(glob.glob(os.path.join(root, "include/gapless/*.h"))):
        if os.path.basename(header) == "tools.h":
            continue
        text = re.sub(r"/\*.*?\*/", "", read(root, header), flags=re.S)
        yield from re.findall(r"^GAP_API\b[^;(]*?(\w+)\s*\(", text, re.M)


def check_library(root, library):
    names, promised = set(exported(library)), set(declared(root))
    if not names:
        yield f"{library}: exports nothing"
    for name in sorted(names - promised):
        yield f"{library}: exports {name}, which no header declares"
    for name in sorted(promised - names):
        yield f"{library}: does not export {name}, which a header declares"
    for name in sorted(promised):
        if not re.match(r"gap_[a-z]", name):
            yield f"{name} does not begin with gap_"
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", library).stdout):
        if not NEEDED.match(name):
            yield f"{library}: needs {name}"


def main(arguments):
    if not arguments:
        print(__doc__)
        return 2
    root = arguments[0]
    faults = [*check_headers(root), *check_errors(root)]
    for library in arguments[1:]:
        faults += check_library(root, library)
    print("\n".join(faults) or "api: headers, error codes and exported names are as promised")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
