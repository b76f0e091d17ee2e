"""Transactions as brokers see them: every case on the fake and on real brokers, for both transaction protocols.

The fake is worth having only where it answers as the real thing does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from mirror.sandbox.cluster import Cluster
from mirror.wire.api import Api
from mirror.wire.messages.produce import InitProducerIdResponse
from mirror.wire.messages.session import ApiVersionsRequest
from mirror.wire.messages.transactions import EndTxnResponse
from mirror.wire.versions import BrokerVersions
from tests.conformance.raw_brokers import (
    FakeWire,
    Identity,
    RawProducer,
    RealWire,
    Wire,
    await_group,
    create_topic,
    fetch_offset,
    log_of,
    shape,
)
from tests.fakes.cluster import FakeCluster

NewProducer = Callable[..., RawProducer]


def _real(cluster: Cluster, level: int) -> Iterator[Wire]:
    wire = RealWire(cluster.bootstrap_servers, level)
    yield wire
    wire.close()


@pytest.fixture(scope="module")
def real_v1(version_1: Cluster) -> Iterator[Wire]:
    yield from _real(version_1, 1)


@pytest.fixture(scope="module")
def real_v2(version_2: Cluster) -> Iterator[Wire]:
    yield from _real(version_2, 2)


@pytest.fixture(
    params=["fake_v1", "fake_v2", *(pytest.param(name, marks=pytest.mark.brokers) for name in ("real_v1", "real_v2"))]
)
def wire(request: pytest.FixtureRequest) -> Wire:
    """A connection to the one broker of each kind."""
    if request.param.startswith("real"):
        real: Wire = request.getfixturevalue(request.param)
        return real
    cluster = FakeCluster()
    cluster.features["transaction.version"] = int(request.param[-1])
    return FakeWire(cluster)


@pytest.fixture
def new_producer(wire: Wire, unique: Callable[[str], str]) -> NewProducer:
    return lambda **options: RawProducer(wire, unique("txn"), **options)


def _ids(answer: InitProducerIdResponse | EndTxnResponse) -> tuple[int, int, int]:
    return answer.error_code, answer.producer_id, answer.producer_epoch


def _next(who: Identity, epochs: int = 1) -> Identity:
    return Identity(who.producer_id, who.epoch + epochs)


_REFUSED = -1, -1


class Began:
    """A producer whose transaction has one record in ``tp``; ``other`` is a partition that was not added."""

    def __init__(self, wire: Wire, producer: RawProducer, topic: str) -> None:
        self.wire, self.producer = wire, producer
        self.who = producer.init()
        self.tp, self.other = create_topic(wire, topic, 2)
        producer.write(self.who, self.tp)

    def await_markers(self, batches: int = 2) -> None:
        self.wire.until(lambda: len(shape(self.wire, self.tp)) >= batches)
        self.wire.until(lambda: self.producer.add(Identity(-7, 0), self.tp) == [49])


@pytest.fixture
def began(wire: Wire, new_producer: NewProducer, unique: Callable[[str], str]) -> Began:
    return Began(wire, new_producer(), unique("orders"))


def test_the_protocols_version_is_reported(wire: Wire) -> None:
    result = BrokerVersions.of(wire.ask(Api.API_VERSIONS, 4, ApiVersionsRequest("raw", "1")))
    assert result.finalized("transaction.version") == wire.level
    assert result.features_epoch >= 0
    assert result.pick(Api.PRODUCE, at_most=11) == 11


# --- InitProducerId


def test_each_newcomer_fences_the_one_before(new_producer: NewProducer) -> None:
    producer = new_producer()
    first = producer.init()
    second = producer.init()
    assert first.epoch == 0
    assert second == _next(first)
    assert _ids(producer.init_once(first)) == (90, *_REFUSED)


def test_going_on_from_an_epoch_bumps_it_and_a_repeated_request_is_recognized(new_producer: NewProducer) -> None:
    producer = new_producer()
    who = producer.init()
    for _ in range(3):
        assert _ids(producer.init_once(who)) == (0, who.producer_id, 1)
    assert _ids(producer.init_once(Identity(who.producer_id + 9_999, 0))) == (90, *_REFUSED)


@pytest.mark.parametrize(("timeout_ms", "code"), [(900_000, 0), (900_001, 50), (0, 50)])
def test_a_timeout_above_the_brokers_is_refused(new_producer: NewProducer, timeout_ms: int, code: int) -> None:
    producer = new_producer()
    producer.init()
    producer.timeout_ms = timeout_ms
    assert producer.init_once().error_code == code


def test_an_empty_id_is_refused(wire: Wire) -> None:
    assert RawProducer(wire, "").init_once().error_code == 42


def test_init_by_the_owner_ends_its_open_transaction_in_a_new_epoch(began: Began) -> None:
    producer, who = began.producer, began.who
    assert _ids(producer.init_once(who)) == (51, *_REFUSED)
    began.await_markers()
    assert shape(began.wire, began.tp) == [("data", 0), ("abort", 1)]
    assert [
        producer.produce(who, tp, s, version=v) for v in (11, 12) for tp in (began.tp, began.other) for s in (1, 0)
    ] == [47] * 8, "late batches of the old epoch"
    if began.wire.level > 1:
        assert [_ids(producer.init_once(who)) for _ in range(2)] == [(0, who.producer_id, 1)] * 2
    else:
        # The epoch that fenced it is reported to no producer, and is the one to continue from.
        assert [_ids(producer.init_once(who)) for _ in range(2)] == [(90, *_REFUSED)] * 2
        assert [_ids(producer.init_once(_next(who))) for _ in range(2)] == [(0, who.producer_id, 2)] * 2


def test_init_by_a_newcomer_ends_the_open_transaction_and_fences_its_owner(began: Began) -> None:
    producer, old = began.producer, began.who
    assert _ids(producer.init_once()) == (51, *_REFUSED)
    assert producer.init() == _next(old, 2)
    assert shape(began.wire, began.tp) == [("data", 0), ("abort", 1)]
    assert [producer.produce(old, began.tp, 1, version=version) for version in (11, 12)] == [47, 47]
    assert [producer.end(old, commit=commit).error_code for commit in (True, False)] == [90, 90]
    assert producer.add(old, began.tp) == [90]
    assert [producer.init_once(one).error_code for one in (old, _next(old))] == [90, 90]


# --- the end


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_is_written_into_every_partition(began: Began, commit: bool) -> None:
    producer, who, wire = began.producer, began.who, began.wire
    producer.write(who, began.other)
    assert log_of(wire, began.tp)[1] == 0, "the last stable offset is where the transaction began"
    bumped = wire.level > 1
    assert _ids(producer.end(who, commit=commit)) == ((0, who.producer_id, 1) if bumped else (0, *_REFUSED))
    began.await_markers()
    wanted = [("data", 0), ("commit" if commit else "abort", int(bumped))]
    wire.until(lambda: shape(wire, began.other) == wanted)
    assert shape(wire, began.tp) == wanted
    assert log_of(wire, began.tp)[1] == 2


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_is_recognized_and_a_contrary_one_refused(began: Began, commit: bool) -> None:
    producer, who = began.producer, began.who
    first = _ids(producer.end(who, commit=commit))
    began.await_markers()
    assert _ids(producer.end(who, commit=commit)) == first
    assert _ids(producer.end(who, commit=not commit)) == (48, *_REFUSED)
    assert producer.end(Identity(who.producer_id + 9_999, 0), commit=commit).error_code == 49
    assert producer.end(_next(who, 5), commit=commit).error_code == 90


def test_an_end_of_nothing_is_refused_but_for_an_abort_of_version_2(new_producer: NewProducer) -> None:
    producer = new_producer()
    who = producer.init()
    assert _ids(producer.end(who, commit=True)) == (48, *_REFUSED)
    if producer.wire.level > 1:
        assert _ids(producer.end(who, commit=False)) == (0, who.producer_id, 1)
        producer.wire.until(lambda: producer.end(who, commit=False).error_code == 0)
        assert _ids(producer.end(_next(who), commit=True)) == (48, *_REFUSED)
        assert _ids(producer.end(_next(who), commit=False)) == (0, who.producer_id, 2)
    else:
        assert _ids(producer.end(who, commit=False)) == (48, *_REFUSED)


def test_an_unknown_id_has_nothing_to_end_or_add(began: Began, wire: Wire, unique: Callable[[str], str]) -> None:
    stranger = RawProducer(wire, unique("stranger"))
    assert stranger.end(began.who, commit=True).error_code == 49
    assert stranger.add(began.who, began.tp) == [49]
    assert stranger.add_group(began.who, "group") == 49


def test_init_goes_on_after_an_end(began: Began) -> None:
    producer, who = began.producer, began.who
    producer.end(who, commit=False)
    began.await_markers()
    # Under version 2 that epoch is the one that EndTxn returned already.
    assert [_ids(producer.init_once(who)) for _ in range(2)] == [(0, who.producer_id, 1)] * 2


def test_the_versions_of_the_other_protocol_are_served_too(began: Began) -> None:
    """So it is the client that must keep to what the cluster's feature says."""
    producer, who, wire = began.producer, began.who, began.wire
    bumps = wire.level == 1
    result = _ids(producer.end(who, commit=True, version=5 if bumps else 4))
    assert result == ((0, who.producer_id, 1) if bumps else (0, *_REFUSED))
    began.await_markers()
    assert shape(wire, began.tp) == [("data", 0), ("commit", int(bumps))]


