"""What the records of a registry say together, and which batches were produced on its cluster."""

from __future__ import annotations

import uuid

from mirror.cluster.types import TopicPartition
from mirror.relay.origin.records import (
    LogKey,
    Origins,
    Registry,
    SourceRegistry,
    began_record,
    log_end_records,
    producer_records,
    source_record,
    source_removal,
    whole_record,
    whole_removal,
)
from mirror.wire.records import Batch
from tests.fakes.record_batches import COMMIT, batch, build, build_marker

LOG = LogKey(str(uuid.UUID(int=7)), 3)
YOUNGER = LogKey(str(uuid.UUID(int=8)), 0)


def _at(offset: int, producer_id: int) -> Batch:
    return batch(build((b"x",), base_offset=offset, producer_id=producer_id))


def _origins(origin_from: str, *, end: int = 0, registered: tuple[int, ...] = ()) -> Origins:
    origins = Origins(origin_from)
    items = [*log_end_records("first", {LOG: end} if end else {}), began_record("first", 1_000)]
    for item in [*items, *producer_records(registered, "a-b", 1_000).values()]:
        origins.registry.add(*item)
    return origins


def test_the_log_ends_of_the_process_that_began_first_count() -> None:
    registry = Registry()
    first, second = log_end_records("first", {LOG: 10}), log_end_records("second", {LOG: 99, YOUNGER: 5})
    for item in [*first, *second]:
        registry.add(*item)
        assert not registry.has_begun
        assert registry.log_ends == {}
    for item in [began_record("first", 1), *producer_records([4], "a-b", 2).values(), began_record("second", 3)]:
        registry.add(*item)
    assert registry.has_begun
    assert registry.log_ends == {LOG: 10}
    assert registry.producer_ids == {4}


def test_a_registry_remembers_which_registry_a_flow_reads_on_its_source() -> None:
    registry = Registry()
    registry.add(*source_record("b-a", SourceRegistry("cluster", "topic")))
    assert registry.sources == {"b-a": SourceRegistry("cluster", "topic")}
    registry.add(*source_removal("other"))
    assert "b-a" in registry.sources
    registry.add(*source_removal("b-a"))
    assert registry.sources == {}


def test_a_producer_id_may_be_registered_by_hand() -> None:
    """As config/README.md says, for another tool; with or without spaces, as a shell writes it."""
    registry = Registry()
    registry.add(b'{"producer":4711}', b"{}")
    registry.add(b'{ "producer": 4712 }', b"{}")
    assert registry.producer_ids == {4711, 4712}


def test_records_that_are_not_understood_are_ignored() -> None:
    registry = Registry()
    for key in (None, b"", b"\xff", b"[]", b'{"later":1}', b'{"producer":"4"}', b'{"producer":-1}', b'{"log-end":"x"}'):
        registry.add(key, b"{}")
    assert (registry.producer_ids, registry.log_ends, registry.has_begun) == (set(), {}, False)


def test_a_producer_id_is_local_once_the_registry_was_read_without_it() -> None:
    origins = _origins("", registered=(4,))
    batches = [_at(0, -1), _at(1, 4), _at(2, 5)]
    assert origins.undecided(LOG, batches) == {5}
    origins.decide([5])
    assert origins.undecided(LOG, batches) == set()
    assert [origins.is_local(LOG, one) for one in batches] == [True, False, True]


def test_an_id_that_is_registered_while_it_is_decided_is_not_local() -> None:
    origins = _origins("")
    assert origins.undecided(LOG, [_at(0, 5)]) == {5}
    for item in producer_records([5], "a-b", 2_000).values():
        origins.registry.add(*item)
    origins.decide([5])
    assert not origins.is_local(LOG, _at(0, 5))


def test_the_marker_of_a_fence_is_appended_before_its_producer_id_is_registered() -> None:
    origins = _origins("")
    fence = batch(build_marker(5, 0, COMMIT, base_offset=0))
    origins.decide(origins.undecided(LOG, [fence]))
    for item in producer_records([5], "a-b", 2_000).values():
        origins.registry.add(*item)
    assert not origins.is_local(LOG, _at(1, 5))


def test_a_batch_from_before_the_registry_does_not_decide_its_producer_id() -> None:
    origins = _origins("registry", end=10)
    before = _at(9, 5)
    origins.decide(origins.undecided(LOG, [before]))
    assert not origins.is_local(LOG, before)
    assert origins.undecided(LOG, [_at(10, 5)]) == {5}
    assert origins.undecided(YOUNGER, [_at(9, 5)]) == {5}


def test_what_was_there_before_the_registry_began_is_local_or_left_out_as_the_flow_says() -> None:
    for origin_from, local in (("earliest", True), ("registry", False)):
        origins = _origins(origin_from, end=10, registered=(4,))
        assert origins.unknown_end(LOG) == 0
        assert [origins.is_local(LOG, _at(offset, -1)) for offset in (0, 9, 10)] == [local, local, True]
        assert origins.is_local(YOUNGER, _at(0, -1))
        assert not origins.is_local(LOG, _at(10, 4))


def test_without_a_word_of_the_flow_earlier_records_have_an_unknown_origin() -> None:
    origins = _origins("", end=10)
    assert origins.unknown_end(LOG) == 10
    assert origins.unknown_end(YOUNGER) == 0
    assert origins.unknown_end(LogKey.of(TopicPartition("t", 3), LOG.topic_id)) == 10


def test_a_log_without_a_topic_id_is_known_by_its_name() -> None:
    assert LogKey.of(TopicPartition("t", 3), "") == LogKey("t", 3)


def test_a_log_that_is_copied_whole_is_local_up_to_that_offset() -> None:
    origins = Origins("", "b-a")
    items = [*log_end_records("first", {LOG: 10}), began_record("first", 1), *producer_records([4], "a-b", 2).values()]
    for item in [*items, whole_record("b-a", LOG, 20), whole_record("c-a", LOG, 30), whole_record("b-a", YOUNGER, 3)]:
        origins.registry.add(*item)
    assert origins.undecided(LOG, [_at(5, 6), _at(19, 6)]) == set()
    assert [origins.is_local(LOG, _at(offset, 4)) for offset in (5, 19, 20)] == [True, True, False]
    assert origins.unknown_end(LOG) == 0, "also what is from before the registry began"
    origins.registry.add(*whole_record("b-a", LOG, 6))
    assert origins.unknown_end(LOG) == 10
    origins.registry.add(*whole_removal("b-a", LOG))
    assert origins.registry.whole == {YOUNGER: 3}
    origins.decide([4])
    assert not origins.is_local(LOG, _at(19, 4))
