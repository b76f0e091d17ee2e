"""What has to hold after the faults of a round: of the copy, of the stream and its processes, and of transactions."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mirror.relay.progress.flow_topic import topic_of
from tests.campaign.chaos.compare import Record, difference, recreated_difference
from tests.campaign.chaos.injection import PREFIX, RoundContext
from tests.campaign.chaos.kafka_side import INTERNAL, Place
from tests.campaign.chaos.process_counts import Counts, counted, excess
from tests.campaign.chaos.reader import ends, read, transactions_ended
from tests.polling import eventually

CATCH_UP_S: Final = 300.0
"""How long after the load's end it may take until all records are visible at the target, also on a busy machine."""
SETTLES_WITHIN_S: Final = 60.0
RECREATED: Final = r"deleted and (made|created) again|recreated"
"""The error of a copy whose source topic has another id than before."""
COMPLETE_STATUS: Final = 0
INCOMPLETE_STATUS: Final = 3
_READ_WITHIN_S: Final = 180.0
_SOURCE_TRANSACTIONS_WITHIN_S: Final = 60.0
_TARGET_TRANSACTIONS_WITHIN_S: Final = 90.0
"""``transaction.timeout.ms`` of the flows, and the interval at which coordinators look for expired transactions."""
_TAIL: Final = 500
"""Offsets."""
_POLL_S: Final = 0.5


def settled(problems: Callable[[], list[str]]) -> list[str]:
    """Return the problems that persist. For a moment, for example, a child of a JVM looks like another JVM."""
    found = list[str]()

    def none_left() -> bool:
        found[:] = problems()
        return not found

    with contextlib.suppress(AssertionError):
        eventually(none_left, within_s=SETTLES_WITHIN_S, every_s=_POLL_S)
    return found


