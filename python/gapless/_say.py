"""Lines for a person, on standard error.  The library's own lines look the same (gap_torch_log)."""

import sys


def say(line: str) -> None:
    """Writes one line; a closed standard error is no reason to fail."""
    try:
        sys.stderr.write(f"gapless: {line}\n")
        sys.stderr.flush()
    except Exception:  # pylint: disable=broad-except
        pass
