#!/usr/bin/env python3
"""Are the C sources formatted as .clang-format says?  tools/check_format.py [ROOT]

Other versions of clang-format put other spaces, so only the one that the tree was formatted with is asked: where it is not installed the
status is 77 (skipped).  `make format` formats.
"""
import pathlib
import re
import subprocess
import sys

VERSION = "14"
FOLDERS = ("bench", "cli", "examples", "include", "plugin", "src", "tests")
SKIPPED = 77


def version():
    try:
        said = subprocess.run(["clang-format", "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"version (\d+)", said)
    return found and found.group(1)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    if version() != VERSION:
        print(f"format: clang-format {VERSION} is not here")
        return SKIPPED
    files = [str(path) for folder in FOLDERS for path in sorted((root / folder).rglob("*.[ch]"))]
    if not files:
        sys.exit(f"format: no sources in {root}")
    status = subprocess.run(["clang-format", "--dry-run", "-Werror", *files], check=False).returncode
    print(f"format: {len(files)} files" + (", as they should be" if status == 0 else ": make format"))
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
