"""Brokers that have not answered rest, each time for longer."""

from __future__ import annotations

from mirror.groups.translation.silent_leaders import SilentLeaders


def _rests(leaders: SilentLeaders, now: int) -> list[int]:
    return [leaders.rest_ms(node, now) for node in (1, 2, 3)]


def test_a_broker_rests_for_longer_each_time_that_it_is_silent() -> None:
    leaders = SilentLeaders()
    for now, length_ms in ((0, 20_000), (20_000, 40_000), (60_000, 80_000), (140_000, 80_000)):
        leaders.take([(1, True), (2, True), (2, False)], now)
        assert _rests(leaders, now) == [length_ms, 0, 0]
    assert _rests(leaders, 219_999) == [1, 0, 0]
    assert _rests(leaders, 220_000) == [0, 0, 0]


def test_a_broker_that_answers_is_forgotten() -> None:
    leaders = SilentLeaders()
    leaders.take([(1, True)], 0)
    leaders.take([(1, False)], 20_000)
    leaders.take([(1, True)], 40_000)
    assert leaders.rest_ms(1, 40_000) == 20_000
