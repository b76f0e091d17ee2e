"""Decides whether a batch goes to the target by sequence or in a transaction (KIP-98), and says why. Pure.

A batch that goes by sequence is appended once because the target's brokers remember the producer's last sequence. They
forget it ``producer.id.expiration.ms`` (before 3.4 ``transactional.id.expiration.ms``) after the *newest timestamp* of
the last batch, not after its arrival (``ProducerStateManager.isProducerExpired``), unless the topic has LogAppendTime.
So old records go in transactions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from mirror.cluster.types import ConfigEntry, TopicPartition
from mirror.errors import FlowError
from mirror.relay.batches.output_batch import OutputBatch
from mirror.relay.batches.reencode import ReencodeReason, time_text
from mirror.relay.batches.topic_config import CLEANUP, TopicConfig, readable
from mirror.relay.model.way import Way
from mirror.relay.model.way_notes import configured_reason
from mirror.wire.legacy import NO_TIMESTAMP

HOLD_MS: Final = 60_000
"""How long a partition keeps to transactions after a batch that needed one: each change of the way ends an attempt."""
EXPIRATION: Final = "producer.id.expiration.ms"
"""How long brokers remember a producer id (KIP-854)."""
EXPIRATION_BEFORE_3_4: Final = "transactional.id.expiration.ms"
"""The same in brokers that do not have :data:`EXPIRATION`; the others apply it to transactional ids only."""

_CONDITIONAL: Final = frozenset(
    {ReencodeReason.BAD_TIMESTAMP, ReencodeReason.NO_KEY, ReencodeReason.TOO_LARGE, ReencodeReason.CORRUPT}
)
"""Remedies that depend on the clock, on the target's limits, or on which replica of the source was read.

