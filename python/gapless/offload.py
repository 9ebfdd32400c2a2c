"""Saved activations beyond the card: hooks over what autograd saves, with a budget of bytes that stay on the device.

What is saved is looked at by *storage*: views of one are kept and copied once.  A storage that is to leave is copied on a stream of the
library's own while the forward goes on, comes back in reverse order of saving while the backward goes on, as far as the budget has room, and is
never seen by the program.  Order between the copies and the work is told to the streams: the host waits for neither.
"""

import collections
import contextlib
import heapq
import numbers
import sys
import threading
import weakref
from typing import Any, Deque, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from . import _errors
from ._offload_plan import Plan, Recording, make_plan
from ._offload_store import UNIT, CardStore, bytes_of, extent, new_storage, rebuild, store_for
from ._say import say
from .heap import Heap

__all__ = ["Offload", "activations"]

# Where the bytes of a record are: on the device and nowhere else; on the device, being copied away; away; being copied back; back, and away too.
_KEPT, _LEAVING, _AWAY, _COMING, _BACK = range(5)
_OutOfMemory = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
_NEVER = -(1 << 62)  # before all turns
_SOON = 8  # uses
_UNDER_WAY = 0.1  # of the budget, for copies
_BUDGETS = "bytes as a whole number, or as a float from 0.0 to 1.0 a share of what the step saves"
_STALE = (
    "one of the variables needed for gradient computation has been modified by an inplace operation after it was saved, while "
    "gapless.offload_activations was on"
)


_Like = Tuple[torch.dtype, torch.Size, Tuple[int, ...], int]  # type, shape, strides, offset


class _Record:
    """What was saved of one storage.  It lives as long as autograd has something of it."""

    __slots__ = (
        "owner",
        "step",
        "number",
        "begin",
        "bytes",
        "origin",
        "version",
        "alias",
        "first",
        "shown",
        "storage",
        "offset",
        "stream",
        "item",
        "state",
        "stale",
        "holders",
        "uses",
        "counted",
        "__weakref__",
    )

    def __init__(
        self,
        owner: "Offload",
        step: "_Step",
        tensor: torch.Tensor,
        storage: torch.UntypedStorage,
        begin: int,
        end: int,
    ) -> None:
        self.owner, self.step = owner, step
        self.begin, self.bytes = begin, end - begin
        self.origin = StorageWeakRef(storage)
        self.version = tensor._version
        self.alias: Optional[torch.Tensor] = tensor.detach()  # has the counter of changes
        self.storage: Optional[torch.UntypedStorage] = storage
        self.first: Optional[_Like] = None  # what `alias` looks like
        self.shown: Optional[torch.Tensor] = None  # the same over what came back, once it was asked for
        self.offset = 0  # of `storage` in the storage that was saved
        self.stream: Any = None
        self.item = 0
        self.state = _KEPT
        self.stale = self.counted = False
        self.holders = self.uses = 0  # of autograd's nodes
        self.number = step.recording.save(self.bytes)

    def __del__(self) -> None:
        size = self.bytes if self.counted and self.state != _AWAY else 0
        self.owner._bury(
            _Remains(self.step, self.number, self.origin.cdata, size, self.state, self.item, self.storage, self.stream)
        )


class _Remains(NamedTuple):
    """Of a record that nobody needs any more."""

    step: "_Step"
    number: int
    origin: int
    on_device: int  # bytes
    state: int
    item: int
    storage: Optional[torch.UntypedStorage]
    stream: Any


class _Packed(NamedTuple):
    """What autograd holds instead of a tensor."""

    record: _Record
    like: _Like


class _Step:
    """From a first save to the end of the last record."""

    def __init__(self) -> None:
        self.recording = Recording()
        self.alive = self.saved_bytes = self.evicted = 0
        self.stays: "set[int]" = set()


def _push(queue: Deque["weakref.ref[_Record]"], record: _Record) -> None:
    """The dead go when they are many."""
    queue.append(weakref.ref(record))
    if len(queue) % 256 == 0:
        alive = [link for link in queue if link() is not None]
        queue.clear()
        queue.extend(alive)


