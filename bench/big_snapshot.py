#!/usr/bin/env python3
"""Writes a large snapshot, as torch.cuda.memory._dump_snapshot would have: bench/big_snapshot.py OUT [--mib N] [--depth N] [--no-history]

A made-up training program: layers of call sites that save activations, a backward pass that frees them, an optimiser, step
after step until the file is as large as wanted, so that it ends within a step.  Every allocation and every free carries a
stack of its own, --depth frames deep, as PyTorch records them; the frames themselves are shared.  Segments and blocks at the
end agree with the events.  --no-history: only segments, with millions of small blocks.  Nothing is random: the same arguments
give the same bytes.
"""
import argparse
import pickle

MIB = 1 << 20
LAYERS, SITES = 48, 40  # call sites a layer: a third of them keep what they allocate until the backward pass
SLOT, SEGMENT = 4 * MIB, 512 * MIB
BASE = 0x7F0000000000
TIME = 1_790_000_000_000_000


def text(string):
    raw = string.encode()
    return (b"\x8c" + bytes([len(raw)]) if len(raw) < 256 else b"X" + len(raw).to_bytes(4, "little")) + raw


def whole(number):
    if number < 256:
        return b"K" + bytes([number])
    if number < 1 << 31:
        return b"J" + number.to_bytes(4, "little")
    return b"\x8a\x08" + number.to_bytes(8, "little", signed=True)


class Writer:
    """Pickle opcodes of protocol 4, with the memo counted as Python's pickler does."""

    def __init__(self, out):
        self.out, self.parts, self.memo, self.bytes = out, [], 0, 0
        self.words = {}
        self.put(b"\x80\x04")

    def put(self, raw):
        self.parts.append(raw)
        self.bytes += len(raw)
        if len(self.parts) > 4096:
            self.flush()

    def flush(self):
        self.out.write(b"".join(self.parts))
        self.parts.clear()

    def memoize(self):
        self.memo += 1
        return self.memo - 1

    def get(self, index):
        return b"h" + bytes([index]) if index < 256 else b"j" + index.to_bytes(4, "little")

    def word(self, string):
        """A string: written once, then taken from the memo."""
        if string in self.words:
            return self.get(self.words[string])
        self.words[string] = self.memoize()
        return text(string) + b"\x94"

    def begin(self, opcode):  # of a dict or list
        self.memoize()
        return opcode + b"\x94("

    def plain(self, value):
        """A whole value of Python's, for the parts that are small."""
        if isinstance(value, dict):
            items = [self.begin(b"}")] + [part for k, v in value.items() for part in (self.plain(k), self.plain(v))]
            return b"".join(items) + b"u"
        if isinstance(value, list):
            return self.begin(b"]") + b"".join(self.plain(item) for item in value) + b"e"
        if isinstance(value, tuple):
            packed = b"(" + b"".join(self.plain(item) for item in value) + b"t\x94"
            self.memoize()
            return packed
        if isinstance(value, bool):
            return b"\x88" if value else b"\x89"
        if isinstance(value, int):
            return whole(value) if value >= 0 else b"J" + value.to_bytes(4, "little", signed=True)
        if value is None:
            return b"N"
        if isinstance(value, float):
            return pickle.dumps(value, 4)[-10:-1]
        return self.word(value)


class Stacks:
    """Lists of frames, each frame written at its first use; `last` is the memo's index of the last list."""

    def __init__(self, writer):
        self.writer, self.known, self.last = writer, {}, 0

    def list_of(self, frames):
        writer = self.writer
        self.last = writer.memo
        raw = [writer.begin(b"]")]
        for frame in frames:
            if frame in self.known:
                raw.append(writer.get(self.known[frame]))
                continue
            self.known[frame] = writer.memo
            raw.append(writer.plain(dict(zip(("name", "filename", "line"), frame))))
        raw.append(b"e")
        return b"".join(raw)


def stack(phase, layer, site, depth):
    """Frames innermost first: the call site, its layer, the program."""
    inner = {"forward": ("linear", "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", 125),
             "backward": ("_engine_run_backward", "/opt/venv/lib/python3.12/site-packages/torch/autograd/graph.py", 824),
             "optim": ("_multi_tensor_adamw", "/opt/venv/lib/python3.12/site-packages/torch/optim/adamw.py", 600)}[phase]
    frames = [inner]
    if phase == "backward":
        frames.append(("backward", "/opt/venv/lib/python3.12/site-packages/torch/_tensor.py", 626))
    if phase == "optim":
        frames.append(("step", "/opt/venv/lib/python3.12/site-packages/torch/optim/adamw.py", 243))
    else:
        frames.append((f"part_{site % 7}", f"/srv/model/block_{layer % 12}.py", 10 + 3 * site))
        frames.append(("forward", f"/srv/model/block_{layer % 12}.py", 400 + layer))
    while len(frames) < depth - 2:
        frames.append(("_call_impl", "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", 1700 + len(frames)))
    return frames + [("train", "/srv/train.py", 88), ("<module>", "/srv/train.py", 120)]


