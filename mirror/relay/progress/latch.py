"""The latch of a flow: whether it may write at all, which outlives every run.

::

    mirror hold, release, cutover ──set_latch──► mirror-progress.<flow>.latch.internal ──Latches.check──► each writer

The control record is a committed offset: brokers forget it after a week without runs, and each claim replaces it. So
the latch is a record of its own. A writer reads it *after* it has fenced or claimed what it writes with; who sets it
fences and stops the writers *after* it is stored. So of both at least one sees the other.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from mirror.errors import Fenced, FlowHeld, KafkaTimeout, LatchMoved, printable
from mirror.relay.progress.fenced_writer import FencedWriter, transactional_id
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue, latch_topic_of
from mirror.relay.progress.stored_record import decode, encode
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer

READ_MS: Final = 20_000
"""How long a writer waits for the latch before it fails."""
_KEY: Final = b"latch"
_ATTEMPTS: Final = 5
"""Rounds of a flow that runs fence under the same id; each of them does so once after it was fenced."""


class Role(enum.StrEnum):
    """Whether a flow may write."""

    ACTIVE = "active"
    HELD = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latch:
    """Whether a flow may write, and who has said so. The field names are keys of the status as JSON."""

    role: Role = Role.ACTIVE
    generation: int = 0
    """One more with each change; 0: nothing has ever held the flow."""
    reason: str = ""
    by: str = ""
    """The user and the host."""
    since_ms: int = 0
    """Since when it has this role (ms since 1970)."""

    @property
    def is_held(self) -> bool:
        """Whether no writer of the flow may write."""
        return self.role is Role.HELD

    @property
    def since(self) -> str:
        """Since when it has this role, in UTC, as ``2026-01-31T12:00:00Z``."""
        moment = datetime.fromtimestamp(self.since_ms / 1000, UTC)
        return moment.isoformat(timespec="seconds").replace("+00:00", "Z")

    def line(self) -> str:
        """Return since when, by whom and why, without line breaks."""
        why = f": {self.reason}" if self.reason else ""
        return printable(f"{self.role} since {self.since} by {self.by or 'an unknown user'}{why}")

    def held_line(self, flow: str) -> str:
        """Return :meth:`line`, and how ``flow`` is released."""
        return f"{self.line()}; mirror release {flow} lets it copy again"


def changed(
    found: Latch,
    role: Role,
    *,
    reason: str,
    by: str,
    now_ms: int,
    expected: int | None = None,
    takes_over: bool = False,
) -> Latch:
    """Return the latch after a change; ``found`` itself if it has this ``role`` already. Pure.

    ``takes_over``: a latch that others hold is changed, too, so that they do not release it by mistake.

    ``expected`` is the generation that the change is meant for; None: any. Raises LatchMoved for another one.
    """
    if expected is not None and found.generation != expected:
        raise LatchMoved(f"the latch is {found.line()} (generation {found.generation}, not {expected}): read it again")
    if found.role is role and not (takes_over and found.by != by):
        return found
    return Latch(role=role, generation=found.generation + 1, reason=reason, by=by, since_ms=now_ms)


# Invariant: A writer goes on only while its flow is not held, and has not been since the writer began: it reads the
#   latch after it has fenced or claimed what it writes with.
# Test: tests/spark/driver/test_held_run.py::test_the_lost_tail_is_not_appended_behind_newer_writes
# Test: tests/spark/driver/
#   test_held_run.py::test_a_run_that_has_read_the_latch_before_it_was_held_claims_and_copies_nothing
# Test: tests/spark/driver/test_held_run.py::test_a_run_of_an_older_generation_does_nothing_more
# Test: tests/spark/test_holding.py::test_a_round_of_a_held_flow_stores_nothing_however_often_it_tries
def check(latch: Latch, flow: str, began: int | None = None, holder: str = "") -> int:
    """Return the generation under which a writer of ``flow`` may go on. Pure.

    ``began`` is the generation under which it began; None: it begins now. ``holder`` is whose hold lets it write,
    which is that of its own switch. Raises FlowHeld, LatchMoved.
    """
    if latch.is_held and not (holder and latch.by == holder):
        raise FlowHeld(f"flow {flow} is {latch.held_line(flow)}")
    if began is not None and latch.generation != began:
        raise LatchMoved(
            f"flow {flow} was held and released meanwhile (it is {latch.line()}): this writer ends, a new run goes on"
        )
    return latch.generation


class LatchCheck:
    """The latch as one writer obeys it, from its beginning to its end. Its calls wait for the target."""

    def __init__(self, target_options: Mapping[str, object], flow: str, holder: str = "") -> None:
        """``target_options`` are dotted keys, of which those of the cluster are used. Raises ConfigError."""
        self._options: Final = target_options
        self._flow: Final = flow
        self._holder: Final = holder
        self._generation: int | None = None

    def __call__(self) -> None:
        """Read the latch. Raises FlowHeld, LatchMoved, KafkaError: the writer may not go on."""
        latch = read_latch(self._options, self._flow)
        self._generation = check(latch, self._flow, self._generation, self._holder)


def read_latch(target_options: Mapping[str, object], flow: str, timeout_ms: int = READ_MS) -> Latch:
    """Return the latch of a flow; that of one that was never held is active. Raises KafkaError."""
    return _read(FlowTopic(target_options, latch_topic_of(flow)), timeout_ms)


def _read(topic: FlowTopic, timeout_ms: int) -> Latch:
    last: Latch | None = None
    for one in topic.records(Timer(SystemClock(), timeout_ms)):
        if one.key == _KEY:
            last = parse(one.value)
    return last or Latch()


def parse(value: bytes | None) -> Latch:
    """Parse a record's value. What is not understood, such as a record of a later version, holds the flow. Pure."""
    if value is None:
        return Latch()
    unknown = Latch(role=Role.HELD, reason="what its latch topic says is not understood by this version")
    return decode(Latch, value) or unknown