class _Inside:
    """The lock of an Offload, and the end of what died meanwhile: a class, since it is entered for each tensor."""

    __slots__ = ("_owner",)

    def __init__(self, owner: "Offload") -> None:
        self._owner = owner

    def __enter__(self) -> None:
        owner = self._owner
        owner._lock.acquire()
        owner._inside += 1
        if owner._remains:
            owner._clean()

    def __exit__(self, *exception: Any) -> None:
        owner = self._owner
        if owner._remains:
            owner._clean()
        owner._inside -= 1
        owner._lock.release()


class Offload:
    """What :func:`gapless.offload_activations` returns; a context manager that may be entered again and again, by several threads too."""

    def __init__(
        self,
        budget: Union[int, float],
        device: torch.device,
        least: int,
        heap: Optional[Heap],
    ) -> None:
        self.budget, self.device, self.least = budget, device, least
        self._store: CardStore = store_for(device, heap)
        self._lock = threading.RLock()
        self._inside = 0  # how often its owner has entered it
        self._locked = _Inside(self)
        self._contexts = threading.local()
        self._plan: Optional[Plan] = None
        self._step = _Step()
        self._records: Dict[int, List["weakref.ref[_Record]"]] = {}  # by storage
        self._kept: Deque["weakref.ref[_Record]"] = collections.deque()  # the oldest first, like the next two
        self._leaving: Dict[bool, Deque["weakref.ref[_Record]"]] = {False: collections.deque(), True: collections.deque()}
        self._back: Deque["weakref.ref[_Record]"] = collections.deque()
        self._ahead: List[Tuple[int, int, "weakref.ref[_Record]"]] = []  # a heap of those away and not used yet, by _turn() and number
        self._by_plan = False  # all saves of the step are the plan's, so that it says in which order they are used
        self._remains: Deque[_Remains] = collections.deque()
        self._on_device = self._coming = 0  # bytes; records
        self._limit = self._keeps = 0.0  # bytes that may be on the device now, and that the plan is to leave there
        self._said: "set[str]" = set()
        self._figures: Dict[str, int] = collections.defaultdict(int)

    # ---- for the program ----

    def __enter__(self) -> "Offload":
        with self._locked:
            if not self._step.alive:
                self._begin_step()
        stack = self._contexts.__dict__.setdefault("stack", [])
        hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        hooks.__enter__()
        stack.append(hooks)
        return self

    def __exit__(self, *exception: Any) -> None:
        stack = self._contexts.__dict__.get("stack")
        if not stack:
            raise RuntimeError("offload_activations is left by a thread that has not entered it: autograd's hooks are the thread's own")
        stack.pop().__exit__(*exception)
        with self._locked:
            pass

    def stats(self) -> Dict[str, int]:
        """Counts since the beginning, and bytes now: saved_bytes (of storages that were saved), away_bytes and back_bytes (copied), disk_bytes
        (of these to the disk), late (not asked for before they were needed), evicted (left though the plan kept them), refused (kept for
        want of room), device_bytes (saved and on the device now), device_bytes_peak, planned (saves of the plan)."""
        with self._locked:
            names = "saved_bytes away_bytes back_bytes disk_bytes late evicted refused device_bytes_peak".split()
            found = {name: self._figures[name] for name in names}
            found.update(device_bytes=self._on_device, planned=len(self._plan) if self._plan else 0)
            return found

    # ---- steps and their plan ----

    def _begin_step(self) -> None:
        step, plan = self._step, self._plan
        if step.recording.used and (plan is None or len(plan) != len(step.recording.sizes) or step.evicted or step.stays):
            stays = step.stays | (plan.stays if plan and len(plan) == len(step.recording.sizes) else set())
            self._plan = plan = make_plan(step.recording, stays)
            plan.place(self._keep(plan, 1.0), self._store.host_bytes(), UNIT)
        if step.recording.sizes:
            self._step = _Step()
        self._ahead.clear()
        self._by_plan = plan is not None
        self._scale()

    def _keep(self, plan: Plan, scale: float) -> float:
        """What the plan keeps, in bytes of the recorded step, where this one's bytes are `scale` times as many: all, or a part of the budget that
        leaves room for what is under way.  Without that the forward would end with the last copy."""
        budget = self.budget * plan.peak if isinstance(self.budget, float) else self.budget / scale
        return budget if budget >= plan.peak else (1 - _UNDER_WAY) * budget

    def _scale(self) -> None:
        """The budget of a step with as many bytes as this one had up to now; asked for with each save."""
        step, plan, is_share = self._step, self._plan, isinstance(self.budget, float)
        if plan is None:
            self._limit = 0.0 if is_share else self.budget
            return
        ratio = plan.ratio(len(step.recording.sizes), step.saved_bytes)
        self._limit = self.budget * plan.peak * ratio if is_share else self.budget
        self._keeps = self._keep(plan, ratio)

    def _over(self, room: int = 0) -> bool:
        return self._on_device + room > self._limit

    def _is_to_leave(self, record: _Record) -> bool:
        if self._plan is None:
            return isinstance(self.budget, float)
        return self._plan.leaves(record.number, self._keeps)

    def _stays(self, record: _Record) -> bool:
        return self._plan is not None and record.number in self._plan.stays

    # ---- saving ----

    def _passes(self, tensor: torch.Tensor) -> bool:
        """What is left to autograd: other devices, kinds of tensors that are more than bytes, parameters and views of them."""
        if type(tensor) is not torch.Tensor or tensor.device != self.device:
            return True
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_inference():
            return True
        if tensor.is_conj() or tensor.is_neg() or not tensor.numel():
            return True
        base = tensor._base
        if base is None:
            base = tensor
        return base.is_leaf and base.requires_grad

    def _pack(self, tensor: torch.Tensor) -> Any:
        if self._passes(tensor):
            return tensor
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        if size < self.least:
            return tensor
        begin, end = extent(tensor, size)
        with self._locked:
            record = self._find(tensor, storage, begin, end)
            if record is None and end - begin < self.least:
                return tensor.detach().clone()  # a little of much: the much may go
            if record is None:
                record = self._save(tensor, storage, begin, end)
            record.holders += 1
        like = (tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset())
        if record.first is None:
            record.first = like
        return _Packed(record, record.first if like == record.first else like)

    def _find(self, tensor: torch.Tensor, storage: torch.UntypedStorage, begin: int, end: int) -> Optional[_Record]:
        """One that has these bytes as they are now."""
        for link in self._records.get(storage._cdata, ()):
            record = link()
            if record is not None and record.begin <= begin and end <= record.begin + record.bytes:
                if record.version == tensor._version:
                    return record
        return None

    def _save(self, tensor: torch.Tensor, storage: torch.UntypedStorage, begin: int, end: int) -> _Record:
        step = self._step
        if not step.alive and step.recording.used:
            self._begin_step()
            step = self._step
        record = _Record(self, step, tensor, storage, begin, end)
        record.stream = self._store.stream()
        step.alive += 1
        self._list(record)
        step.saved_bytes += record.bytes
        self._scale()
        if self._by_plan and record.number >= len(self._plan or ()):
            self._drop_order()
        self._figures["saved_bytes"] += record.bytes
        if not self._stays(record):
            record.counted = True
            self._count(record.bytes)
            _push(self._kept, record)
            if self._is_to_leave(record):
                self._send(record)
        self._settle_done()
        self._make_room()
        return record

    def _list(self, record: _Record) -> None:
        self._records.setdefault(record.origin.cdata, []).append(weakref.ref(record))

    def _count(self, size: int) -> None:
        self._on_device += size
        self._figures["device_bytes_peak"] = max(self._figures["device_bytes_peak"], self._on_device)

    # ---- leaving ----

    def _send(self, record: _Record) -> bool:
        """Begins to copy; False: there is no room, and the record stays where it is."""
        disk = self._plan is not None and record.number in self._plan.to_disk
        place = "disk" if disk else None
        try:
            record.item = self._store.put(record.storage, record.begin, record.bytes, record.stream, place)
        except _errors.Error as reason:
            self._refuse(reason)
            return False
        disk = self._store.on_disk(record.item)
        record.state = _LEAVING
        _push(self._leaving[disk], record)
        self._figures["away_bytes"] += record.bytes
        self._figures["disk_bytes"] += record.bytes if disk else 0
        return True

    def _refuse(self, reason: Exception) -> None:
        self._figures["refused"] += 1
        if "refused" not in self._said:
            say(f"offload_activations: {reason}; what finds no room stays on the device")
        self._said.add("refused")

    def _settle(self, record: _Record) -> None:
        """From here on the stream of the record waits for the copy, and so the memory may serve others."""
        try:
            self._store.join(record.item, record.stream)
        except _errors.Error as reason:  # the disk: the bytes are here still
            self._refuse(reason)
            self._store.drop(record.item)
            record.item, record.state = 0, _KEPT
            return
        record.stale = record.alias is None or record.alias._version != record.version
        self._store.used_on(record.alias, record.stream)
        record.alias = record.storage = None
        record.state = _AWAY
        self._on_device -= record.bytes
        if not record.uses:
            heapq.heappush(self._ahead, (self._turn(record), record.number, weakref.ref(record)))

    def _settle_done(self, room: int = 0, after: int = _NEVER) -> None:
        """While there is too much, what is away already goes, since it has nothing to wait for, if it is used later than in turn `after`.  What
        there is room for stays, and need not come back."""
        for queue in self._leaving.values():
            while queue and self._over(room):
                record = queue[0]()
                if record is not None and record.state == _LEAVING:
                    if self._turn(record) <= after or self._store.copying(record.item):
                        break
                    self._settle(record)
                queue.popleft()

    def _settle_next(self) -> bool:
        """The oldest one that leaves; those that go to the disk last.  False: none does."""
        for queue in (self._leaving[False], self._leaving[True]):
            while queue:
                record = queue.popleft()()
                if record is not None and record.state == _LEAVING:
                    self._settle(record)
                    return True
        return False

    def _let_back_go(self) -> bool:
        """One that was brought back and used, and whose copy is there still (a graph that is retained)."""
        for _ in range(len(self._back)):
            link = self._back.popleft()
            record = link()
            if record is None or record.state != _BACK:
                continue
            if record.uses >= record.holders:
                record.storage = record.shown = None
                record.state = _AWAY
                self._on_device -= record.bytes
                return True
            self._back.append(link)
        return False

    def _evict(self) -> bool:
        """The oldest one that is kept: it is used last."""
        while self._kept:
            record = self._kept.popleft()()
            if record is not None and record.state == _KEPT:
                if not self._send(record):
                    return False
                record.step.evicted += 1
                self._figures["evicted"] += 1
                return True
        return False

    def _make_room(self, room: int = 0) -> None:
        while self._over(room):
            if not (self._settle_next() or self._let_back_go() or (not room and self._evict())):
                return

    # ---- coming back ----

    def _unpack(self, packed: Any) -> torch.Tensor:
        if not isinstance(packed, _Packed):
            return packed
        record = packed.record
        with self._locked:
            self._note_use(record)
            stream = self._store.stream()
            if record.state == _AWAY:
                self._make_room(record.bytes)
                self._figures["late"] += 1
                self._fetch(record, stream)
            if record.state == _COMING:
                self._arrive(record, stream)
            if record.stale or (record.alias is not None and record.alias._version != record.version):
                raise RuntimeError(_STALE)
            tensor = self._show(record, packed.like)
            if stream != record.stream:
                self._store.used_on(tensor, stream)
            self._bring_ahead(stream)
        return tensor

    def _show(self, record: _Record, like: _Like) -> torch.Tensor:
        if like is not record.first:
            return rebuild(record.storage, record.offset, like)
        if record.alias is not None:
            return record.alias
        if record.shown is None:
            record.shown = rebuild(record.storage, record.offset, like)
        return record.shown

    def _note_use(self, record: _Record) -> None:
        if not record.uses:
            record.step.recording.use(record.number)
            if record.state >= _AWAY and not record.origin.expired():
                record.step.stays.add(record.number)  # somebody has it on the device all the time
        record.uses += 1

    def _fetch(self, record: _Record, stream: Any) -> None:
        record.storage, record.offset = new_storage(record.bytes, self.device), record.begin
        record.stream = stream
        try:
            self._store.get(record.item, record.storage, record.bytes, record.stream)
        except BaseException:
            record.storage = None
            raise
        record.state = _COMING
        self._coming += 1
        self._count(record.bytes)
        self._figures["back_bytes"] += record.bytes

    def _arrive(self, record: _Record, stream: Any) -> None:
        self._coming -= 1
        try:
            self._store.join(record.item, stream)
            if stream != record.stream:
                self._store.join(record.item, record.stream)
        except _errors.Error:
            with contextlib.suppress(_errors.Error):
                self._store.wait(record.item)  # nothing writes there any more
            record.storage, record.state = None, _AWAY
            self._on_device -= record.bytes
            raise
        record.state = _BACK
        _push(self._back, record)

    def _turn(self, record: _Record) -> int:
        """The smaller, the sooner it is used: by the uses of the recorded step; else the newest save is the first to be used."""
        return self._plan.ranks[record.number] if self._plan is not None and self._by_plan else -record.number

    def _drop_order(self) -> None:
        """The step has saves that the plan does not know."""
        self._by_plan = False
        self._ahead = [(-number, number, link) for _turn, number, link in self._ahead]
        heapq.heapify(self._ahead)

    def _is_soon(self, record: _Record) -> bool:
        before = self._turn(record) + (0 if self._by_plan else len(self._step.recording.sizes) - 1)
        return before - self._step.recording.used <= _SOON

    def _bring_ahead(self, stream: Any) -> None:
        """As many as the budget has room for, and one that is needed soon in any case."""
        while self._ahead:
            turn, number, link = self._ahead[0]
            record = link()
            if record is None or record.state != _AWAY or record.uses:
                heapq.heappop(self._ahead)
                continue
            self._settle_done(record.bytes, turn)
            if self._over(record.bytes) and (self._coming or not self._is_soon(record)):
                return  # rather than have the stream wait: room comes with each use
            heapq.heappop(self._ahead)
            if not self._bring(record, stream):
                heapq.heappush(self._ahead, (turn, number, link))
                return

    def _bring(self, record: _Record, stream: Any) -> bool:
        self._make_room(record.bytes)
        try:
            self._fetch(record, stream)
        except _OutOfMemory:
            return False
        return True

    # ---- ends ----

    def _bury(self, remains: _Remains) -> None:
        """Called where a record dies, wherever that is: by whoever has the lock, or has it next."""
        if sys.is_finalizing():
            return
        self._remains.append(remains)
        if self._lock.acquire(blocking=False):  # pylint: disable=consider-using-with
            try:
                if not self._inside:
                    self._clean()
            finally:
                self._lock.release()

    def _clean(self) -> None:
        while self._remains:
            gone = self._remains.popleft()
            gone.step.alive -= 1
            gone.step.recording.end(gone.number)
            links = [link for link in self._records.pop(gone.origin, ()) if link() is not None]
            if links:
                self._records[gone.origin] = links
            self._on_device -= gone.on_device
            self._coming -= gone.state == _COMING
            if gone.item:
                self._let_go(gone)

    def _let_go(self, gone: _Remains) -> None:
        try:
            if gone.state in (_LEAVING, _COMING):
                self._store.join(gone.item, gone.stream)  # then its memory may be another's
        except _errors.Error:
            with contextlib.suppress(_errors.Error):
                self._store.wait(gone.item)
        with contextlib.suppress(_errors.Error, ValueError):
            self._store.drop(gone.item)


