#!/usr/bin/env python3
"""Cuts a snapshot pickle of one device to its first EVENTS trace entries and rebuilds the segment list as it was then.

    cut_history.py IN.pickle[.xz] EVENTS OUT.pickle.xz

The blocks of a segment follow from the recorded addresses and PyTorch's split rule (a remainder of 512 bytes in a small
segment, of more than 1 MiB in a large one, becomes a block of its own); applied to a whole file this gives back the
segment list recorded with it, which is checked before anything is cut."""
import lzma
import pickle
import sys

MIB = 1 << 20


class Segment:
    def __init__(self, entry):
        self.address, self.size, self.stream = entry["addr"], entry["size"], entry["stream"]
        self.small = self.size == 2 * MIB
        self.blocks = {self.address: [self.size, 0, "inactive"]}  # address -> size, requested, state

    def alloc(self, address, requested):
        block = self.blocks[address]
        assert block[2] == "inactive"
        rounded = max(512, -(-requested // 512) * 512)
        rest = block[0] - rounded
        assert rest >= 0
        if rest >= 512 if self.small else rest > MIB:
            self.blocks[address + rounded] = [rest, block[1], "inactive"]
            block[0] = rounded
        block[1], block[2] = requested, "active_allocated"

    def free(self, address):
        block = self.blocks[address]
        block[2] = "inactive"
        following = self.blocks.get(address + block[0])
        if following and following[2] == "inactive":
            del self.blocks[address + block[0]]
            block[0] += following[0]
        before = max((a for a in self.blocks if a < address), default=None)
        if before is not None and self.blocks[before][2] == "inactive":
            self.blocks[before][0] += block[0]
            del self.blocks[address]

    def dump(self):
        active = [b for b in self.blocks.values() if b[2] != "inactive"]
        return {
            "device": 0,
            "address": self.address,
            "total_size": self.size,
            "allocated_size": sum(b[0] for b in active if b[2] == "active_allocated"),
            "active_size": sum(b[0] for b in active),
            "requested_size": sum(b[1] for b in active),
            "stream": self.stream,
            "segment_type": "small" if self.small else "large",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": [],
            "blocks": [
                {"address": a, "size": b[0], "requested_size": b[1], "state": b[2], "frames": []}
                for a, b in sorted(self.blocks.items())
            ],
        }


def rebuild(trace):
    segments, owner = {}, {}
    for entry in trace:
        action, addr = entry["action"], entry["addr"]
        if action == "segment_alloc":
            segments[addr] = Segment(entry)
        elif action == "segment_free":
            del segments[addr]
        elif action == "alloc":
            home = next(s for s in segments.values() if s.address <= addr < s.address + s.size)
            owner[addr] = home
            home.alloc(addr, entry["size"])
        elif action == "free_requested":
            owner[addr].blocks[addr][2] = "active_pending_free"
        elif action == "free_completed":
            owner.pop(addr).free(addr)
    return [s.dump() for _, s in sorted(segments.items())]


def outline(segments):
    return [(s["address"], s["total_size"], s["allocated_size"], s["active_size"], s["requested_size"], s["stream"],
             s["segment_type"], [(b["address"], b["size"], b["state"]) for b in s["blocks"]]) for s in segments]


def main(source, events, target):
    opener = lzma.open if source.endswith(".xz") else open
    with opener(source, "rb") as file:
        snapshot = pickle.load(file)
    trace = snapshot["device_traces"][0]
    assert outline(rebuild(trace)) == outline(snapshot["segments"]), "the rule does not give back the recorded segments"
    trace = trace[:events]
    last = trace[-1]["time_us"]
    snapshot["device_traces"] = [trace]
    snapshot["segments"] = rebuild(trace)
    snapshot["external_annotations"] = [a for a in snapshot["external_annotations"] if a["time_us"] <= last]
    with lzma.open(target, "wb", preset=9 | lzma.PRESET_EXTREME) as file:
        pickle.dump(snapshot, file, protocol=4)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
