"""The topic of a target to which a flow's records go aside: reads it, and copies records again, each once.

::

    fence (one transactional id) ──► latch ──► read to the end ──► for each record that is chosen and not settled:
        one transaction: the record, appended to its partition of the target ; its settlement, in the aside topic

A command that is killed, or runs twice, copies nothing twice: what was committed is settled, and what was not is gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mirror.client import EARLIEST, LATEST, Admin, Producer, TopicPartition
from mirror.cluster.settings import ClusterSettings
from mirror.config.flow_rules import target_options
from mirror.errors import BrokerError, Fenced, FlowError, KafkaError
from mirror.relay.batches.aside import (
    ASIDE_PARTITION,
    COPIED,
    CORRUPT,
    DISMISSED,
    AsideRecord,
    Place,
    Settlement,
    parse,
)
from mirror.relay.origin.registration import open_registration
from mirror.relay.origin.registry import registry_topic
from mirror.relay.progress.fenced_writer import aside_transactional_id
from mirror.relay.progress.flow_topic import cluster_options
from mirror.relay.progress.latch import LatchCheck
from mirror.runtime.clock import SystemClock
from mirror.verify.log_reader import LogReader

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig

_STALL_MS: Final = 60_000
_BUFFER_BYTES: Final = 256 * 1024 * 1024
"""More than any record of the topic has."""


@dataclass(frozen=True, slots=True)
class AsideEntry:
    """A record of the aside topic without its content, and what became of it."""

    record: AsideRecord
    """Without key, value and headers."""
    size: int
    """Of its key and value, in bytes."""
    settlement: Settlement | None = None

    @property
    def state(self) -> str:
        """What became of it; "aside" if nothing has."""
        return "aside" if self.settlement is None else self.settlement.what


class AsideTopic:
    """The aside topic of one flow. Its calls wait for the target."""

    def __init__(self, config: MirrorConfig, flow: FlowConfig) -> None:
        """Raises FlowError if the flow has none."""
        if not flow.aside:
            raise FlowError(f"flow {flow.name} has no aside topic: set aside")
        self._flow: Final = flow
        self._options: Final = target_options(config, flow)
        self._tp: Final = TopicPartition(flow.aside, ASIDE_PARTITION)
        self._timeout_ms: Final = ClusterSettings.parse(cluster_options(self._options)).default_api_timeout_ms

    def records(self) -> Iterator[AsideRecord | Settlement]:
        """Yield what the topic has of this flow, in order; nothing if there is no such topic. Raises KafkaError."""
        with Admin(cluster_options(self._options)) as admin:
            if self._tp.topic not in admin.describe_topics([self._tp.topic], timeout_ms=self._timeout_ms):
                return
            start, end = (admin.list_offsets({self._tp: which})[self._tp].offset for which in (EARLIEST, LATEST))
        stall_ms = max(_STALL_MS, self._timeout_ms)
        with LogReader(self._options, SystemClock(), stall_ms) as reader:
            for fetched in reader.read(self._tp, start, end):
                for one in fetched.records():
                    found = parse(one) if start <= one.offset < end else None
                    if found is not None and found.flow == self._flow.name:
                        yield found

    def entries(self) -> list[AsideEntry]:
        """Return all records that are or were aside, each once. Raises KafkaError."""
        return entries_of(self.records())

    def dismiss(self, chosen: Callable[[Place], bool]) -> list[Place]:
        """Settle the chosen records that are not settled; return them. Raises KafkaError, FlowHeld."""
        with self._fencing_producer() as producer:
            left = [one.record for one in self.entries() if one.settlement is None]
            found = [one for one in left if chosen(one.place)]
            if found:
                producer.begin_transaction()
                for one in found:
                    self._settle(producer, Settlement(DISMISSED, self._flow.name, *one.identity))
                producer.commit_transaction(self._timeout_ms)
            return [one.place for one in found]

    # Invariant: A record of the aside topic is copied again in one transaction with its settlement, behind a fence.
    # Test: tests/verify/test_aside_on_brokers.py::test_records_are_copied_again_once
    # Test: tests/verify/test_aside_on_brokers.py::test_killed_command_copies_no_record_twice
    def copy(
        self, chosen: Callable[[Place], bool], *, repeat: bool, on_line: Callable[[str], None]
    ) -> tuple[list[Settlement], dict[Place, str]]:
        """Copy the chosen records again; return what was copied, and why others were not.

        Without ``repeat``, a record that is settled is left alone. ``on_line`` is called with each that is copied.
        Raises KafkaError, FlowHeld.
        """
        copied, refused = list[Settlement](), dict[Place, str]()
        with self._fencing_producer() as producer:
            done = set() if repeat else {one.record.identity for one in self.entries() if one.settlement is not None}
            for one in self.records():
                if isinstance(one, Settlement) or one.identity in done or not chosen(one.place):
                    continue
                done.add(one.identity)
                try:
                    copied.append(self._copy(producer, one))
                except (BrokerError, FlowError) as error:
                    if isinstance(error, Fenced):
                        raise
                    refused[one.place] = str(error)
                else:
                    last = copied[-1]
                    on_line(f"{one.place}: copied to {last.target_topic}-{one.place.partition}@{last.target_offset}")
        return copied, refused

    def _copy(self, producer: Producer, one: AsideRecord) -> Settlement:
        if one.reason == CORRUPT:
            raise FlowError("the batch cannot be decoded: put back what can be restored, and dismiss it")
        producer.begin_transaction()
        try:
            sent = producer.send(
                one.target_topic,
                one.place.partition,
                key=one.key,
                value=one.value,
                headers=one.headers,
                timestamp_ms=one.timestamp_ms,
            )
            producer.flush(self._timeout_ms)
            offset = sent.result().offset
            if offset < 0:  # DUPLICATE_SEQUENCE_NUMBER: the first answer was lost
                producer.abort_transaction(self._timeout_ms)
                raise FlowError("the target acknowledged it without its offset: repeat the command")
            settlement = Settlement(COPIED, self._flow.name, *one.identity, one.target_topic, offset)
            self._settle(producer, settlement)
            producer.commit_transaction(self._timeout_ms)
        except KafkaError as error:
            with contextlib.suppress(KafkaError):
                producer.abort_transaction(self._timeout_ms)
            raise _cause_of(error) from error
        return settlement

    def _settle(self, producer: Producer, settlement: Settlement) -> None:
        producer.send(*self._tp, key=None, value=None, headers=settlement.headers())

    @contextlib.contextmanager
    def _fencing_producer(self) -> Iterator[Producer]:
        """Yield a producer that has fenced other commands of this flow.

        Raises FlowHeld if the flow may not write, also if it is held meanwhile: that fences the producer.
        """
        options = cluster_options(self._options)
        registration = None
        with contextlib.ExitStack() as stack:
            if self._flow.registers_producers:
                admin = stack.enter_context(Admin(options))
                registration = open_registration(registry_topic(options), self._flow.name, admin, self._timeout_ms)
                stack.callback(registration.close)
            producer = Producer(
                {
                    **options,
                    "transactional.id": aside_transactional_id(self._flow.name),
                    "buffer.memory": _BUFFER_BYTES,
                    "linger.ms": 0,
                    "max.block.ms": self._timeout_ms,
                },
                on_producer_id=None if registration is None else registration.on_producer_id,
            )
            stack.callback(producer.close, timeout_ms=0)
            producer.init_transactions(self._timeout_ms)
            check = LatchCheck(self._options, self._flow.name)
            check()
            try:
                yield producer
            except KafkaError as error:
                if isinstance(_cause_of(error), Fenced):
                    check()
                raise


def _cause_of(error: KafkaError) -> KafkaError:
    """Return the broker's refusal of a record, which a transaction that has failed has as its cause."""
    return error.__cause__ if isinstance(error.__cause__, KafkaError) else error


def entries_of(records: Iterable[AsideRecord | Settlement]) -> list[AsideEntry]:
    """Return each record once, with its last settlement. Pure.

    A record may be there twice: at least once, or after a loss of the target had been mended.
    """
    found = dict[tuple[Place, int], AsideEntry]()
    settled = dict[tuple[Place, int], Settlement]()
    for one in records:
        if isinstance(one, Settlement):
            settled[one.identity] = one
        elif one.identity not in found:
            size = len(one.key or b"") + len(one.value or b"")
            found[one.identity] = AsideEntry(replace(one, key=None, value=None, headers=()), size)
    return [replace(one, settlement=settled.get(identity)) for identity, one in found.items()]


def unknown_of(names: Collection[str], entries: Iterable[AsideEntry]) -> list[str]:
    """Return those of ``names``, as TOPIC-PARTITION@OFFSET, that no entry has. Pure."""
    known = {str(one.record.place) for one in entries}
    return [name for name in names if name not in known]
