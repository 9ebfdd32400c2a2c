"""torch.cuda, as far as gapless looks at it."""

from types import SimpleNamespace

from . import _C


def is_initialized():
    return _C.started > 0


def is_available():
    return True


def init():
    if not is_initialized():
        _C._cuda_init()


def current_device():
    return 0


class CUDAPluggableAllocator:
    def __init__(self, library, alloc, free):
        self.names = (library, alloc, free)
        self.hooks = {}

    def allocator(self):
        names = (
            "set_init_fn",
            "set_reset_fn",
            "set_memory_fraction_fn",
            "set_base_alloc_fn",
            "set_record_stream_fn",
            "set_begin_allocate_to_pool",
            "set_end_allocate_to_pool_fn",
            "set_release_pool",
        )
        return SimpleNamespace(
            **{name: lambda address, name=name: self.hooks.__setitem__(name, address) for name in names}
        )


def change_current_allocator(allocator):
    if is_initialized():
        raise RuntimeError("Can't swap an already initialized allocator")
    _C.backend = "pluggable"
    memory.swapped.append(allocator)


class MemPool:
    made = 0

    def __init__(self):
        MemPool.made += 1
        self.id = (0, MemPool.made)


class use_mem_pool:
    active = []

    def __init__(self, pool, device=None):
        self.pool = pool

    def __enter__(self):
        self.active.append(self.pool.id)

    def __exit__(self, *_exception):
        self.active.remove(self.pool.id)


memory = SimpleNamespace(
    CUDAPluggableAllocator=CUDAPluggableAllocator,
    change_current_allocator=change_current_allocator,
    swapped=[],
    _set_allocator_settings=lambda settings: _C._accelerator_setAllocatorSettings(settings),
)
