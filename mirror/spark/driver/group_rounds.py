"""Brings consumer groups to the target: at the end of a scheduled run, and in a thread of a stream's driver."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, Self

from mirror.config.flow_rules import source_options, target_options
from mirror.errors import Fenced, MirrorError
from mirror.groups.own_groups import is_own_group
from mirror.groups.positions import GroupsReport
from mirror.groups.routes import CopyingFlow, Partners
from mirror.groups.rules import GroupRules
from mirror.groups.sync import GroupSync
from mirror.runtime.clock import SystemClock
from mirror.spark.planning.range_planner import source_topic_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

    from mirror.config.models import FlowConfig, MirrorConfig

_LISTING_INTERVAL_MS: Final = 1_000
_LISTING_SHARE: Final = 20
"""Listing the groups each second takes at most a twentieth of a core; else only the rounds do."""
_ROUND_SHARE: Final = 10
"""Rounds take at most a tenth of a core: those that take longer follow less often."""
_REST_SHARE: Final = 10
"""Between rounds that take as long as the interval, because the clusters are slow, a tenth of it is left."""
_FENCED_WAIT_MS: Final = 30_000
"""After this time the run that fenced this one has ended it, or was itself ended."""
_KNOWN_NAMES: Final = 50_000
"""Groups and topics whose names are matched with a flow's patterns once."""
_JOIN_S: Final = 15.0
"""How long the end of a stream waits for the last round."""


def open_sync(config: MirrorConfig, flow: FlowConfig, *, beside_copies: bool = False) -> GroupSync:
    """Return the rounds of ``flow``, to be closed. Raises MirrorError."""
    rules = rules_of(flow, patience_ms=flow.groups.interval_ms if beside_copies else 0)
    options = source_options(config, flow), target_options(config, flow)
    partners = partners_of(config, flow)
    return GroupSync(flow.name, *options, flow.copy_policy(), rules, SystemClock(), partners)


def rules_of(flow: FlowConfig, *, patience_ms: int = 0) -> GroupRules:
    """Return which groups and topics ``flow`` brings to its target; ``patience_ms`` is that of :class:`GroupRules`."""

    def target_topic(topic: str) -> str | None:
        return flow.target_topic(topic) if flow.includes(topic) else None

    # Each round asks for each partition of a group; matching the patterns took a sixth of its CPU time.
    known = functools.lru_cache(_KNOWN_NAMES)
    return GroupRules(
        includes=known(lambda group: flow.groups.includes(group) and not is_own_group(group)),
        target_topic=known(target_topic),
        source_topic=known(lambda topic: source_topic_for(flow, topic)),
        delete=flow.groups.on_group_deleted == "delete",
        patience_ms=patience_ms,
    )


def partners_of(config: MirrorConfig, flow: FlowConfig) -> Partners:
    """Return the flows in the other direction that concern the groups of ``flow``.

    The first flow of a direction that brings groups over does it for all copies that came the other way.
    """
    opposite = _first_opposite(config, flow)
    copying = [other for other in config.flows.values() if _first_opposite(config, other) is flow]
    return Partners(
        opposite=None if opposite is None else opposite.name,
        copying=tuple(
            CopyingFlow(
                name=other.name,
                source_options=source_options(config, other),
                target_options=target_options(config, other),
                policy=other.copy_policy(),
                rules=rules_of(other),
                writes=other.groups.sync,
            )
            for other in copying
        ),
    )


def _first_opposite(config: MirrorConfig, flow: FlowConfig) -> FlowConfig | None:
    ends = (flow.target, flow.source)
    return next((one for one in config.flows.values() if (one.source, one.target) == ends and one.groups.sync), None)


class Rounds(Protocol):
    """The part of :class:`GroupSync` that is needed."""

    def round(self) -> GroupsReport:
        """Bring what has changed to the target. Raises KafkaError, Fenced."""
        ...

    def has_new_groups(self) -> bool:
        """Whether there are groups that the last round did not know. Raises KafkaError."""
        ...

    def give_way(self) -> None:
        """Let the next round fence the run that has fenced this one."""
        ...

    def fenced(self, error: Fenced) -> GroupsReport:
        """Return the report of a round that ended with ``error``."""
        ...

    def network_ms(self) -> int:
        """Return the CPU time of the network threads."""
        ...


