"""The newest version that both sides speak (KIP-35)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.errors import UnsupportedVersion
from mirror.wire.api import Api
from mirror.wire.messages.session import ApiVersion, ApiVersionsResponse, FinalizedFeature
from mirror.wire.versions import BrokerVersions


def _broker(low: int, high: int) -> BrokerVersions:
    return BrokerVersions({Api.FETCH.value.key: (low, high)})


@given(st.integers(0, 25), st.integers(0, 25))
def test_the_newest_version_of_both_is_picked(one: int, other: int) -> None:
    low, high = min(one, other), max(one, other)
    common = [v for v in range(low, high + 1) if Api.FETCH.value.low <= v <= Api.FETCH.value.high]
    if common:
        assert _broker(low, high).pick(Api.FETCH) == common[-1]
    else:
        with pytest.raises(UnsupportedVersion):
            _broker(low, high).pick(Api.FETCH)


def test_a_broker_too_old_is_reported_with_both_ranges_and_the_way_out() -> None:
    with pytest.raises(UnsupportedVersion, match=r"Fetch versions 0 to 9, this client 10 to 18: .*Apache Kafka 2\.1"):
        _broker(0, 9).pick(Api.FETCH)


def test_a_broker_too_new_is_reported_with_both_ranges() -> None:
    with pytest.raises(UnsupportedVersion, match=r"Fetch versions 19 to 30, this client 10 to 18"):
        _broker(19, 30).pick(Api.FETCH)


def test_a_missing_api_is_named() -> None:
    with pytest.raises(UnsupportedVersion, match=r"does not offer ListTransactions; .* Kafka 3\.0 and newer"):
        _broker(0, 30).pick(Api.LIST_TRANSACTIONS)


def test_the_answer_is_taken_in() -> None:
    answer = ApiVersionsResponse(0, (ApiVersion(1, 4, 18),), 0, (FinalizedFeature("transaction.version", 2, 1),), 7)
    known = BrokerVersions.of(answer)
    assert known.ranges == {1: (4, 18)}
    assert known.features == {"transaction.version": 2}
    assert known.features_epoch == 7
    assert [known.finalized(name) for name in ("transaction.version", "group.version")] == [2, 0]


def test_features_without_an_epoch_say_nothing() -> None:
    answer = ApiVersionsResponse(0, (), 0, (FinalizedFeature("transaction.version", 2, 1),))
    known = BrokerVersions.of(answer)
    assert (known.finalized("transaction.version"), known.features_epoch) == (0, -1)


def test_a_pick_can_be_limited() -> None:
    assert [_broker(0, 30).pick(Api.FETCH, limit) for limit in (None, 99, 18, 13, 12)] == [18, 18, 18, 13, 12]
    with pytest.raises(UnsupportedVersion, match="Fetch versions 0 to 30, this client 10 to 9"):
        _broker(0, 30).pick(Api.FETCH, at_most=9)
    with pytest.raises(UnsupportedVersion, match="Fetch versions 14 to 30, this client 10 to 13"):
        _broker(14, 30).pick(Api.FETCH, at_most=13)


def test_labels_are_kafkas_names() -> None:
    assert [Api.LIST_OFFSETS.label, Api.API_VERSIONS.label, Api.PRODUCE.label] == [
        "ListOffsets",
        "ApiVersions",
        "Produce",
    ]