def test_the_coordinator_ends_what_outlives_its_timeout(
    wire: Wire, new_producer: NewProducer, unique: Callable[[str], str]
) -> None:
    began = Began(wire, new_producer(timeout_ms=2_000), unique("orders"))
    producer, who = began.producer, began.who
    began.await_markers()
    assert shape(wire, began.tp) == [("data", 0), ("abort", 1)]
    assert producer.produce(who, began.tp, 1) == 47
    assert producer.add(who, began.other) == [90]
    if wire.level > 1:
        assert _ids(producer.end(who, commit=True)) == (48, *_REFUSED)
        assert _ids(producer.end(who, commit=False)) == (0, who.producer_id, 1)
        assert _ids(producer.init_once(who)) == (0, who.producer_id, 1)
    else:
        assert [producer.end(who, commit=commit).error_code for commit in (True, False)] == [90, 90]
        assert producer.init_once(who).error_code == 90
        assert _ids(producer.init_once(_next(who))) == (0, who.producer_id, 2)


# --- batches of no transaction, or of another


@pytest.mark.parametrize(("version", "code"), [(9, 48), (10, 48), (11, 120), (12, 0)])
def test_a_partition_that_was_not_added(began: Began, version: int, code: int) -> None:
    assert began.producer.produce(began.who, began.other, 0, version=version) == code
    assert shape(began.wire, began.other) == ([("data", 0)] if code == 0 else [])


