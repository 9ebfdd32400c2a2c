"""What a cache with prefix sharing hits, evicts and refuses when requests come one by one: a model that shares no code with gapless.

A cache of `capacity` KV pages; a prompt takes its longest cached prefix of whole KV pages, evicts the least recently used ones for the rest, and leaves its
whole KV pages behind, the last of them as the first to go.
"""
import collections
import itertools
import json
import lzma

BLOCK = 512


def lines(path, count):
    with lzma.open(path, "rt") if path.endswith(".xz") else open(path, encoding="utf-8") as file:
        yield from itertools.islice(file, count)


def chains(path, page_tokens, count):
    """The whole KV pages of each prompt, as numbers of their chains, and the tokens of the prompt."""
    names = {}
    for line in lines(path, count):
        request = json.loads(line)
        before, pages = 0, []
        for index in range(request["input_length"] // page_tokens):
            at = index * page_tokens
            block, part = request["hash_ids"][at // BLOCK], at % BLOCK
            if page_tokens > BLOCK:
                block = tuple(request["hash_ids"][at // BLOCK:(at + page_tokens) // BLOCK])
            before = names.setdefault((before, block, part), len(names) + 1)
            pages.append(before)
        yield pages, request["input_length"]


def model(path, page_tokens, capacity, count=None):
    cached = collections.OrderedDict()
    hits = evicted = refused = asked = 0
    seen = set()
    ceiling = 0
    for pages, tokens in chains(path, page_tokens, count):
        asked += len(pages)
        ceiling += sum(page in seen for page in pages)
        seen.update(pages)
        hit = 0
        while hit < len(pages) and pages[hit] in cached:
            del cached[pages[hit]]
            hit += 1
        hits += hit
        need = -(-tokens // page_tokens) - hit
        served = need <= capacity - hit
        refused += not served
        while served and capacity - hit - len(cached) < need:
            cached.popitem(last=False)
            evicted += 1
        for page in reversed(pages if served else pages[:hit]):
            cached[page] = None
            cached.move_to_end(page)
    return {"hits": hits, "evicted": evicted, "refused": refused, "asked": asked, "ceiling": ceiling}
