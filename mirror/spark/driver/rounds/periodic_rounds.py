"""Runs the rounds of a flow beside the copies of a stream, in one thread: what fails stops neither these nor others."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

from mirror.errors import Fenced, MirrorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from mirror.spark.driver.rounds.outages import Outages

_LISTING_INTERVAL_MS: Final = 1_000
_LISTING_SHARE: Final = 20
"""Listing what is new each second takes at most a twentieth of a core; else only the rounds do."""
_ROUND_SHARE: Final = 10
"""Rounds of one kind take at most a tenth of a core: those that take longer follow less often."""
_REST_SHARE: Final = 10
"""Between rounds that take as long as the interval, because the clusters are slow, a tenth of it is left."""
_FENCED_WAIT_MS: Final = 30_000
"""After this time the run that fenced this one has ended it, or was itself ended."""
_JOIN_S: Final = 15.0
"""How long the end of a stream waits for the last round."""

R = TypeVar("R")


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
    watches: bool = False
    """Whether what is new on the source ends the wait for the next round."""
    wait_first: bool = False
    """A round was just done: the first one follows after the interval, and none at the end."""


class Rounds(Protocol):
    """What does one round after the other, in one thread."""

    def round(self, kind: str) -> Any:
        """Do a round of the kind with this subject, and return its report. Raises KafkaError, Fenced."""
        ...

    def has_news(self) -> bool:
        """Whether there is something that the last round did not know, and that cannot wait. Raises KafkaError."""
        ...

    def give_way(self) -> None:
        """Let the next round fence the run that has fenced this one."""
        ...

    def fenced(self, kind: str, error: Fenced) -> Any:
        """Return the report of a round that ended with ``error``."""
        ...

    def network_ms(self) -> int:
        """Return the CPU time of the network threads."""
        ...


def one_round(
    open_rounds: Callable[[], AbstractContextManager[Rounds]], kind: RoundKind[Any], warn: Callable[[str], None]
) -> None:
    """Do one round, and report it. A failure fails nothing else: ``warn`` gets a line about each problem."""
    try:
        with open_rounds() as rounds:
            try:
                found = rounds.round(kind.subject)
            except Fenced as error:
                found = rounds.fenced(kind.subject, error)
    except Exception as error:  # noqa: BLE001 - records are copied without it
        found = kind.failed(None, problem_of(error))
    kind.on_report(found)
    for line in kind.problems(found):
        warn(f"{kind.subject}: {line}")


class _Turn:
    """When the next round of one kind is due, and what the last one has reported. Times are in ms."""

    def __init__(self, kind: RoundKind[Any], now_ms: int) -> None:
        self.kind: Final = kind
        self.due_ms = now_ms + (kind.interval_ms if kind.wait_first else 0)
        self.listing_ms = self.due_ms
        """When it is asked next whether there are news; they do not end the wait sooner."""
        self.last: Any = None
        self.warned: frozenset[str] = frozenset()

    def after(self, began_ms: int, now_ms: int, cpu_ms: int) -> None:
        """Set when the next round is due: ``interval_ms`` after the begin of this one, which took so much CPU."""
        rest_ms = max(0, cpu_ms * _ROUND_SHARE - (now_ms - began_ms))
        interval_ms = self.kind.interval_ms
        wait_ms = max(interval_ms - (now_ms - began_ms), interval_ms // _REST_SHARE, rest_ms)
        self.due_ms, self.listing_ms = now_ms + wait_ms, now_ms + max(rest_ms, min(wait_ms, _LISTING_INTERVAL_MS))

    def pause(self, until_ms: int) -> None:
        """Do nothing before this time."""
        self.due_ms = self.listing_ms = max(self.due_ms, until_ms)


class PeriodicRounds:
    """Runs rounds in a thread until the block ends, and by default one more then, for what was copied last.

    A failure stops neither the copies nor later rounds. The next round comes in its time, without backoff: one that
    fails costs no more than one that succeeds. A run that was fenced pauses the rounds of all kinds: they share one
    fence.
    """

    def __init__(
        self,
        open_rounds: Callable[[], AbstractContextManager[Rounds]],
        kinds: Sequence[RoundKind[Any]],
        warn: Callable[[str], None],
        *,
        outages: Outages | None = None,
    ) -> None:
        """``warn`` is called from the thread, once for each new problem, as the kinds are.

        ``outages`` reports that a cluster does not answer.
        """
        self._open: Final = open_rounds
        self._warn: Final = warn
        self._outages: Final = outages
        self._stopped: Final = threading.Event()
        self._turns: Final = [_Turn(kind, _now_ms()) for kind in kinds]
        self._thread: Final = threading.Thread(target=self._run, name="mirror-rounds", daemon=True)

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
                        if not self._step(rounds):
                            break  # with new clients
                    else:
                        for turn in self._turns:
                            if not turn.kind.wait_first:
                                self._round(rounds, turn)
            except Exception as error:  # noqa: BLE001 - without this thread no later round would run
                for turn in self._turns:
                    self._failed(turn, error)
                    turn.pause(_now_ms() + turn.kind.interval_ms)
                self._stopped.wait(min(turn.kind.interval_ms for turn in self._turns) / 1000)

    def _step(self, rounds: Rounds) -> bool:
        """Do the round that is due, or wait for the next one, or until there are news; return whether to go on."""
        now_ms = _now_ms()
        turn = min(self._turns, key=lambda one: one.due_ms)
        if turn.due_ms <= now_ms:
            return self._round(rounds, turn)
        watching = [one for one in self._turns if one.kind.watches and one.listing_ms < one.due_ms]
        for one in watching:
            if one.listing_ms <= now_ms:
                self._look(rounds, one)
                return True
        self._stopped.wait((min([turn.due_ms, *(one.listing_ms for one in watching)]) - now_ms) / 1000)
        return True

    def _round(self, rounds: Rounds, turn: _Turn) -> bool:
        """Run one round, and set when the next one is due; return whether it has not failed for an unknown reason."""
        began_ms, began_cpu_ms = _now_ms(), _cpu_ms(rounds)
        try:
            report = rounds.round(turn.kind.subject)
            if self._outages is not None:
                self._outages.recovered(turn.kind.subject)
            self._report(turn, report)
        except Fenced as error:
            self._report(turn, rounds.fenced(turn.kind.subject, error))
            rounds.give_way()
            for each in self._turns:
                each.pause(_now_ms() + _FENCED_WAIT_MS)
            return True
        except Exception as error:  # noqa: BLE001 - without this thread no later round would run
            self._failed(turn, error)
            turn.after(began_ms, _now_ms(), 0)
            return isinstance(error, MirrorError)
        turn.after(began_ms, _now_ms(), _cpu_ms(rounds) - began_cpu_ms)
        return True

    def _look(self, rounds: Rounds, turn: _Turn) -> None:
        """Have the next round begin if there are news."""
        began_ms = _cpu_ms(rounds)
        try:
            if rounds.has_news():
                turn.due_ms = _now_ms()
            turn.listing_ms = _now_ms() + max(_LISTING_INTERVAL_MS, (_cpu_ms(rounds) - began_ms) * _LISTING_SHARE)
        except MirrorError:
            turn.listing_ms = turn.due_ms  # the next round reports it, in its time

    def _report(self, turn: _Turn, report: Any, *, warns: bool = True) -> None:
        """Report a round, and warn of what is new in it. Errors of both are kept from the rounds."""
        turn.last, kind = report, turn.kind
        problems = frozenset(kind.problems(report))
        try:
            kind.on_report(report)
        except Exception as error:  # noqa: BLE001 - a full disk must not end the rounds
            problems |= {f"the state of the {kind.subject} could not be reported: {problem_of(error)}"}
        with contextlib.suppress(Exception):  # what is not printed now is a new problem in the next round
            for line in sorted(problems - turn.warned) if warns else ():
                self._warn(f"{kind.subject}: {line}")
            turn.warned = problems

    def _failed(self, turn: _Turn, error: Exception) -> None:
        reported = self._outages is not None and self._outages.failed(turn.kind.subject, error)
        self._report(turn, turn.kind.failed(turn.last, problem_of(error)), warns=not reported)


def problem_of(error: Exception) -> str:
    """Return the line about ``error`` in a report; it begins with the type of an error that is not expected."""
    return str(error) if isinstance(error, MirrorError) else f"{type(error).__name__}: {error}"


def _cpu_ms(rounds: Rounds) -> int:
    return time.thread_time_ns() // 1_000_000 + rounds.network_ms()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
