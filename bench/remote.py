#!/usr/bin/env python3
"""What values on a Redis server cost, and what they save: bench/remote.py [--command FILE] [--out NAME] [--rounds N] [--seconds S] [--depth N] [--requests N]

Starts a redis-server of its own on this machine, and another with TLS.  For each length of a value `gapless remote --bench` and redis-benchmark put and get in turns,
with the same number of values under way; the best of the rounds counts, since the machine may have other work.  CPU time is the client's own, all threads, for each GiB:
it tells clients apart on a busy machine too.

Then two processes, one after the other, serve the same requests of a trace with a KV cache on host memory: the first finds an empty server, the second is warm.  A step's
computing is a pause of --token-us for each token that was not there; the bytes, copies and the server are real, and each KV page that comes up is compared with what was put.

Writes NAME.json and NAME.md.
"""
import argparse
import csv
import ctypes
import json
import lzma
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIZES = (16 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
ASKED_SHARE = 0.8  # of what redis-benchmark reaches


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Redis:
    def __init__(self, folder, *options, tls=False):
        self.port = free_port()
        port = ["--port", "0", "--tls-port", str(self.port)] if tls else ["--port", str(self.port)]
        self.process = subprocess.Popen(["redis-server", *port, "--bind", "127.0.0.1", "--save", "", "--dir", folder, *options],
                                        stdout=subprocess.DEVNULL)
        self.url = f"redis{'s' * tls}://127.0.0.1:{self.port}"
        for _ in range(400):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.05)
        sys.exit("redis-server does not start")

    def stop(self):
        self.process.kill()
        self.process.wait()


