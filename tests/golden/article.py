"""docs/article.md shows what its examples print: article.py COMMAND [--write]

A `console` block is a line `$ ...`, run by bash among the histories of tests/data, and what it prints; a `python` block
is run by this Python with the package of the tree, and the `text` block behind it is what it prints.  With --write the page is
written anew: review it as a diff.
"""
import difflib
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(ROOT, "docs", "article.md")
SKIPPED = 77
BLOCK = re.compile(r"```console\n(?P<command>\$ [^\n]*\n)(?P<shown>.*?)```\n"
                   r"|```python\n(?P<program>.*?)```\n```text\n(?P<printed>.*?)```\n", re.DOTALL)


def environment(command):
    build = os.path.dirname(command)
    variables = {name: value for name, value in os.environ.items()
                 if not name.startswith(("GAPLESS", "PYTORCH"))}
    variables.update(PATH=build + os.pathsep + os.environ["PATH"], PYTHONPATH=os.path.join(ROOT, "python"),
                     GAPLESS_LIBRARY=os.path.join(build, "libgapless.so"))
    return variables


def output_of(arguments, variables):
    ran = subprocess.run(arguments, cwd=os.path.join(ROOT, "tests", "data"), env=variables, text=True, timeout=120,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return ran.stdout


def rewritten(match, variables):
    if match["command"]:
        printed = output_of(["bash", "-c", match["command"][2:]], variables)
        return f"```console\n{match['command']}{printed}```\n"
    printed = output_of([sys.executable, "-c", match["program"]], variables)
    return f"```python\n{match['program']}```\n```text\n{printed}```\n"


def is_sanitized(library):
    """Its sanitizer would have to be in the interpreter, too."""
    with open(library, "rb") as file:
        return re.search(rb"__[at]san_init", file.read()) is not None


def main():
    command = os.path.abspath(sys.argv[1])
    variables = environment(command)
    if is_sanitized(variables["GAPLESS_LIBRARY"]):
        print("built with a sanitizer")
        return SKIPPED
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    made = BLOCK.sub(lambda match: rewritten(match, variables), page)
    if "--write" in sys.argv[2:]:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(made)
        return 0
    examples = len(BLOCK.findall(page))
    sys.stdout.writelines(difflib.unified_diff(page.splitlines(True), made.splitlines(True), "the page", "today"))
    print(f"{examples} examples")
    return 1 if made != page or examples < 9 else 0


sys.exit(main())
