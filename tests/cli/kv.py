"""gapless kv replay: its hit rates, evictions and refusals against a model of its own, at several cache and KV page sizes; its other forms and errors."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from kv_model import model  # noqa: E402

COMMAND = sys.argv[1]
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "requests")
MOONCAKE = os.path.join(DATA, "mooncake_conversation_1200.jsonl.xz")
AZURE = os.path.join(DATA, "azure_conv_600.csv.xz")
LENGTHS = os.path.join(DATA, "sharegpt_lengths_300.csv.xz")


def run(*arguments, code=0):
    result = subprocess.run([COMMAND, "kv", *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == code, (arguments, result.returncode, result.stdout, result.stderr)
    return result.stdout if code == 0 or result.stdout else result.stderr


def replay(*arguments, code=0):
    return json.loads(run("replay", "--json", *arguments, code=code))


def check_hits(page_tokens, cache_tokens, *more, requests=1200):
    got = replay(MOONCAKE, "--one-by-one", "--no-partial", "--page-tokens", str(page_tokens), "--cache-tokens", str(cache_tokens),
                 "--requests", str(requests), *more, code=1 if cache_tokens < 130000 else 0)
    want = model(MOONCAKE, page_tokens, got["kv_pages"], requests)
    assert got["kv_pages"] * page_tokens >= cache_tokens * 0.98, got["kv_pages"]
    assert got["hits"]["kv_pages_asked"] == want["asked"]
    assert got["hits"]["kv_pages_hit"] == want["hits"], (page_tokens, cache_tokens, got["hits"], want)
    assert got["evictions"] == want["evicted"], (got["evictions"], want)
    assert got["refused"] == want["refused"], (got["refused"], want)
    estimate, exact = got["hits"]["ceiling_kv_pages"], want["ceiling"] / want["asked"]
    assert abs(estimate - exact) < 0.03, (estimate, exact)
    return want["hits"]


def hit_rates():
    by_size = [check_hits(512, tokens) for tokens in (60000, 500000, 1500000, 5100000)]
    assert by_size == sorted(by_size) and by_size[0] < by_size[-1]
    check_hits(512, 500000, "--layout", "block-major")
    check_hits(512, 1500000, "--sharing", "sha256")
    check_hits(16, 300000, requests=300)
    check_hits(128, 1000000, "--model", "qwen2.5-7b", requests=600)


def schedules():
    for trace in (AZURE, LENGTHS):
        for layout in ("per-layer", "block-major"):
            got = replay(trace, "--layout", layout)
            assert got["requests"] > 0 and got["refused"] == 0
            assert got["tokens_computed"] >= got["tokens_in"] * 0.99, got
            assert 1 < got["waste"]["held_to_live"]["median"] < (1.02 if layout == "block-major" else 1.03), got["waste"]
            assert got["host_ns_per_step"]["median"] > 0 and got["peak_sequences"] > 1
    tight = replay(LENGTHS, "--kv", "3G", "--sharing", "off")
    assert tight["preemptions"] > 0 and tight["tokens_computed"] > tight["tokens_in"]
    swapped = replay(LENGTHS, "--kv", "3G", "--host", "20G", "--sharing", "off")
    assert swapped["preemptions"] > 0 and swapped["counters"]["swapped_in"] == swapped["counters"]["swapped_out"] > 0
    assert swapped["tokens_out"] == tight["tokens_out"]
    again = replay(LENGTHS, "--kv", "3G", "--host", "20G", "--sharing", "off")
    del swapped["host_ns_per_step"], again["host_ns_per_step"]
    assert swapped == again  # the clock is simulated
    windowless = replay(AZURE, "--requests", "40", "--model", "16x8x64", "--kv", "8G")
    assert windowless["requests"] == 40


def tiered(*arguments, trace=MOONCAKE):
    return replay(trace, "--one-by-one", "--no-partial", "--page-tokens", "512", "--cache-tokens", "500000", "--requests", "1200", *arguments, code=0)


def tiers():
    """Below a small cache: places without end make it as good as one without end, small ones as good as they are large, dear ones are not used."""
    bare = tiered("--sharing", "sha256")
    endless = model(MOONCAKE, 512, 10 ** 9, 1200)
    for places in ("remote=40T", "disk=40T", "host=20T,remote=1G"):
        got = tiered("--tiers", places, "--token-time", "1000000")
        assert got["hits"]["kv_pages_hit"] == endless["hits"], (places, got["hits"], endless)
        assert got["tiers"]["lost"] == got["tiers"]["not_stored"] == 0, got["tiers"]
    rates = [tiered("--tiers", f"host={size}", "--token-time", "1000000")["hits"]["kv_pages_hit"] for size in ("20G", "200G", "2T")]
    assert bare["hits"]["kv_pages_hit"] <= rates[0] < rates[1] < rates[2] <= endless["hits"], (bare["hits"], rates)
    stacked = tiered("--tiers", "host=50G,disk=150G", "--token-time", "1000000")
    assert stacked["tiers"]["disk_fetched"] > 0 and rates[0] < stacked["hits"]["kv_pages_hit"] <= rates[2], (stacked["hits"], rates)
    dear = tiered("--tiers", "remote=40T", "--rates", "remote=100M")
    assert dear["tiers"]["remote_fetched"] == 0 < dear["tiers"]["remote_refused"], dear["tiers"]
    assert dear["hits"]["kv_pages_hit"] == bare["hits"]["kv_pages_hit"], (dear["hits"], bare["hits"])
    scheduled = replay(MOONCAKE, "--requests", "300", "--tiers", "host=400G", "--token-time", "1000")
    alone = replay(MOONCAKE, "--requests", "300", "--sharing", "sha256")
    assert scheduled["hits"]["tokens_hit"] > alone["hits"]["tokens_hit"] and scheduled["tiers"]["host_fetched"] > 0
    assert "tiers" not in alone
    text = run("replay", MOONCAKE, "--requests", "100", "--one-by-one", "--tiers", "host=1G,disk=2G,remote=3G")
    for word in ("tiers", "brought up", "refused"):
        assert word in text, text


def people():
    text = run("replay", AZURE, "--requests", "50")
    for word in ("hit rate", "waste", "evictions", "preemptions", "sequences", "host"):
        assert word in text, text
    assert "llama-3.1-8b" in run("models")
    assert "--page-tokens" in run("--help")


def errors():
    for arguments, word in (
            (("replay",), "no trace"), ((), "gapless kv replay TRACE"), (("replay", AZURE, AZURE), "second"),
            (("replay", AZURE, "--page-tokens", "24"), "power of two"), (("replay", AZURE, "--model", "gpt"), "not known"),
            (("replay", AZURE, "--layout", "both"), "block-major"), (("replay", "nowhere.csv"), "nowhere.csv"),
            (("replay", AZURE, "--card", "10G"), "leave nothing"), (("replay", AZURE, "--model", "8x8x128"), "weights"),
            (("replay", __file__), "line 1"), (("replay", AZURE, "--kv", "0"), "size"),
            (("replay", AZURE, "--tiers", "tape=1G"), "host=SIZE"), (("replay", AZURE, "--tiers", "host=0"), "host=SIZE"),
            (("replay", AZURE, "--rates", "host"), "host=SIZE"), (("replay", AZURE, "--tiers", "host=1G", "--sharing", "fast"), "SHA-256")):
        text = run(*arguments, code=2)
        assert word in text, (arguments, text)
    with open("broken.jsonl", "w", encoding="utf-8") as file:
        file.write('{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1]}\n{"input_length": -5, "output_length": 1}\n')
    assert "line 2" in run("replay", "broken.jsonl", code=2)
    with open("broken.csv", "w", encoding="utf-8") as file:
        file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,5,x\n")
    assert "line 2" in run("replay", "broken.csv", code=2)
    with open("empty.csv", "w", encoding="utf-8") as file:
        file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    assert "no request" in run("replay", "empty.csv", code=2)


if __name__ == "__main__":
    hit_rates()
    schedules()
    tiers()
    people()
    errors()
