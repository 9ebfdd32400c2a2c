#!/usr/bin/env python3
"""Checks the rules of the tree that a formatter does not know: tools/tidy.py [ROOT]

Files under 1000 lines, functions under 70; no unfinished notes, no paths of one machine, no tabs, no blanks at the end of a line,
a newline at the end of a file; every C file starts with a comment that says what it holds, unless it is the other half of
a header in the same folder, which then does.
"""
import os
import re
import sys

FILE_LINES_MAX = 1000
FUNCTION_LINES_MAX = 70
SUFFIXES = (".c", ".h", ".def", ".py", ".sh", ".md", ".cmake", ".txt", ".json", ".map", ".in", ".yml", ".cpp", ".ts", ".js", ".css")
NAMES = ("Makefile", "run", "NOTICE", "LICENSE", ".clang-format", ".clang-tidy", ".editorconfig", ".gitignore")
# Data, not text of ours.
SKIPPED = ("tests/data", "tests/golden", "tests/cli/expected", "tests/fuzz/corpus", "web/dist", "web/samples", "web/package-lock.json")
FOREIGN = ("__pycache__", "node_modules")

UNFINISHED = re.compile("|".join(("TO" + "DO", "FIX" + "ME")))
MACHINE_PATH = re.compile("(?<![\\w.])(" + "|".join(("/ho" + "me/", "/ro" + "ot/", "/wo" + "rk/", "/Us" + "ers/")) + r")[\w.]")
# What stands before a function's brace; an initialiser has its "=" before any parenthesis, a struct has no parenthesis.
FUNCTION_HEAD = re.compile(r"[^=(]*?(\w+)\s*\(")


def is_skipped(path):
    return any(path == folder or path.startswith(folder + "/") for folder in SKIPPED)


def sources(root):
    for folder, folders, names in os.walk(root):
        inner = os.path.relpath(folder, root)
        folders[:] = sorted(n for n in folders if (n == ".ci" or not n.startswith(".")) and n not in FOREIGN
                            and not (inner == "." and n.startswith("build")))
        for name in sorted(names):
            path = os.path.normpath(os.path.join(inner, name))
            if (name.endswith(SUFFIXES) or name in NAMES) and not is_skipped(path):
                yield path


def functions(lines):
    """(name, first line, length) of each function, by the layout that clang-format gives: heads begin and bodies end at
    the left margin."""
    first, name = None, None
    for number, line in enumerate(lines, 1):
        if name:
            if line.startswith("}"):
                yield name, first, number - first + 1
                first, name = None, None
            continue
        if re.match(r"[A-Za-z_]", line):
            first = number
        if first and line.endswith("{"):
            head = FUNCTION_HEAD.match(" ".join(lines[first - 1:number]))
            first, name = (first, head.group(1)) if head else (None, None)
        elif line.endswith((";", "}")):
            first = None


def check_line(path, line):
    if UNFINISHED.search(line):
        yield "an unfinished note"
    if MACHINE_PATH.search(line):
        yield "a path of one machine"
    if "\t" in line and os.path.basename(path) != "Makefile":
        yield "a tab"
    if line != line.rstrip():
        yield "blanks at the end of the line"


def is_explained(root, path, lines):
    if lines and lines[0].startswith(("/*", "//")):
        return True
    return path.endswith(".c") and os.path.isfile(os.path.join(root, path[:-2] + ".h"))


def check_c(root, path, lines):
    if not is_explained(root, path, lines):
        yield 1, "does not start with a comment that says what it holds"
    for name, first, length in functions(lines):
        if length >= FUNCTION_LINES_MAX:
            yield first, f"{name}() has {length} lines, fewer than {FUNCTION_LINES_MAX} are allowed"


def check_text(root, path, text):
    lines = text.split("\n")
    if lines[-1]:
        yield len(lines), "no newline at the end"
    lines = lines[:-1] if not lines[-1] else lines
    if len(lines) >= FILE_LINES_MAX:
        yield 1, f"{len(lines)} lines, fewer than {FILE_LINES_MAX} are allowed"
    for number, line in enumerate(lines, 1):
        for fault in check_line(path, line):
            yield number, fault
    if path.endswith((".c", ".h", ".def")):
        yield from check_c(root, path, lines)


def check_file(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        try:
            text = file.read()
        except UnicodeDecodeError as error:
            yield f"{path}: not UTF-8: {error}"
            return
    for number, fault in check_text(root, path, text):
        yield f"{path}:{number}: {fault}"


def main(arguments):
    root = arguments[0] if arguments else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files = list(sources(root))
    faults = [fault for path in files for fault in check_file(root, path)]
    print("\n".join(faults) or f"tidy: {len(files)} files, no fault")
    return 1 if faults or not files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
