"""Carries a switch out: reads, decides, stores what is intended, does it, and stores what came of it.

It knows no cluster: a :class:`Site` does. Two operators cannot both go on: the later one fences the record of the
earlier one, and waits until nothing that the earlier one has begun can still undo what it does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final, Protocol

from mirror.errors import AuthorizationFailed, FlowError, KafkaError, NotRetriable
from mirror.switch.facts import Facts, Watch
from mirror.switch.late_calls import may_conflict
from mirror.switch.machine import CUTOVER, LEASE_MS, Act, Machine, Next, StepResult, Terms
from mirror.switch.record import State, SwitchRecord, begin

_CHANGES: Final = frozenset(
    {Act.FENCE, Act.UNFENCE, Act.LIFT, Act.PROVE, Act.HOLD, Act.END_COPIES, Act.RELEASE, Act.ABORT_OPEN, Act.SWITCH}
    | {Act.LOCATE, Act.EXPORT, Act.SKIP_TAIL, Act.DELETE, Act.CREATE, Act.BEGIN, Act.REVERSE}
)
"""What an operator may not do any more that was replaced."""


class Site(Protocol):
    """The clusters of a switch."""

    def read_record(self) -> SwitchRecord | None:
        """Return the stored record; None: there is none. Raises KafkaError, FlowError."""

    def store(self, record: SwitchRecord) -> None:
        """Store the record, the target first. Raises KafkaError; Fenced if another operator has gone on."""

    def facts(self, record: SwitchRecord) -> Facts:
        """Read what the state of the record needs. Raises KafkaError if the target does not answer."""

    def act(self, act: Act, record: SwitchRecord, facts: Facts) -> StepResult:
        """Do one thing. Raises KafkaError, FlowError: it was done, or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one turn of an operator has shown."""

    record: SwitchRecord
    act: Act
    why: str = ""
    """Why it waits, or why a check or step has failed."""


class Operator:
    """Goes on with one switch. Its calls wait for the clusters; use it in one thread."""

    def __init__(
        self, site: Site, terms: Terms, name: str, now_ms: Callable[[], int], machine: Machine = CUTOVER
    ) -> None:
        """``name`` is the operator's, unique; ``now_ms`` returns ms since 1970."""
        self._site: Final = site
        self._terms: Final = terms
        self._name: Final = name
        self._now_ms: Final = now_ms
        self._machine: Final = machine
        self._watch = Watch()
        self._stored_ms = 0
        self._earlier: SwitchRecord | None = None
        """What the operator before this one has stored last, if it may still be alive."""
        self._waits_until_ms = 0
        self.record = SwitchRecord(state=State.PLANNED)

    def claim(self, flows: tuple[str, ...], clusters: tuple[str, ...] = ()) -> SwitchRecord:
        """Take the switch over, or begin it. Earlier operators store nothing from now on.

        ``clusters`` are the ids of the source and of the target; empty where it does not answer.

        Raises KafkaError; FlowError if another command has begun the switch, or if it has begun with other flows, or
        between other clusters.
        """
        found = self._site.read_record()
        if found is None or found.state is State.ROLLED_BACK or (self._is_of_other(found) and not found.has_begun):
            record = replace(begin(flows, self._machine.command, found), clusters=clusters)
        else:
            self.record = found  # also if it cannot be claimed: it says what the switch has come to
            self._check(found, flows, clusters)
            ids = zip_longest(found.clusters, clusters, fillvalue="")
            record = replace(found, clusters=tuple(before or now for before, now in ids))
            if self._terms.rollback and not record.rollback:  # which is stored where one cluster is away
                record = replace(record, rollback="--rollback")
        record = replace(record, generation=record.generation + 1, operator=self._name, left=False)
        if record.state is State.PLANNED and not record.steps:
            record = record.entered(State.PLANNED, self._now_ms())
        self._store(record)
        if found is not None and found.operator and not found.left:
            self._earlier = found
            self._waits_until_ms = self._now_ms() + self._terms.takeover_ms
        return self.record

    def _check(self, found: SwitchRecord, flows: tuple[str, ...], clusters: tuple[str, ...]) -> None:
        name, command = self._terms.name, self._machine.command
        if self._is_of_other(found):
            raise FlowError(f"switch {name} was begun by mirror {found.command}: mirror {command} needs another table")
        if self._terms.rollback and found.state.is_open:
            raise FlowError(f"switch {name} is {found.state}, so it is not rolled back: run it without --rollback")
        if found.flows != flows:
            raise FlowError(f"switch {name} has begun with the flows {', '.join(found.flows)}: restore its flows")
        if found.fences and found.hook_fenced and self._terms.fence != "hook":
            raise FlowError(f'switch {name} has fenced with fence = "hook": restore it, and hook-fence')
        for before, now in zip(found.clusters, clusters, strict=False):
            if before and now and before != now:
                raise FlowError(f"switch {name} has begun with cluster {before}, and {now} answers: correct addresses")

    def _is_of_other(self, found: SwitchRecord) -> bool:
        """Whether a command has begun the switch with whose switches this one does not go on."""
        return found.command is not self._machine.command and found.command not in self._machine.follows

    @property
    def bypassed(self) -> tuple[str, ...]:
        """Partitions that somebody writes to behind the fence."""
        return self._watch.bypassed

    def turn(self) -> Seen:
        """Do the next thing. Raises KafkaError: run it again; Fenced: another operator goes on."""
        facts = self._site.facts(self.record)
        now_ms = self._now_ms()
        if facts.ends is not None and self.record.shown_ms:
            self._watch.see(facts.ends, now_ms, self.record.shown_ms)
        wanted = self._machine.decide(self.record, facts, self._watch, self._terms, now_ms)
        if self._waits(wanted, now_ms):
            most_s = self._terms.takeover_ms // 1000
            why = f"waiting until the last call of an earlier operator has ended ({most_s} s at most)"
            return Seen(record=self.record, act=Act.WAIT, why=why)
        if wanted.record != self.record:
            self._store(wanted.record)
        if wanted.act in {Act.STORE, Act.WAIT, Act.END}:
            return Seen(record=self.record, act=wanted.act, why=wanted.why)
        return self._act(wanted, facts)

    def _waits(self, wanted: Next, now_ms: int) -> bool:
        if self._earlier is None or now_ms >= self._waits_until_ms or wanted.act is Act.END:
            return False
        return may_conflict(self._earlier, wanted)

    def leave(self) -> None:
        """Say that this operator does nothing more; never raises. The next one waits if that is not stored.

        Nothing is said while this one still waits: the next has to wait for the same earlier operator.
        """
        if self._now_ms() < self._waits_until_ms:
            return
        with contextlib.suppress(KafkaError, FlowError):
            self._store(replace(self.record, left=True))

    def _act(self, wanted: Next, facts: Facts) -> Seen:
        if wanted.act in _CHANGES and self._now_ms() - self._stored_ms > LEASE_MS:
            self._store(self.record)  # which fails if another operator has gone on
        try:
            result = self._site.act(wanted.act, self.record, facts)
        except (KafkaError, FlowError) as error:
            if wanted.act is Act.CHECK:
                raise
            # Also Fenced, by another round of the groups: only a record that is fenced is another operator.
            refused = isinstance(error, NotRetriable | AuthorizationFailed)
            result = StepResult(ok=False, why=str(error), retry=not refused)
        after = self._machine.applied(self.record, wanted.act, result, self._now_ms())
        if after != self.record:
            self._store(after)
        return Seen(record=self.record, act=wanted.act, why=result.why or wanted.why)

    def _store(self, record: SwitchRecord) -> None:
        before_ms = self._now_ms()
        self._site.store(record)
        self._stored_ms = before_ms
        self.record = record
