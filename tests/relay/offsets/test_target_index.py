"""Offsets are translated by what the target alone has, while the source does not answer."""

from __future__ import annotations

import pytest

from mirror.client import TopicPartition
from mirror.errors import FlowError
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.offsets.index import Place
from mirror.relay.offsets.target_index import open_on_target
from mirror.relay.offsets.translator import OffsetTranslator
from tests.relay.fake_pair import FLOW, FakePair

TARGET = TopicPartition("paris.t", 0)


def test_it_answers_as_both_sides_do_and_says_nothing_of_what_is_only_in_the_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = FakePair(monkeypatch)
    for values in ((b"a", b"b"), (b"c",)):  # the offsets of both sides differ, because of a transaction's marker
        pair.write(*values)
        pair.copy()
    pair.write(b"only in Paris")
    source, target = ({"bootstrap.servers": one.bootstrap} for one in (pair.source, pair.target))
    policy = CopyPolicy(exactly_once=True)
    with OffsetTranslator(FLOW, source, target, policy) as translator:
        both = translator.open({TopicPartition("t", 0): TARGET})[TopicPartition("t", 0)]
        expected = [both.translate(offset) for offset in range(4)]
        expected_back = [both.translate_back(one.offset or 0) for one in expected[:3]]
    pair.source.kill(1)
    alone = open_on_target(FLOW, target, policy, "t", TARGET, 30_000)
    assert [alone.translate(offset) for offset in range(4)] == expected
    assert [alone.translate_back(one.offset or 0) for one in expected[:3]] == expected_back
    assert [one.offset for one in expected[:3]] == [0, 1, 3]
    assert expected[3].place is not Place.RECORD
    assert "the source does not answer" in alone.reason


def test_without_progress_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair(monkeypatch)
    with pytest.raises(FlowError, match=r"flow flow has no progress of paris\.t-0, and its source does not answer"):
        open_on_target(
            FLOW, {"bootstrap.servers": pair.target.bootstrap}, CopyPolicy(exactly_once=True), "t", TARGET, 30_000
        )
