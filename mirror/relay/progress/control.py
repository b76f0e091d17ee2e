"""What a stream's tasks are told while they follow: to end their epoch, or that another run has taken over.

Tasks run on any host, for minutes, and Spark has no word for them. So it is told where both sides look anyway: as a
committed offset on the target, of a group of its own for each flow. The offset is the first epoch that may go on; the
metadata says whose epochs these are. It only advises: what keeps two runs from copying twice is the fencing of each
partition's transactions.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.errors import printable
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.progress_topic import topic_of
from mirror.timing import FOREVER_MS

POLL_INTERVAL_MS: Final = 1_000
"""How often a task looks."""
HEARTBEAT_INTERVAL_MS: Final = 10_000
"""How often a run that goes on says so."""
DEAD_AFTER_MS: Final = 60_000
"""A run that has not said so for this long has died, or cannot reach the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunControl:
    """Epochs of ``run`` before ``epoch`` are over. ``stop``: so are all that come; ``ended``: and nothing runs.

    ``host`` and ``since_ms`` (ms since 1970) say where and since when that run is, for people. ``seen_ms`` is when it
    last said that it goes on, by its own clock; 0 for a run of a version that does not say it.
    """

    run: str
    host: str
    since_ms: int
    epoch: int = 0
    stop: bool = False
    ended: bool = False
    seen_ms: int = 0

    def silent_ms(self, wall_ms: int) -> int | None:
        """How long nothing has been heard of the run at ``wall_ms`` (ms since 1970); None where that is not known."""
        return max(0, wall_ms - self.seen_ms) if self.seen_ms else None

    def is_dead(self, wall_ms: int) -> bool:
        """Whether the run has been silent for so long that nothing can be there any more."""
        return (self.silent_ms(wall_ms) or 0) >= DEAD_AFTER_MS

    def end_reason(self, run: str, epoch: int) -> str | None:
        """Why ``epoch`` of ``run`` is over; None where it is not."""
        if self.run != run:
            return f"another run of this flow took over: {self.run}, on {self.host}"
        if self.stop:
            return "it was told to stop"
        return "there is something new to plan" if epoch < self.epoch else None

    def other_run_active(self, run: str) -> bool:
        """Whether somebody else runs this flow now."""
        return self.run != run and not self.ended

    def to_offset(self) -> OffsetAndMetadata:
        """As it is committed."""
        about = {"v": 1, "run": self.run, "host": self.host, "since": self.since_ms}
        if self.seen_ms:
            about["seen"] = self.seen_ms
        if self.stop:
            about["stop"] = True
        if self.ended:
            about["ended"] = True
        return OffsetAndMetadata(self.epoch, None, json.dumps(about, separators=(",", ":")))

    def stopped(self, *, ended: bool = False) -> RunControl:
        """The same, to stop."""
        return replace(self, stop=True, ended=ended or self.ended)


def control_partition(flow: str) -> tuple[str, TopicPartition]:
    """The group, and the partition that it is committed for: one that whoever copies may commit for in any case."""
    return f"mirror.{flow}.orders", TopicPartition(topic_of(flow), 0)


def from_offset(committed: OffsetAndMetadata | None) -> RunControl | None:
    """What was committed; None where that is nothing, or a stranger's. Raises nothing, whatever it holds."""
    if committed is None:
        return None
    about = stored.parse_object(committed.metadata)
    run, host, since_ms = stored.text(about.get("run")), about.get("host"), stored.time_ms(about.get("since"))
    if not run or not isinstance(host, str) or since_ms is None:
        return None
    return RunControl(
        run=printable(run),
        host=printable(host),
        since_ms=since_ms,
        epoch=committed.offset,
        stop=bool(about.get("stop")),
        ended=bool(about.get("ended")),
        seen_ms=stored.time_ms(about.get("seen")) or 0,
    )


class ControlPoller:
    """Whether one epoch of one run goes on: asks every :data:`POLL_INTERVAL_MS`, and never waits for the answer.

    Who cannot ask goes on: it is told by the others' fencing, and by its epoch's end.
    """

    def __init__(self, ask: Callable[[], Future[RunControl | None]], run: str, epoch: int, now: int) -> None:
        self._ask = ask
        self._run = run
        self._epoch = epoch
        self._next_ms = now
        self._asked: Future[RunControl | None] | None = None

    def due_ms(self) -> int:
        """When :meth:`poll` is wanted next, where no answer comes before."""
        return self._next_ms if self._asked is None else FOREVER_MS

    def poll(self, now: int) -> str | None:
        """Why the epoch is over, as far as is known; None while it is not."""
        asked = self._asked
        if asked is None and now >= self._next_ms:
            self._next_ms = now + POLL_INTERVAL_MS
            self._asked = self._ask()
            return None
        if asked is None or not asked.done():
            return None
        self._asked = None
        orders = None if asked.exception() is not None else asked.result()
        return None if orders is None else orders.end_reason(self._run, self._epoch)
