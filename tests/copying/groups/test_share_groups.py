"""A share group of Kafka's own consumer is reported as not supported, and holds no other group up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mirror.groups.commit_decision import Reason
from mirror.groups.positions import GroupState
from tests.copying.group_site import commit, committed_at, group_sync
from tests.copying.groups.consumers import java_consumer, reading
from tests.copying.pair import TwoClusters
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(120)]


def test_a_share_group_is_reported_with_and_without_members(
    pair: TwoClusters, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, shared, other = pair.topics(), unique("g.shared"), unique("g.billing")
    expected = GroupState(shared, (), Reason.NOT_SUPPORTED, "a group of kind 'share'")
    command, errors = java_consumer(tmp_path, "ShareConsumer"), tmp_path / "share.log"
    with group_sync(pair, topic) as sync:
        with reading(command, pair.source.address, shared, topic, errors=errors) as consumer:
            # It begins at the end of the log, so that nothing is read before it has joined.
            eventually(lambda: shared in sync.round().groups, within_s=60, what="the share group")
            written = 0

            def write() -> None:
                nonlocal written
                written += 1
                pair.source.fill(topic, [b"%d" % written])

            consumer.await_values(3, meanwhile=write)
            pair.complete(topic)
            commit(pair.source, other, topic, 2)
            report = sync.round()
            assert report.groups[shared] == expected
            assert report.groups[other].is_in_step, report.groups[other]
        report = sync.round()
        assert (report.groups[shared], report.groups[other].is_in_step) == (expected, True)
    at_target = dict(pair.target.seen(topic))[committed_at(pair.target, other, topic)[0]]
    assert at_target.value == b"3", "the record at offset 2"
    assert committed_at(pair.target, shared, topic)[0] < 0
