"""`gapless metrics`: metrics.py COMMAND.  The text is valid for Prometheus (by its own rules here, by promtool and prometheus_client where they
are installed), true, and served to this machine alone, whatever a guest sends.  The dashboard and the alerts name only what is told."""
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

command = os.path.abspath(sys.argv[1])
built = os.path.dirname(command)
program = os.path.join(built, "examples", "watched")
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
if not os.access(program, os.X_OK):
    print(f"no {program}: the examples are not built")
    sys.exit(77)
runtime = os.path.abspath("runtime")
shutil.rmtree(runtime, ignore_errors=True)
os.mkdir(runtime, 0o700)
folder = os.path.join(runtime, "gapless")  # other programs of the user are left out
os.mkdir(folder, 0o700)
environment = {**os.environ, "XDG_RUNTIME_DIR": runtime, "FAKE_NVML": "4242:1073741824",
               "LD_LIBRARY_PATH": os.path.join(built, "tests", "fake")}
failures = []


def expect(condition, words):
    if not condition:
        failures.append(words)
        print(words)


def run(*arguments):
    return subprocess.run([command, "metrics", "--folder", folder, *arguments], env=environment, capture_output=True, text=True, timeout=60)


# ---- the format, by its rules
SAMPLE = re.compile(r'^([a-z_:][a-z0-9_:]*)(\{(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*\})? (-?[0-9.]+(?:e[+-][0-9]+)?)$')


def parse(text):
    types, samples, seen = {}, {}, set()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            expect(line.split(" ", 3)[3].strip() != "", f"no help: {line}")
        elif line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            expect(name not in types and kind in ("gauge", "counter"), f"type: {line}")
            types[name] = kind
        else:
            match = SAMPLE.match(line)
            expect(match, f"no sample: {line}")
            if not match:
                continue
            name, labels, value = match.groups()
            expect(name in types and (name, labels) not in seen, f"without a type, or twice: {line}")
            seen.add((name, labels))
            samples.setdefault(name, []).append((labels or "", float(value)))
    for name, kind in types.items():
        expect(name.startswith("gapless_"), f"{name} does not say whose it is")
        expect((kind == "counter") == name.endswith("_total"), f"{name} is a {kind}")
        expect(not re.search(r"_(us|ms|kb|mib|count)(_|$)", name), f"{name}: base units only")
    return types, samples


def check_by_others(text):
    promtool = shutil.which("promtool")
    if promtool:
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
        expect(done.returncode == 0, f"promtool: {done.stdout}{done.stderr}")
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        print("prometheus_client is not installed: its parser was not asked" + ("" if promtool else "; promtool neither"))
        return
    expect(len(list(text_string_to_metric_families(text))) > 40, "prometheus_client reads fewer than 40 families")


empty = run()
expect(empty.returncode == 0, "nobody is an answer too")
types, samples = parse(empty.stdout)
check_by_others(empty.stdout)
expect(samples["gapless_processes"] == [("", 0.0)], "no process")

process = subprocess.Popen([program, "--backend", "host"], env={**environment, "LINGER": "60"}, stdout=subprocess.PIPE)
process.stdout.readline()
deadline = time.time() + 20
while time.time() < deadline and 'gapless_refused_total{' not in run().stdout:
    time.sleep(0.1)
time.sleep(0.6)
text = run().stdout
types, samples = parse(text)
check_by_others(text)
for name, value in {"live_bytes": 24 << 20, "cap_bytes": 64 << 20, "refused_total": 1, "live_allocations": 8, "allocations_total": 16,
                    "stream_live_bytes": 24 << 20}.items():
    got = samples.get(f"gapless_{name}", [])
    expect([v for _, v in got] == [value], f"{name}: {got}, not {value}")
expect(f'pid="{process.pid}",program="watched"' in samples["gapless_live_bytes"][0][0], "labels")
expect(samples["gapless_card_used_bytes"][0] == ('{uuid="000102030405060708090a0b0c0d0e0f",card="Fake ?[31mCard"}', float(1 << 30)), "the card")
expect('gapless_live_bytes{' not in run("2147483646").stdout, "one process only")
expect(parse(run(str(process.pid)).stdout)[1]["gapless_processes"][0][1] == 1, "this process only")


# ---- served
def serve(address):
    server = subprocess.Popen([command, "metrics", "--folder", folder, "--listen", address], env=environment, stdout=subprocess.PIPE, text=True)
    return server, server.stdout.readline().strip()


def connect(address):
    if address.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(15)
        sock.connect(address[5:].split(",")[0])
        return sock
    host, port = re.match(r"http://\[?([^\]]+)\]?:(\d+)/metrics$", address).groups()
    return socket.create_connection((host, int(port)), timeout=15)


def ask(address, request):
    with connect(address) as sock:
        sock.sendall(request)
        answer = b""
        try:
            while got := sock.recv(65536):
                answer += got
        except ConnectionResetError:
            pass
        return answer


def status(answer):
    return int(answer.split(b" ")[1]) if answer.startswith(b"HTTP/1.1 ") else None


