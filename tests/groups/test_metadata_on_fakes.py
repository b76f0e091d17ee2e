"""What groups have committed with their offsets, also what a target does not take. Real clients, brokers in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from mirror.client import TopicPartition
from mirror.groups.commit_decision import Reason
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.api_admin import FakeGroup, FakeMember
from tests.fakes.cluster import GroupOffset
from tests.fakes.control import Action
from tests.groups.sync_site import GROUP, TARGET, Site, only
from tests.relay.fake_pair import FakePair

_HOSTILE: Final = "\x00\x1b[2J\u2028\ufffd\N{GREEK SMALL LETTER ALPHA}" + "x" * 4_000


@pytest.mark.parametrize("metadata", [_HOSTILE, "b", ""])
def test_a_change_of_the_metadata_alone_is_brought_over(site: Site, metadata: str) -> None:
    sync = site.sync()
    site.commit(137, metadata="a")
    sync.round()
    site.commit(137, metadata=metadata)
    assert only(sync.round()).reason is None
    assert site.pair.target.groups[GROUP][TARGET] == GroupOffset(111, 0, metadata)
    commits = len(site.pair.target.calls(Api.OFFSET_COMMIT))
    for _ in range(6):
        assert sync.round().in_step == 1
    assert len(site.pair.target.calls(Api.OFFSET_COMMIT)) == commits


def test_metadata_of_a_group_with_members_or_that_was_taken_over_is_kept(site: Site) -> None:
    sync = site.sync()
    site.commit(137)
    sync.round()
    member = FakeGroup(state="Stable", members=[FakeMember("m", [TARGET])])
    site.pair.target.admin.groups[GROUP] = member
    site.commit(137, metadata="changed")
    assert only(sync.round()).reason is None
    del site.pair.target.admin.groups[GROUP]
    site.commit_on_target(90)
    assert [only(sync.round()).reason for _ in range(6)][-1] is Reason.TAKEN_OVER
    assert site.pair.target.groups[GROUP][TARGET] == GroupOffset(90, 0, "theirs")


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Two partitions, of which a group has committed both."""
    pair = FakePair(monkeypatch, partitions=2)
    for partition in range(2):
        pair.write(*(b"%d" % number for number in range(10)), partition=partition)
    pair.copy_all()
    site = Site(pair)
    yield site
    site.close()


@pytest.mark.parametrize(("metadata", "code"), [("refused", errors.OFFSET_METADATA_TOO_LARGE), ("x" * 40_000, 0)])
def test_metadata_that_is_too_large_holds_its_partition_only(two: Site, metadata: str, code: int) -> None:
    held, other = (TopicPartition("paris.t", partition) for partition in range(2))
    two.pair.target.control.on(Api.OFFSET_COMMIT, Action(errors={held: code}), times=None)
    sync = two.sync()
    for offset in (5, 6, 7):
        two.commit(offset, metadata=metadata)
        two.commit(offset, tp=TopicPartition("t", 1))
        report = sync.round()
        first, second = report.groups[GROUP].positions
        assert (first.reason, second.reason) == (Reason.REFUSED, None)
        assert ("OFFSET_METADATA_TOO_LARGE" if code else "its metadata have 40000 bytes") in first.detail
        assert report.written == 1
        assert two.pair.target.groups[GROUP] == {other: GroupOffset(offset, 0, "")}
    two.pair.target.control.clear()
    two.commit(7, metadata="short")
    assert sync.round().in_step == 1
    assert two.pair.target.groups[GROUP][held] == GroupOffset(7, 0, "short")
