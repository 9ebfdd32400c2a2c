#!/usr/bin/env python3
"""Writes the small histories of made/ and the seeds of the fuzz target for histories.  Only needed to make them again.

Everything is deterministic: running it leaves no difference."""
import gzip
import io
import json
import lzma
import os
import pickle
import struct
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
SETTINGS = {
    "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,roundup_power2_divisions:[256:1,512:2,>:4]",
    "max_split_size": 64 * MIB,
    "garbage_collection_threshold": 0.75,
    "expandable_segments": False,
    "pinned_num_register_threads": 1,
    "roundup_power2_divisions": {str(1 << i): 1 << i % 4 for i in range(16)},
}
FRAMES = [{"name": "forward", "filename": "model.py", "line": 12}, {"name": "<module>", "filename": "train.py", "line": 7}]
BASE = 0x7F0000000000


def entry(action, addr, size, time_us, stream=0, **more):
    return {"action": action, "addr": addr, "size": size, "stream": stream, "time_us": 1_700_000_000_000_000 + time_us,
            "compile_context": "N/A", "user_metadata": "", **more}


def block(address, size, requested, state, frames=()):
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": list(frames)}


def segment(address, total, blocks, pool=(0, 0), device=0, stream=0, kind="large", expandable=False):
    active = [b for b in blocks if b["state"] != "inactive"]
    return {"device": device, "address": address, "total_size": total,
            "allocated_size": sum(b["size"] for b in active if b["state"] == "active_allocated"),
            "active_size": sum(b["size"] for b in active), "requested_size": sum(b["requested_size"] for b in active),
            "stream": stream, "segment_type": kind, "segment_pool_id": pool, "is_expandable": expandable, "frames": [],
            "blocks": blocks}


def small():
    """Two devices, a pool whose addresses were used before, shared stacks, an oom, a pending block."""
    a, b = BASE, BASE + 64 * MIB
    first = [
        entry("segment_alloc", a, 20 * MIB, 0, frames=FRAMES),
        entry("alloc", a, 3 * MIB, 1, frames=FRAMES),
        entry("segment_alloc", b, 20 * MIB, 2),
        entry("alloc", b, 5 * MIB, 3, frames=FRAMES[1:]),
        entry("free_requested", b, 5 * MIB, 4),
        entry("free_completed", b, 5 * MIB, 5),
        entry("segment_free", b, 20 * MIB, 6),
        entry("segment_alloc", b, 20 * MIB, 7, stream=77),
        entry("alloc", b, 7 * MIB, 8, stream=77),
        entry("alloc", b + 8 * MIB, 1000, 9, stream=77),
        entry("free_requested", b + 8 * MIB, 1000, 10, stream=77),
    ]
    oom = entry("oom", 0, 4 << 30, 11, frames=FRAMES)
    oom["device_free"] = oom.pop("addr") + 123456
    first += [oom, entry("snapshot", 0, 15 * MIB, 12)]
    second = [entry("segment_map", 2 * BASE, 20 * MIB, -5), entry("alloc", 2 * BASE, 512, -4)]
    return {
        "segments": [
            segment(a, 20 * MIB, [block(a, 3 * MIB, 3 * MIB, "active_allocated", FRAMES),
                                  block(a + 3 * MIB, 17 * MIB, 99, "inactive")]),
            segment(b, 20 * MIB, [block(b, 8 * MIB, 7 * MIB, "active_allocated"),
                                  block(b + 8 * MIB, 1024, 1000, "active_pending_free"),
                                  block(b + 8 * MIB + 1024, 12 * MIB - 1024, 5, "inactive")], pool=(3, 0), stream=77),
            segment(2 * BASE, 20 * MIB, [block(2 * BASE, 512, 512, "active_awaiting_free"),
                                         block(2 * BASE + 512, 20 * MIB - 512, 0, "inactive")], device=1, kind="small",
                    expandable=True),
        ],
        "device_traces": [first, second],
        "allocator_settings": SETTINGS,
        "external_annotations": [{"name": "step", "stage": "START", "device": 0, "time_us": 1}],
    }


def old_layout():
    """No pool ids, no times, no settings, blocks without addresses and with a `history`."""
    history = [{"addr": BASE, "real_size": 1000, "frames": FRAMES}]
    return {
        "segments": [{"device": 0, "address": BASE, "total_size": 2 * MIB, "allocated_size": 1024, "active_size": 1536,
                      "stream": 0, "segment_type": "small",
                      "blocks": [{"size": 1024, "state": "active_allocated", "history": history},
                                 {"size": 512, "requested_size": 12, "state": "active_awaiting_free"},
                                 {"size": 2 * MIB - 1536, "requested_size": 0, "state": "inactive"}]}],
        "device_traces": [[{"action": "segment_alloc", "addr": BASE, "size": 2 * MIB, "stream": 0},
                           {"action": "alloc", "addr": BASE, "size": 1000, "stream": 0},
                           {"action": "shrink_the_universe", "addr": BASE, "size": 1, "stream": 0},
                           {"action": "alloc", "addr": BASE + 1024, "size": 12, "stream": 0}]],
    }


