"""The driver of a run whose one task copies until it is asked to stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from mirror.client import Admin
from mirror.relay.progress.control_record import RunControl, control_partition

RUN: Final = "run-1"
"""What :attr:`CopyPolicy.run` has to be."""


@contextmanager
def stopped_after(seconds: float, target: str, flow: str) -> Iterator[None]:
    """Ask the run :data:`RUN` of ``flow`` to stop after so long; ``target`` are the bootstrap servers."""
    group, tp = control_partition(flow)
    ended = threading.Event()

    def renew() -> None:
        control = RunControl(run=RUN, host="h", since_ms=1)
        with Admin({"bootstrap.servers": target}) as admin:
            admin.commit_group_offsets(group, {tp: replace(control, seen_ms=1).to_offset()})
            ended.wait(seconds)
            admin.commit_group_offsets(group, {tp: replace(control, seen_ms=2, stop=True).to_offset()})

    assert seconds < 50, "a driver that lives longer renews its record"
    driver = threading.Thread(target=renew)
    driver.start()
    try:
        yield
    finally:
        ended.set()
        driver.join(30)
