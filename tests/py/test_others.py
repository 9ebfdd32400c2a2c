"""CuPy and Numba over the default heap, with the parts of both that are touched; the heap is on host memory."""

import contextlib
import ctypes
import gc
import sys
import types
import weakref

import gapless
import pytest

MIB = 1 << 20


@pytest.fixture
def heap(monkeypatch):
    with gapless.Heap("host", device_bytes=64 * MIB, environment=False, threads=False) as made:
        for name in ("gapless.cupy", "gapless.numba"):
            sys.modules.pop(name, None)
        monkeypatch.setattr(sys.modules["gapless.heap"], "default_heap", lambda: made)
        yield made
        for name in ("gapless.cupy", "gapless.numba"):
            sys.modules.pop(name, None)
        gc.collect()
        assert made.usage().live_bytes == 0
        made.check()


class Memory:
    def __init__(self, ptr, size, owner, device_id):
        self.ptr, self.size, self.owner, self.device_id = ptr, size, owner, device_id


@pytest.fixture
def cupy(monkeypatch):
    made = types.ModuleType("cupy")
    made.stream = 0
    made.allocators = []
    made.cuda = types.SimpleNamespace(
        device=types.SimpleNamespace(get_device_id=lambda: 0),
        UnownedMemory=Memory,
        MemoryPointer=lambda memory, offset: memory,
        get_current_stream=lambda: types.SimpleNamespace(ptr=made.stream),
        set_allocator=made.allocators.append,
    )
    made.get_default_memory_pool = lambda: types.SimpleNamespace(malloc="cupy's own")
    monkeypatch.setitem(sys.modules, "cupy", made)
    return made


class CFunctionAllocator:
    """CuPy's, through the addresses that it is given."""

    def __init__(self, param, malloc, free, owner):
        self.param, self.owner = param, owner
        self.alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)(malloc)
        self.free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(free)
        self.calls = 0

    def malloc(self, size):
        self.calls += 1
        made = Memory(self.alloc(self.param, size, 0) or 0, size, self, 0)
        if made.ptr:
            weakref.finalize(made, self.free, self.param, made.ptr, 0)
        return made


@pytest.fixture
def cupy_in_c(cupy, monkeypatch):
    """A CuPy that shows its C function for the current stream."""
    stream = ctypes.CFUNCTYPE(ctypes.c_ssize_t)(lambda: cupy.stream)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    name = ctypes.create_string_buffer(b"intptr_t (void)")
    capsule = new(ctypes.cast(stream, ctypes.c_void_p), ctypes.addressof(name), None)
    module = types.ModuleType("cupy_backends.cuda.stream")
    module.__pyx_capi__ = {"get_current_stream_ptr": capsule}
    parents = types.ModuleType("cupy_backends"), types.ModuleType("cupy_backends.cuda")
    parents[1].stream = module
    for made in (*parents, module):
        monkeypatch.setitem(sys.modules, made.__name__, made)
    cupy.cuda.CFunctionAllocator = CFunctionAllocator
    cupy.kept = stream, name
    return cupy


def test_cupy_without_python_on_the_way(heap, cupy_in_c):
    import gapless.cupy

    gapless.cupy.enable()
    (malloc,) = cupy_in_c.allocators
    array = malloc(3 * MIB)
    assert isinstance(array.owner, CFunctionAllocator) and array.owner.calls == 1
    assert heap.find(array.ptr)[1].bytes == 3 * MIB and heap.find(array.ptr)[1].stream == 0
    assert malloc(0).ptr == 0
    with heap.pool(tag="mine"):
        other = malloc(MIB)
    assert heap.find(other.ptr)[1].pool == (0, 0)
    with pytest.raises(MemoryError, match="no memory for"):
        malloc(1 << 40)
    del array, other


def test_cupy_in_c_asks_for_the_stream(heap, cupy_in_c):
    import gapless.cupy

    gapless.cupy.enable()
    cupy_in_c.stream = 0x40
    array = gapless.cupy.malloc(MIB)
    assert heap.find(array.ptr)[1].stream == 0x40
    del array


