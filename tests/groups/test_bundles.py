"""Groups share requests for their offsets, of a bounded size, and rest if their coordinators do not answer."""

from __future__ import annotations

from mirror.client import OffsetAndMetadata, TopicPartition
from mirror.errors import AuthorizationFailed, KafkaTimeout, ProtocolError
from mirror.groups.bundles import Bundles, Committed

REST_MS = 20_000
MOST_BYTES = 1024 * 1024


def _committed(partitions: int, metadata: str = "") -> Committed:
    return Committed(
        {TopicPartition("t", number): OffsetAndMetadata(5, None, metadata) for number in range(partitions)}, {}
    )


def test_two_hundred_groups_share_a_request() -> None:
    groups = [f"g{number:03}" for number in range(450)]
    assert [len(bundle) for bundle in Bundles().of(groups, {})] == [200, 200, 50]


def test_large_groups_share_a_request_with_few_others() -> None:
    bundles = Bundles()
    groups = [f"g{number:03}" for number in range(100)]
    bundles.take({group: _committed(5_000) for group in groups[:50]}, 0)
    bundles.take({group: _committed(10, "x" * 4_000) for group in groups[50:]}, 0)
    assert [len(bundle) for bundle in bundles.of(groups[:50], {})] == [5] * 10
    assert [len(bundle) for bundle in bundles.of(groups[50:], {})] == [25, 25]
    assert [len(bundle) for bundle in Bundles().of(groups[:50], dict.fromkeys(groups, 5_000))] == [5] * 10


def test_a_group_that_is_late_rests_and_is_then_asked_for_apart_from_the_others() -> None:
    bundles = Bundles()
    groups, error = ["a", "b", "c"], KafkaTimeout("no answer")
    bundles.take({"a": _committed(1), "b": error, "c": AuthorizationFailed("no", 30)}, 1_000)
    assert bundles.resting(groups, 1_000 + REST_MS - 1) == {"b": error}
    assert bundles.resting(groups, 1_000 + REST_MS) == {}
    assert bundles.of(groups, {}) == [("a", "c"), ("b",)]
    bundles.take({"b": _committed(1)}, 30_000)
    assert bundles.resting(groups, 30_000) == {}
    assert bundles.of(groups, {}) == [("a", "b", "c")]


def test_groups_that_are_late_again_and_again_share_requests_with_fewer_others() -> None:
    bundles = Bundles()
    groups = [f"g{number:03}" for number in range(200)]
    sizes = []
    for round_number in range(5):
        sizes.append(max(len(bundle) for bundle in bundles.of(groups, {})))
        bundles.take(dict.fromkeys(groups, KafkaTimeout("no answer")), round_number * REST_MS)
    assert sizes == [200, 64, 16, 4, 1]


def test_groups_whose_response_cannot_be_read_are_asked_for_one_by_one() -> None:
    bundles, groups = Bundles(), ["a", "b", "c"]
    unreadable = KafkaTimeout("no answer")
    unreadable.__cause__ = ProtocolError("not UTF-8")
    bundles.take(dict.fromkeys(groups, unreadable), 0)
    assert bundles.resting(groups, 0) == {}
    assert bundles.of(groups, {}) == [("a",), ("b",), ("c",)]
    bundles.take({"a": _committed(1), "b": unreadable, "c": _committed(1)}, 0)
    assert bundles.resting(groups, REST_MS - 1) == {"b": unreadable}
    assert bundles.of(groups, {}) == [("a", "c"), ("b",)]
