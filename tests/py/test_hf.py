"""gapless.hf beside DynamicCache: the same tokens and, bit for bit, the same logits, on the processor with small random models."""

import copy
import gc
import types

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")

from transformers import DynamicCache  # noqa: E402

from gapless.hf import Cache, PagedCache  # noqa: E402

torch.set_num_threads(1)

SIZES = dict(
    vocab_size=101,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=1024,
    initializer_range=0.3,  # so that logits are far apart
    pad_token_id=0,
    eos_token_id=None,
    bos_token_id=1,
)
GREEDY = dict(do_sample=False)
BEAMS = dict(do_sample=False, num_beams=4, num_return_sequences=2)
SAMPLED = dict(do_sample=True, num_return_sequences=3)
WAYS = (GREEDY, BEAMS, SAMPLED)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))


def mistral():
    """Every layer sees 24 tokens."""
    return transformers.MistralForCausalLM(transformers.MistralConfig(**SIZES, sliding_window=24))


def qwen():
    """Layers of both kinds."""
    config = transformers.Qwen2Config(
        **SIZES,
        use_sliding_window=True,
        sliding_window=24,
        max_window_layers=1,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
    )
    return transformers.Qwen2ForCausalLM(config)


def made(make, implementation):
    torch.manual_seed(torch.initial_seed() % 1000)
    model = make().eval()
    model.set_attn_implementation(implementation)
    return model


def prompt(batch=3, count=17, padded=False):
    ids = torch.randint(3, SIZES["vocab_size"], (batch, count))
    mask = torch.ones_like(ids)
    if padded:
        for i in range(batch):
            mask[i, : 2 * i] = 0
    return dict(input_ids=ids, attention_mask=mask)


def run(model, inputs, cache, tokens=28, **how):
    torch.manual_seed(5)
    return model.generate(
        **inputs,
        past_key_values=cache,
        max_new_tokens=tokens,
        return_dict_in_generate=True,
        output_logits=True,
        **how,
    )


