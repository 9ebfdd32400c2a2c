"""The data of a report has the fields that web/src/data.ts says, no more and no fewer: report_data.py COMMAND

Reports of several kinds of files, and the samples in web/samples, are walked together with the interfaces.
"""
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(ROOT, "tests/data")
TYPES = os.path.join(ROOT, "web/src/data.ts")
OPEN = ("Explain", "DiffSide")  # what other commands print: the page names what it needs of it
REPORTS = (["oom.pickle.xz"], ["flexgen_oom_snapshot.pickle.xz"], ["made/ranks.pickle.xz"], ["made/watched.trace"],
           ["made/small.rmm.csv"], ["tr_exp_streams.json.gz"], ["made/rank0.pickle.xz", "made/rank1.pickle.xz"])
INLINE = re.compile(r"(?<=:)\s*\|?\s*\{.*?\}(?:\[\])?(?:\s*\| null)?;", re.DOTALL)  # an interface without a name
FIELD = re.compile(r"^  (\w+): (.+?);$", re.MULTILINE)


def interfaces():
    """{name: {field: type}}, with the fields of what an interface extends."""
    with open(TYPES, encoding="utf-8") as file:
        text = re.sub(r"/\*\*.*?\*/", "", file.read(), flags=re.DOTALL)
    found = {}
    for name, parent, body in re.findall(r"^export interface (\w+)(?: extends (\w+))? \{\n(.*?)^\}", text, re.DOTALL | re.MULTILINE):
        flat = INLINE.sub(lambda match: " object | null;" if match[0].endswith("| null;") else " object;", body)
        found[name] = {**found.get(parent, {}), **dict(FIELD.findall(flat))}
    version = re.search(r"FORMAT_VERSION = (\d+)", text)
    return found, int(version.group(1))


class Checker:
    def __init__(self, types):
        self.types, self.faults, self.seen = types, set(), set()

    def fault(self, where, what):
        self.faults.add(f"{where}: {what}")

    def walk(self, value, kind, where):
        """A value against a type such as "Panel[]", "number | null" or "(WhatIfResult | null)[]"."""
        kind = kind.strip()
        if kind.endswith("[]"):
            self.walk_list(value, kind[:-2].strip("()"), where)
        elif value is None:
            if "null" not in kind:
                self.fault(where, "is null")
        else:
            self.walk_one(value, kind.replace("| null", "").strip(), where)

    def walk_list(self, value, kind, where):
        if not isinstance(value, list):
            self.fault(where, "is no list")
            return
        for item in value:
            self.walk(item, kind, where)

    def walk_one(self, value, kind, where):
        if kind in self.types:
            self.walk_object(value, kind)
        elif kind == "number" and (isinstance(value, bool) or not isinstance(value, (int, float))):
            self.fault(where, "is no number")
        elif kind == "string" and not isinstance(value, str):
            self.fault(where, "is no string")
        elif kind == "boolean" and not isinstance(value, bool):
            self.fault(where, "is neither true nor false")
        elif kind.startswith('"') and value not in re.findall(r'"([^"]*)"', kind):
            self.fault(where, f"{value!r} is not among {kind}")

    def walk_object(self, value, kind):
        fields = self.types[kind]
        self.seen.add(kind)
        for name in fields.keys() - value.keys():
            self.fault(kind, f"lacks {name}")
        for name in value.keys() - fields.keys() if kind not in OPEN else ():
            self.fault(kind, f"has {name}, which data.ts does not know")
        for name in fields.keys() & value.keys():
            self.walk(value[name], fields[name], f"{kind}.{name}")

    def columns(self, table, where, skipped=()):
        lengths = {len(column) for name, column in table.items() if isinstance(column, list) and name not in skipped}
        if len(lengths) > 1:
            self.fault(where, f"columns of {sorted(lengths)} rows")

    def panel(self, panel):
        self.columns(panel["frames"], "Frames")
        self.columns(panel["flame"], "Flame")
        if panel["timeline"]:
            self.columns(panel["timeline"], "Timeline", ("by_category", "by_stream"))
            rows = len(panel["timeline"]["event"])
            if any(len(column) != rows for name in ("by_category", "by_stream") for column in panel["timeline"][name]):
                self.fault("Timeline", "stacks that are not as long as it")
            if len(panel["timeline"]["by_stream"]) != len(panel["streams"]):
                self.fault("Timeline", "not a stack for each stream")
        for moment in panel["moments"]:
            self.columns(moment["rows"], "Rows")
            self.columns(moment["cells"], "Cells")
            self.indices(panel, moment)
        for policy in panel["what_if"]["policies"]:
            if len(policy["results"]) != len(panel["what_if"]["caps"]):
                self.fault("WhatIf", "not a result for each cap")

    def indices(self, panel, moment):
        """Whatever points into a table points at a row of it."""
        blocks = moment["largest"] + moment["oldest"]
        for what, indices, table in (
                ("Rows.arena", moment["rows"]["arena"], moment["arenas"]),
                ("Cells.site", moment["cells"]["site"], panel["sites"]),
                ("Arena.stream", [arena["stream"] for arena in moment["arenas"]], panel["streams"]),
                ("Arena.pool", [arena["pool"] for arena in moment["arenas"]], panel["pools"]),
                ("Block.stream", [block["stream"] for block in blocks], panel["streams"]),
                ("Block.stack", [frame for block in blocks for frame in block["stack"]], panel["frames"]["name"]),
                ("Flame.frame", [frame for frame in panel["flame"]["frame"] if frame >= 0], panel["frames"]["name"])):
            if any(not 0 <= index < len(table) for index in indices):
                self.fault(what, "points beyond its table")


def report_of(command, files):
    done = subprocess.run([command, "report", *files, "--json", "--quiet"], cwd=DATA, capture_output=True, check=True)
    return json.loads(done.stdout)


def documents(command):
    for files in REPORTS:
        yield " ".join(files), report_of(command, files)
    folder = os.path.join(ROOT, "web/samples")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".json"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                yield name, json.load(file)


def main():
    types, version = interfaces()
    never = set(types) - {"Explain"}
    faults = []
    for name, document in documents(os.path.abspath(sys.argv[1])):
        checker = Checker(types)
        checker.walk(document, "ReportData", "ReportData")
        for panel in document["panels"]:
            checker.panel(panel)
        if document["version"] != version:
            checker.fault("version", f"{document['version']}, but data.ts has {version}")
        faults += [f"{name}: {fault}" for fault in sorted(checker.faults)]
        never -= checker.seen
    faults += [f"no report has a {kind}" for kind in sorted(never)]
    print("\n".join(faults) or f"{len(types)} interfaces, no fault")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
