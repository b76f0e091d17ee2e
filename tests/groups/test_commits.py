"""The offsets of large groups are committed in parts, those of others with calls that they share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mirror.client import OffsetAndMetadata, TopicPartition
from mirror.groups.commit_decision import Reason
from mirror.groups.commits import in_parts
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.control import Action
from tests.groups.sync_site import GROUP, Site, only

LIMIT = 256 * 1024


def offsets(count: int, metadata: str = "") -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition("paris.orders", number): OffsetAndMetadata(number, None, metadata) for number in range(count)
    }


@pytest.mark.parametrize("metadata", ["", "m" * 200, "\N{GREEK SMALL LETTER ALPHA}" * 2_000, "x" * 30_000])
def test_no_part_is_too_large_and_none_is_needlessly_small(metadata: str) -> None:
    wanted = offsets(5_000, metadata)
    parts = list(in_parts("billing", wanted))
    size = 100 + len("billing") + len("paris.orders") + len(metadata.encode())
    assert max(len(part) for part in parts) == LIMIT // size
    assert len(parts) == -(-len(wanted) // (LIMIT // size))
    together = {tp: offset for part in parts for tp, offset in part.items()}
    assert together == wanted
    assert sum(map(len, parts)) == len(wanted)


def test_a_group_that_is_not_large_is_committed_at_once() -> None:
    assert list(in_parts("billing", offsets(1_000))) == [offsets(1_000)]
    assert list(in_parts("billing", {})) == []


def test_a_group_that_cannot_commit_delays_those_that_share_its_call_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [f"group {number}" for number in range(20)]
    sync, calls = site.sync(), list[set[str]]()
    commit = sync._clusters.target.commit_offsets_of_groups_async

    def recorded(offsets: Mapping[str, Any], *arguments: Any) -> Any:
        calls.append({*offsets})
        return commit(offsets, *arguments)

    monkeypatch.setattr(sync._clusters.target, "commit_offsets_of_groups_async", recorded)
    refused = Action(errors={GROUP: errors.COORDINATOR_NOT_AVAILABLE})
    rounds: list[list[set[str]]] = []
    for number, offset in enumerate((57, 100, 137, 150, 200)):
        if number == 1:  # all of them are on the target now
            site.pair.target.control.on(Api.OFFSET_COMMIT, refused, times=None)
        elif number == 3:
            site.pair.target.control.clear()
        for group in (GROUP, *others):
            site.commit(offset, group=group)
        report = sync.round()
        assert {only(report, group).reason for group in others} == {None}
        assert only(report).reason is (Reason.UNAVAILABLE if number in (1, 2) else None)
        rounds.append(calls[:])
        calls.clear()
    shared, apart = [{GROUP, *others}], [{*others}, {GROUP}]
    assert rounds[1:] == [shared, apart, apart, shared]