def check_server(address, is_tcp):
    answer = ask(address, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head, body = answer.split(b"\r\n\r\n", 1)
    expect(status(answer) == 200 and b"version=0.0.4" in head and b"Connection: close" in head, f"{head}")
    expect(int(re.search(rb"Content-Length: (\d+)", head).group(1)) == len(body), "Content-Length")
    expect(parse(body.decode())[0] == types, "the same metrics as printed")
    expect(ask(address, b"HEAD /metrics HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\n"), "HEAD has no body")
    for request, wanted in [(b"GET / HTTP/1.1\r\n\r\n", 200), (b"GET /x HTTP/1.1\r\n\r\n", 404), (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
                            (b"GET /metrics?a=b HTTP/1.1\r\n\r\n", 200), (b"PRI * HTTP/2.0\r\n\r\n", 505), (b"\x16\x03\x01\x02\n\n", 400),
                            (b"GET /" + b"a" * 300 + b" HTTP/1.1\r\n\r\n", 414), (b"GET / HTTP/1.1\r\nX: " + b"y" * 9000, 431),
                            (b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403 if is_tcp else 200)]:
        got = status(ask(address, request))
        expect(got == wanted, f"{request[:40]}: {got} instead of {wanted}")
    # Those who say nothing, or end in the middle, keep nobody else out.
    idle = [connect(address) for _ in range(12)]
    for sock in idle[:6]:
        sock.sendall(b"GET /met")
    expect(status(ask(address, b"GET /metrics HTTP/1.1\r\n\r\n")) == 200, "beside guests that say nothing")
    for sock in idle[6:]:
        sock.close()
    idle[0].settimeout(15)
    expect(idle[0].recv(10) == b"", "a guest that says too little goes")
    for sock in idle[:6]:
        sock.close()


path = os.path.abspath("metrics.sock")
for address, is_tcp in [("127.0.0.1:0", True), (f"unix:{path}", False)]:
    server, said = serve(address)
    check_server(said, is_tcp)
    server.send_signal(signal.SIGTERM)
    expect(server.wait(15) == 0, "ended by a signal")
expect(not os.path.exists(path), "the socket's name is taken away")

server, said = serve(f"unix:{path}")
expect(os.stat(path).st_mode & 0o777 == 0o700, f"a socket for this user alone: {os.stat(path).st_mode:o}")
server.kill()
server.wait()
server, said = serve(f"unix:{path}")
expect(status(ask(said, b"GET /metrics HTTP/1.1\r\n\r\n")) == 200, "the rest of a killed one is replaced")
second = run("--listen", f"unix:{path}")
expect(second.returncode == 2 and "in use" in second.stderr, f"two at one name: {second.stderr}")
server.terminate()
server.wait()
for wrong, words in [("0.0.0.0:9400", "only this machine"), ("10.0.0.1:9400", "only this machine"), ("example.org:80", "only this machine"),
                     ("9400", "is wanted"), ("unix:relative", "begins with /"), ("127.0.0.1:70000", "is wanted"), ("[::]:9400", "only this")]:
    done = run("--listen", wrong)
    expect(done.returncode == 2 and words in done.stderr, f"--listen {wrong}: {done.returncode} {done.stderr}")

# ---- a folder that goes and comes again, as that of a container: no figures is not the same as no processes
server, said = serve("127.0.0.1:0")
os.rename(folder, folder + ".away")
gone = ask(said, b"GET /metrics HTTP/1.1\r\n\r\n")
expect(status(gone) == 503 and gone.endswith(b"503 Service Unavailable\n"), f"a folder that is not there: {gone}")
os.rename(folder + ".away", folder)
expect(status(ask(said, b"GET /metrics HTTP/1.1\r\n\r\n")) == 200, "a folder that is there again")
server.terminate()
server.wait()

# ---- docs/metrics.md, made from the text
document = os.path.join(root, "docs", "metrics.md")
helps = re.findall(r"^# HELP (\S+) (.*)$", text, re.M)
table = "".join(f"| `{name}` | {types[name]} | {words} |\n" for name, words in helps)
rule = "|---|---|---|\n"
with open(document, encoding="utf-8") as opened:
    before, after = opened.read().rsplit(rule, 1)
if os.environ.get("GAP_WRITE_DOCS"):
    with open(document, "w", encoding="utf-8") as opened:
        opened.write(before + rule + table)
else:
    expect(after == table, "docs/metrics.md is not of this version: GAP_WRITE_DOCS=1 makes it anew")

# ---- the dashboard and the alerts
share = os.path.join(root, "share")
named = set()
for file in glob.glob(os.path.join(share, "*", "*")):
    with open(file, encoding="utf-8") as opened:
        content = opened.read()
    used = set(re.findall(r"gapless_[a-z_]+", content))
    expect(used and used <= set(types), f"{file} names what is not told: {used - set(types)}")
    named |= used
    if file.endswith(".json"):
        board = json.loads(content)
        expect(board["uid"] == "gapless" and len(board["panels"]) > 5, "the dashboard")
        variables = [variable["name"] for variable in board["templating"]["list"] if variable["type"] == "query"]
        for name in variables[:2]:
            expect(all(f'{name}=~"${name}"' in target["expr"] for panel in board["panels"] for target in panel["targets"]), f"${name} is not heeded")
        expect(variables == ["job", "instance", "pid"], f"{variables}")
        expect(len({panel["id"] for panel in board["panels"]}) == len(board["panels"]), "panels have numbers of their own")
promtool = shutil.which("promtool")
rules = os.path.join(share, "prometheus", "gapless.rules.yml")
if promtool:
    for action, file in [("check", rules), ("test", os.path.join(root, "tests", "data", "metrics", "rules_test.yml"))]:
        done = subprocess.run([promtool, action, "rules", file], capture_output=True, text=True)
        expect(done.returncode == 0, f"promtool {action} rules: {done.stdout}{done.stderr}")
expect(len(named) > 15, f"dashboard and alerts use {len(named)} metrics")

process.kill()
process.wait()
shutil.rmtree(runtime)
sys.exit(len(failures) > 0)
