"""What a stream prints while a cluster does not answer: one line then, ever fewer, and one when it answers again.

All that a flow does beside its copies fails then, each with an error of its own, and again every minute.
"""

from __future__ import annotations

import re
import threading
from datetime import datetime
from typing import TYPE_CHECKING, Final

from mirror.errors import brief, is_outage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_FIRST_PAUSE_S: Final = 60.0
_GROWTH: Final = 2
"""Each pause is at least this part (a half) of the time that the outage has taken."""
_LONGEST_PAUSE_S: Final = 3_600.0
UNKNOWN: Final = "a cluster"


class Outage:
    """One cluster that does not answer. Pure: times are in s, of one clock."""

    def __init__(self, cluster: str, began_s: float, began_at: str) -> None:
        """``began_at`` is the wall-clock time to show."""
        self.waiting: Final = dict[str, float]()
        """What waits for the cluster, and since when."""
        self._late: Final = dict[str, float]()
        self.cluster = cluster
        self._began_s: Final = began_s
        self._began_at: Final = began_at
        self._due_s = began_s

    def failed(self, subject: str, error: str, now_s: float) -> str | None:
        """Note that ``subject`` waits; return the line that is due."""
        self.waiting.setdefault(subject, now_s)
        if now_s < self._due_s:
            return None
        took_s, first = now_s - self._began_s, self._due_s == self._began_s
        self._due_s = now_s + min(_LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, took_s / _GROWTH))
        since = f"since {self._began_at}" if first else f"for {_minutes(took_s)}, since {self._began_at}"
        return f"{self.cluster} does not answer, {since}; what waits for it: {', '.join(self.waiting)} ({brief(error)})"

    def recovered(self, subject: str, now_s: float) -> str | None:
        """Note that ``subject`` waits no longer; return the last line once nothing does."""
        if (since_s := self.waiting.pop(subject, None)) is None:
            return None
        self._late[subject] = now_s - since_s
        if self.waiting:
            return None
        late = ", ".join(f"{each} ({_minutes(late_s)})" for each, late_s in self._late.items())
        return f"{self.cluster} answers again, after {_minutes(now_s - self._began_s)}; what was late: {late}"


class Outages:
    """The outages of a flow's clusters. Thread-safe; ``warn`` and ``report`` are called from all threads."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        warn: Callable[[str], None],
        report: Callable[[str], None],
        now_s: Callable[[], float],
    ) -> None:
        """``addresses`` are the ``bootstrap.servers`` of the clusters, by name."""
        self._warn: Final = warn
        self._report: Final = report
        self._now_s: Final = now_s
        self._lock: Final = threading.Lock()
        self._outages: Final = dict[str, Outage]()
        self._addresses: Final = dict[str, str]()
        for name, each in addresses.items():
            self.learn(name, each.split(","))

    def learn(self, cluster: str, addresses: Iterable[str]) -> None:
        """Take errors that name one of the ``addresses`` (``host:port``) for errors of ``cluster``.

        Brokers advertise other addresses than those of ``bootstrap.servers``, and errors name these.
        """
        with self._lock:
            self._addresses.update((address.strip(), f"cluster {cluster}") for address in addresses)

    def failed(self, subject: str, error: BaseException) -> bool:
        """Note that ``subject`` has failed; return whether that is because a cluster is away, and is reported here."""
        if not is_outage(error):
            self.recovered(subject)
            return False
        text = str(error)
        with self._lock:
            cluster = next((name for address, name in self._addresses.items() if _names(text, address)), UNKNOWN)
            if cluster == UNKNOWN and len(self._outages) == 1:
                (cluster,) = self._outages  # a timeout of a call that got no connection names no address
            elif UNKNOWN in self._outages and cluster not in self._outages:
                self._outages[cluster] = self._outages.pop(UNKNOWN)
                self._outages[cluster].cluster = cluster
            if cluster not in self._outages:
                self._outages[cluster] = Outage(cluster, self._now_s(), f"{datetime.now().astimezone():%H:%M:%S}")
            line = self._outages[cluster].failed(subject, text, self._now_s())
        if line is not None:
            self._warn(line)
        return True

    def recovered(self, subject: str) -> bool:
        """Note that ``subject`` has succeeded, or failed for another reason; return whether it has waited."""
        with self._lock:
            waited = any(subject in outage.waiting for outage in self._outages.values())
            lines = [outage.recovered(subject, self._now_s()) for outage in self._outages.values()]
            for cluster in [name for name, outage in self._outages.items() if not outage.waiting]:
                del self._outages[cluster]
        for line in filter(None, lines):
            self._report(line)
        return waited


def _names(text: str, address: str) -> bool:
    """Return whether ``text`` names ``address``, and not another one that begins or ends with it."""
    return re.search(rf"(?<![\w.-]){re.escape(address)}(?!\d)", text) is not None


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _FIRST_PAUSE_S else f"{seconds / 60:.0f} min"
