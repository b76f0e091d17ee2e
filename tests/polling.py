"""Waiting for a condition in a test, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(
    condition: Callable[[], object], *, within_s: float = 30.0, what: str = "the condition", every_s: float = 0.02
) -> None:
    """Return as soon as ``condition()`` is true; fail with ``what`` in the text if it is not ``within_s`` seconds.

    That is how long a machine may take that others keep busy; where it does not come to that, it costs nothing. A look
    that is not cheap is taken less often: ``every_s``.
    """
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, f"{what}: not within {within_s} s"
        time.sleep(every_s)
