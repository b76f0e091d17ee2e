"""How far the target says that partitions are, asked once at the end of a run whose tasks did not all answer."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from mirror.client import Admin
from mirror.errors import MirrorError
from mirror.relay.progress.committed import ProgressStore
from mirror.spark.ledger.unanswered import TargetProgress, target_partition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.relay.model.ranges import Range

WITHIN_S: Final = 6.0
"""How long the target is asked for at most. A run that a signal ends has 20 s for all of its end."""
_CALL_MS: Final = 4_000
_AGAIN_S: Final = 0.3
"""Between two readings: the tasks of a run that is being ended may commit once more before they end."""


def read_target_progress(
    options: Mapping[str, object], flow: str, ranges: Sequence[Range], *, within_s: float = WITHIN_S
) -> TargetProgress:
    """Ask the target, with its client's ``options``, how far these ranges of a flow are.

    Returns within ``within_s`` seconds, and does not raise: that the target does not answer is an answer, too.
    """
    if not ranges:
        return TargetProgress()
    found = list[TargetProgress]()
    until_s = time.monotonic() + within_s
    # A daemon: neither this call nor the end of the process may wait for a target that is away.
    thread = threading.Thread(target=_ask, args=(options, flow, ranges, until_s, found), daemon=True)
    thread.start()
    thread.join(within_s)
    return found[-1] if found else TargetProgress(error=f"no answer within {within_s:g} s")


def _ask(
    options: Mapping[str, object], flow: str, ranges: Sequence[Range], until_s: float, found: list[TargetProgress]
) -> None:
    wanted = {target_partition(each) for each in ranges}
    try:
        with Admin({**options, "default.api.timeout.ms": _CALL_MS}) as admin:
            store = ProgressStore(admin, flow)
            while time.monotonic() < until_s:
                found.append(TargetProgress(store.read(wanted)))
                if len(found) > 1 and found[-1] == found[-2]:
                    return
                time.sleep(_AGAIN_S)
    except MirrorError as error:
        if not found:
            found.append(TargetProgress(error=" ".join(str(error).split())))
