"""What is said of both sides being in step, after each round of a kind."""

from __future__ import annotations

import json

import pytest

from mirror.alignment.sync_state import KindState, SyncState


def test_each_kind_has_the_counts_of_its_last_round() -> None:
    state = SyncState().after("configs", {"refused": 2, "unauthorized": 1, "other": 0}, 0, 5)
    state = state.after("acls", {}, 0, 6).after("configs", {"refused": 1}, 0, 7)
    assert state.kinds == {
        "configs": KindState(by_reason={"refused": 1}, time_ms=7, synced_ms=7),
        "acls": KindState(by_reason={}, time_ms=6, synced_ms=6),
    }
    assert [one.in_step for one in state.kinds.values()] == [False, True]
    assert [one.words() for one in state.kinds.values()] == ["1 refused", "in step"]


def test_a_round_with_problems_has_not_compared_everything() -> None:
    first = SyncState().after("configs", {}, 2, 5).kinds["configs"]
    assert (first.by_reason, first.time_ms, first.synced_ms) == ({"not-compared": 2}, 5, 0)
    later = SyncState().after("configs", {}, 0, 5).after("configs", {"refused": 1}, 1, 9).kinds["configs"]
    assert (later.by_reason, later.time_ms, later.synced_ms) == ({"refused": 1, "not-compared": 1}, 9, 5)


@pytest.mark.parametrize("problems", [0, 1])
def test_a_state_survives_a_round_trip(problems: int) -> None:
    state = SyncState(not_local=3, aside=2).after("configs", {"refused": 2}, problems, 5)
    assert SyncState.from_json(json.loads(json.dumps(state.to_json()))) == state