TORCH = "/usr/lib/python3/site-packages/torch/"
MAIN = {"name": "<module>", "filename": "train.py", "line": 3}
SETUP = [{"name": "__init__", "filename": TORCH + "nn/modules/linear.py", "line": 109},
         {"name": "__init__", "filename": "model.py", "line": 5}, MAIN]
FORWARD = [{"name": "forward", "filename": TORCH + "nn/modules/linear.py", "line": 134},
           {"name": "forward", "filename": "model.py", "line": 20}, {"name": "main", "filename": "train.py", "line": 30}]
OPTIMISER = [{"name": "_init_group", "filename": TORCH + "optim/adam.py", "line": 178},
             {"name": "main", "filename": "train.py", "line": 40}]
LEAK = [{"name": "log", "filename": "train.py", "line": 77}]


def training(device=0, longer=0, base=BASE):
    """Eight steps of a training loop whose parts are known: 32 MiB of weights, as much of gradients, twice as much of states,
    activations that vary from step to step, and 1 MiB a step that train.py:77 keeps.  `longer`: by so much a step's scale is larger."""
    trace, marks, live = [entry("segment_alloc", base, 8192 * MIB, 0)], [], {}
    free_at = base

    def alloc(mib, frames=()):
        nonlocal free_at
        trace.append(entry("alloc", free_at, mib * MIB, len(trace), frames=list(frames)))
        live[free_at] = (mib, frames)
        free_at += mib * MIB
        return free_at - mib * MIB

    def free(addr):
        size = live.pop(addr)[0] * MIB
        trace.append(entry("free_requested", addr, size, len(trace)))
        trace.append(entry("free_completed", addr, size, len(trace)))

    def mark(name, stage):
        marks.append({"name": name, "stage": stage, "device": device, "time_us": 1_700_000_000_000_000 + len(trace)})

    for _ in range(4):
        alloc(8, SETUP)
    for step, scale in enumerate((4, 6, 5, 8, 4, 7, 5, 6)):
        saved = []
        alloc(1, LEAK)
        for _ in range(4):
            saved.append(alloc(4 * (scale + longer), FORWARD))
            free(alloc(4, FORWARD))
        grads = []
        for addr in reversed(saved):
            free(alloc(2))
            grads.append(alloc(8))
            free(addr)
        mark("Optimizer.step#Adam.step", "START")
        for _ in range(8 if step == 0 else 0):
            alloc(8, OPTIMISER)
        free(alloc(8, OPTIMISER))
        mark("Optimizer.step#Adam.step", "END")
        for addr in grads:
            free(addr)
    blocks, at = [], base
    for addr in sorted(live):
        if addr > at:
            blocks.append(block(at, addr - at, 0, "inactive"))
        blocks.append(block(addr, live[addr][0] * MIB, live[addr][0] * MIB, "active_allocated", live[addr][1]))
        at = addr + live[addr][0] * MIB
    blocks.append(block(at, base + 8192 * MIB - at, 0, "inactive"))
    return {"segments": [segment(base, 8192 * MIB, blocks, device=device)], "device_traces": [[]] * device + [trace],
            "allocator_settings": SETTINGS, "external_annotations": marks}


def rank(number):
    """Of a job of two: the second one's batches are larger."""
    return training(device=number, longer=2 * number, base=BASE * (1 + number))


def both_ranks():
    """The same by one process that drives both devices."""
    one, two = rank(0), rank(1)
    return {**one, "segments": one["segments"] + two["segments"], "device_traces": one["device_traces"] + two["device_traces"][1:],
            "external_annotations": one["external_annotations"] + two["external_annotations"]}


def rmm_log():
    """A log of two threads whose lines do not come in the order of their times, over midnight; a request of no bytes, a refused one, a
    second head, as where logs were joined, and the older form of times."""
    lines = ["Thread,Time,Action,Pointer,Size,Stream",
             "101,23:59:58.999999,allocate,0x7f0000000000,1048576,0x0",
             "102,23:59:59.000500,allocate,0x7f0000100000,300,0x7f8a38001020",
             "101,23:59:59.000400,allocate,0x7f0000200000,4096,0x0",
             "101,23:59:59.000600,allocate,(nil),0,0x0",
             "101,23:59:59.000700,free,(nil),0,0x0",
             "101,00:00:00.000001,free,0x7f0000000000,1048576,0x0",
             "102,00:00:01:000002,allocate failure,(nil),42949672960,0x7f8a38001020",
             "Thread,Time,Action,Pointer,Size,Stream",
             "102,00:00:02.5,allocate,0x7f0000000000,512,2",
             "102,00:00:03.000000,deallocate,0x7f0000100000,300,0x7f8a38001020"]
    return ("\r\n".join(lines) + "\n").encode()


class ItemWise(pickle._Pickler):
    """Fills dicts and lists one item at a time (SETITEM, APPEND), as other picklers do."""

    def _batch_setitems(self, items, *rest):
        for key, value in items:
            self.save(key)
            self.save(value)
            self.write(pickle.SETITEM)

    def _batch_appends(self, items, *rest):
        for item in items:
            self.save(item)
            self.write(pickle.APPEND)


