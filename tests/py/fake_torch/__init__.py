"""A package that behaves like torch 2.11 where gapless touches it: two parsers that read the variables through getenv
when they are first used and refuse unknown keys, the start of CUDA, swapping the allocator."""

from . import _C, version

__version__ = version.__version__
loaded_with = _C.getenv("PYTORCH_CUDA_ALLOC_CONF")  # what a static initialiser of the library sees
_C.check_backend(loaded_with)

from . import cuda  # noqa: E402,F401
