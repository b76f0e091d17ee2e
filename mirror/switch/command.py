"""Runs a switch to its end, to a state, or back."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mirror.errors import FlowError, KafkaError
from mirror.exit_status import ATTENTION, DONE, FAILED, INCOMPLETE, ROLLED_BACK, STOPPED_FENCED
from mirror.switch.arrivals import Arrivals, Arrived
from mirror.switch.machine import Act
from mirror.switch.record import State, SwitchRecord
from mirror.switch.record_store import SwitchTaken

if TYPE_CHECKING:
    from mirror.switch.machine import Terms
    from mirror.switch.operator import Operator, Seen

_PAUSE_S: Final = 1.0
_OUTAGE_S: Final = 120.0
"""How long a cluster may not answer before the command ends; deadline-seconds, while producers are fenced."""
_MAX_PAUSE_S: Final = 30.0
_OUTSIDE: Final = frozenset({Act.UNFENCE, Act.SWITCH, Act.CLIENTS})
"""What may fail for long for a reason outside of both clusters, such as a hook: each attempt waits longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """How a command has ended."""

    record: SwitchRecord
    status: int
    lines: tuple[str, ...] = ()
    """Why, if it is not done."""


class SwitchCommand:
    """One command that goes on with a switch. Its calls wait; use it in one thread."""

    def __init__(
        self,
        operator: Operator,
        terms: Terms,
        on_line: Callable[[str], None],
        who_writes: Callable[[Sequence[str]], str],
        *,
        pause: Callable[[float], object] = time.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``on_line`` gets a line for each change; ``who_writes`` says who has written to partitions."""
        self._operator: Final = operator
        self._terms: Final = terms
        self._on_line: Final = on_line
        self._who_writes: Final = who_writes
        self._pause: Final = pause
        self._now_s: Final = now_s
        self._said = ""

    def run(self) -> CommandOutcome:
        """Go on until there is nothing more to do.

        Nothing is repeated for longer than the deadline without a change. Raises KafkaError if a cluster has not
        answered for long, SwitchTaken if another operator goes on.
        """
        last, answered_s = self._operator.record, self._now_s()
        moved_s, pause_s = answered_s, _PAUSE_S
        while True:
            try:
                seen = self._operator.turn()
                answered_s = self._now_s()
            except (KafkaError, FlowError) as error:
                if isinstance(error, SwitchTaken) or self._gives_up(answered_s):
                    raise
                self._say(f"{error}; trying again")
                self._pause(_PAUSE_S)
                continue
            self._say_changes(last, seen)
            if seen.record != last:
                last, moved_s, pause_s = seen.record, answered_s, _PAUSE_S
            if (outcome := self._ended(seen)) is not None:
                return outcome
            if seen.why:
                self._say(seen.why)
                if answered_s - moved_s > self._terms.deadline_ms / 1000:
                    return self._stopped(seen)
                self._pause(pause_s)
                pause_s = min(2 * pause_s, _MAX_PAUSE_S) if seen.act in _OUTSIDE else _PAUSE_S

    # Invariant: A command ends: it calls no hook, and waits for no cluster, longer than the deadline without a change.
    # Test: tests/switch/test_command.py::test_what_does_not_go_on_ends_at_the_deadline
    def _stopped(self, seen: Seen) -> CommandOutcome:
        """Return the end of a command that goes on with nothing."""
        after_s = self._terms.deadline_ms // 1000
        line = f"nothing has gone on for {after_s} s (deadline-seconds): {seen.why}; run it again when this is mended"
        return CommandOutcome(record=seen.record, status=status_of_error(seen.record, FAILED), lines=(line,))

    def _gives_up(self, answered_s: float) -> bool:
        """Whether to end while the clusters do not answer, of which none has since ``answered_s``."""
        record = self._operator.record
        if record.state is State.PLANNED:
            return True  # it is repeated as easily
        most_s = self._terms.deadline_ms / 1000 if record.fences else _OUTAGE_S
        return self._now_s() - answered_s > most_s

    def _ended(self, seen: Seen) -> CommandOutcome | None:
        record = seen.record
        if seen.act is Act.END:
            rolled_back = record.state is State.ROLLED_BACK
            lines = (f"rolled back: {record.rollback}",) if rolled_back else (seen.why,) * bool(seen.why)
            status = ROLLED_BACK if rolled_back else _refused(record) if seen.why else DONE
            return CommandOutcome(record=record, status=status, lines=lines)
        if seen.act is Act.CHECK and record.state is State.PLANNED:
            return CommandOutcome(record=record, status=ATTENTION, lines=tuple(seen.why.splitlines()))
        return None

    def _say_changes(self, last: SwitchRecord, seen: Seen) -> None:
        record = seen.record
        if record.rollback and not last.rollback:
            self._say(f"rolling back: {record.rollback}")
            if self._operator.bypassed:
                self._say(f"written {self._who_writes(self._operator.bypassed)}")
        if record.state is not last.state:
            self._say(str(record.state))

    def _say(self, line: str) -> None:
        if line != self._said:
            self._said = line
            self._on_line(f"switch {self._terms.name}: {line}")


def watch_clients(
    read: Callable[[], tuple[Mapping[str, tuple[int, ...]], Collection[str]]],
    record: SwitchRecord,
    seconds: float,
    on_line: Callable[[str], None],
    *,
    now_ms: Callable[[], int],
    pause: Callable[[float], object] = time.sleep,
) -> Arrived:
    """Return which clients have arrived on the target of a switch that is done; wait ``seconds`` at most for all.

    ``read`` returns the ends of the target's logs and the groups with members there; ``on_line`` gets a line for each
    arrival, and one at the end.
    """
    arrivals, until_ms = Arrivals(record), now_ms() + 1000 * seconds
    while True:
        try:
            for line in arrivals.see(*read(), now_ms()):
                on_line(line)
        except KafkaError as error:
            on_line(f"which clients have arrived cannot be read: {error}")
        if arrivals.arrived.is_complete or now_ms() >= until_ms:
            on_line(arrivals.arrived.summary())
            return arrivals.arrived
        pause(_PAUSE_S)


def _refused(record: SwitchRecord) -> int:
    return STOPPED_FENCED if record.fences else ATTENTION


def status_of_error(record: SwitchRecord, failed: int) -> int:
    """Return the exit status of a command that an error has ended; ``failed``: if it has changed nothing."""
    if record.state.is_open and record.state is not State.DONE:
        return INCOMPLETE
    if record.lifted_ms:
        return ROLLED_BACK
    return STOPPED_FENCED if record.fences else failed