def item_wise(value):
    out = io.BytesIO()
    ItemWise(out, protocol=4).dump(value)
    return out.getvalue()


def policy():
    a = BASE
    return {
        "name": "made", "conf": "expandable_segments:False", "frac": 0.25, "total": 1 << 34, "ooms": 1,
        "trace": [["segment_alloc", a, 20 * MIB, 0], ["alloc", a, 3 * MIB, 0], ["alloc", a + 3 * MIB, 4 * MIB, 9],
                  ["free_requested", a, 3 * MIB, 0], ["free_completed", a, 3 * MIB, 0], ["oom", 5, 1 << 33, 0]],
        "segments": [[a, 20 * MIB, 0, "large", False, [0, 2],
                      [[3 * MIB, 7, "inactive"], [4 * MIB, 4 * MIB, "active_allocated"], [13 * MIB, 0, "inactive"]]]],
        "stats": {"reserved_bytes.all.peak": 20 * MIB, "reserved_bytes.all.current": 20 * MIB, "num_alloc_retries": 2,
                  "num_ooms": 1},
    }


def put(folder, name, data):
    os.makedirs(os.path.join(HERE, folder), exist_ok=True)
    with open(os.path.join(HERE, folder, name), "wb") as file:
        file.write(data)


def main():
    made, seeds = "made", os.path.join("..", "fuzz", "corpus", "history")
    for protocol in range(2, 6):
        put(made, f"small.{protocol}.pickle", pickle.dumps(small(), protocol))
        put(seeds, f"small_{protocol}", pickle.dumps(small(), protocol))
    plain = pickle.dumps(small(), 4)
    put(made, "small.pickle.gz", gzip.compress(plain[:100], mtime=0) + gzip.compress(plain[100:], mtime=0))
    put(made, "small.pickle.xz", lzma.compress(plain[:100]) + lzma.compress(plain[100:]))
    zstd = [subprocess.run(["zstd", "-q", "-c"], input=part, stdout=subprocess.PIPE, check=True).stdout
            for part in (plain[:100], plain[100:])]
    put(made, "small.pickle.zst", b"".join(zstd))
    put(made, "small.item_wise.pickle", item_wise(small()))
    put(made, "old_layout.pickle", pickle.dumps(old_layout(), 3))
    put(made, "small.rmm.csv", rmm_log())
    logs = os.path.join("..", "fuzz", "corpus", "rmm")
    put(logs, "small", rmm_log())
    put(logs, "no_head", b"1979932,14:21:19.998533,allocate,0x30a000000,256,0x2\n1980043,14:21:32.661875,free,0x30a000000,256,0x2\n")
    put(logs, "seconds", b"Pointer,Size,Action,Time\n0x1000,7,allocate,1634567890.123456\n0x1000,7,free,1634567891\n")
    put(logs, "gzip", gzip.compress(rmm_log(), mtime=0))
    put(logs, "late_free", b"Thread,Time,Action,Pointer,Size,Stream\n1,00:00:00.0,free,0x1000,7,0x0\n")
    for target in ("history", "convert"):
        put(os.path.join("..", "fuzz", "corpus", target), "rmm", rmm_log())
    put(seeds, "minimalloc", b"id,lower,upper,size\n0,0,3,4\n1,3,9,4\n2,0,9,600\n")
    put(made, "training.pickle", pickle.dumps(training(), 4))
    for number in range(2):
        put(made, f"rank{number}.pickle.xz", lzma.compress(pickle.dumps(rank(number), 4)))
    put(made, "ranks.pickle.xz", lzma.compress(pickle.dumps(both_ranks(), 4)))
    for target in ("explain", "compare", "convert"):
        corpus = os.path.join("..", "fuzz", "corpus", target)
        put(corpus, "small", pickle.dumps(small(), 4))
        put(corpus, "old_layout", pickle.dumps(old_layout(), 4))
        put(corpus, "training", pickle.dumps(training(), 4))
        put(corpus, "policy", json.dumps(policy()).encode())
    text = json.dumps(policy()).encode()
    put(made, "policy.json", text)
    put(made, "policy.json.gz", gzip.compress(text, mtime=0))
    put(seeds, "item_wise", item_wise(small()))
    put(seeds, "old_layout", pickle.dumps(old_layout(), 4))
    put(seeds, "policy", text)
    put(seeds, "gzip", gzip.compress(plain, mtime=0))
    put(seeds, "xz", lzma.compress(plain))
    put(seeds, "zstd", zstd[0] + zstd[1])
    odd = [1 << 40, -(1 << 40), (1 << 64) - 1, -(1 << 63), 1.5, None, True, b"bytes", bytearray(b"array"), (1,), (1, 2, 3), (), "x" * 300]
    put(seeds, "values", pickle.dumps({"device_traces": [[]], "odd": odd}, 5))
    put(seeds, "text_long", b"\x80\x04X" + struct.pack("<I", 700) + b"y" * 700 + b".")


if __name__ == "__main__":
    main()