def test_cupy(heap, cupy):
    import gapless.cupy

    gapless.cupy.enable()
    (malloc,) = cupy.allocators
    array = malloc(3 * MIB)
    assert heap.find(array.ptr)[1].bytes == 3 * MIB and array.size == 3 * MIB
    assert malloc(0).ptr == 0
    address = array.ptr
    del array
    assert heap.find(address) is None
    with pytest.raises(MemoryError):
        malloc(1 << 40)
    gapless.cupy.disable()
    assert cupy.allocators[-1] == "cupy's own"


def test_cupy_memory_belongs_to_the_current_stream(heap, cupy):
    import gapless.cupy

    cupy.stream = 0
    array = gapless.cupy.malloc(MIB)
    assert heap.find(array.ptr)[1].stream == 0
    del array


def test_cupy_arrays_in_no_pool(heap, cupy):
    """A pool that Python code has entered is for its own blocks."""
    import gapless.cupy

    with heap.pool(tag="mine"):
        array = gapless.cupy.malloc(MIB)
    assert heap.find(array.ptr)[1].pool == (0, 0)
    del array


class HostOnly:
    def __init__(self, *, context):
        self.context = context

    @contextlib.contextmanager
    def defer_cleanup(self):
        yield


class Pointer:
    def __init__(self, context, pointer, size, finalizer=None):
        self.pointer, self.size = pointer, size
        self._finalizer = finalizer

    def __del__(self):
        if self._finalizer:
            self._finalizer()


class Context:
    device = types.SimpleNamespace(id=0)
    made = 0

    def create_stream(self):
        self.made += 1
        return types.SimpleNamespace(handle=types.SimpleNamespace(value=0))


@pytest.fixture
def numba(monkeypatch):
    managers = []
    cuda = types.ModuleType("numba.cuda")
    cuda.HostOnlyCUDAMemoryManager, cuda.MemoryPointer, cuda.set_memory_manager = HostOnly, Pointer, managers.append
    cuda.managers = managers
    cudadrv, driver = types.ModuleType("numba.cuda.cudadrv"), types.ModuleType("numba.cuda.cudadrv.driver")
    driver.MemoryInfo = lambda free, total: (free, total)
    cudadrv.driver, cuda.cudadrv = driver, cudadrv
    numba = types.ModuleType("numba")
    numba.cuda = cuda
    for name, module in (
        ("numba", numba),
        ("numba.cuda", cuda),
        ("numba.cuda.cudadrv", cudadrv),
        ("numba.cuda.cudadrv.driver", driver),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    return cuda


def test_numba(heap, numba):
    import gapless.numba

    gapless.numba.enable()
    (plugin,) = numba.managers
    assert plugin is gapless.numba._numba_memory_manager
    context = Context()
    manager = plugin(context=context)
    assert manager.interface_version == 1 and plugin(context=None).interface_version == 1
    manager.initialize()
    with manager.defer_cleanup():
        first, second = manager.memalloc(2 * MIB), manager.memalloc(MIB)
    assert heap.find(first.pointer.value)[1].bytes == 2 * MIB and context.made == 1
    free, total = manager.get_memory_info()
    assert 0 < free <= total
    with pytest.raises(NotImplementedError):
        manager.get_ipc_handle(first)
    del first, second
    assert manager.memalloc(0).size == 0


def test_two_share_one_heap(heap, cupy, numba):
    """What an array of the one has freed serves the other, page by page, under one limit."""
    import gapless.cupy
    import gapless.numba

    heap.configure("max_memory:32M")
    gapless.cupy.enable()
    gapless.numba.enable()
    manager = numba.managers[0](context=Context())
    manager.initialize()
    (malloc,) = cupy.allocators
    kept, gone = malloc(6 * MIB), malloc(20 * MIB)
    with pytest.raises(gapless.OutOfMemoryError):
        manager.memalloc(22 * MIB)
    del gone
    array = manager.memalloc(22 * MIB)
    assert heap.find(kept.ptr) and heap.find(array.pointer.value)[1].bytes == 22 * MIB
    assert heap.usage().live_bytes == 28 * MIB and heap.usage().held_bytes <= 32 * MIB
    del array
    again = malloc(24 * MIB)
    assert heap.usage().peak_held_bytes <= 32 * MIB
    del kept, again