class Verification:
    """Verifies a round whose load has stopped, and stops its stream.

    ``lost``: an unclean election has removed acknowledged records from the copy of the lossy topic. The stream has to
    complete it again. ``before`` are the counts of the stream's processes before the faults.
    """

    def __init__(
        self, context: RoundContext, places: Sequence[Place], log: Callable[[str], None], *, lost: bool
    ) -> None:
        self.findings: Final = list[str]()
        self.records = 0
        self.catch_up_s = 0.0
        self.before: Counts = {}
        self.after: Counts = {}
        self._context: Final = context
        self._places: Final = places
        self._log: Final = log
        self._lost: Final = lost
        self._began: Final = time.monotonic()

    def run(self) -> None:
        """Do all of it. AssertionError where it cannot be continued."""
        stream = self._context.stream
        truth = self._read_source()
        self._await_copy(truth)
        self._check_processes()
        status = stream.stop()
        self._log(f"the stream has ended with status {status}")
        self._compare(truth)
        has_failed = self._check_results(truth)
        expected = INCOMPLETE_STATUS if has_failed else COMPLETE_STATUS
        if status != expected:
            self.findings.append(f"the stream ended with {status}, not {expected}: {stream.last_words()}")
        self._check_transactions()

    def _read_source(self) -> Mapping[Place, list[Record]]:
        """Read all of the source. It must have what was sent: otherwise brokers or campaign are at fault."""
        source, places = self._context.clusters.source, self._places
        eventually(
            lambda: transactions_ended(source.healthy_address, places),
            within_s=_SOURCE_TRANSACTIONS_WITHIN_S,
            every_s=_POLL_S,
            what="the end of all transactions of the source",
        )
        truth, missing = read(source.address, places, _READ_WITHIN_S)
        assert not missing, f"the source cannot be read: {sorted(missing)}"
        self.records = sum(map(len, truth.values()))
        for place, sent in self._context.load.sent().items():
            if wrong := difference(sent, truth.get(place, [])):
                self.findings.append(f"the source's {place}, compared with what was sent: {wrong}")
        return truth

    def _await_copy(self, truth: Mapping[Place, list[Record]]) -> None:
        """Wait until the last record of every partition can be read at the target."""
        topics = self._context.topics
        last = {(f"{PREFIX}{topic}", n): records[-1].number for (topic, n), records in truth.items() if records}
        if self._context.recreated:
            del last[f"{PREFIX}{topics.failing}", 0]
        late = self._await_last(last, self._began + CATCH_UP_S - time.monotonic())
        self.catch_up_s = round(time.monotonic() - self._began, 1)
        self._context.stream.check()
        if late:
            self.findings.append(f"not copied {CATCH_UP_S:.0f} s after the load's end: {sorted(late)}")
        self._log(f"caught up, {self.catch_up_s} s after the load's end")

    def _await_last(self, last: Mapping[Place, int], within_s: float) -> set[Place]:
        """Return the partitions that do not end with the record of that number in time."""
        address = self._context.clusters.target.address

        def is_last(place: Place, found: list[Record]) -> bool:
            return bool(found) and found[-1].number == last[place]

        # Only the ends: to read everything takes a busy machine too long.
        now = dict(zip(last, ends(address, last, committed=True), strict=True))
        first = {place: max(0, end - _TAIL) for place, end in now.items()}
        return read(address, last, within_s, is_last, first)[1]

    def _check_processes(self) -> None:
        """The stream has the processes that it should have, without more threads, sockets and children than before."""
        stream = self._context.stream

        def problems() -> list[str]:
            self.after = counted(stream.roles())
            return stream.missing() + excess(self.before, self.after)

        self.findings.extend(settled(problems))

    def _compare(self, truth: Mapping[Place, list[Record]]) -> None:
        """Compare every partition from its beginning with the source, now that the stream has ended."""
        load, topics = self._context.load, self._context.topics
        places = [(f"{PREFIX}{topic}", n) for topic, n in truth]
        copied, unread = read(self._context.clusters.target.address, places, _READ_WITHIN_S)
        self.findings.extend(f"the target's {place} cannot be read" for place in sorted(unread))
        for (topic, n), wanted in truth.items():
            actual = copied[f"{PREFIX}{topic}", n]
            if topic in load.deleted:
                old = load.deleted[topic]
                wrong, kept = recreated_difference(old, wanted, actual, resumes=topic == topics.resumed)
                self._log(f"of the deleted {topic}, {kept} of {len(old)} records were copied")
            else:
                wrong = difference(wanted, actual)
            if wrong:
                self.findings.append(f"{PREFIX}{topic}-{n}: {wrong}")

    def _check_results(self, truth: Mapping[Place, list[Record]]) -> bool:
        """Check the stream's own results, and return whether any partition had to fail."""
        topics, results = self._context.topics, self._context.stream.results()
        has_failed = False
        for place in truth:
            result = results.get(place, {"outcome": "not in the summary", "error": ""})
            error = RECREATED if self._context.recreated and place[0] == topics.failing else None
            has_failed |= error is not None
            as_expected = (
                result["outcome"] == "complete"
                if error is None
                else result["outcome"] == "failed" and re.search(error, str(result["error"])) is not None
            )
            if not as_expected:
                self.findings.append(f"the summary says of {place}: {result['outcome']}: {result['error']}")
        return has_failed

    def _check_transactions(self) -> None:
        """No transaction of the target hangs: in the copies, the flows' progress, and the groups' offsets."""
        target = self._context.clusters.target
        progress = [topic_of(name) for name in self._context.stream.flows]
        names = {*(f"{PREFIX}{topic}" for topic, _ in self._places), *progress, INTERNAL[0]}
        if self._lost:
            # The unclean election may have removed a transaction's end marker, but not its records.
            names.discard(f"{PREFIX}{self._context.topics.lossy}")
        places = [place for place in target.metadata(names) if place[0] in names]
        began = time.monotonic()
        try:
            eventually(
                lambda: transactions_ended(target.address, places),
                within_s=_TARGET_TRANSACTIONS_WITHIN_S,
                every_s=_POLL_S,
            )
            self._log(f"no open transactions at the target, after {time.monotonic() - began:.1f} s")
        except AssertionError:
            stable, last = (ends(target.address, places, committed=committed) for committed in (True, False))
            hanging = [place for place, a, b in zip(places, stable, last, strict=True) if a != b]
            self.findings.append(f"transactions of the target hang: {hanging}")
