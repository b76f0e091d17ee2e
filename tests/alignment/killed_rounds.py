"""Rounds of processes that end while they make their changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mirror.alignment.inventory import FlowInventory
from mirror.alignment.reconciler import Making


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def killed_while_it_makes(monkeypatch: pytest.MonkeyPatch, kind: type, *, made: bool) -> Iterator[None]:
    """A round in the block ends before its changes are made, or before it has stored that they were ``made``."""
    make = kind.make  # type: ignore[attr-defined]  # of each kind

    def end(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:

        def make_and_end(self: object, plan: object, making: Making) -> None:
            if made:
                make(self, plan, making)
            patched.setattr(FlowInventory, "store", end)
            raise Killed

        patched.setattr(kind, "make", make_and_end)
        with pytest.raises(Killed):
            yield