def test_the_same_before_anything_was_added(
    wire: Wire, new_producer: NewProducer, unique: Callable[[str], str]
) -> None:
    producer = new_producer()
    who = producer.init()
    (tp,) = create_topic(wire, unique("orders"))
    assert [producer.produce(who, tp, 0, version=version) for version in (10, 11, 12)] == [48, 120, 0]
    assert producer.end(who, commit=True).error_code == 0


def test_a_late_batch_after_an_abort(began: Began) -> None:
    producer, who = began.producer, began.who
    assert producer.end(who, commit=False).error_code == 0
    began.await_markers()
    if began.wire.level > 1:
        assert [producer.produce(who, tp, 1, version=12) for tp in (began.tp, began.other)] == [47, 47]
        producer.write(_next(who), began.tp)
        assert producer.produce(who, began.tp, 1, version=12) == 47, "and while the next one is open"
        return
    assert [producer.produce(who, began.tp, 1, version=version) for version in (10, 11)] == [48, 120]
    producer.begin(who, began.tp)
    assert producer.produce(who, began.tp, 1) == 0, "it joins the next one: never go on under this epoch"
    assert producer.produce(who, began.tp, 1) == 0, "and the next one's own batch passes for a repeated one"
    assert shape(began.wire, began.tp) == [("data", 0), ("abort", 0), ("data", 0)]


def test_nothing_above_a_refused_sequence_begins_a_transaction(began: Began) -> None:
    producer, who = began.producer, began.who
    assert producer.end(who, commit=False, version=4).error_code == 0, "under the same epoch, on any cluster"
    began.await_markers()
    assert [producer.produce(who, began.tp, sequence) for sequence in (2, 1)] == [120, 120]
    producer.begin(who, began.tp)
    assert [producer.produce(who, began.tp, sequence) for sequence in (2, 1, 2)] == [45, 0, 0]


