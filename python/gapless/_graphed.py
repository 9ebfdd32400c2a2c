"""Decode steps of a model over a PagedCache as a CUDA graph: one launch a step.

What changes from step to step is in device memory (tokens, positions, block tables, lengths) or outside the graph (places for the new tokens), so one capture serves as long as
the sequences are the same ones, whatever they grow to.
"""

import functools
from typing import Any, Dict, Optional

import torch

from . import _paged


_NAMES = ("cache", "past_key_values")  # of a model's argument, and of its result: 5.24 has the first, 5.17 the second


def _name_of_cache(kwargs: Dict[str, Any]) -> Optional[str]:
    return next((name for name in _NAMES if kwargs.get(name) is not None), None)


def _cache_of(kwargs: Dict[str, Any]) -> Any:
    return kwargs.get(_name_of_cache(kwargs) or "")


class _Step:
    """One captured step, for one cache and its sequences."""

    def __init__(self, forward: Any, kwargs: Dict[str, Any]) -> None:
        self.name = _name_of_cache(kwargs) or _NAMES[0]
        self.pages = _cache_of(kwargs)._pages
        self.seqs = list(self.pages.seqs)
        self.ids = kwargs["input_ids"].clone()
        self.positions = torch.empty_like(self.ids)
        self.graph = torch.cuda.CUDAGraph()
        self.kwargs = {
            "input_ids": self.ids,
            "position_ids": self.positions,
            self.name: kwargs[self.name],
        }
        self._forward = forward

    def serves(self, kwargs: Dict[str, Any]) -> bool:
        """The same sequences?"""
        return _cache_of(kwargs)._pages is self.pages and self.pages.seqs == self.seqs

    def prepare(self, kwargs: Dict[str, Any]) -> None:
        """Everything that is not in the graph."""
        self.positions.fill_(self.pages.length)
        self.ids.copy_(kwargs["input_ids"])
        self.pages.advance(1)

    def capture(self) -> None:
        """The places are there already."""
        self.pages.in_graph = True
        try:
            torch.cuda.synchronize()
            with torch.cuda.graph(self.graph):
                self.out = self._forward(**self.kwargs, use_cache=True, logits_to_keep=1)
        finally:
            self.pages.in_graph = False


class graphed:  # pylint: disable=invalid-name
    """``with graphed(model): model.generate(..., past_key_values=PagedCache(model.config))``

    From its second on, steps of one token a sequence run as a graph, where the model has ``attn_implementation="gapless"``, lies on a card, and no sequence is padded.  All else
    is as before.  ``on=False`` does nothing.
    """

    def __init__(self, model: Any, on: bool = True) -> None:
        self._model, self._on = model, on
        self._plain: Dict[int, int] = {}  # cache -> plain steps so far
        self._unpadded: Dict[int, bool] = {}
        self._step: Optional[_Step] = None

    def __enter__(self) -> Any:
        if self._on:
            self._forward = self._model.forward
            self._model.forward = functools.wraps(self._forward)(lambda *args, **kwargs: self._call(*args, **kwargs))
        return self._model

    def __exit__(self, *_exception: object) -> None:
        if self._on:
            del self._model.forward  # the class's own again
        self._step = None

    def _fits(self, kwargs: Dict[str, Any]) -> bool:
        cache, ids = _cache_of(kwargs), kwargs.get("input_ids")
        pages = getattr(cache, "_pages", None)
        if not isinstance(pages, _paged.Pages) or ids is None or ids.shape[1] != 1 or not pages.length:
            return False
        if (
            not pages.on_card
            or self._model.config._attn_implementation != _paged.NAME
            or kwargs.get("output_attentions")
        ):
            return False
        if id(cache) not in self._unpadded:
            mask = kwargs.get("attention_mask")
            self._unpadded[id(cache)] = mask is None or bool(mask.all())
        return self._unpadded[id(cache)]

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        if args or not self._fits(kwargs):
            return self._forward(*args, **kwargs)
        cache = id(_cache_of(kwargs))
        self._plain[cache] = self._plain.get(cache, 0) + 1
        if self._plain[cache] == 1:  # kernels are compiled, libraries find their workspaces
            return self._forward(**kwargs)
        fresh = self._step is None or not self._step.serves(kwargs)
        if fresh:
            self._step = _Step(self._forward, kwargs)
        self._step.prepare(kwargs)
        if fresh:
            self._step.capture()
        self._step.graph.replay()
        self._step.pages.missing.clear()
        return self._result(kwargs)

    def _result(self, kwargs: Dict[str, Any]) -> Any:
        out = self._step.out
        return type(out)(logits=out.logits.clone(), **{self._step.name: _cache_of(kwargs)})
