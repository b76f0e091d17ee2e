"""Records of a flow's topic, written again and again. Real clients, brokers in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirror.client import TopicPartition
from mirror.relay.progress.flow_topic import FlowTopic, FlowTopicWriter, KeyValue, offset_topic_of
from mirror.wire.api import Api
from tests.fakes.control import Action
from tests.fakes.errors import TOPIC_AUTHORIZATION_FAILED
from tests.relay.fake_pair import FLOW, FakePair

_TP = TopicPartition(offset_topic_of(FLOW), 0)
_RECORD = {"one": KeyValue(b"one", b"1")}
_TIMEOUT_MS = 10_000


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    return FakePair(monkeypatch)


@pytest.fixture
def writer(pair: FakePair) -> Iterator[FlowTopicWriter]:
    with FlowTopicWriter(FlowTopic({"bootstrap.servers": pair.target.bootstrap}, _TP.topic)) as found:
        yield found


def _ids(pair: FakePair) -> int:
    """How many producer ids it was given."""
    return len(pair.target.calls(Api.INIT_PRODUCER_ID))


def test_all_writes_have_one_producer_id(pair: FakePair, writer: FlowTopicWriter) -> None:
    """Each takes room on the leader for a day, and tasks write the index several times a second."""
    for _ in range(3):
        assert writer.write(_RECORD, _TIMEOUT_MS) == {}
    assert (_ids(pair), pair.target.log(_TP.topic).end_offset) == (1, 3)


def test_after_a_failure_another_producer_writes(pair: FakePair, writer: FlowTopicWriter) -> None:
    assert writer.write(_RECORD, _TIMEOUT_MS) == {}
    pair.target.control.on(Api.PRODUCE, Action(errors={_TP: TOPIC_AUTHORIZATION_FAILED}))
    assert writer.write(_RECORD, _TIMEOUT_MS).keys() == {"one"}
    assert writer.write(_RECORD, _TIMEOUT_MS) == {}
    assert (_ids(pair), pair.target.log(_TP.topic).end_offset) == (2, 2)


def test_once_closed_a_write_leaves_no_producer_open(pair: FakePair, writer: FlowTopicWriter) -> None:
    """A task that ends does not wait for ever for what another thread writes."""
    writer.close()
    for _ in range(2):
        assert writer.write(_RECORD, _TIMEOUT_MS) == {}
    assert _ids(pair) == 2
