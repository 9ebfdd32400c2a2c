"""The error codes of the C interface as exceptions."""


class Error(RuntimeError):
    """A call of the library failed; ``code`` is its GAP_E... number."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class OutOfMemoryError(Error, MemoryError):
    """No memory on any rung of the reclaim ladder; the text says why."""


class ConfigError(Error, ValueError):
    """A configuration string was refused, or a key does not exist."""


class NotSupportedError(Error):
    """No driver here, or one that lacks what is needed."""


GAP_EINVAL = -1
GAP_ENOMEM = -2
GAP_ENOTMINE = -4
GAP_EFREED = -5
GAP_ETOOBIG = -6
GAP_ENOTSUP = -8
GAP_ESTATE = -10
GAP_EKEY = -14
GAP_EVALUE = -15
GAP_EFORKED = -17

_CLASSES = {
    GAP_ENOMEM: OutOfMemoryError,
    GAP_ETOOBIG: OutOfMemoryError,
    GAP_ENOTSUP: NotSupportedError,
    GAP_EKEY: ConfigError,
    GAP_EVALUE: ConfigError,
}


def error(code: int, message: str) -> Error:
    """The exception that stands for a code."""
    return _CLASSES.get(code, Error)(code, message)
