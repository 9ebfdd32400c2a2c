#!/usr/bin/env python3
"""Gives a wheel the manylinux tag that its binaries deserve: tools/wheel_tag.py WHEEL...

A wheel from `pip wheel` is tagged linux_x86_64: for this machine only.  PEP 600's manylinux_2_N says which glibc the
binaries need at least, and that they need no other library of the system.  Both are read from the binaries themselves.
The tagged wheel takes the place of the old one, and its name is printed.
"""

import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

SYSTEM = re.compile(r"^(libc|libm|libdl|libpthread|librt|ld-linux[-\w]*)\.so\.\d+$")  # parts of glibc


class Unfit(Exception):
    """The binaries need more than glibc."""


def readelf(option, data):
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return subprocess.run(["readelf", option, "--wide", file.name], capture_output=True, text=True, check=True).stdout


def needed_glibc(name, data):
    """The newest glibc release that a binary names a symbol of, as (2, N)."""
    for library in re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", data)):
        if not SYSTEM.match(library):
            raise Unfit(f"{name} needs {library}")
    _defined, _, needed = readelf("-V", data).partition("Version needs section")
    names = re.findall(r"Name: (\S+)", needed)
    for symbol in names:
        if not re.fullmatch(r"GLIBC_2\.\d+(\.\d+)?", symbol):
            raise Unfit(f"{name} needs {symbol}")
    return max((tuple(int(part) for part in symbol[6:].split(".")[:2]) for symbol in names), default=(2, 5))


def platform_of(members):
    """The tag of a wheel's contents, or None when there is no binary in it."""
    needs = [needed_glibc(name, data) for name, data in members.items() if data.startswith(b"\x7fELF")]
    return "manylinux_%d_%d" % max(needs) if needs else None


def retag(text, platform):
    """The WHEEL file's tags: linux_ARCH becomes PLATFORM_ARCH."""
    return re.sub(r"(?m)^(Tag: .*-)linux_", rf"\g<1>{platform}_", text)


def record_line(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}"


def rewrite(path, platform):
    """The wheel under its new name, with the tag inside and the record of it."""
    target = path.with_name(re.sub(r"-linux_", f"-{platform}_", path.name))
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        changed = {}
        for item in old.infolist():
            data = old.read(item)
            if item.filename.endswith(".dist-info/WHEEL"):
                data = changed[item.filename] = retag(data.decode(), platform).encode()
            if item.filename.endswith(".dist-info/RECORD"):
                data = renew(data.decode(), changed).encode()
            new.writestr(item, data)
    path.unlink()
    return target


def renew(record, changed):
    """The record, which comes last in a wheel, with new lines for what was changed."""
    lines = [line for line in record.splitlines() if line.split(",")[0] not in changed]
    return "\n".join([record_line(*pair) for pair in changed.items()] + lines) + "\n"


def tag(path):
    """Tags a wheel; its path then."""
    with zipfile.ZipFile(path) as wheel:
        platform = platform_of({name: wheel.read(name) for name in wheel.namelist()})
    return rewrite(path, platform) if platform and "-linux_" in path.name else path


def main(arguments):
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    try:
        for path in arguments:
            print(tag(pathlib.Path(path)))
    except Unfit as reason:
        print(f"wheel_tag: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