def test_who_is_not_the_producer(began: Began, wire: Wire, unique: Callable[[str], str]) -> None:
    producer, who = began.producer, began.who
    stranger, other_id = RawProducer(wire, unique("stranger")), Identity(who.producer_id + 9_999, 0)
    for version in (11, 12):
        assert stranger.produce(other_id, began.other, 0, version=version) == 49
        assert producer.produce(other_id, began.other, 0, version=version) == 49
        assert [producer.produce(_next(who), tp, 0, version=version) for tp in (began.tp, began.other)] == [47, 47]


def test_sequences_within_a_transaction(began: Began) -> None:
    producer, who = began.producer, began.who
    assert [producer.produce(who, began.tp, sequence) for sequence in (0, 5, 1, 1)] == [0, 45, 0, 0]
    assert producer.produce(who, began.other, 7, version=12) == 45, "from version 12 on it begins with 0"


def test_a_first_batch_of_any_sequence_before_version_12(began: Began) -> None:
    began.producer.begin(began.who, began.other)
    assert began.producer.produce(began.who, began.other, 7) == 0


def test_a_batch_must_say_what_it_is(began: Began) -> None:
    assert began.producer.produce(began.who, began.tp, 1, attributes=0) == 48, "not transactional within a transaction"
    assert began.producer.produce(began.who, began.other, 0, named=False) == 53, "transactional without an id"


# --- adding


def test_what_cannot_be_added(began: Began) -> None:
    producer, who = began.producer, began.who
    nowhere = began.tp._replace(topic="nowhere")
    assert producer.add(who, began.other, nowhere) == [55, 3]
    assert producer.add(Identity(who.producer_id + 9_999, 0), began.tp) == [49]
    assert [producer.add(Identity(who.producer_id, epoch), began.tp) for epoch in (-1, 1)] == [[90], [90]]
    assert producer.produce(who, began.other, 0) == 120, "the other one was not added either"


# --- offsets


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [3, 4, 5])
def test_offsets_are_seen_with_the_end(began: Began, commit: bool, version: int, unique: Callable[[str], str]) -> None:
    producer, who, wire, tp, group = began.producer, began.who, began.wire, began.tp, unique("group")
    await_group(wire, group)
    not_added = {3: 48, 4: 120, 5: 0}
    assert producer.commit_offset(who, group, tp, 4, version=version) == not_added[version]
    assert producer.add_group(who, group) == 0
    assert producer.commit_offset(who, group, tp, 5, version=version) == 0
    assert fetch_offset(wire, group, tp) == (0, -1)
    assert fetch_offset(wire, group, tp, stable=True) == (88, -1)
    assert producer.end(who, commit=commit).error_code == 0
    wire.until(lambda: fetch_offset(wire, group, tp, stable=True)[0] == 0)
    assert fetch_offset(wire, group, tp, stable=True) == (0, 5 if commit else -1)


def test_offsets_of_who_is_not_the_producer(began: Began, unique: Callable[[str], str]) -> None:
    producer, who, group = began.producer, began.who, unique("group")
    await_group(began.wire, group)
    for version in (3, 4, 5):
        for one, code in ((Identity(who.producer_id + 9_999, 0), 49), (_next(who, -1), 47), (_next(who), 47)):
            assert producer.commit_offset(one, group, began.tp, 9, version=version) == code


def test_late_offsets(began: Began, unique: Callable[[str], str]) -> None:
    producer, who, wire, group = began.producer, began.who, began.wire, unique("group")
    await_group(wire, group)
    assert producer.add_group(who, group) == 0
    assert producer.commit_offset(who, group, began.tp, 5, version=4) == 0
    assert producer.end(who, commit=True).error_code == 0
    wire.until(lambda: fetch_offset(wire, group, began.tp, stable=True) == (0, 5))
    began.await_markers()
    codes = [producer.commit_offset(who, group, began.tp, 9, version=version) for version in (3, 4)]
    assert codes == ([47, 47] if wire.level > 1 else [48, 120])
