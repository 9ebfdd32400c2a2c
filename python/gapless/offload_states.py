"""States of an optimizer kept off the device between steps.

A state that is away is the same tensor object with a storage of 0 bytes.  A step goes through the parameters in parts: the states of the next
part are on their way in while the optimizer works on one, and those of the last part on their way out.  The optimizer's own step does the work, on
a list of parameters that is as long as the part.
"""

import contextlib
import functools
from typing import Any, Dict, Iterator, List, Optional

import torch

from . import _errors
from ._offload_store import CardStore, store_for
from ._say import say
from .heap import Heap

__all__ = ["States"]

_AT_ONCE = ("LBFGS",)  # look at all parameters in one step


class _Away:
    """One tensor of a state, and the item that has its bytes."""

    __slots__ = ("tensor", "bytes", "item", "coming")

    def __init__(self, tensor: torch.Tensor, item: int) -> None:
        self.tensor, self.item = tensor, item
        self.bytes = tensor.untyped_storage().nbytes()
        self.coming = False


class _Part:
    """Parameters that are worked on together: (group, parameter)."""

    def __init__(self) -> None:
        self.members: "List[tuple[int, torch.Tensor]]" = []
        self.bytes = 0


class States:
    """What :func:`gapless.offload_optimizer` returns."""

    def __init__(self, optimizer: Any, *, window: int, least: int, heap: Optional[Heap]) -> None:
        if type(optimizer).__name__ in _AT_ONCE:
            raise TypeError(f"{type(optimizer).__name__} works on all parameters at once: its states cannot leave in parts")
        if getattr(optimizer, "_gapless_states", None) is not None:
            raise ValueError("the optimizer's states are kept off the device already")
        self._optimizer, self._window, self._least, self._heap = optimizer, window, least, heap
        self._stores: Dict[torch.device, CardStore] = {}
        self._away: Dict[int, _Away] = {}  # by the tensor's id, which is kept alive here
        self._refused = False
        self._inner = self._unhooked_step()
        self._own_step = optimizer.__dict__.get("step")
        optimizer.step = self._make_step()
        optimizer._gapless_states = self
        self._handles = [
            optimizer.register_state_dict_pre_hook(lambda *_: self.bring_back()),
            optimizer.register_load_state_dict_post_hook(lambda *_: self._forget()),
        ]
        self._send_all()

    # ---- for the program ----

    def bring_back(self) -> None:
        """All states are on the device, until the next step; work that comes after it finds them."""
        away = list(self._away.values())
        for one in away:
            self._fetch(one)
        for one in away:
            self._arrive(one)

    def close(self) -> None:
        """All is as it was before."""
        if self._optimizer._gapless_states is not self:
            return
        self.bring_back()
        for handle in self._handles:
            handle.remove()
        self._optimizer._gapless_states = None
        if self._own_step is None:
            del self._optimizer.step
        else:
            self._optimizer.step = self._own_step

    def stats(self) -> Dict[str, int]:
        """Bytes that are away."""
        return {"away_bytes": sum(one.bytes for one in self._away.values()), "away_tensors": len(self._away)}

    # ---- a step ----

    def _unhooked_step(self) -> Any:
        """The optimizer's step without what torch wraps around it, which is to happen once a step and not once a part."""
        step = type(self._optimizer).step
        while getattr(step, "hooked", False) and hasattr(step, "__wrapped__"):
            step = step.__wrapped__
        return step

    def _make_step(self) -> Any:
        @functools.wraps(type(self._optimizer).step)
        def step(optimizer: Any, closure: Any = None) -> Any:
            loss = None
            optimizer._opt_called = True  # what a scheduler looks at, like the mark below
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            self._step_in_parts()
            return loss

        step.__dict__.pop("hooked", None)
        hooked = torch.optim.Optimizer.profile_hook_step(step)
        hooked._wrapped_by_lr_sched = True
        return hooked.__get__(self._optimizer)

    def _step_in_parts(self) -> None:
        """At any time one part is worked on, one comes, and one leaves."""
        parts = self._parts()
        leaving: "List[List[_Away]]" = [[], []]
        try:
            self._fetch_part(parts[0])
            for index, part in enumerate(parts):
                self._arrive_part(part)
                self._settle(leaving.pop(0))
                if index + 1 < len(parts):
                    self._fetch_part(parts[index + 1])
                self._work_on(part)
                leaving.append(self._send_part(part))
        finally:
            for sent in leaving:
                self._settle(sent)

    def _parts(self) -> List[_Part]:
        parts: List[_Part] = [_Part()]
        for number, group in enumerate(self._optimizer.param_groups):
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                size = self._state_bytes(parameter)
                if parts[-1].members and parts[-1].bytes + size > self._window:
                    parts.append(_Part())
                parts[-1].members.append((number, parameter))
                parts[-1].bytes += size
        return parts

    def _state_bytes(self, parameter: torch.Tensor) -> int:
        """Before the first step a guess: two tensors as large as the parameter."""
        state = self._optimizer.state.get(parameter)
        if not state:
            return 2 * parameter.numel() * parameter.element_size()
        return sum(t.numel() * t.element_size() for t in state.values() if isinstance(t, torch.Tensor))

    def _work_on(self, part: _Part) -> None:
        groups = self._optimizer.param_groups
        whole = [group["params"] for group in groups]
        try:
            for number, group in enumerate(groups):
                group["params"] = [parameter for index, parameter in part.members if index == number]
            self._inner(self._optimizer)
        finally:
            for group, parameters in zip(groups, whole):
                group["params"] = parameters

    # ---- leaving and coming back ----

    def _tensors(self, part: _Part) -> Iterator[torch.Tensor]:
        for _number, parameter in part.members:
            for value in self._optimizer.state.get(parameter, {}).values():
                if type(value) is torch.Tensor and self._may_leave(value, parameter):
                    yield value

    def _may_leave(self, tensor: torch.Tensor, parameter: torch.Tensor) -> bool:
        """On the parameter's device, large, and the only one with its storage."""
        if tensor.device != parameter.device or tensor.layout is not torch.strided or tensor._base is not None:
            return False
        if tensor.device.type not in ("cuda", "cpu"):
            return False
        return id(tensor) in self._away or tensor.untyped_storage().nbytes() >= self._least

    def _store(self, tensor: torch.Tensor) -> CardStore:
        if tensor.device not in self._stores:
            self._stores[tensor.device] = store_for(tensor.device, self._heap)
        return self._stores[tensor.device]

    def _send_part(self, part: _Part) -> List[_Away]:
        sent = []
        for tensor in self._tensors(part):
            store, storage = self._store(tensor), tensor.untyped_storage()
            try:
                item = store.put(storage, 0, storage.nbytes(), store.stream(), None)
            except _errors.Error as reason:
                self._refuse(reason)
                continue
            sent.append(_Away(tensor, item))
        return sent

    def _refuse(self, reason: Exception) -> None:
        if not self._refused:
            say(f"offload_optimizer: {reason}; what finds no room stays on the device")
        self._refused = True

    def _settle(self, leaving: List[_Away]) -> None:
        """Their memory goes once the copies are made, in the order of the stream."""
        while leaving:
            one = leaving.pop()
            store = self._store(one.tensor)
            try:
                store.join(one.item, store.stream())
            except _errors.Error as reason:
                self._refuse(reason)
                store.drop(one.item)
                continue
            store.used_on(one.tensor, store.stream())
            one.tensor.untyped_storage().resize_(0)
            self._away[id(one.tensor)] = one

    def _fetch_part(self, part: _Part) -> None:
        for tensor in list(self._tensors(part)):
            one = self._away.get(id(tensor))
            if one is not None:
                self._fetch(one)

    def _fetch(self, one: _Away) -> None:
        if one.coming:
            return
        store, storage = self._store(one.tensor), one.tensor.untyped_storage()
        storage.resize_(one.bytes)
        try:
            store.get(one.item, storage, one.bytes, store.stream())
        except BaseException:
            storage.resize_(0)
            raise
        one.coming = True

    def _arrive_part(self, part: _Part) -> None:
        for tensor in list(self._tensors(part)):
            one = self._away.get(id(tensor))
            if one is not None:
                self._arrive(one)

    def _arrive(self, one: _Away) -> None:
        store = self._store(one.tensor)
        one.coming = False
        try:
            store.join(one.item, store.stream())
        except _errors.Error:
            with contextlib.suppress(_errors.Error):
                store.wait(one.item)
            one.tensor.untyped_storage().resize_(0)
            raise
        store.drop(one.item)
        del self._away[id(one.tensor)]

    def _send_all(self) -> None:
        """What is there already, a part at a time."""
        for number, group in enumerate(self._optimizer.param_groups):
            for parameter in group["params"]:
                part = _Part()
                part.members = [(number, parameter)]
                self._settle(self._send_part(part))

    def _forget(self) -> None:
        """States were loaded: those that are away are nobody's, and the new ones leave with the next step."""
        for one in self._away.values():
            with contextlib.suppress(_errors.Error):
                self._store(one.tensor).drop(one.item)
        self._away.clear()
