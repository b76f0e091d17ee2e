"""The latch of a flow: what it decides, and what is stored of it on a target in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.errors import FlowHeld, KafkaTimeout, LatchMoved
from mirror.relay.progress.flow_topic import latch_topic_of
from mirror.relay.progress.latch import Latch, LatchCheck, Role, changed, check, parse, read_latch, set_latch
from mirror.relay.progress.stored_record import encode
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer
from tests.relay.fake_pair import FLOW, FakePair

HELD = Latch(role=Role.HELD, generation=3, reason="the night's loss", by="ada on h1", since_ms=1_800_000_000_000)


def test_a_held_flow_is_refused_with_one_line_that_says_why_and_how_to_release_it() -> None:
    with pytest.raises(FlowHeld) as refused:
        check(HELD, "f")
    assert str(refused.value) == (
        "flow f is held since 2027-01-15T08:00:00Z by ada on h1: the night's loss; mirror release f lets it copy again"
    )


@pytest.mark.parametrize(("began", "now", "allowed"), [(None, 0, True), (2, 2, True), (2, 4, False), (None, 4, True)])
def test_a_writer_of_an_older_generation_ends(began: int | None, now: int, allowed: bool) -> None:
    latch = Latch(generation=now)
    if allowed:
        assert check(latch, "f", began) == now
    else:
        with pytest.raises(LatchMoved, match="was held and released meanwhile"):
            check(latch, "f", began)


def test_a_change_is_a_generation_more_and_only_the_expected_one_is_changed() -> None:
    held = changed(Latch(generation=4), Role.HELD, reason="r", by="b", now_ms=7, expected=4)
    assert held == Latch(role=Role.HELD, generation=5, reason="r", by="b", since_ms=7)
    assert changed(held, Role.HELD, reason="other", by="c", now_ms=8) is held, "who was first is kept"
    assert changed(held, Role.HELD, reason="r", by="b", now_ms=8, takes_over=True) is held
    taken = changed(held, Role.HELD, reason="other", by="c", now_ms=8, takes_over=True)
    assert (taken.generation, taken.by, taken.is_held) == (6, "c", True)
    with pytest.raises(LatchMoved, match="generation 5, not 4"):
        changed(held, Role.ACTIVE, reason="", by="c", now_ms=8, expected=4)


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"v":2,"role":"active"}'])
def test_what_is_not_understood_holds_the_flow(value: bytes) -> None:
    assert parse(value).is_held
    assert parse(encode(HELD)) == HELD
    assert parse(None) == Latch()


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    pair = FakePair(monkeypatch)
    pair.target.add_topic(latch_topic_of(FLOW))
    return {"bootstrap.servers": pair.target.bootstrap}


def test_it_is_stored_on_the_target_and_obeyed(options: dict[str, object]) -> None:
    began = LatchCheck(options, FLOW)
    began()
    held = set_latch(options, FLOW, Role.HELD, reason="r", by="b", now_ms=1)
    assert read_latch(options, FLOW) == held
    with pytest.raises(FlowHeld):
        began()
    set_latch(options, FLOW, Role.ACTIVE, reason="", by="b", now_ms=2, expected=1)
    with pytest.raises(LatchMoved):
        began()
    LatchCheck(options, FLOW)()


def test_a_latch_is_not_stored_once_its_time_has_passed(options: dict[str, object]) -> None:
    clock = SystemClock()
    times = iter([0, 0, 5_000])
    clock.now = lambda: next(times)  # type: ignore[method-assign]
    with pytest.raises(KafkaTimeout, match="was not stored in time"):
        set_latch(options, FLOW, Role.HELD, reason="r", by="b", now_ms=1, timer=Timer(clock, 5_000))
    assert read_latch(options, FLOW) == Latch()


def test_a_hold_lets_its_holder_write_but_not_if_it_is_unknown(options: dict[str, object]) -> None:
    held = set_latch(options, FLOW, Role.HELD, reason="r", by="switch s", now_ms=1)
    LatchCheck(options, FLOW, "switch s")()
    with pytest.raises(FlowHeld):
        LatchCheck(options, FLOW, "switch t")()
    with pytest.raises(FlowHeld):
        check(replace(held, by=""), FLOW, holder="")


def test_a_flow_that_was_never_held_has_no_topic_and_is_active(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair(monkeypatch)
    assert read_latch({"bootstrap.servers": pair.target.bootstrap}, FLOW) == Latch()
