"""Checkpoints in their topic: what is due, in order, across failures and restarts. Real clients, brokers in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from mirror.cluster.types import TopicPartition
from mirror.errors import KafkaError
from mirror.mirrormaker.checkpoints import CheckpointWriter, Translated, is_due
from mirror.mirrormaker.records import Checkpoint, CheckpointKey
from mirror.wire.api import Api
from mirror.wire.decode import records_of
from mirror.wire.encode import BatchBuilder
from tests.fakes import errors
from tests.fakes.control import Action
from tests.polling import eventually

if TYPE_CHECKING:
    from tests.fakes.cluster import FakeCluster

TOPIC = "a.checkpoints.internal"
TP = TopicPartition(TOPIC, 0)
WAIT_MS = 20_000
ORDERS, CLICKS = (CheckpointKey("billing", TopicPartition(f"a.{topic}", 0)) for topic in ("orders", "clicks"))


def at(source: int, target: int, metadata: str = "", *, back: bool = False) -> Translated:
    return Translated(Checkpoint(source, target, metadata), may_go_back=back)


class Site:
    """One writer after the other, to one topic."""

    def __init__(self, cluster: FakeCluster, resources: ExitStack) -> None:
        self.cluster = cluster
        self._resources = resources
        cluster.add_topic(TOPIC)
        self.writer = self.another()

    def another(self) -> CheckpointWriter:
        options = {"bootstrap.servers": self.cluster.bootstrap, "batch.size": 5, "group.id": "x"}
        writer = CheckpointWriter(options, source="a", clock=self.cluster.clock)
        return self._resources.enter_context(writer)

    def restart(self) -> None:
        self.writer.close()
        self.writer = self.another()

    def write(self, key: CheckpointKey, position: Translated, wait_ms: int = WAIT_MS) -> int:
        return self.writer.write({key: position}, wait_ms)

    def put(self, key: bytes | None, value: bytes | None) -> None:
        """Append a record as another program would."""
        builder = BatchBuilder("none", 16_384)
        builder.append(key, value, (), 0)
        self.cluster.log(TOPIC).append(bytes(builder.build().view))

    def written(self) -> list[tuple[CheckpointKey | None, Checkpoint | None]]:
        records = [record for batch in self.cluster.log(TOPIC).batches() for record in records_of(batch)]
        return [(CheckpointKey.parse(record.key), Checkpoint.parse(record.value)) for record in records]


@pytest.fixture
def site(cluster: FakeCluster) -> Iterator[Site]:
    with ExitStack() as resources:
        yield Site(cluster, resources)


@pytest.mark.parametrize(
    ("last", "now", "due"),
    [
        (None, at(0, 0), True),
        (Checkpoint(5, 7), at(5, 7), False),
        (Checkpoint(5, 7), at(6, 8), True),
        (Checkpoint(5, 7), at(6, 7), False),  # in a gap: readers take the second offset only
        (Checkpoint(5, 7), at(4, 6), True),  # the group went back
        (Checkpoint(5, 7), at(4, 7), True),  # the same, in a gap
        (Checkpoint(5, 7), at(5, 6), False),  # only the translation went back
        (Checkpoint(5, 7), at(6, 6), False),
        (Checkpoint(5, 7), at(6, 6, back=True), True),
        (Checkpoint(5, 7), at(5, 7, back=True), False),
        (Checkpoint(5, 7), at(5, 8), True),
        (Checkpoint(5, 7), at(5, 7, "m"), True),
    ],
)
def test_a_position_on_the_target_only_goes_back_with_its_group(
    last: Checkpoint | None, now: Translated, due: bool
) -> None:
    assert is_due(now, last) is due


def test_first_and_changed_positions_are_written_in_order(site: Site) -> None:
    assert site.writer.write({ORDERS: at(5, 7), CLICKS: at(1, 1)}, WAIT_MS) == 2
    assert site.writer.write({ORDERS: at(5, 7), CLICKS: at(2, 3, "méta")}, WAIT_MS) == 1
    assert site.write(ORDERS, at(4, 6)) == 1
    assert site.written() == [
        (ORDERS, Checkpoint(5, 7)),
        (CLICKS, Checkpoint(1, 1)),
        (CLICKS, Checkpoint(2, 3, "méta")),
        (ORDERS, Checkpoint(4, 6)),
    ]
    assert {batch.producer_id for batch in site.cluster.log(TOPIC).batches()} != {-1}, "idempotent"


def test_nothing_that_is_not_due_is_looked_up(site: Site) -> None:
    site.write(ORDERS, at(5, 7))
    before = len(site.cluster.received)
    assert site.write(ORDERS, at(5, 7)) == 0
    assert len(site.cluster.received) == before


def test_a_restarted_writer_continues_without_a_step_back(site: Site) -> None:
    site.write(ORDERS, at(5, 7))
    site.restart()
    assert site.writer.write({ORDERS: at(6, 6), CLICKS: at(1, 1)}, WAIT_MS) == 1
    site.restart()
    assert site.writer.write({ORDERS: at(6, 8), CLICKS: at(1, 1)}, WAIT_MS) == 1
    assert site.written() == [(ORDERS, Checkpoint(5, 7)), (CLICKS, Checkpoint(1, 1)), (ORDERS, Checkpoint(6, 8))]


def test_what_another_writer_has_written_meanwhile_counts(site: Site) -> None:
    site.write(ORDERS, at(5, 7))
    site.another().write({ORDERS: at(6, 9), CLICKS: at(1, 1)}, WAIT_MS)
    assert site.writer.write({ORDERS: at(6, 8), CLICKS: at(1, 1)}, WAIT_MS) == 0
    assert site.written()[1:] == [(ORDERS, Checkpoint(6, 9)), (CLICKS, Checkpoint(1, 1))]


def test_records_of_others_that_are_no_checkpoints_are_passed_over(site: Site) -> None:
    key, value = ORDERS.to_bytes(), Checkpoint(9, 9).to_bytes()
    site.write(ORDERS, at(5, 7))
    for record in ((None, None), (key, None), (key, value[:-1]), (b"x", value), (None, value)):
        site.put(*record)
    site.restart()
    assert site.write(ORDERS, at(6, 6)) == 0, "they do not hide the one before"
    assert site.write(ORDERS, at(6, 8)) == 1


@pytest.mark.parametrize("invalid", [at(5, 7, "x" * 40_000), at(-1, 7), at(5, -1), at(2**63, 7), at(5, 2**63)])
def test_what_no_record_can_hold_is_left_out(site: Site, invalid: Translated) -> None:
    last = Checkpoint(2**63 - 1, 2**63 - 1)
    assert site.writer.write({ORDERS: invalid, CLICKS: Translated(last)}, WAIT_MS) == 1
    assert site.written() == [(CLICKS, last)]
    before = len(site.cluster.received)
    assert site.writer.write({}, WAIT_MS) == 0
    assert len(site.cluster.received) == before, "not even tried again"


def test_what_the_topic_has_lost_is_written_again(site: Site) -> None:
    site.writer.write({ORDERS: at(5, 7), CLICKS: at(1, 1)}, WAIT_MS)
    del site.cluster.topics[TOPIC]
    site.cluster.add_topic(TOPIC)
    assert site.write(CLICKS, at(2, 2)) == 2
    assert dict(site.written()) == {ORDERS: Checkpoint(5, 7), CLICKS: Checkpoint(2, 2)}


def test_a_refused_record_is_written_by_the_next_call(site: Site) -> None:
    site.cluster.control.on(Api.PRODUCE, Action(errors={TP: errors.TOPIC_AUTHORIZATION_FAILED}), times=None)
    with pytest.raises(KafkaError, match="Write"):
        site.write(ORDERS, at(5, 7))
    site.cluster.control.clear()
    assert site.writer.write({}, WAIT_MS) == 1
    assert site.written() == [(ORDERS, Checkpoint(5, 7))]


def test_nothing_is_written_before_the_last_records_are_acknowledged(site: Site) -> None:
    held = site.cluster.control.on(Api.PRODUCE, Action(hold="after"))
    assert site.write(ORDERS, at(5, 7), wait_ms=0) == 1
    assert site.writer.write({ORDERS: at(6, 8), CLICKS: at(1, 1)}, 0) == 0
    held.release()
    eventually(lambda: site.writer.write({}, 10) == 2, what="the next two")
    assert [checkpoint for _, checkpoint in site.written()] == [Checkpoint(5, 7), Checkpoint(6, 8), Checkpoint(1, 1)]


def test_the_last_checkpoints_are_the_positions_after_each_call_that_succeeds(site: Site) -> None:
    """Groups commit and go back, records are refused, and writers are restarted."""
    rng = random.Random(2121)
    refused = Action(errors={TP: errors.TOPIC_AUTHORIZATION_FAILED})
    offsets = dict.fromkeys((ORDERS, CLICKS), 0)
    failures = 0
    for _ in range(150):
        key = rng.choice(list(offsets))
        offsets[key] = rng.randrange(100) if rng.random() < 0.1 else offsets[key] + rng.randrange(3)
        if rng.random() < 0.1:
            site.restart()
        site.cluster.control.clear()
        if rng.random() < 0.1:
            site.cluster.control.on(Api.PRODUCE, refused, times=None)
        try:
            site.writer.write({key: at(offset, 2 * offset) for key, offset in offsets.items()}, WAIT_MS)
        except KafkaError:
            failures += 1
        else:
            assert dict(site.written()) == {key: Checkpoint(offset, 2 * offset) for key, offset in offsets.items()}
    assert failures > 5
