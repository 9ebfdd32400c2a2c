#!/usr/bin/env python3
"""What values on a Redis server cost: bench/remote.py [--command FILE] [--out NAME] [--rounds N] [--seconds S] [--depth N]

Starts a redis-server of its own on this machine, and another with TLS.  For each length of a value `gapless remote --bench` and redis-benchmark put and get in turns,
with the same number of values under way; the best of the rounds counts, since the machine may have other work.  CPU time is the client's own, all threads, for each GiB:
it tells clients apart on a busy machine too.  Writes NAME.json and NAME.md.
"""
import argparse
import csv
import json
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
    yield f"Asked for: {ASKED_SHARE:.0%} of redis-benchmark. Load when it was made: {result['load'][0]:.1f} on {result['cpus']} CPUs."


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--command", default=os.path.join(ROOT, "build", "gapless"))
    parser.add_argument("--out", default="remote")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--depth", type=int, default=16)
    options = parser.parse_args()
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
