#!/usr/bin/env python3
"""Checks that dependencies point one way: tools/check_layers.py [ROOT]

Reads the #include lines of every C file and prints those that point the wrong way.  `include/gapless` is open to all,
tests and benchmarks may reach everything.  The layers of the library, which is loaded into other people's programs, may
include no third-party header at all.
"""
import os
import re
import sys

# What each layer may include besides itself.  The library is base, record, conf, dev, core, tier, kv, remote and api.
ALLOWED = {
    "base": set(),
    "record": {"base"},
    "dev": {"base"},
    "conf": {"base"},
    "trace": {"base", "record"},
    "plan": {"base", "record", "trace"},
    "core": {"base", "record", "dev", "conf"},
    "tier": {"base", "record", "dev", "conf", "core"},
    "kv": {"base", "record", "dev", "conf", "core", "tier"},
    "remote": {"base"},
    "plugin/remote": {"base", "remote"},
    "api": {"base", "record", "dev", "conf", "core", "tier", "kv"},
    "replay": {"base", "record", "dev", "conf", "core", "trace"},
    "explain": {"base", "record", "dev", "conf", "core", "trace", "replay"},
    "tune": {"base", "record", "dev", "conf", "core", "trace", "replay"},
    "compare": {"base", "record", "dev", "conf", "core", "trace", "replay", "explain"},
    "report": {"base", "record", "dev", "conf", "core", "trace", "replay", "explain", "compare"},
    "serving": {"base", "record", "trace"},
    "toolsapi": {"base", "record", "dev", "conf", "core", "trace", "replay", "explain", "plan", "tune", "compare", "report", "serving", "api"},
    "cli": {"base", "record", "dev", "conf", "core", "trace", "replay", "explain", "plan", "tune", "compare", "report", "api", "toolsapi"},
}
LIBRARY = {"base", "record", "dev", "conf", "core", "tier", "kv", "remote", "api"}
BACKENDS = {"dev/sim", "dev/host", "dev/cuda"}  # know the contract, not each other
THIRD_PARTY = re.compile(r"^(jansson|zstd|zdict|lzma|lzma/.*|zlib|cmocka|mimalloc|hiredis/.*|openssl/.*)\.h$")
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')


def sources(root):
    for top in ("src", "cli", "plugin"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".def")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def layer_of(path):
    """The layer of a path relative to the root; None for what is open to all."""
    parts = path.split("/")
    if parts[0] == "cli":
        return "cli"
    if parts[0] == "plugin":
        return "/".join(parts[:2])
    return parts[1] if parts[0] == "src" and len(parts) > 2 else None


def backend_of(path):
    return next((name for name in BACKENDS if path.startswith(f"src/{name}/")), None)


def resolve(root, source, included):
    """Where a quoted include leads, relative to the root: beside the file, in src/ or in include/."""
    for base in (os.path.dirname(source), "src", "include", "."):
        path = os.path.normpath(os.path.join(base, included))
        if os.path.isfile(os.path.join(root, path)):
            return path
    return None


def check_quoted(root, source, included):
    target = resolve(root, source, included)
    if target is None:
        return f'"{included}" is not in the tree'
    layer, wanted = layer_of(source), layer_of(target)
    if target.startswith(("tests/", "bench/")):
        return f'{layer} includes "{included}": the product does not depend on its tests'
    if wanted is not None and wanted != layer and wanted not in ALLOWED.get(layer, set()):
        return f'{layer} includes "{included}" of {wanted}: that points the wrong way'
    if backend_of(source) and backend_of(target) not in (None, backend_of(source)):
        return f'a backend includes "{included}" of another backend'
    return None


def check_angled(source, included):
    if layer_of(source) in LIBRARY and THIRD_PARTY.match(included):
        return f"{layer_of(source)} includes <{included}>: the library depends on libc, pthread and dl only"
    return None


def check_file(root, source):
    if layer_of(source) is not None and layer_of(source) not in ALLOWED:
        yield f"{source}: '{layer_of(source)}' is not a known layer"
        return
    with open(os.path.join(root, source), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            kind, included = match.groups()
            fault = check_quoted(root, source, included) if kind == '"' else check_angled(source, included)
            if fault:
                yield f"{source}:{number}: {fault}"


def main(arguments):
    root = arguments[0] if arguments else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files = list(sources(root))
    faults = [fault for source in files for fault in check_file(root, source)]
    print("\n".join(faults) or f"layers: {len(files)} files, every include points the right way")
    return 1 if faults or not files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
