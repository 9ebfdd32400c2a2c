"""`gapless remote`: remote.py COMMAND.  What it says of servers that are there, that are not, that want a password; its figures; and that no password
shows, neither in what it says nor in the list of processes."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

command = os.path.abspath(sys.argv[1])
failures = []
plugin = os.path.join(os.path.dirname(command), "libgapless-remote.so")
if not os.path.exists(plugin):
    print("the plug-in is not built")
    sys.exit(77)
if not shutil.which("redis-server"):
    print("no redis-server")
    sys.exit(77)


def expect(condition, words):
    if not condition:
        failures.append(words)
        print(words)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Redis:
    def __init__(self, *options):
        self.port = free_port()
        self.folder = tempfile.mkdtemp()
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir",
                                         self.folder, *options], stdout=subprocess.DEVNULL)
        self.url = f"redis://127.0.0.1:{self.port}"
        for _ in range(400):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit("the server does not start")

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder)


def run(*arguments, program=command, **environment):
    clean = {key: value for key, value in os.environ.items() if key != "GAPLESS_REMOTE_PASSWORD"}
    return subprocess.run([program, "remote", *arguments], env={**clean, **environment}, capture_output=True, text=True, timeout=120)


def test_there(one, two):
    result = run("--timeout", "20000", one.url, two.url)
    expect(result.returncode == 0, f"two servers: {result}")
    for words in (f"{one.url}/0", f"{two.url}/0", "no limit", "64 MiB", "allkeys-lru", "has no limit"):
        expect(words in result.stdout, f"{words} is not said: {result.stdout}")
    expect(result.stdout.count("has no limit") == 1, "a limit is missed where there is one")
    answer = json.loads(run("--timeout", "20000", "--json", f"{one.url},{two.url}").stdout)
    expect([s["up"] for s in answer["servers"]] == [True, True], f"JSON: {answer}")
    expect(answer["servers"][1]["limit_bytes"] == 64 << 20 and answer["servers"][0]["limit_bytes"] == 0, "limits")
    expect(all(0 < s["round_trip_ns"] < 10**10 and s["used_bytes"] > 10**5 for s in answer["servers"]), "figures")


def test_not_there(one):
    url = f"redis://127.0.0.1:{free_port()}"
    result = run("--timeout", "20000", one.url, url)
    expect(result.returncode == 1 and f"{url}/0 is not there: Connection refused" in result.stdout, f"one is dead: {result}")
    result = run(url, "--json", "--bench")
    expect(result.returncode == 1 and json.loads(result.stdout)["servers"][0]["up"] is False, f"none: {result}")


def test_bench(one, two):
    result = run("--timeout", "20000", "--bench", "--seconds", "0.3", "--size", "100KiB", "--depth", "4", "--json", "--quiet", one.url, two.url,
                 "--replicas", "2")
    expect(result.returncode == 0, f"bench: {result}")
    answer = json.loads(result.stdout)
    for name in ("put", "get"):
        speed = answer[name]
        expect(speed["values"] >= 4 and speed["failed"] == 0 and speed["bytes_per_s"] > 0, f"{name}: {speed}")
        expect(abs(speed["bytes_per_s"] - speed["values_per_s"] * 102400) < 1, f"{name}: {speed}")
        expect(0 < speed["median_ns"] <= speed["p99_ns"], f"{name}: {speed}")
    expect(answer["replicas"] == 2 and answer["value_bytes"] == 102400 and "redis_benchmark_bytes_per_s" not in answer["put"],
           f"{answer}")
    if shutil.which("redis-benchmark"):
        result = run("--timeout", "20000", "--bench", "--seconds", "0.3", "--size", "100KiB", one.url)
        expect(result.stdout.count("; redis-benchmark ") == 2, f"nothing beside it: {result.stdout}")


def test_full():
    server = Redis("--maxmemory", "2mb", "--maxmemory-policy", "noeviction")
    result = run("--timeout", "20000", "--bench", "--seconds", "0.3", "--size", "1MiB", server.url, "--json")
    answer = json.loads(result.stdout)
    expect(result.returncode == 1 and answer["put"]["failed"] > 0, f"full: {result}")
    expect("evicts nothing" in run("--timeout", "20000", server.url).stdout, "noeviction is not told")
    server.stop()


def test_password():
    server = Redis("--requirepass", "hush-hush")
    result = run(server.url)
    expect(result.returncode == 1 and "it wants a password" in result.stdout, f"no password: {result}")
    result = run("--timeout", "20000", server.url, GAPLESS_REMOTE_PASSWORD="hush-hush")
    expect(result.returncode == 0, f"right password: {result}")
    result = run(server.url, GAPLESS_REMOTE_PASSWORD="hush-wrong")
    expect(result.returncode == 1 and "does not take the user or the password" in result.stdout, f"wrong password: {result}")
    expect("hush" not in result.stdout + result.stderr, "the password is told")
    with open("secret", "w", encoding="ascii") as file:
        file.write("hush-hush\n")
    os.chmod("secret", 0o644)
    result = run("--password-file", "secret", server.url)
    expect(result.returncode == 2 and "chmod 600" in result.stderr, f"a file for everybody: {result}")
    os.chmod("secret", 0o600)
    expect(run("--timeout", "20000", "--password-file", "secret", server.url).returncode == 0, "a file for one")
    os.remove("secret")
    for secret in (":hush-hush@", "default:hush/hush@", "default:hush@hush@"):
        result = run(server.url, "redis://[::1]:1," + server.url.replace("//", "//" + secret))
        expect(result.returncode == 2 and "everybody" in result.stderr and "hush" not in result.stderr, f"on the command line: {result}")
    result = run("--timeout", "20000", server.url.replace("//", "//default@"), GAPLESS_REMOTE_PASSWORD="hush-hush")
    expect(result.returncode == 0, f"a user on the command line: {result}")
    server.stop()


def test_usage(one):
    for arguments, words in ((("nonsense",), "server 1 of the list"), ((), "no server"), ((one.url, "--size", "x"), "--size x"),
                             ((one.url, "--depth", "0"), "--depth"), ((one.url, "--seconds", "0"), "--seconds"),
                             ((one.url, "--replicas", "9"), "--replicas"), ((one.url, "--ca", "/nowhere/ca"), None),
                             ((one.url.replace("redis", "rediss"), "--ca", "/nowhere/ca"), "/nowhere/ca"),
                             ((one.url, "--bnech"), "did you mean --bench")):
        result = run(*arguments)
        if words is None:
            expect(result.returncode == 0, f"a CA that nobody needs: {result}")
        else:
            expect(result.returncode == 2 and words in result.stderr and result.stderr.count("\n") == 1, f"{arguments}: {result}")


def test_without_plugin(one):
    """Alone in a folder the command has no plug-in: a line says what is lost."""
    with tempfile.TemporaryDirectory() as folder:
        alone = shutil.copy(command, folder)
        result = run(one.url, program=alone)
        expect(result.returncode == 2 and "no remote servers: libgapless-remote.so" in result.stderr
               and result.stderr.count("\n") == 1, f"without the plug-in: {result}")
        shutil.copy(plugin, folder)
        expect(run("--timeout", "20000", one.url, program=alone).returncode == 0, "beside the command it is not found")


first, second = Redis(), Redis("--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")
try:
    test_there(first, second)
    test_not_there(first)
    test_bench(first, second)
    test_full()
    test_password()
    test_usage(first)
    test_without_plugin(first)
finally:
    first.stop()
    second.stop()
print("failed" if failures else "ok")
sys.exit(1 if failures else 0)
