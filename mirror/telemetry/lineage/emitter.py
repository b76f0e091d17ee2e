"""Sends OpenLineage's events, if the environment says where to, by OpenLineage's own client.

The client reads its variables and files itself (``OPENLINEAGE_URL``, ``OPENLINEAGE_CONFIG``, ``OPENLINEAGE__...``). A
receiver that is away delays no copy: a thread of its own sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.errors import ConfigError, Problem
from mirror.extras import LINEAGE, missing
from mirror.telemetry.export.export_queue import ExportQueue
from mirror.telemetry.lineage.facts import RunEnd, TopicCounts, TopicVerdict, topic_counts
from mirror.telemetry.traces.spans import is_idle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from openlineage.client.event_v2 import RunEvent

    from mirror.relay.model.ranges import RangeResult
    from mirror.telemetry.lineage.facts import LineageJob
    from mirror.timing import Clock

_SWITCHES: Final = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")
"""A variable that begins so switches it on. A file ``openlineage.yml`` that is found by chance does not."""
_QUEUED: Final = 1_000


class Lineage:
    """What the runs of this process say about their lineage. No method waits, or raises because of a receiver."""

    def __init__(self, clock: Clock, namespace: str = "", emit: Callable[[RunEvent], None] | None = None) -> None:
        """``emit`` sends an event, and may block and raise; without it nothing is said."""
        self._clock: Final = clock
        self._namespace: Final = namespace
        self._runs: Final[dict[str, _Run]] = {}
        self._queue: ExportQueue[RunEvent] | None = None
        if emit is not None:
            self._queue = ExportQueue("lineage", _each(emit), queue_size=_QUEUED, batch_size=1, delay_ms=0)

    @property
    def dropped(self) -> int:
        """How many events no receiver has accepted."""
        return 0 if self._queue is None else self._queue.dropped

    def begin(self, job: LineageJob) -> None:
        """Say that a run begins; its flow has no other one until :meth:`end`."""
        if self._queue is not None:
            self._runs[job.flow] = _Run(job)
            self._put(job, "START")

    def copied(self, flow: str, results: Iterable[RangeResult]) -> None:
        """Say what the run of ``flow`` has copied; ``results`` are those since the last call."""
        if (run := self._runs.get(flow)) is not None:
            active = (result for result in results if not is_idle(result))
            self._put(run.job, "RUNNING", run.add(topic_counts(active)))

    def end(self, flow: str, end: RunEnd, error: str = "", verdicts: Sequence[TopicVerdict] = ()) -> None:
        """Say how the run of ``flow`` has ended: with all that it has copied, or with the ``verdicts`` about that."""
        if (run := self._runs.pop(flow, None)) is not None:
            self._put(run.job, end.value, verdicts or list(run.sums.values()), error)

    def _put(
        self, job: LineageJob, state: str, topics: Sequence[TopicCounts | TopicVerdict] = (), error: str = ""
    ) -> None:
        from openlineage.client.event_v2 import RunState

        from mirror.telemetry.lineage.events import run_events

        assert self._queue is not None  # noqa: S101 - there is no run without it
        for event in run_events(job, self._namespace, RunState(state), self._clock.unix_ms(), topics, error):
            self._queue.put(event)

    def close(self, timeout_ms: int) -> None:
        """Wait for the receiver for at most ``timeout_ms``. Runs that have not ended are interrupted."""
        for flow in list(self._runs):
            self.end(flow, RunEnd.ABORT)
        if self._queue is not None:
            # A receiver that was away at the start may be back: without the end, it shows a run that goes on.
            self._queue.close(timeout_ms, patient=True)


class _Run:
    def __init__(self, job: LineageJob) -> None:
        self.job: Final = job
        self.sums: Final[dict[tuple[str, str], TopicCounts]] = {}

    def add(self, found: Iterable[TopicCounts]) -> list[TopicCounts]:
        """Add what was copied, and return the sums of its topics."""
        changed = []
        for one in found:
            key = (one.topic, one.target_topic)
            self.sums[key] = self.sums[key].plus(one) if key in self.sums else one
            changed.append(self.sums[key])
        return changed


def _each(emit: Callable[[RunEvent], None]) -> Callable[[Sequence[RunEvent]], bool]:
    def export(events: Sequence[RunEvent]) -> bool:
        for event in events:
            emit(event)
        return True

    return export


def lineage_of(environment: Mapping[str, str], clock: Clock, warn: Callable[[str], None]) -> Lineage:
    """Return what says the lineage of this process: nothing, unless the environment says where to.

    ``warn`` is called if the client is not installed: the variables may be there for other programs. Raises ConfigError
    if the client does not understand its settings.
    """
    found = sorted(name for name, value in environment.items() if name.startswith(_SWITCHES) and value.strip())
    if not found or environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return Lineage(clock)
    if lacking := missing(LINEAGE):
        warn(f"{found[0]}: no lineage is sent: it {lacking}")
        return Lineage(clock)
    from openlineage.client import OpenLineageClient

    try:
        client = OpenLineageClient()
    except Exception as error:  # noqa: BLE001 - the client raises whatever its transports do
        # Its text may have a value of a variable, such as a key.
        allowed = f"is not understood by OpenLineage's client ({type(error).__name__})"
        raise ConfigError([Problem("environment", found[0], "", allowed)]) from None
    return Lineage(clock, environment.get("OPENLINEAGE_NAMESPACE", "").strip() or "default", client.emit)
