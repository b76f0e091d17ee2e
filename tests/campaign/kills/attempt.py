"""One attempt at some ranges in its own process, which reports the points that it passes, and waits at one of them."""

from __future__ import annotations

import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

from mirror.relay.batches import exactly_once_way
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range
from mirror.relay.task.copy_ranges import copy_ranges
from tests.campaign.kills.points import PointReporter, watch

RESULTS: Final = "results"
FAILED: Final = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOrder:
    """What to copy and how. ``hold`` is a point, and how often it has to be passed, before the attempt waits there."""

    source: dict[str, Any]
    target: dict[str, Any]
    ranges: list[Range]
    policy: CopyPolicy
    hold: tuple[str, int] | None = None
    way_hold_ms: int = exactly_once_way.HOLD_MS
    """How long a partition keeps to transactions after an old batch."""


def attempt(order: AttemptOrder, line: Connection[Any, Any]) -> None:
    """Execute ``order`` and send the results on ``line``: the main function of the process."""
    reporter = PointReporter(order.hold, line)
    threading.Thread(target=reporter.listen, daemon=True).start()
    # Both affect only this process.
    watch(reporter)
    exactly_once_way.HOLD_MS = order.way_hold_ms  # type: ignore[misc]
    try:
        results = copy_ranges(
            order.ranges, source_options=order.source, target_options=order.target, policy=order.policy
        )
    except BaseException:
        reporter.say(FAILED, traceback.format_exc())
        raise
    reporter.say(RESULTS, results)
