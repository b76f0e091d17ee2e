"""What is printed while a cluster does not answer: one line then, ever fewer, and one when it answers again.

All that the flows of the cluster do beside their copies fails then, each with an error of its own, and again every
minute.
"""

from __future__ import annotations

import re
import threading
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from mirror.errors import MAX_NAMES_SHOWN, brief, is_outage
from mirror.telemetry.report.format import span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_FIRST_PAUSE_S: Final = 60.0
_GROWTH: Final = 2
"""Each pause is at least this part (a half) of the time that the outage has taken."""
_LONGEST_PAUSE_S: Final = 3_600.0
UNKNOWN: Final = "a cluster"


class _Waiting(NamedTuple):
    """What waits for a cluster."""

    flow: str
    subject: str


class Outage:
    """One cluster that does not answer. Pure: times are in s, of one clock."""

    def __init__(self, cluster: str, began_s: float) -> None:
        self.waiting = dict[_Waiting, float]()
        """What waits for the cluster, and since when."""
        self._late = dict[_Waiting, float]()
        self._cluster: Final = cluster
        self._began_s = began_s
        self._due_s: float | None = None

    def take(self, flow: str, unknown: Outage) -> None:
        """Take what waits of ``flow`` from the outage of a cluster that was not known: it was this one."""
        if not (moved := _of(flow, unknown.waiting)):
            return
        self.waiting, self._late = moved | self.waiting, _of(flow, unknown._late) | self._late
        unknown.leave(flow)
        self._began_s = min(self._began_s, *moved.values())
        unknown._began_s = min(unknown.waiting.values(), default=unknown._began_s)
        self._due_s = unknown._due_s if self._due_s is None else self._due_s

    def leave(self, flow: str) -> None:
        """Forget what waits of ``flow``, and what was late."""
        for times in (self.waiting, self._late):
            for one in _of(flow, times):
                del times[one]

    def failed(self, waiting: _Waiting, error: str, now_s: float, wall: datetime) -> str | None:
        """Note that something waits; return the line that is due. ``wall`` is the same time as ``now_s``, to show."""
        self.waiting.setdefault(waiting, now_s)
        if self._due_s is not None and now_s < self._due_s:
            return None
        took_s, is_first = now_s - self._began_s, self._due_s is None
        self._due_s = now_s + min(_LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, took_s / _GROWTH))
        since = f"since {wall - timedelta(seconds=took_s):%H:%M:%S}"
        since = since if is_first else f"for {span(1000 * took_s)}, {since}"
        what = _by_flow({one: one.subject for one in self.waiting})
        return f"{self._cluster} does not answer, {since}; what waits for it: {what} ({brief(error)})"

    def recovered(self, waiting: _Waiting, now_s: float) -> str | None:
        """Note that something waits no longer; return the last line once nothing does."""
        if (since_s := self.waiting.pop(waiting, None)) is None:
            return None
        self._late[waiting] = now_s - since_s
        if self.waiting:
            return None
        late = _by_flow({one: f"{one.subject} ({span(1000 * late_s)})" for one, late_s in self._late.items()})
        return f"{self._cluster} answers again, after {span(1000 * (now_s - self._began_s))}; what was late: {late}"


