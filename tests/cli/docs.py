"""Guides and runbook: docs.py COMMAND.  What they show in blocks marked `console` is what the commands print: each "$ " line is run, in one shell a
document, and the lines behind it are compared, but for times, numbers of processes and bars.  GAP_WRITE_DOCS=1 writes them anew.  Links lead
somewhere, and every document is in docs/README.md."""
import glob
import os
import re
import shutil
import subprocess
import sys

command = os.path.abspath(sys.argv[1])
built = os.path.dirname(command)
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
examples = os.path.join(built, "examples")
if not os.access(os.path.join(examples, "watched"), os.X_OK):
    print("the examples are not built")
    sys.exit(77)
with open(os.path.join(built, "libgapless.so"), "rb") as opened:
    if re.search(rb"__[at]san_init", opened.read()):
        print("the library has a sanitizer: programs of the guides would need it too")
        sys.exit(77)
failures = []
END = "--- end of output ---"
# What a person sees after a moment, on a busy machine too.
PUBLISHED = """for _ in $(seq 200); do gapless top $PID --once --json | grep -q '"refused":1' && break; sleep 0.1; done"""


def expect(condition, words):
    if not condition:
        failures.append(words)
        print(words)


def mask(text):
    for pattern, word in [(r"\d\d:\d\d:\d\d", "TIME"), (r"\b\d+(\.\d+)? ?(ns|us|ms|s)\b", "SPAN"), (r'pid="\d+"', "PID"),
                          (r"[Pp]rocess(es)? \d+", "process N"), (r"^ *\d{2,7}( (?=\w)|$)", "N "), (r"\[[#.]+\]", "BAR"), (r"[ \t]+", " ")]:
        text = re.sub(pattern, word, text, flags=re.M)
    return text.strip()


def commands_of(block):
    """[(lines of the command, lines it is said to print)]"""
    told = []
    document = None
    for line in block.splitlines():
        if document is not None:
            told[-1][0].append(line)
            document = None if line == document else document
        elif line.startswith("$ "):
            told.append(([line[2:]], []))
            here = re.search(r"<<'(\w+)'", line)
            document = here.group(1) if here else None
        else:
            told[-1][1].append(line)
    return told


def environment(folder):
    runtime = os.path.join(folder, "runtime")
    os.makedirs(runtime, mode=0o700)
    return {**os.environ, "PATH": f"{built}:{examples}:{os.environ['PATH']}", "DATA": os.path.join(root, "tests", "data"),
            "EXAMPLES": os.path.join(root, "examples"), "CPATH": os.path.join(root, "include"), "LIBRARY_PATH": built, "LD_LIBRARY_PATH": built,
            "XDG_RUNTIME_DIR": runtime, "PYTHONPATH": os.path.join(root, "python"), "GAPLESS_LIBRARY": os.path.join(built, "libgapless.so"),
            "PYTHONDONTWRITEBYTECODE": "1", "XDG_CACHE_HOME": folder, "COLUMNS": "100", "LC_ALL": "C"}


def run_all(told, folder):
    """What each command prints, standard error with it."""
    script = "exec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n"
    for lines, _ in told:
        script += "\n".join(lines).replace("sleep 1.5", PUBLISHED) + f"\necho '{END}'\n"
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=180,
                          stdin=subprocess.DEVNULL)
    return done.stdout.replace(root + "/", "").split(END + "\n")[:-1]


def check(path):
    folder = os.path.abspath(os.path.basename(path) + ".run")
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    with open(path, encoding="utf-8") as opened:
        text = opened.read()
    blocks = re.findall(r"^```console\n(.*?)^```$", text, re.M | re.S)
    told = [pair for block in blocks for pair in commands_of(block)]
    printed = run_all(told, folder)
    expect(len(printed) == len(told), f"{path}: {len(told)} commands, {len(printed)} ran to their end")
    replaced = iter(zip(told, printed))
    for block in blocks:
        anew = ""
        for lines, wanted in commands_of(block):
            (_, _), got = next(replaced)
            anew += "$ " + "\n".join(lines) + "\n" + got
            expect(os.environ.get("GAP_WRITE_DOCS") or mask(got) == mask("\n".join(wanted)),
                   f"{path}: {lines[0]}\nprints\n{got}instead of\n" + "\n".join(wanted))
        text = text.replace(block, anew, 1)
    if os.environ.get("GAP_WRITE_DOCS"):
        with open(path, "w", encoding="utf-8") as opened:
            opened.write(text)
    shutil.rmtree(folder)


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def check_links(path):
    with open(path, encoding="utf-8") as opened:
        text = re.sub(r"^```.*?^```$", "", opened.read(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, place = target.partition("#")
        full = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
        expect(os.path.exists(full), f"{path}: {target} leads nowhere")
        if place and full.endswith(".md") and os.path.exists(full):
            with open(full, encoding="utf-8") as opened:
                there = opened.read()
            places = {anchor(heading) for heading in re.findall(r"^#+ (.*)$", there, re.M)} | set(re.findall(r'id="([^"]+)"', there))
            expect(place in places, f"{path}: {target} has no such place")


documents = sorted(glob.glob(os.path.join(root, "docs", "*.md")))
for document in documents:
    if os.path.basename(document).startswith(("guide-", "runbook")):
        check(document)
with open(os.path.join(root, "docs", "README.md"), encoding="utf-8") as opened:
    index = opened.read()
for document in documents:
    check_links(document)
    name = os.path.basename(document)
    expect(name == "README.md" or f"({name})" in index, f"docs/README.md does not name {name}")
with open(os.path.join(root, "share", "prometheus", "gapless.rules.yml"), encoding="utf-8") as opened:
    for place in re.findall(r"docs/runbook.md#(\S+)", opened.read()):
        with open(os.path.join(root, "docs", "runbook.md"), encoding="utf-8") as runbook:
            expect(place in {anchor(heading) for heading in re.findall(r"^#+ (.*)$", runbook.read(), re.M)}, f"the runbook has no {place}")
sys.exit(len(failures) > 0)
