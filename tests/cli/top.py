"""`gapless top`: top.py COMMAND.  What it prints once and as JSON, and what it does on a terminal, with an example program that runs on host
memory and a management library without a card."""
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

command = os.path.abspath(sys.argv[1])
built = os.path.dirname(command)
program = os.path.join(built, "examples", "watched")
if not os.access(program, os.X_OK):
    print(f"no {program}: the examples are not built")
    sys.exit(77)
runtime = os.path.abspath("runtime")
shutil.rmtree(runtime, ignore_errors=True)
os.mkdir(runtime, 0o700)
folder = os.path.join(runtime, "gapless")  # other programs of the user are left out
os.mkdir(folder, 0o700)
environment = {**os.environ, "XDG_RUNTIME_DIR": runtime, "TERM": "xterm", "FAKE_NVML": "4242:1073741824 77:2147483648"}
environment.pop("NO_COLOR", None)
fake = {**environment, "LD_LIBRARY_PATH": os.path.join(built, "tests", "fake")}
failures = []


def expect(condition, words):
    if not condition:
        failures.append(words)
        print(words)


def run(*arguments, env=environment):
    return subprocess.run([command, "top", "--folder", folder, *arguments], env=env, capture_output=True, text=True, timeout=60)


def expect_run(status, words, *arguments, env=environment):
    done = run(*arguments, env=env)
    said = done.stdout + done.stderr
    expect(done.returncode == status, f"top {arguments}: {done.returncode} instead of {status}: {said}")
    expect(words in said, f"top {arguments}: does not say '{words}': {said}")
    return said


# ---- nobody, and wrong words
expect_run(1, "no gapless process of this user publishes", "--once")
expect_run(1, "process 2147483646 publishes nothing", "2147483646", "--once")
expect(json.loads(run("--once", "--json").stdout)["processes"] == [], "--json of nobody")
for wrong in (["--interval", "0"], ["--sort", "colour"], ["x"], ["1", "2"], ["--onec"]):
    expect_run(2, "gapless top:", *wrong)
open_to_all = os.path.abspath("open")
os.makedirs(open_to_all, exist_ok=True)
os.chmod(open_to_all, 0o755)
expect_run(2, "it is not there", "--folder", "/nowhere", "--once")
expect_run(2, "not one user's alone", "--folder", open_to_all, "--once")

# ---- one process
host = subprocess.Popen([program, "--backend", "host"], env={**environment, "LINGER": "60"}, stdout=subprocess.PIPE)
other = subprocess.Popen([program, "--backend", "sim"], env={**environment, "LINGER": "60"}, stdout=subprocess.PIPE)
for process in (host, other):
    process.stdout.readline()
deadline = time.time() + 20
while time.time() < deadline:
    devices = [d for p in json.loads(run("--once", "--json").stdout)["processes"] for d in p["devices"]]
    if len(devices) == 2 and all(device["refused"] for device in devices):
        break
    time.sleep(0.1)

said = expect_run(0, "24 MiB", str(host.pid), "--once")
for words in ("watched", "1 process", "last refusal: asked for 100 MiB", "0x3", "grow", "serves any request"):
    expect(words in said, f"top PID --once lacks '{words}': {said}")
said = expect_run(0, "2 processes", "--once")
expect("\x1b" not in said and not re.search(r"[\x01-\x08]", said), f"steering bytes in a file: {said!r}")

one = json.loads(run(str(host.pid), "--once", "--json").stdout)["processes"]
expect([p["process"] for p in one] == [host.pid] and one[0]["program"] == "watched", f"--json: {one}")
device = one[0]["devices"][0]
for key, value in {"live_bytes": 24 << 20, "cap_bytes": 64 << 20, "refused": 1, "backend": "host", "strategy": "gapless"}.items():
    expect(device[key] == value, f"--json: {key} is {device[key]}, not {value}")
expect(device["held_bytes"] == device["live_bytes"] + device["pending_bytes"] + device["idle_bytes"], "held = live + pending + idle")
expect(device["figures"]["allocation.all.current"] == 8 and device["streams"][0]["live_blocks"] == 8, "figures and streams")