class Program:
    def __init__(self, writer, depth, limit):
        self.writer, self.depth, self.limit = writer, depth, limit
        self.stacks = Stacks(writer)
        self.time, self.live, self.segments, self.slots = TIME, {}, [], 0

    def entry(self, action, address, size, frames):
        writer = self.writer
        self.time += 3
        raw = [writer.begin(b"}"), writer.word("action"), writer.word(action), writer.word("addr"), whole(address),
               writer.word("size"), whole(size), writer.word("stream"), b"K\x00", writer.word("time_us"), whole(self.time),
               writer.word("compile_context"), writer.word("N/A"), writer.word("user_metadata"), writer.word(""),
               writer.word("frames"), frames() if callable(frames) else frames, b"u"]
        writer.put(b"".join(raw))

    def slot(self):
        """A place of its own for a call site; a new segment where the last one is full."""
        place = self.slots
        self.slots += 1
        if place * SLOT % SEGMENT == 0:
            self.segments.append(BASE + len(self.segments) * SEGMENT)
            self.entry("segment_alloc", self.segments[-1], SEGMENT, lambda: self.writer.begin(b"]") + b"e")
        return self.segments[-1] + place * SLOT % SEGMENT

    def alloc(self, address, size, frames):
        self.live[address] = (size, frames)
        self.entry("alloc", address, size, lambda: self.stacks.list_of(frames))

    def free(self, address, frames):
        size, _ = self.live.pop(address)
        self.entry("free_requested", address, size, lambda: self.stacks.list_of(frames))
        self.entry("free_completed", address, size, self.writer.get(self.stacks.last))

    def is_full(self):
        return self.writer.bytes >= self.limit

    def setup(self):
        self.at = {}
        for layer in range(LAYERS):
            for site in range(SITES):
                self.at[layer, site] = self.slot()
        self.weights = [self.slot() for _ in range(LAYERS * 2)]
        for index, address in enumerate(self.weights[:LAYERS]):
            frames = stack("forward", index, 0, self.depth)
            frames[1] = ("__init__", f"/srv/model/block_{index % 12}.py", 20)
            self.alloc(address, SLOT, frames)

    def step(self, number):
        size = (1 + number % 4) * 777_216
        for layer in range(LAYERS):
            for site in range(SITES):
                if self.is_full():
                    return
                self.alloc(self.at[layer, site], size + 512 * site, stack("forward", layer, site, self.depth))
                if site % 3:
                    self.free(self.at[layer, site], stack("forward", layer, site, self.depth))
        for layer in reversed(range(LAYERS)):
            for site in reversed(range(0, SITES, 3)):
                if self.is_full():
                    return
                self.free(self.at[layer, site], stack("backward", layer, site, self.depth))
        if number == 0:
            for index, address in enumerate(self.weights[LAYERS:]):
                self.alloc(address, SLOT, stack("optim", index, 0, self.depth))

    def segments_at_end(self):
        for base in self.segments:
            blocks, at = [], base
            for address in sorted(a for a in self.live if base <= a < base + SEGMENT):
                size = (self.live[address][0] + 511) // 512 * 512
                if address > at:
                    blocks.append({"address": at, "size": address - at, "requested_size": 0, "state": "inactive", "frames": []})
                blocks.append({"address": address, "size": size, "requested_size": self.live[address][0],
                               "state": "active_allocated", "frames": []})
                at = address + size
            if at < base + SEGMENT:
                blocks.append({"address": at, "size": base + SEGMENT - at, "requested_size": 0, "state": "inactive", "frames": []})
            used = sum(block["size"] for block in blocks if block["state"] != "inactive")
            yield {"device": 0, "address": base, "total_size": SEGMENT, "allocated_size": used, "active_size": used,
                   "requested_size": used, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
                   "is_expandable": False, "frames": [], "blocks": blocks}


def write_blocks(out, limit, depth):
    """Segments of 2 MiB for small blocks, each block with its stack; every fifth is idle."""
    writer = Writer(out)
    stacks = Stacks(writer)
    writer.put(writer.begin(b"}") + writer.word("segments") + writer.begin(b"]"))
    base = BASE
    while writer.bytes < limit:
        writer.put(writer.begin(b"}") + writer.word("blocks") + writer.begin(b"]"))
        used, at = 0, base
        for number in range(2 * MIB // 4096):
            state = "inactive" if number % 5 == 0 else "active_allocated"
            used += 4096 if number % 5 else 0
            frames = stack("forward", base // MIB % LAYERS, number % SITES, depth)
            writer.put(b"".join([
                writer.begin(b"}"), writer.word("address"), whole(at), writer.word("size"), whole(4096),
                writer.word("requested_size"), whole(4000), writer.word("state"), writer.word(state), writer.word("frames"),
                stacks.list_of(frames if number % 5 else []), b"u"]))
            at += 4096
        writer.put(b"e")
        for key, value in (("device", 0), ("address", base), ("total_size", 2 * MIB), ("allocated_size", used),
                           ("active_size", used), ("requested_size", used), ("stream", 0), ("segment_type", "small"),
                           ("segment_pool_id", (0, 0)), ("is_expandable", False)):
            writer.put(writer.word(key) + writer.plain(value))
        writer.put(b"u")
        base += 2 * MIB
    writer.put(b"e" + writer.word("device_traces") + writer.plain([[]]) + b"u.")
    writer.flush()


def write(out, limit, depth):
    writer = Writer(out)
    writer.put(writer.begin(b"}") + writer.word("device_traces") + writer.begin(b"]") + writer.begin(b"]"))
    program = Program(writer, depth, limit)
    program.setup()
    number = 0
    while not program.is_full():
        program.step(number)
        number += 1
    writer.put(b"ee" + writer.word("segments"))
    writer.put(writer.plain(list(program.segments_at_end())))
    writer.put(writer.word("allocator_settings") + writer.plain({"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False}))
    writer.put(b"u.")
    writer.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("out")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=24, help="frames of a stack")
    parser.add_argument("--no-history", action="store_true", help="segments and blocks only")
    given = parser.parse_args()
    with open(given.out, "wb") as out:
        (write_blocks if given.no_history else write)(out, given.mib * MIB, given.depth)


if __name__ == "__main__":
    main()
