"""Check that a flow's transform can be loaded, before executors load it."""

from __future__ import annotations

import sys

from mirror.errors import FlowError
from mirror.relay.batches.transforms import load_transform


def why_not_loaded(name: str) -> str | None:
    """Return why the transform ``name`` ("package.module:function") cannot be imported here, or None if it can.

    Searches where Spark's Python workers on this host do. The import runs the module's own code.
    """
    before = list(sys.path)
    try:
        load_transform(name)
    except FlowError as error:
        why = str(error).removeprefix(f'transform = "{name}" ')
        return f"{why}; the search path is PYTHONPATH, the installed packages and the current folder"
    finally:
        sys.path[:] = before
    return None