def set_latch(
    target_options: Mapping[str, object],
    flow: str,
    role: Role,
    *,
    reason: str,
    by: str,
    now_ms: int,
    expected: int | None = None,
    takes_over: bool = False,
    timer: Timer | None = None,
) -> Latch:
    """Store the latch after a change, as :func:`changed` says, and return it; its topic has to exist.

    It compares and sets: it is stored under a fence, so that of two changes at once the later one sees the earlier. The
    fence is that of the flow's changes to topics and ACLs, whose rounds store nothing afterwards.

    ``timer`` (:data:`READ_MS` by default) limits each call, and nothing is sent once it has expired. Raises LatchMoved,
    KafkaError.
    """
    timer = timer or Timer(SystemClock(), READ_MS)
    topic = FlowTopic(target_options, latch_topic_of(flow))
    change = partial(changed, role=role, reason=reason, by=by, now_ms=now_ms, expected=expected, takes_over=takes_over)
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(Fenced):
            return _compare_and_set(topic, flow, timer, change)
    return _compare_and_set(topic, flow, timer, change)


# Invariant: A latch is not stored later than the time that its caller has: another operator may have gone on since.
# Test: tests/relay/progress/test_latch.py::test_a_latch_is_not_stored_once_its_time_has_passed
def _compare_and_set(topic: FlowTopic, flow: str, timer: Timer, change: Callable[[Latch], Latch]) -> Latch:
    left_ms = max(1, timer.remaining_ms())
    writer = FencedWriter(topic, transactional_id(flow), left_ms)
    try:
        writer.begin()
        found = _read(topic, left_ms)
        wanted = change(found)
        if wanted != found:
            if timer.expired():
                raise KafkaTimeout(f"the latch of flow {flow} was not stored in time")
            writer.write([KeyValue(_KEY, encode(wanted))])
    finally:
        writer.close()
    return wanted