def timed(arguments, **environment):
    """Its output, and the CPU seconds that it took."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(arguments, stdout=out, stderr=subprocess.DEVNULL, env={**os.environ, **environment})
        _, status, use = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"{' '.join(arguments)}: exit code {process.returncode}")
        out.seek(0)
        return out.read(), use.ru_utime + use.ru_stime


def ours(command, server, size, options, *more):
    text, cpu = timed([command, "remote", server.url, "--bench", "--json", "--quiet", "--timeout", "20000", "--size", str(size), "--depth",
                       str(options.depth), "--seconds", str(options.seconds), *more], PATH="/nonexistent")  # without redis-benchmark beside it
    answer = json.loads(text)
    moved = sum(answer[way]["values"] for way in ("put", "get")) * size
    return {"put": answer["put"]["bytes_per_s"], "get": answer["get"]["bytes_per_s"], "cpu_s_per_gib": cpu / moved * 2 ** 30}


def theirs(server, size, options, expected):
    count = max(20 * options.depth, int(options.seconds * expected / size))
    text, cpu = timed(["redis-benchmark", "-p", str(server.port), "-t", "set,get", "-d", str(size), "-c", str(options.depth), "-n", str(count), "--csv"])
    rates = {row[0]: float(row[1]) * size for row in csv.reader(text.splitlines()) if row and row[0] in ("SET", "GET")}
    return {"put": rates["SET"], "get": rates["GET"], "cpu_s_per_gib": cpu / (2 * count * size) * 2 ** 30}


def best(rounds):
    return {"put": max(r["put"] for r in rounds), "get": max(r["get"] for r in rounds), "cpu_s_per_gib": min(r["cpu_s_per_gib"] for r in rounds)}


def rows(command, server, options):
    for size in SIZES:
        mine, other = [], []
        for _ in range(options.rounds):
            mine.append(ours(command, server, size, options))
            other.append(theirs(server, size, options, mine[-1]["get"]))
        yield {"value_bytes": size, "gapless": best(mine), "redis_benchmark": best(other)}


def certificate(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj",
                    "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1"], cwd=folder, check=True, capture_output=True)
    return os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")


def with_tls(command, folder, options):
    cert, key = certificate(folder)
    server = Redis(folder, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no", tls=True)
    found = best([ours(command, server, 1 << 20, options, "--ca", cert) for _ in range(options.rounds)])
    server.stop()
    return found


# ---- a KV cache over the server ----

TRACE = os.path.join(ROOT, "tests", "data", "requests", "azure_conv_600.csv.xz")
PAGE_TOKENS, LAYERS, HEADS, HEAD_SIZE = 16, 32, 8, 128  # Llama 3.1 8B: 2 MiB a KV page


def prompts(count):
    with lzma.open(TRACE, "rt", encoding="ascii") as file:
        for i, row in enumerate(csv.DictReader(file)):
            if i == count:
                return
            yield [(i * 1000003 + k) % 50000 for k in range(int(row["ContextTokens"]))]


def word_at(cache, slot):
    return ctypes.c_uint64.from_address(cache.shape.first + slot // PAGE_TOKENS * cache.shape.page_stride)


def serve_one(cache, tokens, token_s):
    """Seconds until all of the prompt is there, tokens that were found, and whether they are what was put."""
    began = time.monotonic()
    cache.fetched(cache.fetch(tokens), 60000)
    seq, hit = cache.open(tokens[:-1])
    slots = cache.slots(seq, 0, hit)[::PAGE_TOKENS] if hit else []
    good = all(word_at(cache, slot).value == hash(tuple(tokens[:i * PAGE_TOKENS + 1])) % 2 ** 63 for i, slot in enumerate(slots))
    cache.append([seq], [len(tokens) - hit], [tokens[hit:]])
    cache.flush()
    time.sleep((len(tokens) - hit) * token_s)
    cache.tell_computed(len(tokens) - hit, (len(tokens) - hit) * token_s)
    for i, slot in enumerate(cache.slots(seq, 0, len(tokens))[::PAGE_TOKENS]):
        word_at(cache, slot).value = hash(tuple(tokens[:i * PAGE_TOKENS + 1])) % 2 ** 63
    seconds = time.monotonic() - began
    cache.end(seq)
    return seconds, hit, good


def serve(url, requests, token_us):
    """In a process of its own: prints what came of it."""
    sys.path.insert(0, os.path.join(ROOT, "python"))
    import gapless
    from gapless import kv

    with gapless.Heap("host", device_bytes=2 << 30, conf=f"tiers:[remote={url}]", environment=False) as heap:
        cache = kv.Cache(heap, LAYERS, HEADS, HEAD_SIZE, bytes=1 << 30, page_tokens=PAGE_TOKENS, tokens=16384, block_major=True, sharing="sha256")
        cache.open_tiers("bench", token_ns=token_us * 1000, fetch_ms=20000)
        found = [serve_one(cache, tokens, token_us / 1e6) for tokens in prompts(requests)]
        drained = cache.drain()
        stats = cache.tier_stats()
        tokens = sum(len(t) for t in prompts(requests))
        cache.close()
    print(json.dumps({"seconds": sum(s for s, _, _ in found), "tokens": tokens, "tokens_found": sum(h for _, h, _ in found), "good": all(g for _, _, g in found),
                      "drained": drained, "stats": stats}))


def first_and_second(command, folder, options):
    server = Redis(folder)
    environment = {"GAPLESS_LIBRARY": os.path.join(os.path.dirname(command), "libgapless.so"), "PYTHONHASHSEED": "0"}
    runs = {}
    for name in ("cold", "warm"):
        text, cpu = timed([sys.executable, os.path.abspath(__file__), "--serve", server.url, "--requests", str(options.requests), "--token-us", str(options.token_us)],
                          **environment)
        runs[name] = {**json.loads(text), "cpu_s": cpu}
    server.stop()
    return {"requests": options.requests, "token_us": options.token_us, **runs}


def warm_lines(found):
    yield ""
    yield f"| {found['requests']} requests, {found['cold']['tokens']:,} tokens, {found['token_us']} us a token | first process | second process |"
    yield "|---|---|---|"
    yield f"| until all prompts are there, s | {found['cold']['seconds']:.2f} | {found['warm']['seconds']:.2f} |"
    yield "| of their tokens found | " + " | ".join(f"{found[w]['tokens_found'] / found[w]['tokens']:.1%}" for w in ("cold", "warm")) + " |"
    yield "| GiB put, got | " + " | ".join(
        f"{found[w]['stats']['remote_stored'] * found[w]['stats']['page_bytes'] / 2 ** 30:.2f}, {found[w]['stats']['remote_fetched'] * found[w]['stats']['page_bytes'] / 2 ** 30:.2f}"
        for w in ("cold", "warm")) + " |"
    yield f"| refused by the planner, lost | {found['cold']['stats']['remote_refused']}, {found['cold']['stats']['lost']} | " \
          f"{found['warm']['stats']['remote_refused']}, {found['warm']['stats']['lost']} |"
    yield f"| CPU s | {found['cold']['cpu_s']:.1f} | {found['warm']['cpu_s']:.1f} |"


def gib(rate):
    return f"{rate / 2 ** 30:.2f}"


def table(result):
    yield "| value | put, GiB/s | redis-benchmark | share | get, GiB/s | redis-benchmark | share | CPU s a GiB | redis-benchmark |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in result["plain"]:
        mine, other = row["gapless"], row["redis_benchmark"]
        cells = [f"{row['value_bytes'] >> 10} KiB"]
        for way in ("put", "get"):
            cells += [gib(mine[way]), gib(other[way]), f"{mine[way] / other[way]:.0%}"]
        yield "| " + " | ".join(cells + [f"{mine['cpu_s_per_gib']:.2f}", f"{other['cpu_s_per_gib']:.2f}"]) + " |"
    yield ""
    yield f"With TLS, values of 1 MiB: put {gib(result['tls']['put'])}, get {gib(result['tls']['get'])} GiB/s."
    yield from warm_lines(result["kv"])
    yield ""
    yield f"Asked for: {ASKED_SHARE:.0%} of redis-benchmark. Load when it was made: {result['load'][0]:.1f} on {result['cpus']} CPUs."


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--command", default=os.path.join(ROOT, "build", "gapless"))
    parser.add_argument("--out", default="remote")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--requests", type=int, default=20, help="of the trace")
    parser.add_argument("--token-us", type=int, default=500, help="what computing a token takes")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.requests, options.token_us)
        return
    command = os.path.abspath(options.command)
    for program in ("redis-server", "redis-benchmark", "openssl"):
        if not shutil.which(program):
            sys.exit(f"{program} is not installed")
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    result = {"commit": commit, "machine": platform.machine(), "cpus": os.cpu_count(), "load": os.getloadavg(), "depth": options.depth,
              "rounds": options.rounds, "redis": subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout.strip()}
    with tempfile.TemporaryDirectory() as folder:
        server = Redis(folder)
        result["plain"] = list(rows(command, server, options))
        server.stop()
        result["tls"] = with_tls(command, folder, options)
        result["kv"] = first_and_second(command, folder, options)
    warm = result["kv"]["warm"]
    result["warm_reached"] = warm["good"] and warm["tokens_found"] > 0.9 * warm["tokens"] and warm["seconds"] < result["kv"]["cold"]["seconds"]
    result["reached"] = all(row["gapless"][way] >= ASKED_SHARE * row["redis_benchmark"][way] for row in result["plain"] for way in ("put", "get"))
    with open(options.out + ".json", "w", encoding="ascii") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    text = "\n".join(table(result)) + "\n"
    with open(options.out + ".md", "w", encoding="ascii") as file:
        file.write(text)
    print(text, end="")


if __name__ == "__main__":
    main()