@dataclass(frozen=True, slots=True)
class Pause:
    """The time until the next round, in ms."""

    longest_ms: int
    shortest_ms: int = 0
    """New groups do not end it sooner."""


class GroupRounds:
    """Runs rounds in a thread until the block ends, and one more then, for what was copied last.

    A failure stops neither the copies nor later rounds.
    """

    def __init__(
        self,
        open_rounds: Callable[[], AbstractContextManager[Rounds]],
        interval_ms: int,
        on_report: Callable[[GroupsReport], None],
        warn: Callable[[str], None],
    ) -> None:
        """``on_report`` and ``warn`` are called from the thread; ``warn`` once for each new problem."""
        self._open: Final = open_rounds
        self._interval_ms: Final = interval_ms
        self._on_report: Final = on_report
        self._warn: Final = warn
        self._stopped: Final = threading.Event()
        self._last = GroupsReport()
        self._warned: frozenset[str] = frozenset()
        self._thread: Final = threading.Thread(target=self._run, name="mirror-groups", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._open() as rounds:
                    while not self._stopped.is_set():
                        self._wait(rounds, self._round(rounds))
                    self._round(rounds)
            except Exception as error:  # noqa: BLE001 - without this thread no later round would run
                self._failed(error)
                self._stopped.wait(self._interval_ms / 1000)

    def _round(self, rounds: Rounds) -> Pause:
        """Run one round; return how long to wait for the next one, which is due ``interval_ms`` after its begin."""
        began_ms, began_cpu_ms = _now_ms(), _cpu_ms(rounds)
        try:
            self._report(rounds.round())
        except Fenced as error:
            self._report(rounds.fenced(error))
            rounds.give_way()
            return Pause(_FENCED_WAIT_MS, shortest_ms=_FENCED_WAIT_MS)
        except MirrorError as error:
            self._failed(error)
        took_ms = _now_ms() - began_ms
        shortest_ms = max(0, (_cpu_ms(rounds) - began_cpu_ms) * _ROUND_SHARE - took_ms)
        return Pause(max(self._interval_ms - took_ms, self._interval_ms // _REST_SHARE, shortest_ms), shortest_ms)

    def _wait(self, rounds: Rounds, pause: Pause) -> None:
        """Wait for the next round, or until the source has new groups."""
        until_ms = _now_ms() + pause.longest_ms
        if self._stopped.wait(pause.shortest_ms / 1000):
            return
        listing_ms = _LISTING_INTERVAL_MS
        while (left_ms := until_ms - _now_ms()) > 0:
            if self._stopped.wait(min(left_ms, listing_ms) / 1000):
                return
            if left_ms <= listing_ms:
                continue
            began_ms = _cpu_ms(rounds)
            try:
                if rounds.has_new_groups():
                    return
            except MirrorError:
                return  # the round reports it
            listing_ms = max(_LISTING_INTERVAL_MS, (_cpu_ms(rounds) - began_ms) * _LISTING_SHARE)

    def _report(self, report: GroupsReport) -> None:
        """Report a round, and warn of what is new in it. Errors of both are kept from the rounds."""
        self._last = report
        problems = frozenset(report.problems)
        try:
            self._on_report(report)
        except Exception as error:  # noqa: BLE001 - a full disk must not end the rounds
            problems |= {f"the state of the groups could not be reported: {problem_of(error)}"}
        with contextlib.suppress(Exception):  # what is not printed now is a new problem in the next round
            for line in sorted(problems - self._warned):
                self._warn(f"consumer groups: {line}")
            self._warned = problems

    def _failed(self, error: Exception) -> None:
        self._report(self._last.failed(problem_of(error), SystemClock().unix_ms()))


def problem_of(error: Exception) -> str:
    """Return the line about ``error`` in a report; it begins with the type of an error that is not expected."""
    return str(error) if isinstance(error, MirrorError) else f"{type(error).__name__}: {error}"


def _cpu_ms(rounds: Rounds) -> int:
    return time.thread_time_ns() // 1_000_000 + rounds.network_ms()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