# ---- all devices of a process (Python cannot load a library with a sanitizer in it)
package = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")
library = os.path.join(built, "libgapless.so")
TWO = """
import sys, gapless.heap
heap = gapless.heap.Heap("host", devices=2, device_bytes=1 << 28, conf="serve:True")
blocks = [heap.alloc(1 << 20, device=device) for device in (0, 1)]
print("ready", flush=True)
sys.stdin.readline()
"""
if b"__asan_init" not in open(library, "rb").read() and b"__tsan_init" not in open(library, "rb").read():
    two = subprocess.Popen([sys.executable, "-c", TWO], env={**environment, "PYTHONPATH": package, "GAPLESS_LIBRARY": library},
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    expect(two.stdout.readline() == b"ready\n", "a program with two devices")
    deadline = time.time() + 20
    while "device 1 (host)" not in (said := run(str(two.pid), "--once").stdout) and time.time() < deadline:
        time.sleep(0.1)
    expect("device 0 (host)" in said and "device 1 (host)" in said, f"details of both devices: {said}")
    two.communicate(b"\n")

# ---- cards, by the management library; what its names say harms no terminal
said = expect_run(0, "Fake ?[31mCard", "--once", env=fake)
expect("3 GiB of 80 GiB in use: 0 B held by gapless, 3 GiB by others; 77 GiB free" in said, f"the card: {said}")
card = json.loads(run("--once", "--json", env=fake).stdout)["cards"][0]
expect(card["uuid"] == "000102030405060708090a0b0c0d0e0f" and card["processes"][1] == {"process": 77, "bytes": 2 << 30}, f"{card}")

# ---- each interval, where there is no terminal
stream = subprocess.Popen([command, "top", "--folder", folder, "--json", "--interval", "0.1"], env=environment, stdout=subprocess.PIPE, text=True)
looks = [json.loads(stream.stdout.readline()) for _ in range(3)]
stream.kill()
stream.wait()
expect(all(len(look["processes"]) == 2 for look in looks), "three looks of two processes")


# ---- on a terminal
class Terminal:
    def __init__(self, *arguments, rows=30, columns=160, env=environment):
        self.master, slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen([command, "top", "--folder", folder, *arguments], env=env, stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.slave, self.seen = slave, ""

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def read(self, seconds=0.4):
        got, until = "", time.time() + seconds
        while time.time() < until and select.select([self.master], [], [], max(0, until - time.time()))[0]:
            got += os.read(self.master, 65536).decode()
        self.seen += got
        return got

    def until(self, words, seconds=15):
        got, end = "", time.time() + seconds
        while words not in got and time.time() < end:
            got += self.read(0.1)
        expect(words in got, f"the screen lacks '{words}': {got!r}")
        return got

    def press(self, keys):
        os.write(self.master, keys.encode())

    def end(self, keys):
        self.press(keys)
        try:
            status = self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = "nothing: it had to be killed"
        self.read(0.3)
        expect(status == 0, f"ended by {keys!r} with {status}")
        expect(termios.tcgetattr(self.slave)[3] == self.before[3], "the terminal is as it was")
        expect(self.seen.rstrip().endswith("\x1b[?25h\x1b[?1049l"), f"the screen is given back: {self.seen[-80:]!r}")
        os.close(self.master)
        os.close(self.slave)


def frames(text):
    return [part for part in text.split("\x1b[H") if part]


screen = Terminal("--interval", "0.2")
first = screen.until("last refusal")
expect("\x1b[?1049h" in first and "by held" in first, "the other screen, sorted by what is held")
expect("\x1b[33m" in first or "\x1b[1;31m" in first, "a process with refusals is in colour")
screen.press("s")
screen.until("by live")
screen.press("?")
screen.until("columns")
screen.press("?")
screen.until("last refusal")
screen.press("\x1b[B")
screen.until("(sim)" if "(host)" in first else "(host)")
screen.press("\x1b[A")
screen.until("(host)" if "(host)" in first else "(sim)")
screen.press("p")
screen.until("PAUSED")
screen.read(0.5)
screen.resize(12, 40)
os.kill(screen.process.pid, signal.SIGWINCH)
small = screen.read(1.0)
last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frames(small)[-1])
lines = [line.strip("\r") for line in last.split("\n")]
expect(len(lines) <= 12 and all(len(line) <= 40 for line in lines), f"a small screen is not overrun: {lines}")
screen.end("q")

screen = Terminal(str(host.pid), "--interval", "0.2", env={**environment, "NO_COLOR": "1"})
screen.until("last refusal")
expect(not re.search("\x1b\\[(3[0-9]|1;3[0-9])m", screen.seen), "NO_COLOR leaves colours out")
host.kill()
host.wait()
screen.until("publishes nothing")
screen.end("\x03")

# ---- more of them than there are lines: the chosen one and its details are on the screen, and stay so in another order
def shown(text):
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frames(text)[-1])
    return [line.strip("\r") for line in last.split("\n")]


many = [subprocess.Popen([program, "--backend", "sim"], env={**environment, "LINGER": "60"}, stdout=subprocess.PIPE) for _ in range(7)]
for process in many:
    process.stdout.readline()
screen = Terminal("--interval", "0.2", "--sort", "process", rows=14)
screen.until("8 processes")
last = max(process.pid for process in [other, *many])
for _ in range(9):
    screen.press("j")
screen.until(f"process {last} ")
lines = shown(screen.read(0.8))
expect(any(line.startswith(f"{last:8} ") for line in lines) and any("rows 2 to 8 of 8" in line for line in lines), f"the chosen one: {lines}")
screen.press("k")
screen.until("rows 2 to 8 of 8")
chosen = re.findall(r"process (\d+) \(", screen.read(0.8))[-1]
for _ in range(4):
    screen.press("s")
    screen.read(0.3)
    expect(re.findall(r"process (\d+) \(", screen.read(0.4))[-1:] == [chosen], "who was chosen stays so in another order")
screen.end("q")
for process in many:
    process.kill()
    process.wait()

screen = Terminal("--interval", "0.2")
screen.until("watched")
os.kill(screen.process.pid, signal.SIGTERM)
screen.end("")

other.kill()
other.wait()
expect_run(1, "no gapless process", "--once")
left = [name for name in os.listdir(folder) if name.endswith(".sheet")]
expect(left == [], f"sheets of processes that are gone: {left}")
shutil.rmtree(runtime)
sys.exit(len(failures) > 0)