_known: Dict[Any, Offload] = {}
_known_lock = threading.Lock()


def _device_of(device: Any) -> torch.device:
    found = torch.device("cuda" if torch.cuda.is_available() else "cpu") if device is None else torch.device(device)
    if found.type == "cuda" and found.index is None:
        found = torch.device("cuda", torch.cuda.current_device())
    return found


def _budget_of(budget: Any) -> Union[int, float]:
    """Bytes as an int, a share as a float, of whatever library the number is."""
    if isinstance(budget, bool) or not isinstance(budget, numbers.Real):
        raise TypeError(f"budget {budget!r}: {_BUDGETS}")
    is_bytes = isinstance(budget, numbers.Integral)
    if not (budget >= 0 if is_bytes else 0 <= budget <= 1):
        raise ValueError(f"budget {budget!r}: {_BUDGETS}")
    return int(budget) if is_bytes else float(budget)


def activations(
    budget: Union[int, float],
    device: Any = None,
    *,
    least: int = 1 << 20,
    name: str = "",
    heap: Optional[Heap] = None,
) -> Offload:
    """See gapless.offload_activations()."""
    budget, least, found = _budget_of(budget), bytes_of("least", least), _device_of(device)
    if heap is not None:
        return Offload(budget, found, least, heap)
    with _known_lock:
        key = (type(budget), budget, found, least, name)
        if key not in _known:
            _known[key] = Offload(budget, found, least, None)
        return _known[key]
