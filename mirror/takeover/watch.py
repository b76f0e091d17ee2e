"""Watches, while a flow runs, whether the MirrorMaker 2 that it was taken over from copies again."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from mirror.client import Admin, TopicPartition
from mirror.closing import Closing
from mirror.errors import KafkaError, MirrorMakerResumed
from mirror.relay.progress.flow_topic import cluster_options
from mirror.takeover.resumption import resumption, running_task, stored_position
from mirror.takeover.stored_offsets import TopicReader
from mirror.takeover.takeover_topic import TakeoverRecord, TakeoverTopic
from mirror.timing import Clock

INTERVAL_MS: Final = 10_000
"""How often MirrorMaker 2's topics are read while a flow runs."""
_RETRY_MS: Final = 60_000
"""What cannot be read is tried again after so long: a cluster that does not answer must not delay what shares the
thread."""
_STORE_MS: Final = 3_600_000
"""How often the ends that were reached are stored while a flow runs, so that the next run does not begin at the
takeover: a Connect cluster whose other connectors copy 1,000 partitions stores 1.4 million positions a day."""
_CALL_MS: Final = 5_000
"""The time-out of each call, for the same reason."""


# Invariant: A flow ends in order once MirrorMaker 2 copies again, and begins no run until the next takeover; only
#   records behind what was read before are a sign.
# Test: tests/takeover/test_watch_on_fakes.py::test_a_task_that_begins_to_run_is_seen_before_it_stores_anything
# Test: tests/takeover/
#   test_watch_on_fakes.py::test_what_one_run_has_seen_holds_the_next_ones_until_it_is_taken_over_again
# Test: tests/takeover/test_watch_on_fakes.py::test_the_next_run_reads_only_what_was_not_read_before
# Test: tests/takeover/test_watch_on_fakes.py::test_a_log_that_an_election_has_cut_is_no_sign
# Test: tests/spark/driver/test_takeover_watch.py::test_a_run_is_asked_to_end_once_mirrormaker_copies_again
class MirrorMakerWatch(Closing):
    """The watch of one flow. Its calls wait for the clusters, and for one another; for any thread."""

    def __init__(
        self,
        flow: str,
        topic: TakeoverTopic,
        records: Sequence[tuple[TakeoverRecord, Mapping[str, object]]],
        *,
        copies: Callable[[str], bool],
        warn: Callable[[str], None],
        clock: Clock,
    ) -> None:
        """``records`` are those of ``topic``, with the dotted keys of the clusters that have MirrorMaker 2's topics.

        ``copies`` says whether the flow copies a source topic. ``warn`` gets a line about what cannot be read.
        """
        self.resumed: str | None = None
        """The line about a MirrorMaker 2 that copies again, once it does."""
        self._flow: Final = flow
        self._topic: Final = topic
        self._copies: Final = copies
        self._warn: Final = warn
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        """A scheduled run reads in its own thread again while its heartbeat's last reading may still last."""
        self._due_ms: float = clock.now()
        self._warned: set[str] = set()
        with ExitStack() as stack:
            self._connectors: Final = [
                _Connector(record, stack.enter_context(_Topics(options, clock))) for record, options in records
            ]
            self._clients: Final = stack.pop_all()

    def close(self) -> None:
        with self._lock:
            self._due_ms = math.inf
            self._clients.close()

    def check(self) -> None:
        """Raise MirrorMakerResumed if MirrorMaker 2 copies again."""
        if (line := self.read()) is not None:
            raise MirrorMakerResumed(line)

    def read(self) -> str | None:
        """Return the line about a MirrorMaker 2 that copies again, once it does; topics are read when that is due.

        What cannot be read is a warning, and is tried again: it stops no copy, and hides nothing else.
        """
        with self._lock:
            if self.resumed is None and self._clock.now() >= self._due_ms:
                errors: list[KafkaError] = []
                self.resumed = next((line for one in self._connectors if (line := self._read(one, errors))), None)
                self._due_ms = self._clock.now() + (_RETRY_MS if errors else INTERVAL_MS)
                self._warn_of(errors)
            return self.resumed

    def _warn_of(self, errors: Sequence[KafkaError]) -> None:
        """Warn of what could not be read, unless that was so the last time."""
        lines = {f"whether MirrorMaker 2 copies again what was taken over cannot be read: {error}" for error in errors}
        for line in sorted(lines - self._warned):
            self._warn(line)
        self._warned = lines

    def _read(self, connector: _Connector, errors: list[KafkaError]) -> str | None:
        record = connector.record
        if not record.resumed:
            sign = connector.read(self._copies, errors)
            if not sign:
                self._store_ends(connector)
                return None
            record = connector.record = replace(record, resumed=sign)
            try:
                self._topic.write(record, _CALL_MS)
            except KafkaError as error:
                self._warn(f"that MirrorMaker 2 copies again could not be stored for the next run: {error}")
        return resumption(record, record.resumed, self._flow)

    def _store_ends(self, connector: _Connector) -> None:
        """Store how far the topics were read without a sign, if that is due."""
        ends = connector.ends()
        if ends == connector.record.ends or self._clock.now() < connector.store_due_ms:
            return
        connector.store_due_ms = self._clock.now() + _STORE_MS
        connector.record = replace(connector.record, ends=ends)
        try:
            self._topic.write(connector.record, _CALL_MS)
        except KafkaError as error:
            self._warn(f"how far MirrorMaker 2's topics were read could not be stored for the next run: {error}")


class _Topics(Closing):
    """The clients of a cluster that has topics of MirrorMaker 2."""

    def __init__(self, options: Mapping[str, object], clock: Clock) -> None:
        own = {**cluster_options(options), "default.api.timeout.ms": _CALL_MS}
        with ExitStack() as stack:
            admin = stack.enter_context(Admin(own))
            self.reader: Final = TopicReader(own, admin, clock, _CALL_MS)
            stack.callback(self.reader.close)
            self._clients: Final = stack.pop_all()

    def close(self) -> None:
        self._clients.close()


class _Connector:
    """One source connector, and up to where its topics were read."""

    def __init__(self, record: TakeoverRecord, topics: _Topics) -> None:
        self.record = record
        self.store_due_ms = 0
        """When the ends may be stored: at first at once, since a scheduled run is short."""
        self._reader: Final = topics.reader
        self._ends: dict[str, Mapping[TopicPartition, int]] = {
            topic: {tp: end for tp, end in record.ends.items() if tp.topic == topic}
            for topic in (record.key.offsets_topic, record.status_topic)
            if topic
        }

    def ends(self) -> dict[TopicPartition, int]:
        """Return up to where the topics were read; a topic that is gone has no partitions."""
        return {tp: end for ends in self._ends.values() for tp, end in ends.items()}

    def read(self, copies: Callable[[str], bool], errors: list[KafkaError]) -> str:
        """Return what shows that it copies again; empty for nothing. What cannot be read is added to ``errors``."""
        for topic, starts in self._ends.items():
            try:
                records, ends = self._reader.since(topic, starts, self.record.time_ms)
                is_status = topic == self.record.status_topic
                sign = (
                    running_task(self.record, records) if is_status else stored_position(self.record, records, copies)
                )
            except KafkaError as error:
                errors.append(error)
                continue
            if sign:
                return sign
            self._ends[topic] = ends
        return ""