def same(ours, theirs, exact=True):
    assert torch.equal(ours.sequences, theirs.sequences)
    for a, b in zip(ours.logits, theirs.logits):
        assert torch.equal(a, b) if exact else torch.allclose(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("implementation", ("eager", "sdpa"))
@pytest.mark.parametrize("make", (llama, mistral, qwen))
def test_the_same_tokens_as_dynamic_cache(make, implementation):
    model = made(make, implementation)
    for i, how in enumerate(WAYS):
        inputs = prompt(padded=(i % 2 == 0))
        theirs = run(model, inputs, DynamicCache(config=model.config), **how)
        same(run(model, inputs, Cache(model.config), **how), theirs)


@pytest.mark.parametrize("implementation", ("eager", "gapless"))
@pytest.mark.parametrize("make", (llama, mistral, qwen))
def test_the_same_tokens_from_kv_pages(make, implementation):
    for i, how in enumerate(WAYS):
        model = made(make, "sdpa" if implementation == "gapless" else implementation)
        inputs = prompt(padded=(i % 2 == 1))
        theirs = run(model, inputs, DynamicCache(config=model.config), **how)
        model.set_attn_implementation(implementation)
        cache = PagedCache(model.config)
        same(run(model, inputs, cache, **how), theirs, exact=False)
        cache.kv.check()


def test_kv_grow_in_place():
    model = made(llama, "sdpa")
    cache = Cache(model.config)
    run(model, prompt(), cache, tokens=5)
    before = [(layer.keys.data_ptr(), layer.values.data_ptr()) for layer in cache.layers]
    held = cache.layers[0]._rows._ranges.about().bytes_held
    with torch.enable_grad():  # gradients do not go through the cache, and do not hinder it
        model(torch.randint(3, 90, (3, 400)), past_key_values=cache)
    assert before == [(layer.keys.data_ptr(), layer.values.data_ptr()) for layer in cache.layers]
    assert cache.get_seq_length() == 17 + 4 + 400
    assert held <= cache.layers[0]._rows._ranges.about().bytes_held


@pytest.mark.parametrize("kind", (Cache, PagedCache))
@pytest.mark.parametrize("make", (llama, mistral))
def test_a_conversation_goes_on(make, kind):
    """The second turn finds the first in the cache; several tokens at once come behind it."""
    model = made(make, "sdpa")
    inputs = prompt(batch=2)
    ours, theirs = kind(model.config), DynamicCache(config=model.config)
    for turn in range(3):
        results = [run(model, inputs, cache, tokens=12) for cache in (ours, theirs)]
        same(*results, exact=kind is Cache)
        ids = torch.cat([results[1].sequences, torch.randint(3, 90, (2, 7))], dim=1)
        inputs = dict(input_ids=ids, attention_mask=torch.ones_like(ids))


@pytest.mark.parametrize("kind", (Cache, PagedCache))
@pytest.mark.parametrize("make", (llama, mistral))
def test_tokens_that_were_guessed_are_taken_back(make, kind):
    model = made(make, "sdpa")
    ids = torch.randint(3, 9, (1, 40))  # few different ones: guesses hit now and then
    inputs = dict(input_ids=ids, attention_mask=torch.ones_like(ids))
    plain = dict(do_sample=False, eos_token_id=2)  # the first versions want one here
    guessing = dict(plain, prompt_lookup_num_tokens=5)
    theirs = run(model, inputs, DynamicCache(config=model.config), **plain)
    if kind is Cache:
        try:
            run(model, inputs, DynamicCache(config=model.config), **guessing)
        except (RuntimeError, ValueError) as reason:
            pytest.skip(f"DynamicCache cannot either: {reason}")  # windows, before 5.17
    ours = run(model, inputs, kind(model.config), **guessing)
    assert torch.equal(ours.sequences, theirs.sequences)


def test_a_model_that_assists():
    model, assistant = made(llama, "sdpa"), made(llama, "sdpa")
    inputs = prompt(batch=1)
    theirs = run(model, inputs, DynamicCache(config=model.config), **GREEDY)
    ours = run(model, inputs, Cache(model.config), assistant_model=assistant, **GREEDY)
    assert torch.equal(ours.sequences, theirs.sequences)


@pytest.mark.parametrize("kind", (Cache, PagedCache))
def test_crop_and_reset(kind):
    model = made(llama, "sdpa")
    ids = prompt()["input_ids"]
    cache, other = kind(model.config), DynamicCache(config=model.config)
    for c in (cache, other):
        model(ids, past_key_values=c)
        c.crop(-5)
    assert cache.get_seq_length() == 12
    more = torch.randint(3, 90, (3, 4))
    a, b = (model(more, past_key_values=c).logits for c in (cache, other))
    assert torch.allclose(a, b, atol=1e-4, rtol=1e-4)
    cache.crop(10)  # the older meaning: so many are left
    assert cache.get_seq_length() == 10
    cache.reset()
    assert cache.get_seq_length() == 0
    fresh = torch.randint(3, 90, (5, 6))  # of another batch
    assert torch.allclose(model(fresh, past_key_values=cache).logits, model(fresh).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", (Cache, PagedCache))
def test_what_versions_tell_of_layers(kind, monkeypatch):
    """5.0 tells nothing, 5.17 the types with one dictionary for all, 5.24 with one for each."""
    config = made(qwen, "sdpa").config
    kinds = config.layer_types
    answers = [
        None,
        lambda config: (kinds, {"sliding_window": 24}),
        lambda config: (kinds, [{"sliding_window": 24} if "sliding" in k else {} for k in kinds]),
    ]
    for answer in answers:
        monkeypatch.setattr("transformers.cache_utils.get_layer_types_and_kwargs", answer, raising=False)
        cache = kind(config)
        assert len(cache.layers) == 3
        for kind_of_layer, layer in zip(kinds, cache.layers):
            window = 24 if kind_of_layer == "sliding_attention" else None
            assert (layer._window if kind is PagedCache else getattr(layer, "sliding_window", None)) == window


@pytest.mark.parametrize("kind", (Cache, PagedCache))
@pytest.mark.parametrize("make", (llama, qwen))
def test_each_version_may_ask_in_its_way(make, kind):
    """5.0 gives positions where later ones give their number, and a dictionary with `update`; names of the longest length changed."""
    model = made(make, "sdpa")
    cache, other = kind(model.config), DynamicCache(config=model.config)
    for count, more, named in ((30, ({"cache_position": torch.arange(30)},), {}), (1, (), {}), (2, (), {"anything": 1})):
        for index in range(3):
            layer, theirs = cache.layers[index], other.layers[index]
            if kind is Cache:
                assert layer.get_mask_sizes(count) == layer.get_mask_sizes(torch.arange(count))
                window = layer.sliding_window if layer.is_sliding else None
                assert layer.get_max_length() == layer.get_max_cache_shape() == (window or -1)
            k, v = torch.randn(2, 3, 2, count, 16)
            ours = layer.update(k, v, *more, **named)
            expected = theirs.update(k, v)
            kept = expected[0].shape[2]
            assert torch.equal(ours[0][:, :, -kept:], expected[0]) and torch.equal(ours[1][:, :, -kept:], expected[1])
            assert layer.get_seq_length() == theirs.get_seq_length()
    for layer in cache.layers:
        assert layer.get_mask_sizes(4) == layer.get_mask_sizes(torch.arange(4))
        assert layer.get_max_length() == layer.get_max_cache_shape()


@pytest.mark.parametrize("kind", (Cache, PagedCache))
def test_batches_change(kind):
    model = made(llama, "sdpa")
    ids = prompt(batch=2)["input_ids"]
    cache, other = kind(model.config), DynamicCache(config=model.config)
    for c in (cache, other):
        model(ids, past_key_values=c)
        c.batch_repeat_interleave(3)
        c.batch_select_indices(torch.tensor([5, 0, 3, 3]))
        c.reorder_cache(torch.tensor([1, 1, 0, 2]))
    more = torch.randint(3, 90, (4, 3))
    a, b = (model(more, past_key_values=c).logits for c in (cache, other))
    assert torch.allclose(a, b, atol=1e-4, rtol=1e-4)


def test_a_prefix_is_used_again():
    model = made(qwen, "sdpa")
    start = prompt(batch=1, count=30)["input_ids"]
    prefix, other = Cache(model.config), DynamicCache(config=model.config)
    for cache in (prefix, other):
        model(start, past_key_values=cache)
    for _ in range(2):
        ids = torch.cat([start, torch.randint(3, 90, (1, 6))], dim=1)
        inputs = dict(input_ids=ids, attention_mask=torch.ones_like(ids))
        same(run(model, inputs, copy.deepcopy(prefix)), run(model, inputs, copy.deepcopy(other)))
    assert prefix.get_seq_length() == 30


def test_beams_share_kv_pages():
    model = made(llama, "gapless")
    cache = PagedCache(model.config)
    run(model, prompt(batch=1, count=64), cache, tokens=8, **BEAMS)
    stats = cache.kv.stats()
    assert stats["forks"] >= 4
    assert stats["bytes_shared"] >= 3 * 4 * cache.kv.shape.kv_page_bytes  # 4 beams, 64 tokens
    assert stats["bytes_held"] - stats["bytes_tables"] < 2 * cache.kv.shape.slab_bytes


@pytest.mark.parametrize("name", ("past_key_values", "cache"))
def test_a_step_is_captured_whatever_the_cache_is_called(name, monkeypatch):
    """Without a card: the graph is the plain step, captured once and run again while the sequences are the same ones."""
    from gapless import _graphed, _paged

    calls = {"forward": 0, "captured": 0, "replayed": 0}

    class Graph:
        def replay(self):
            calls["replayed"] += 1

    def capture(step):
        calls["captured"] += 1
        step.out = step._forward(**step.kwargs)

    def forward(**kwargs):
        calls["forward"] += 1
        return types.SimpleNamespace(logits=torch.zeros(1), **{name: kwargs[name]})

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(_graphed._Step, "capture", capture)
    monkeypatch.setattr(_paged.Pages, "advance", lambda pages, count: None)
    pages = _paged.Pages(1, 64, 16, None, 8)
    pages.on_card, pages.length, pages.seqs = True, 5, [1]
    config = types.SimpleNamespace(_attn_implementation=_paged.NAME)
    model = types.SimpleNamespace(config=config, forward=forward)
    given = {"input_ids": torch.ones(1, 1, dtype=torch.long), name: types.SimpleNamespace(_pages=pages)}
    steps = _graphed.graphed(model)
    steps._forward = forward
    for _ in range(4):
        out = steps._call(**given)
        assert getattr(out, name) is given[name]
    assert calls == {"forward": 2, "captured": 1, "replayed": 3}
    pages.seqs = [1, 2]
    steps._call(**given)
    assert calls["captured"] == 2


def test_memory_goes_back():
    model = made(llama, "sdpa")
    cache = Cache(model.config)
    run(model, prompt(), cache)
    heap = cache.layers[0]._rows._ranges.heap
    gc.collect()
    held = heap.usage().live_bytes
    keys = cache.layers[0].keys
    kept = keys.clone()
    del cache
    gc.collect()
    assert torch.equal(keys, kept)  # a tensor keeps what it looks at
    del keys
    gc.collect()
    assert heap.usage().live_bytes < held
    heap.check()


def test_what_cannot_be_is_said():
    model = made(llama, "sdpa")
    with pytest.raises(ValueError, match="max_tokens"):
        small = Cache(model.config, max_tokens=8)
        big = small.layers[0]
        big.update(torch.zeros(64, 2, 1, 16), torch.zeros(64, 2, 1, 16))
        big.update(torch.zeros(64, 2, 300, 16), torch.zeros(64, 2, 300, 16))
    with pytest.raises(ValueError, match="config"):
        Cache()
    with pytest.raises(NotImplementedError, match="linear_attention"):
        config = copy.deepcopy(model.config)
        config.layer_types = ["linear_attention"] * 3
        PagedCache(config)
