"""Whether a flow's transform can be loaded, before executors have to."""

from __future__ import annotations

import sys

from mirror.errors import FlowError
from mirror.relay.batches.reencode import load_transform


def why_not_loaded(name: str) -> str | None:
    """Why the transform ``name`` ("package.module:function") cannot be imported here; None where it can.

    It is looked for where Spark's Python workers of this host would: they also have the current folder on their path.
    The module's own code runs.
    """
    before = list(sys.path)
    sys.path.insert(0, "")
    try:
        load_transform(name)
    except FlowError as error:
        why = str(error).removeprefix(f'transform = "{name}" ')
        return f"{why}; it is looked for in the current folder, on PYTHONPATH and among the installed packages"
    finally:
        sys.path[:] = before
    return None