Another attempt may decide otherwise, and would then not find the target's last records in the source.
"""
_UNITS: Final = ((3_600_000, "h"), (60_000, "min"), (1_000, "s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class WayRules:
    """Which batches of a target topic may go by sequence."""

    mode: str = Way.TRANSACTIONS.value
    """The flow's ``exactly-once-by``: "auto", "sequences" or "transactions"."""
    expiration_ms: int | None = None
    """The smallest ``producer.id.expiration.ms`` of the target's brokers; None: unknown."""
    compacted: str = ""
    """Which topic is compacted: "source", "target", or "" for neither. Records that are gone cannot be compared."""
    unread: str = ""
    """The topic whose configuration could not be read: "source", "target", or "" for neither."""
    log_append_time: bool = False
    """Whether the target's brokers set the timestamps: then producer ids expire after the last append."""
    skips_gaps: bool = False
    """Whether the flow continues behind gaps: then the progress may have to move back, which plain commits cannot."""
    delivery_ms: int = 0
    """How long after its choice a batch may still be appended or retried: its producer id must not expire before."""

    @classmethod
    def of(
        cls,
        mode: str,
        source: Mapping[str, ConfigEntry],
        target: Mapping[str, ConfigEntry],
        expiration_ms: int | None,
        delivery_ms: int,
        *,
        skips_gaps: bool = False,
    ) -> Self:
        """Return the rules by the configurations of both topics; those that could not be read are empty."""
        topics = {"source": readable(source), "target": readable(target)}
        compacted = (side for side, configs in topics.items() if "compact" in TopicConfig.of(configs).cleanup)
        return cls(
            mode=mode,
            expiration_ms=expiration_ms,
            compacted=next(compacted, ""),
            unread=next((side for side, configs in topics.items() if CLEANUP not in configs), ""),
            log_append_time=TopicConfig.of(topics["target"]).append_time,
            delivery_ms=delivery_ms,
            skips_gaps=skips_gaps,
        )

    @property
    def fixed(self) -> Way | None:
        """The way of all batches; None if it depends on the batch."""
        if self.mode in set(Way):
            return Way(self.mode)
        return Way.TRANSACTIONS if self._sequences_ruled_out else None

    def way_of(self, output: OutputBatch, unix_ms: int) -> Way:
        """Return the way of ``output`` at ``unix_ms``, in ms since 1970.

        Raises FlowError if the flow demands sequences for a batch that must not go by sequence.
        """
        if self.mode == Way.TRANSACTIONS:
            return Way.TRANSACTIONS
        objection = self._objection(output, unix_ms)
        if objection and self.mode == Way.SEQUENCES:
            raise FlowError(self._refusal(output, objection))
        return Way.TRANSACTIONS if objection else Way.SEQUENCES

    def reason(self, output: OutputBatch | None, unix_ms: int) -> str:
        """Return one clause that says why ``output`` goes its way; without an output, why every batch does."""
        if self.mode in set(Way):
            return configured_reason(self.mode)
        objection = self._sequences_ruled_out if output is None else self._objection(output, unix_ms)
        if objection or output is None:
            return objection
        if self.log_append_time:
            return "the target's brokers set the timestamps"
        return f"records are younger than {_duration(self._max_age_ms)}"

    def _objection(self, output: OutputBatch, unix_ms: int) -> str:
        """Return why ``output`` must not go by sequence; empty if it may."""
        return self._sequences_ruled_out or _condition(output) or self._age_objection(output, unix_ms)

    @property
    def _sequences_ruled_out(self) -> str:
        """Why no batch may go by sequence; empty if some may."""
        if self.skips_gaps:
            return 'on-gap = "skip" may move the progress back'
        if self.compacted:
            return f"the {self.compacted} topic is compacted"
        if self.unread:
            return f"the configuration of the {self.unread} topic could not be read"
        if self.expiration_ms is None:
            return f"{EXPIRATION} of the target's brokers is not known"
        if self._max_age_ms <= 0:
            own, needed = _duration(self.expiration_ms), _duration(self.delivery_ms)
            return f"the target's brokers forget producer ids after {own}, and a delivery may take {needed}"
        return ""

    # Invariant: A batch goes by sequence only as long as the target's brokers remember its producer, which they forget
    #   by the newest timestamp of its last batch: then they accept any epoch and sequence.
    # Test: tests/relay/batches/
    #   test_exactly_once_way.py::test_records_of_less_than_half_of_the_expiration_go_by_sequence
    # Test: tests/copying/
    #   test_forgotten_producers.py::test_attempt_suspended_longer_than_the_state_doubles_nothing_unreported
    @property
    def _max_age_ms(self) -> int:
        """The age that a batch's newest timestamp must not reach, so that its producer id outlives its delivery.

        Half of the expiration is left for differences between clocks, and for attempts that have not noticed a fence.
        """
        expiration_ms = self.expiration_ms or 0
        return min(expiration_ms // 2, expiration_ms - self.delivery_ms)

    def _age_objection(self, output: OutputBatch, unix_ms: int) -> str:
        if output.batch is None or self.log_append_time:
            return ""
        if output.batch.max_timestamp == NO_TIMESTAMP:
            return "records have no timestamp"
        if unix_ms - output.batch.max_timestamp < self._max_age_ms:
            return ""
        return f"records are older than {_duration(self._max_age_ms)}"

    def _refusal(self, output: OutputBatch, objection: str) -> str:
        newest, limit = "", ""
        if output.batch is not None:
            newest = f", whose newest timestamp is {time_text(output.batch.max_timestamp)},"
        if self.expiration_ms is not None:
            limit = f" ({EXPIRATION} of the target's brokers is {_duration(self.expiration_ms)})"
        return (
            f"the batch at offset {output.base_offset}{newest} must not go by sequence: {objection}{limit};"
            ' set exactly-once-by = "auto" to copy such records in transactions'
        )


class WayChoice:
    """The way of one partition. It changes to transactions at once, and back when none was needed for 60 s."""

    def __init__(self, rules: WayRules, source: TopicPartition) -> None:
        """``source`` is the source's partition, for errors."""
        self._source: Final = source
        self._transactions_until: int | None = None
        self.way = Way.SEQUENCES
        self.reason = ""
        """Why the last output that was chosen for goes :attr:`way`: one clause, empty before the first one."""
        self.set_rules(rules)

    def set_rules(self, rules: WayRules) -> None:
        """Choose by ``rules`` from now on."""
        self._rules = rules
        if rules.fixed is not None or not self.reason:
            self.way, self.reason = rules.fixed or self.way, rules.reason(None, 0)

    def choose(self, output: OutputBatch, unix_ms: int, now: int) -> Way:
        """Return the way that ``output`` goes; ``now`` is a monotonic time in ms.

        An output of which nothing is to be written goes the way of the one before. Raises FlowError with the offset if
        the flow demands sequences, and the output must not go by sequence.
        """
        if self._rules.fixed is Way.TRANSACTIONS:
            return self.way
        if output.batch is None and not _condition(output):
            return self.way
        try:
            way = self._rules.way_of(output, unix_ms)
        except FlowError as error:
            raise FlowError(f"{self._source}: {error}") from None
        if way is Way.TRANSACTIONS:
            self._transactions_until = now + HOLD_MS
        elif self._transactions_until is not None and now < self._transactions_until:
            return self.way
        if not (way is self.way is Way.SEQUENCES and self.reason):  # by sequences, the reason is always the same
            self.way, self.reason = way, self._rules.reason(output, unix_ms)
        return way


# Invariant: What the next attempt may decide otherwise, by the clock or the target's limits, goes in transactions: it
#   could not be compared with the log.
# Test: tests/relay/batches/
#   test_exactly_once_way.py::test_decisions_of_the_clock_and_of_the_target_s_limits_go_in_transactions
def _condition(output: OutputBatch) -> str:
    """Return a clause if the clock or the target's limits decided about records of ``output``; empty if not."""
    reasons = _CONDITIONAL & {*output.tried, *output.dropped}
    if not reasons:
        return ""
    names = ", ".join(sorted(reasons))
    return f"the clock or the target's limits decide what is written ({names})"


def _duration(ms: int) -> str:
    for size, unit in _UNITS:
        if ms >= size and not ms % size:
            return f"{ms // size} {unit}"
    return f"{ms} ms"