class ClusterOutages:
    """The outages of the clusters of all flows. Thread-safe; ``warn`` and ``report`` are called from all threads."""

    def __init__(self, warn: Callable[[str], None], report: Callable[[str], None], now_s: Callable[[], float]) -> None:
        self._warn: Final = warn
        self._report: Final = report
        self._now_s: Final = now_s
        self._lock: Final = threading.Lock()
        self._outages: Final = dict[str, Outage]()
        self._addresses: Final = dict[str, str]()

    def learn(self, cluster: str, addresses: Iterable[str]) -> None:
        """Take errors that name one of the ``addresses`` (``host:port``) for errors of ``cluster``."""
        with self._lock:
            self._addresses.update((address.strip(), cluster) for address in addresses)

    def failed(
        self, waiting: _Waiting, clusters: Iterable[str], error: BaseException, has_left: threading.Event
    ) -> None:
        """Note that something has failed because one of its ``clusters`` is away, and print the line that is due.

        That of a run that ``has_left`` is not noted: nothing would take it back.
        """
        text = str(error)
        with self._lock:
            if has_left.is_set():
                return
            cluster = self._named(text) or self._only_away(clusters) or UNKNOWN
            now_s = self._now_s()
            outage = self._outages.setdefault(cluster, Outage(cluster, now_s))
            if cluster != UNKNOWN and UNKNOWN in self._outages:
                outage.take(waiting.flow, self._outages[UNKNOWN])
            line = outage.failed(waiting, text, now_s, datetime.now().astimezone())
            self._forget_ended()
        if line is not None:
            self._warn(line)

    def _named(self, text: str) -> str | None:
        """Return the cluster one of whose addresses ``text`` has."""
        return next((name for address, name in self._addresses.items() if _names(text, address)), None)

    def _only_away(self, clusters: Iterable[str]) -> str | None:
        """Return the one of ``clusters`` that is away: a timeout of a call that got no connection names no address."""
        away = [name for name in clusters if name in self._outages]
        return away[0] if len(away) == 1 else None

    def recovered(self, waiting: _Waiting) -> bool:
        """Note that something has succeeded, or failed for another reason; return whether it has waited."""
        with self._lock:
            waited = any(waiting in outage.waiting for outage in self._outages.values())
            lines = [outage.recovered(waiting, self._now_s()) for outage in self._outages.values()]
            self._forget_ended()
        for line in filter(None, lines):
            self._report(line)
        return waited

    def leave(self, flow: str, has_left: threading.Event) -> None:
        """Forget what waits of a flow whose run has ended: whether its clusters answer is not known any more."""
        with self._lock:
            has_left.set()
            for outage in self._outages.values():
                outage.leave(flow)
            self._forget_ended()

    def _forget_ended(self) -> None:
        for cluster in [name for name, outage in self._outages.items() if not outage.waiting]:
            del self._outages[cluster]


class Outages:
    """The outages that one run of a flow meets. Thread-safe."""

    def __init__(self, outages: ClusterOutages, flow: str, addresses: Mapping[str, str]) -> None:
        """``addresses`` are the ``bootstrap.servers`` of the flow's clusters, by name."""
        self._outages: Final = outages
        self._flow: Final = flow
        self._has_left: Final = threading.Event()
        self._clusters: Final = [f"cluster {name}" for name in addresses]
        for name, each in addresses.items():
            self.learn(name, each.split(","))

    def learn(self, cluster: str, addresses: Iterable[str]) -> None:
        """Take errors that name one of the ``addresses`` (``host:port``) for errors of ``cluster``.

        Brokers advertise other addresses than those of ``bootstrap.servers``, and errors name these.
        """
        self._outages.learn(f"cluster {cluster}", addresses)

    def failed(self, subject: str, error: BaseException) -> bool:
        """Note that ``subject`` has failed; return whether that is because a cluster is away, and is reported here."""
        if not is_outage(error):
            self.recovered(subject)
            return False
        self._outages.failed(_Waiting(self._flow, subject), self._clusters, error, self._has_left)
        return True

    def recovered(self, subject: str) -> bool:
        """Note that ``subject`` has succeeded, or failed for another reason; return whether it has waited."""
        return self._outages.recovered(_Waiting(self._flow, subject))

    def leave(self) -> None:
        """Forget what waits, and note no more: the run has ended."""
        self._outages.leave(self._flow, self._has_left)


def _of(flow: str, times: Mapping[_Waiting, float]) -> dict[_Waiting, float]:
    return {one: time_s for one, time_s in times.items() if one.flow == flow}


def _by_flow(texts: Mapping[_Waiting, str]) -> str:
    """Return the texts, flow by flow."""
    flows: dict[str, list[str]] = {}
    for waiting, text in texts.items():
        flows.setdefault(waiting.flow, []).append(text)
    shown = [f"flow {flow}: {', '.join(found)}" for flow, found in list(flows.items())[:MAX_NAMES_SHOWN]]
    more = len(flows) - len(shown)
    return "; ".join([*shown, *([f"and {more} more flows"] if more else [])])


def _names(text: str, address: str) -> bool:
    """Return whether ``text`` names ``address``, and not another one that begins or ends with it."""
    return re.search(rf"(?<![\w.-]){re.escape(address)}(?!\d)", text) is not None
