"""What the README's first screen says of PyTorch, from measured rows: figures.py --readme writes it between two marks."""
import re
import statistics

BEGIN, END = "<!-- bench/torch/figures.py --readme writes from here -->", "<!-- to here -->"
WIDTH = 132
WORDS = ("none", "one", "two", "three", "four", "five", "six")


def write(path, text):
    """Replaces what stands between the marks."""
    with open(path, encoding="utf-8") as file:
        old = file.read()
    if old.count(BEGIN) != 1 or old.count(END) != 1 or old.index(END) < old.index(BEGIN):
        raise RuntimeError(f"{path}: it has not the two marks, in order: {BEGIN} {END}")
    before, after = old.split(BEGIN)[0], old.split(END)[1]
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{BEGIN}\n{text}\n{END}{after}")


def paragraph(rows, machine, workloads, whole):
    """`machine`: where the rows were measured; `whole`: seconds of a run that count."""
    text = " ".join(filter(None, (_head(rows, machine), _workloads(rows, workloads, whole), _bits(rows), _latency(rows))))
    return _wrapped(text)


def _wrapped(text):
    """Lines of at most WIDTH characters; a link stays whole."""
    lines = [""]
    for word in re.findall(r"\[[^\]]*\]\([^)]*\)\S*|\S+", text):
        if len(lines[-1]) + 1 + len(word) > WIDTH:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def _head(rows, machine):
    """Which commits; of all but the one with most, what."""
    by_commit = {}
    for row in rows.all:
        if row["part"] in ("latency", "workloads", "bits"):
            by_commit.setdefault(row["commit"], set()).add(row["workload"] if row["part"] == "workloads" else f"the {row['part']}")
    most = max(by_commit, key=lambda commit: len(by_commit[commit]))
    rest = [f"{' and '.join(sorted(what - by_commit[most]))} of {commit}" for commit, what in by_commit.items() if what - by_commit[most]]
    return f"On {machine} (commit {'; '.join([most, *rest])}; [figures](docs/pytorch.md#figures))"


def _speed(rows, name, whole):
    native, tight = rows.find(part="workloads", workload=name, side="native"), rows.find(part="workloads", workload=name, mode="tight")
    return statistics.median(map(whole, native)) / statistics.median(map(whole, tight))


def _workloads(rows, workloads, whole):
    names = [name for name in workloads if rows.find(part="workloads", workload=name, mode="tight")]
    if not names:
        return ""
    ran = [name for name in names if all(row["ok"] for row in rows.find(part="workloads", workload=name, mode="tight"))]
    speeds = sorted(_speed(rows, name, whole) for name in ran)
    many = WORDS[len(ran)] if len(ran) == len(names) else f"{len(ran)} of {len(names)}"
    between = f", at {speeds[0]:.2f} to {speeds[-1]:.2f} of the speed that PyTorch's own allocator has without a limit" if ran else ""
    return f"{many} training and serving programs run at 1.005 P{between}."


def _bits(rows):
    steady = [row for row in rows.find(part="bits") if row["native"][0] == row["native"][1]]
    same = sum(row["ok"] and row["gapless"] == row["native"][0] for row in steady)
    if not steady:
        return ""
    if same < len(steady):
        return f"With deterministic algorithms {same} of the {len(steady)} that have the same bits from run to run have them there, too."
    return "With deterministic algorithms the results have the same bits wherever those are the same from run to run."


def _latency(rows):
    found = rows.find(part="latency")
    if not found:
        return ""
    (pair, ours), (churn, our_churn), (threads, our_threads) = (
        _ns(found, what) for what in ("pair of 512 B", "churn of 2,000 live blocks", "16 threads on one stream"))
    return (f"Below Python a block costs {ours:.0f} ns where PyTorch's own takes {pair:,.0f}, in churn among 2,000 live blocks {our_churn:.0f} "
            f"against {churn:,.0f}, with 16 threads on one stream {our_threads:.0f} against {threads:,.0f}.")


def _ns(found, what):
    return tuple(statistics.median(row["ns"][what] for row in found if row["side"] == side) for side in ("native", "gapless"))
