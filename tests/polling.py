"""Waiting for a condition in a test, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_AT_MOST_S: Final = 0.25
"""Between two looks."""


def eventually(
    condition: Callable[[], object], *, within_s: float = 30.0, what: str = "the condition", every_s: float = 0.02
) -> None:
    """Return as soon as ``condition()`` is true; fail with ``what`` in the text if it is not ``within_s`` seconds.

    That is how long a machine may take that others keep busy; where it does not come to that, it costs nothing. A look
    is taken every ``every_s`` at first, and less often (up to 0.25 s) the longer the wait and a look take: what is
    asked of brokers takes CPU there, too.
    """
    began = time.monotonic()
    while True:
        looked = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        assert now < began + within_s, f"{what}: not within {within_s} s"
        time.sleep(max(every_s, min(_AT_MOST_S, max((now - began) / 50, 2 * (now - looked)))))
