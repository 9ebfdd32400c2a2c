"""States of an optimizer kept off the device between steps.

A state that is away is the same tensor object with a storage of 0 bytes.  A step goes through the parameters in parts: the states of the next
part are on their way in while the optimizer works on one, and those of the last part on their way out.  The optimizer's own step does the work, on
a list of parameters that is as long as the part.

The states of a part leave as one item of the library, and come back by one call as long as the next step has the same parts.  Where it has others
(parameters without gradients, a new group), each run of tensors that lie side by side in an item comes by a call of its own.
"""

import bisect
import collections
import contextlib
import functools
import itertools
import sys
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence

import torch

from . import _errors
from ._offload_store import UNIT, CardStore, bytes_of, store_for
from ._say import say
from .heap import Heap

__all__ = ["States"]

_AT_ONCE = ("LBFGS",)  # look at all parameters in one step


class _Away:
    """One tensor of a state, and where its bytes are."""

    __slots__ = ("tensor", "bytes", "item", "start", "coming")

    def __init__(self, tensor: torch.Tensor, item: "_Item", start: int) -> None:
        self.tensor, self.item, self.start = tensor, item, start
        self.bytes = tensor.untyped_storage().nbytes()
        self.coming = False


class _Item:
    """Bytes of tensors of one device, end to end.  It is dropped when all of them have come back, or nobody can ask for them any more."""

    __slots__ = ("store", "name", "bytes", "states")

    def __init__(self, store: CardStore, name: int, tensors: List[torch.Tensor]) -> None:
        self.store, self.name, self.bytes = store, name, 0
        self.states: List[_Away] = []  # those that are away, by `start`
        for tensor in tensors:
            self.states.append(_Away(tensor, self, self.bytes))
            self.bytes += self.states[-1].bytes

    def drop(self) -> None:
        """It is no more."""
        name, self.name = self.name, 0
        if name:
            self.store.drop(name)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            with contextlib.suppress(_errors.Error, ValueError):  # the heap may be closed
                self.drop()


class _Part:
    """Parameters that are worked on together: (group, parameter); tensors of others that come and leave with them."""

    def __init__(self) -> None:
        self.members: "List[tuple[int, torch.Tensor]]" = []
        self.guests: List[torch.Tensor] = []
        self.bytes = 0


def _is_plain(tensor: Any) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided


def _owners(tensors: Iterable[torch.Tensor]) -> "collections.Counter[int]":
    """Of each storage: how many of the tensors have it."""
    return collections.Counter(tensor.untyped_storage()._cdata for tensor in tensors if _is_plain(tensor))


def _fitting(tensors: List[torch.Tensor], room: int) -> int:
    """How many of the first of them go into as much host memory together; all where none does, since more comes back."""
    whole = room // UNIT * UNIT
    ends = list(itertools.accumulate(tensor.untyped_storage().nbytes() for tensor in tensors))
    return bisect.bisect_right(ends, whole) or len(tensors)


def _runs(states: List[_Away]) -> Iterator[List[_Away]]:
    """Of one item: those whose bytes follow each other."""
    run: List[_Away] = []
    for one in states:
        if run and run[-1].start + run[-1].bytes != one.start:
            yield run
            run = []
        run.append(one)
    if run:
        yield run


