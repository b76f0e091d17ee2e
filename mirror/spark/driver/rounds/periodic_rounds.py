"""Runs rounds of a flow beside the copies of a stream, in a thread: what fails stops neither these nor later ones."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Protocol, Self, TypeVar

from mirror.errors import Fenced, FlowHeld, LatchMoved, MirrorError, is_outage, problem_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType

    from mirror.spark.driver.rounds.outages import Outages

_NEWS_SHARE: Final = 20
"""Asking for news takes at most a twentieth of a core; else only the rounds do."""
ROUND_SHARE: Final = 10
"""Rounds of one kind take at most a tenth of a core: those that take longer follow less often."""
_REST_SHARE: Final = 10
"""Between rounds that take as long as the interval, because the clusters are slow, a tenth of it is left."""
_FENCED_WAIT_MS: Final = 30_000
"""After this time the run that fenced this one has ended it, or was itself ended."""
_JOIN_S: Final = 15.0
"""How long the end of a stream waits for the last round."""
_HELD_JOIN_S: Final = 1.0
"""The same where the flow is held: what holds it has fenced the rounds, and one that asks a source which is away takes
20 s, for which a failover would wait."""

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundKind(Generic[R]):
    """One kind of rounds: how often there is one, and what becomes of its reports."""

    subject: str
    """What the rounds are about, as the beginning of a warning."""
    interval_ms: int
    on_report: Callable[[R], None]
    problems: Callable[[R], Iterable[str]]
    """The lines to warn of, once each."""
    failed: Callable[[R | None, str], R]
    """The report of a round that failed, after the last report."""
    errors: Callable[[R], Mapping[str, Exception]] = field(default=lambda _: {})
    """Why parts of a round have failed, by the lines of these in ``problems``."""
    news_ms: int = 0
    """How often it is asked whether there are news, which end the wait for the next round; 0: never."""
    share: Callable[[R], int] = field(default=lambda _: ROUND_SHARE)
    """Rounds with such a report take at most one of so many parts of a core."""
    wait_first: bool = False
    """A round was just done: the first one follows after the interval, and none at the end."""
    ends_with_hold: bool = True
    """What holds the flow has fenced the rounds: the last one would be refused."""


class Rounds(Protocol[R_co]):
    """What does one round after the other, in one thread."""

    def round(self, *, last: bool = False) -> R_co:
        """Bring what has changed to the target, and return the report; the ``last`` one leaves nothing to a later one.

        Raises KafkaError, and Fenced if another run has fenced this one: the next round fences that one.
        """
        ...

    def has_news(self) -> bool:
        """Whether there is something that the last round did not know, and that cannot wait. Raises KafkaError."""
        ...

    def fenced(self, error: Fenced, /) -> R_co:
        """Return the report of a round that ended with ``error``."""
        ...

    def network_ms(self) -> int:
        """Return the CPU time of the network threads."""
        ...


def one_round(
    open_rounds: Callable[[], AbstractContextManager[Rounds[R]]], kind: RoundKind[R], warn: Callable[[str], None]
) -> None:
    """Do one round, and report it. A failure fails nothing else: ``warn`` gets a line about each problem."""
    try:
        with open_rounds() as rounds:
            try:
                found = rounds.round()
            except Fenced as error:
                found = rounds.fenced(error)
    except Exception as error:  # noqa: BLE001 - records are copied without it
        found = kind.failed(None, problem_of(error))
    kind.on_report(found)
    for line in kind.problems(found):
        warn(f"{kind.subject}: {line}")


class _Schedule:
    """When the next round is due. Times are in ms."""

    def __init__(self, interval_ms: int, news_ms: int, due_ms: int) -> None:
        self._interval_ms: Final = interval_ms
        self._news_ms: Final = news_ms
        self.due_ms = due_ms
        self.news_ms = due_ms
        """When it is asked next whether there are news; they do not end the wait sooner."""

    def after(self, began_ms: int, now_ms: int, cpu_ms: int, share: int = ROUND_SHARE) -> None:
        """Set when the next round is due: ``interval_ms`` after the begin of this one, which took so much CPU."""
        rest_ms = max(0, cpu_ms * share - (now_ms - began_ms))
        wait_ms = max(self._interval_ms - (now_ms - began_ms), self._interval_ms // _REST_SHARE, rest_ms)
        self.due_ms, self.news_ms = now_ms + wait_ms, now_ms + max(rest_ms, min(wait_ms, self._news_ms))

    def asked(self, now_ms: int, cpu_ms: int) -> None:
        """Set when it is asked for news again, which took so much CPU."""
        self.news_ms = now_ms + max(self._news_ms, cpu_ms * _NEWS_SHARE)

    def pause(self, until_ms: int) -> None:
        """Do nothing before this time."""
        self.due_ms = self.news_ms = until_ms


class PeriodicRounds(Generic[R]):
    """Runs rounds in a thread until the block ends, and by default one more then, for what was copied last.

    There is none if the flow is held and that has fenced the rounds.

    A failure stops neither the copies nor later rounds. The next round comes in its time, without backoff: one that
    fails costs no more than one that succeeds.
    """

    def __init__(
        self,
        open_rounds: Callable[[], AbstractContextManager[Rounds[R]]],
        kind: RoundKind[R],
        warn: Callable[[str], None],
        *,
        outages: Outages | None = None,
    ) -> None:
        """``warn`` is called from the thread, once for each new problem, as ``kind`` is.

        ``outages`` reports that a cluster does not answer.
        """
        self._open: Final = open_rounds
        self._kind: Final = kind
        self._warn: Final = warn
        self._outages: Final = outages
        self._stopped: Final = threading.Event()
        self._is_held = False
        due_ms = _now_ms() + (kind.interval_ms if kind.wait_first else 0)
        self._schedule: Final = _Schedule(kind.interval_ms, kind.news_ms, due_ms)
        self._last: R | None = None
        self._warned: frozenset[str] = frozenset()
        self._thread: Final = threading.Thread(target=self._run, name=f"mirror-{kind.subject}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end(error)
        self._thread.join(_JOIN_S if not self._is_held else _HELD_JOIN_S)

    def end(self, error: BaseException | None) -> None:
        """Have it end, which the end of the block waits for; ``error`` is what ends the block."""
        if self._kind.ends_with_hold and isinstance(error, FlowHeld | LatchMoved):
            self._is_held = True  # before the thread sees that it is to end
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._open() as rounds:
                    while not self._stopped.is_set():
                        if not self._step(rounds):
                            break  # with new clients
                    else:
                        if not (self._kind.wait_first or self._is_held):
                            self._round(rounds, last=True)
            except Exception as error:  # noqa: BLE001 - without this thread no later round would run
                self._failed(error)
                self._stopped.wait(self._kind.interval_ms / 1000)

    def _step(self, rounds: Rounds[R]) -> bool:
        """Do the round that is due, or wait for it, or until there are news; return whether to go on."""
        now_ms, due_ms = _now_ms(), self._schedule.due_ms
        if due_ms <= now_ms:
            return self._round(rounds)
        if self._kind.news_ms:
            if self._schedule.news_ms <= now_ms:
                self._look(rounds)
                return True
            due_ms = min(due_ms, self._schedule.news_ms)
        self._stopped.wait((due_ms - now_ms) / 1000)
        return True

    def _round(self, rounds: Rounds[R], *, last: bool = False) -> bool:
        """Run one round, and set when the next one is due; return whether it has not failed for an unknown reason."""
        began_ms, began_cpu_ms = _now_ms(), _cpu_ms(rounds)
        try:
            report = rounds.round(last=last)
            errors = self._kind.errors(report)
            self._report(report, errors)
        except Fenced as error:
            report = rounds.fenced(error)
            self._report(report, self._kind.errors(report))
            self._schedule.pause(_now_ms() + _FENCED_WAIT_MS)
            return True
        except Exception as error:  # noqa: BLE001 - without this thread no later round would run
            self._failed(error)
            self._schedule.after(began_ms, _now_ms(), 0)
            return isinstance(error, MirrorError)
        self._schedule.after(began_ms, _now_ms(), _cpu_ms(rounds) - began_cpu_ms, self._kind.share(report))
        return all(isinstance(error, MirrorError) for error in errors.values())

    def _look(self, rounds: Rounds[R]) -> None:
        """Have the next round begin if there are news."""
        began_ms, schedule = _cpu_ms(rounds), self._schedule
        try:
            if rounds.has_news():
                schedule.due_ms = _now_ms()
            schedule.asked(_now_ms(), _cpu_ms(rounds) - began_ms)
        except MirrorError:
            schedule.news_ms = schedule.due_ms  # the next round reports it, in its time

    def _report(self, report: R, errors: Mapping[str, Exception]) -> None:
        """Report a round, and warn of what is new in it. Errors of both are kept from the rounds."""
        self._last, kind = report, self._kind
        problems, away = frozenset(kind.problems(report)), self._away(errors)
        try:
            kind.on_report(report)
        except Exception as error:  # noqa: BLE001 - a full disk must not end the rounds
            problems |= {f"the state of the {kind.subject} could not be reported: {problem_of(error)}"}
        with contextlib.suppress(Exception):  # what is not printed now is a new problem in the next round
            for line in sorted(problems - self._warned - away):
                self._warn(f"{kind.subject}: {line}")
            self._warned = problems

    def _failed(self, error: Exception) -> None:
        problem = problem_of(error)
        self._report(self._kind.failed(self._last, problem), {problem: error})

    def _away(self, errors: Mapping[str, Exception]) -> frozenset[str]:
        """Report that clusters do not answer, or do again; return the lines that are not to be printed beside that."""
        if self._outages is None:
            return frozenset()
        away = {line: error for line, error in errors.items() if is_outage(error)}
        for error in away.values():
            self._outages.failed(self._kind.subject, error)
        if not away:
            self._outages.recovered(self._kind.subject)
        return frozenset(away)


def _cpu_ms(rounds: Rounds[R]) -> int:
    return time.thread_time_ns() // 1_000_000 + rounds.network_ms()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
