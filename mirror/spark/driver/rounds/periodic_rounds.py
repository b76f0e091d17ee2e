"""Runs rounds beside the copies of a stream, in a thread: what fails stops neither the copies nor later rounds."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, Self, TypeVar

from mirror.errors import Fenced, MirrorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from types import TracebackType

    from mirror.spark.driver.rounds.outages import Outages

_LISTING_INTERVAL_MS: Final = 1_000
_LISTING_SHARE: Final = 20
"""Listing what is new each second takes at most a twentieth of a core; else only the rounds do."""
_ROUND_SHARE: Final = 10
"""Rounds take at most a tenth of a core: those that take longer follow less often."""
_REST_SHARE: Final = 10
"""Between rounds that take as long as the interval, because the clusters are slow, a tenth of it is left."""
_FENCED_WAIT_MS: Final = 30_000
"""After this time the run that fenced this one has ended it, or was itself ended."""
_JOIN_S: Final = 15.0
"""How long the end of a stream waits for the last round."""

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class Rounds(Protocol[R_co]):
    """What does one round after the other, in one thread."""

    def round(self) -> R_co:
        """Bring what has changed to the target. Raises KafkaError, Fenced."""
        ...

    def has_news(self) -> bool:
        """Whether there is something that the last round did not know, and that cannot wait. Raises KafkaError."""
        ...

    def give_way(self) -> None:
        """Let the next round fence the run that has fenced this one."""
        ...

    def fenced(self, error: Fenced) -> R_co:
        """Return the report of a round that ended with ``error``."""
        ...

    def network_ms(self) -> int:
        """Return the CPU time of the network threads."""
        ...


class Reports(Protocol[R]):
    """How the reports of rounds are shown."""

    subject: str
    """What the rounds are about, as the beginning of a warning."""

    def problems(self, report: R) -> Iterable[str]:
        """Return the lines to warn of, once each."""
        ...

    def failed(self, last: R | None, problem: str) -> R:
        """Return the report of a round that failed, after the ``last`` report."""
        ...


def one_round(
    open_rounds: Callable[[], AbstractContextManager[Rounds[R]]], reports: Reports[R], warn: Callable[[str], None]
) -> R:
    """Do one round, and return its report. A failure fails nothing else: ``warn`` gets a line about each problem."""
    try:
        with open_rounds() as rounds:
            try:
                found = rounds.round()
            except Fenced as error:
                found = rounds.fenced(error)
    except Exception as error:  # noqa: BLE001 - records are copied without it
        found = reports.failed(None, problem_of(error))
    for line in reports.problems(found):
        warn(f"{reports.subject}: {line}")
    return found


@dataclass(frozen=True, slots=True)
class Pause:
    """The time until the next round, in ms."""

    longest_ms: int
    shortest_ms: int = 0
    """News do not end it sooner."""


class PeriodicRounds(Generic[R]):
    """Runs rounds in a thread until the block ends, and by default one more then, for what was copied last.

    A failure stops neither the copies nor later rounds. The next round comes in its time, without backoff: one that
    fails costs no more than one that succeeds.
    """

    def __init__(
        self,
        open_rounds: Callable[[], AbstractContextManager[Rounds[R]]],
        interval_ms: int,
        on_report: Callable[[R], None],
        warn: Callable[[str], None],
        reports: Reports[R],
        *,
        wait_first: bool = False,
        outages: Outages | None = None,
    ) -> None:
        """``on_report`` and ``warn`` are called from the thread; ``warn`` once for each new problem.

        ``outages`` reports that a cluster does not answer.
        ``wait_first``: a round was just done. The first one follows after the interval, and none at the end.
        """
        self._open: Final = open_rounds
        self._interval_ms: Final = interval_ms
        self._on_report: Final = on_report
        self._warn: Final = warn
        self._reports: Final = reports
        self._wait_first: Final = wait_first
        self._outages: Final = outages
        self._stopped: Final = threading.Event()
        self._last: R | None = None
        self._warned: frozenset[str] = frozenset()
        self._thread: Final = threading.Thread(target=self._run, name=f"mirror-{reports.subject}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        if self._wait_first:
            self._stopped.wait(self._interval_ms / 1000)
        while not self._stopped.is_set():
            try:
                with self._open() as rounds:
                    while not self._stopped.is_set():
                        self._wait(rounds, self._round(rounds))
                    if not self._wait_first:
                        self._round(rounds)
            except Exception as error:  # noqa: BLE001 - without this thread no later round would run
                self._failed(error)
                self._stopped.wait(self._interval_ms / 1000)

    def _round(self, rounds: Rounds[R]) -> Pause:
        """Run one round; return how long to wait for the next one, which is due ``interval_ms`` after its begin."""
        began_ms, began_cpu_ms = _now_ms(), _cpu_ms(rounds)
        try:
            self._succeeded(rounds.round())
        except Fenced as error:
            self._report(rounds.fenced(error))
            rounds.give_way()
            return Pause(_FENCED_WAIT_MS, shortest_ms=_FENCED_WAIT_MS)
        except MirrorError as error:
            self._failed(error)
        took_ms = _now_ms() - began_ms
        shortest_ms = max(0, (_cpu_ms(rounds) - began_cpu_ms) * _ROUND_SHARE - took_ms)
        return Pause(max(self._interval_ms - took_ms, self._interval_ms // _REST_SHARE, shortest_ms), shortest_ms)

    def _wait(self, rounds: Rounds[R], pause: Pause) -> None:
        """Wait for the next round, or until there are news."""
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
                if rounds.has_news():
                    return
            except MirrorError:
                listing_ms = left_ms  # the next round reports it, in its time
                continue
            listing_ms = max(_LISTING_INTERVAL_MS, (_cpu_ms(rounds) - began_ms) * _LISTING_SHARE)

    def _succeeded(self, report: R) -> None:
        if self._outages is not None:
            self._outages.recovered(self._reports.subject)
        self._report(report)

    def _report(self, report: R, *, warns: bool = True) -> None:
        """Report a round, and warn of what is new in it. Errors of both are kept from the rounds."""
        self._last = report
        problems = frozenset(self._reports.problems(report))
        try:
            self._on_report(report)
        except Exception as error:  # noqa: BLE001 - a full disk must not end the rounds
            subject = self._reports.subject
            problems |= {f"the state of the {subject} could not be reported: {problem_of(error)}"}
        with contextlib.suppress(Exception):  # what is not printed now is a new problem in the next round
            for line in sorted(problems - self._warned) if warns else ():
                self._warn(f"{self._reports.subject}: {line}")
            self._warned = problems

    def _failed(self, error: Exception) -> None:
        reported = self._outages is not None and self._outages.failed(self._reports.subject, error)
        self._report(self._reports.failed(self._last, problem_of(error)), warns=not reported)


def problem_of(error: Exception) -> str:
    """Return the line about ``error`` in a report; it begins with the type of an error that is not expected."""
    return str(error) if isinstance(error, MirrorError) else f"{type(error).__name__}: {error}"


def _cpu_ms(rounds: Rounds[R]) -> int:
    return time.thread_time_ns() // 1_000_000 + rounds.network_ms()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