class States:
    """What :func:`gapless.offload_optimizer` returns."""

    def __init__(self, optimizer: Any, *, window: int, least: int, heap: Optional[Heap]) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is no torch.optim.Optimizer")
        if type(optimizer).__name__ in _AT_ONCE:
            raise TypeError(f"{type(optimizer).__name__} works on all parameters at once: its states cannot leave in parts")
        if getattr(optimizer, "_gapless_states", None) is not None:
            raise ValueError("the optimizer's states are kept off the device already")
        self._optimizer, self._heap = optimizer, heap
        self._window, self._least = bytes_of("window", window), max(bytes_of("least", least), 1)
        self._stores: Dict[torch.device, CardStore] = {}
        self._away: Dict[int, _Away] = {}  # by the tensor's id, which is kept alive here
        self._owners: "collections.Counter[int]" = collections.Counter()  # when the step began
        self._refused = False
        self._inner = self._unhooked_step()
        self._own_step = optimizer.__dict__.get("step")
        optimizer.step = self._make_step()
        optimizer.__getstate__ = self._state_of_a_copy
        optimizer._gapless_states = self
        self._handles = [
            optimizer.register_state_dict_pre_hook(lambda *_: self.bring_back()),
            optimizer.register_load_state_dict_post_hook(lambda *_: self._forget()),
        ]
        self._send_all()

    # ---- for the program ----

    def bring_back(self) -> None:
        """All states are on the device, until the next step; work that comes after it finds them."""
        items = self._items(self._away.values())
        for item in items:
            self._fetch(item, item.states)
        for item in items:
            self._arrive(item)

    def close(self) -> None:
        """All is as it was before."""
        if self._optimizer._gapless_states is not self:
            return
        self.bring_back()
        for handle in self._handles:
            handle.remove()
        self._optimizer._gapless_states = None
        del self._optimizer.__getstate__
        if self._own_step is None:
            del self._optimizer.step
        else:
            self._optimizer.step = self._own_step

    def stats(self) -> Dict[str, int]:
        """Bytes that are away."""
        return {"away_bytes": sum(one.bytes for one in self._away.values()), "away_tensors": len(self._away)}

    def _state_of_a_copy(self) -> Dict[str, Any]:
        """What copy and pickle take of the optimizer; the copy is one whose states stay."""
        self.bring_back()
        return type(self._optimizer).__getstate__(self._optimizer)

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
        parts = self._parts(lambda parameter: parameter.grad is not None)
        self._count_owners()
        self._invite(parts)
        leaving: "List[List[_Item]]" = [[], []]
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

    def _parts(self, has_work: Callable[[torch.Tensor], bool]) -> List[_Part]:
        parts: List[_Part] = [_Part()]
        for number, group in enumerate(self._optimizer.param_groups):
            for parameter in group["params"]:
                if not has_work(parameter):
                    continue
                size = self._state_bytes(parameter)
                if parts[-1].members and parts[-1].bytes + size > self._window:
                    parts.append(_Part())
                parts[-1].members.append((number, parameter))
                parts[-1].bytes += size
        return parts

    def _invite(self, parts: List[_Part]) -> None:
        """An item of which this step would leave less than half is emptied, so that room is taken for at most twice what is away."""
        hosts = {id(tensor): part for part in parts for tensor in self._states(part)}
        for item in self._items(self._away.values()):
            mine = [hosts[id(one.tensor)] for one in item.states if id(one.tensor) in hosts]
            rest = [one for one in item.states if id(one.tensor) not in hosts]
            if mine and 2 * sum(one.bytes for one in rest) < item.bytes:
                mine[0].guests.extend(one.tensor for one in rest)

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

    # ---- leaving ----

    def _states_of(self, parameter: torch.Tensor) -> Iterator[torch.Tensor]:
        for value in self._optimizer.state.get(parameter, {}).values():
            if _is_plain(value):
                yield value

    def _states(self, part: _Part) -> Iterator[torch.Tensor]:
        for _number, parameter in part.members:
            yield from self._states_of(parameter)
        yield from part.guests

    def _count_owners(self) -> None:
        parameters = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
        self._owners = _owners(tensor for p in parameters for tensor in (p, *self._states_of(p)))

    def _leavers(self, part: _Part) -> List[torch.Tensor]:
        """On the parameter's device, large, and the only ones with their storages, those included that this step has made."""
        owners, found = _owners(self._states(part)), list(part.guests)
        for _number, parameter in part.members:
            for tensor in self._states_of(parameter):
                storage = tensor.untyped_storage()
                alone = max(owners[storage._cdata], self._owners[storage._cdata]) == 1
                if alone and tensor.device == parameter.device and tensor._base is None and storage.nbytes() >= self._least:
                    found.append(tensor)
        return found

    def _store(self, device: torch.device) -> CardStore:
        if device not in self._stores:
            self._stores[device] = store_for(device, self._heap)
        return self._stores[device]

    def _send_part(self, part: _Part) -> List[_Item]:
        """As one item of each device; where host memory has room for some only, and there is a disk, as two."""
        by_device: Dict[torch.device, List[torch.Tensor]] = {}
        for tensor in self._leavers(part):
            by_device.setdefault(tensor.device, []).append(tensor)
        sent = []
        for device, tensors in by_device.items():
            store = self._store(device)
            count = _fitting(tensors, store.host_bytes()) if store.has_disk else len(tensors)
            sent += self._send(store, tensors[:count]) + self._send(store, tensors[count:])
        return sent

    def _send(self, store: CardStore, tensors: List[torch.Tensor]) -> List[_Item]:
        """As one item; where there is no room for it, as two, until what does not leave is one tensor."""
        if not tensors:
            return []
        try:
            name = store.put_all([tensor.untyped_storage() for tensor in tensors], store.stream())
        except _errors.Error as reason:
            half = len(tensors) // 2
            if half:
                return self._send(store, tensors[:half]) + self._send(store, tensors[half:])
            self._refuse(reason)
            return []
        return [_Item(store, name, tensors)]

    def _refuse(self, reason: Exception) -> None:
        if not self._refused:
            say(f"offload_optimizer: {reason}; what finds no room stays on the device")
        self._refused = True

    def _settle(self, leaving: List[_Item]) -> None:
        """Their memory goes once the copies are made, in the order of the stream."""
        while leaving:
            item = leaving.pop()
            store, stream = item.store, item.store.stream()
            try:
                store.join(item.name, stream)
            except _errors.Error as reason:
                self._refuse(reason)
                item.drop()
                continue
            for one in item.states:
                store.used_on(one.tensor, stream)
                self._away[id(one.tensor)] = one  # first: whatever interrupts us, the bytes are known
                one.tensor.untyped_storage().resize_(0)

    def _send_all(self) -> None:
        """What is there already, a part at a time."""
        self._count_owners()
        for part in self._parts(lambda _parameter: True):
            self._settle(self._send_part(part))

    # ---- coming back ----

    @staticmethod
    def _items(states: Iterable[_Away]) -> List[_Item]:
        return list({id(one.item): one.item for one in states}.values())

    def _away_of(self, part: _Part) -> List[_Away]:
        return [self._away[id(tensor)] for tensor in self._states(part) if id(tensor) in self._away]

    def _fetch_part(self, part: _Part) -> None:
        states = self._away_of(part)
        for item in self._items(states):
            self._fetch(item, [one for one in states if one.item is item])

    def _fetch(self, item: _Item, states: Sequence[_Away]) -> None:
        for run in _runs(sorted((one for one in states if not one.coming), key=lambda one: one.start)):
            storages = [one.tensor.untyped_storage() for one in run]
            try:
                for one, storage in zip(run, storages):
                    storage.resize_(one.bytes)
                item.store.get_all(item.name, run[0].start, storages, item.store.stream())
            except BaseException:
                for storage in storages:
                    storage.resize_(0)
                raise
            for one in run:
                one.coming = True

    def _arrive_part(self, part: _Part) -> None:
        for item in self._items(self._away_of(part)):
            self._arrive(item)

    def _arrive(self, item: _Item) -> None:
        """All that comes of it."""
        came, rest = [one for one in item.states if one.coming], [one for one in item.states if not one.coming]
        for one in came:
            one.coming = False
        try:
            item.store.join(item.name, item.store.stream())
        except _errors.Error:
            with contextlib.suppress(_errors.Error):
                item.store.wait(item.name)
            for one in came:
                one.tensor.untyped_storage().resize_(0)
            raise
        for one in came:
            del self._away[id(one.tensor)]
        item.states = rest
        if not rest:
            item.drop()

    def _forget(self) -> None:
        """States were loaded: those that are away are nobody's, and the new ones leave with the next step."""
        for item in self._items(self._away.values()):
            with contextlib.suppress(_errors.Error):
                item.store.join(item.name, item.store.stream())  # of what an error left on its way
            with contextlib.suppress(_errors.Error):
                item.drop()
        self._away.clear()
