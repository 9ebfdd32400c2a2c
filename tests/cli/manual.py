"""Manual pages and completions: manual.py COMMAND.  Pages render without a warning (man, and mandoc where it is installed) and tell every
option; bash completes commands, options and configuration keys, typed into a real one; zsh and fish read theirs, where they are installed."""
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time

command = os.path.abspath(sys.argv[1])
failures = []
folder = os.path.abspath("share")
shutil.rmtree(folder, ignore_errors=True)


def expect(condition, words):
    if not condition:
        failures.append(words)
        print(words)


def run(*arguments, **more):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=60, **more)


done = run(command, "help", "--write", folder)
expect(done.returncode == 0, f"--write: {done.stderr}")
commands = re.findall(r"^  ([a-z]+) +\S", run(command, "help").stdout.split("\n\n", 2)[2], re.M)
commands.remove("help")
expect(len(commands) > 10, f"{commands}")


# ---- pages
def rendered(page):
    if not shutil.which("man"):
        return None
    done = run("man", "--warnings", "-E", "UTF-8", "-l", page, env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8", "PAGER": "cat"})
    expect(done.returncode == 0 and not done.stderr.strip(), f"man {page}: {done.stderr}")
    return re.sub(r".\x08|\x1b\[[0-9;]*m", "", done.stdout)


pages = [os.path.join(folder, "man", "man1", f"gapless{name}.1") for name in ["", *(f"-{name}" for name in commands)]]
pages.append(os.path.join(folder, "man", "man5", "gapless.conf.5"))
for page in pages:
    expect(os.path.exists(page), f"no {page}")
    text = rendered(page)
    if text is not None:
        expect("NAME" in text and "SEE ALSO" in text, f"{page} renders to {text[:200]!r}")
    if shutil.which("mandoc"):
        done = run("mandoc", "-Tlint", "-Wwarning", page)
        expect(done.returncode == 0, f"mandoc {page}: {done.stdout}")
if not shutil.which("man"):
    print("man is not installed: pages were not rendered")

for name in commands:
    with open(os.path.join(folder, "man", "man1", f"gapless-{name}.1"), encoding="utf-8") as opened:
        page = opened.read().replace("\\-", "-")
    options = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", run(command, "help", name).stdout, re.M)
    expect(all(f"\\fB{option}\\fR" in page for option in options), f"gapless-{name}(1) lacks one of {options}")
    expect("EXIT STATUS" in page or "exit code" not in run(command, "help", name).stdout, f"gapless-{name}(1) has no exit status")
keys = list(json.loads(run(command, "conf", "", "--json").stdout)["values"])
with open(pages[-1], encoding="utf-8") as opened:
    page = opened.read()
expect(len(keys) > 30 and all(f".B {key}\n" in page for key in keys), "gapless.conf(5) has every key")
expect(run(command, "help", "--man", "top").stdout == open(pages[1 + commands.index("top")], encoding="utf-8").read(), "--man top")
for wrong in (["--man", "frobnicate"], ["--completion", "tcsh"], ["--completion"], ["--write", "/proc/none"], ["--frob"]):
    done = run(command, "help", *wrong)
    expect(done.returncode == 2 and done.stderr, f"help {wrong}: {done.returncode}")


# ---- bash, as somebody who types
class Bash:
    def __init__(self):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.environ.update(PS1="$ ", TERM="dumb", HISTFILE="", INPUTRC="/dev/null", XDG_RUNTIME_DIR="/nonexistent")
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        self.send("bind 'set enable-bracketed-paste off'; bind 'set completion-query-items 1000'; bind 'set page-completions off'\n")
        self.send(f"source {folder}/bash-completion/completions/gapless; echo rea''dy\n")
        self.until("ready")

    def send(self, text):
        os.write(self.master, text.encode())

    def until(self, words, seconds=20):
        got, end = "", time.time() + seconds
        while words not in got and time.time() < end:
            if select.select([self.master], [], [], 0.1)[0]:
                got += os.read(self.master, 65536).decode(errors="replace")
        return got

    def complete(self, line, keys="\t"):
        """The line after the key, as the shell itself sees it."""
        self.send("\x15" + line + keys + "\x01printf '<%s>\\n' \x05\n")
        got = self.until("\r\n<", 5) + self.until("\n$ ", 2)
        return re.findall(r"^<(.*)>\r?$", got, re.M)

    def end(self):
        self.send("\x15exit\n")
        os.waitpid(self.pid, 0)


if shutil.which("bash"):
    bash = Bash()
    for line, wanted in [("gapless to", ["gapless", "top"]), ("gapless expl", ["gapless", "explain"]), ("gapless help met", ["gapless", "help", "metrics"]),
                         ("gapless top --int", ["gapless", "top", "--interval"]), ("gapless convert --form", ["gapless", "convert", "--formats"]),
                         ("gapless conf strat", ["gapless", "conf", "strategy:"]), ("gapless conf strategy:po", ["gapless", "conf", "strategy:pooled"]),
                         ("gapless conf max_memory:1G,trim", ["gapless", "conf", "max_memory:1G,trim_after_ms:"]),
                         ("gapless replay x --conf conver", ["gapless", "replay", "x", "--conf", "convert:"]),
                         ("gapless conf serve:True,neighbours:F", ["gapless", "conf", "serve:True,neighbours:False"])]:
        got = bash.complete(line)
        expect(got == wanted, f"bash completes {line!r} to {got}, not {wanted}")
    bash.send("\x15gapless \t\t")
    listed = bash.until("$ gapless ")
    expect(all(name in listed for name in commands), f"bash lists the commands: {listed!r}")
    bash.send("\x15\n")
    bash.end()
script = f'source {folder}/bash-completion/completions/gapless; compopt() {{ :; }}; '
for name in commands:
    options = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", run(command, "help", name).stdout, re.M))
    line = f"gapless {name} --"
    done = run("bash", "--norc", "-c", script + f'COMP_LINE="{line}" COMP_POINT={len(line)}; _gapless_complete; echo "${{COMPREPLY[@]}}"')
    expect(set(done.stdout.split()) == options | {"--help"}, f"bash: the options of {name}: {done.stdout}{done.stderr}")

# ---- the others
if shutil.which("zsh"):
    done = run("zsh", "-f", "-n", os.path.join(folder, "zsh", "site-functions", "_gapless"))
    expect(done.returncode == 0 and not done.stderr, f"zsh: {done.stderr}")
if shutil.which("fish"):
    file = os.path.join(folder, "fish", "vendor_completions.d", "gapless.fish")
    for line, wanted in [("gapless to", "top"), ("gapless top --so", "--sort"), ("gapless conf strategy:po", "strategy:pooled")]:
        done = run("fish", "--no-config", "-c", f"source {file}; complete -C '{line}'", env={**os.environ, "HOME": os.getcwd()})
        expect(wanted in re.split(r"[\t\n]", done.stdout), f"fish completes {line!r} to {done.stdout!r} {done.stderr}")
print(f"{len(pages)} pages; " + ", ".join(f"{name}: {'tried' if shutil.which(name) else 'not installed'}" for name in ("man", "mandoc", "bash", "zsh", "fish")))
shutil.rmtree(folder)
sys.exit(len(failures) > 0)
