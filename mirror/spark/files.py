"""Files that several processes share: whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

TARGETS: Final = "targets.json"
"""In a ledger: what the last preparation of the target's topics came to."""
CONFIG: Final = "config.toml"
"""In a stream's ledger: the configuration in force."""


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write ``content`` so that a reader sees the old file or the whole new one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp's 0600 would keep a report from the people it is written for.
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
