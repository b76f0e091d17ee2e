"""Calls several clusters at the same time, and reports those that do not answer."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, TypeVar

from mirror.errors import FlowError, MirrorError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

_FIRST_NOTICE_S: Final = 3.0
"""The time that a cluster has to answer before a notice says that it has not."""
_NOTICE_INTERVAL_S: Final = 15.0


def call_concurrently(
    kind: str, calls: Mapping[str, Callable[[], T]], on_waiting: Callable[[str], None] | None = None
) -> dict[str, T | MirrorError]:
    """Run each call in a thread of its own, and return the results in the order of ``calls``.

    ``kind`` is the kind of thing that the names are names of: what a call that raises has failed with is its result.
    ``on_waiting`` is called now and then with a line about one that has not answered yet.
    """
    found: dict[str, T | MirrorError] = {}

    def run(name: str) -> None:
        try:
            found[name] = calls[name]()
        except MirrorError as error:
            found[name] = error
        except Exception as error:  # noqa: BLE001 - the caller reports it: raised in a thread, it would be lost
            found[name] = FlowError(f"{kind} {name}: {type(error).__name__}: {error}")

    # Daemons: after a signal the process ends without waiting for a cluster.
    threads = {
        name: threading.Thread(target=run, args=(name,), name=f"mirror-call-{name}", daemon=True) for name in calls
    }
    began_s = time.monotonic()
    for thread in threads.values():
        thread.start()
    notice_s = _FIRST_NOTICE_S
    while slow := [name for name, thread in threads.items() if thread.is_alive()]:
        threads[slow[0]].join(max(0.0, began_s + notice_s - time.monotonic()))
        if time.monotonic() - began_s >= notice_s:
            for name in slow:
                if threads[name].is_alive() and on_waiting is not None:
                    on_waiting(f"{kind} {name} has not answered for {notice_s:.0f} s; still waiting")
            notice_s += _NOTICE_INTERVAL_S
    return {name: found[name] for name in calls}
