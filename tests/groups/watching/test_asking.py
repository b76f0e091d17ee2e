"""Which groups rounds ask for, and when: nothing is asked too early, in vain, or never."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.groups.watching.asking import ALL, Asking

INTERVAL_MS: Final = 1_000
AGE_MS: Final = 250
GROUPS: Final = [f"g-{number}" for number in range(50)]


def asking(interval_ms: int = INTERVAL_MS) -> Asking:
    """After the first round, which asks for all."""
    made = Asking(interval_ms)
    assert made.take(0) == ALL
    return made


def test_a_group_is_asked_for_once_its_commit_has_been_visible_for_a_while() -> None:
    run = asking()
    run.hint({"a"}, 100)
    assert not run.is_due(349)
    assert run.is_due(350)
    assert run.take(350).changed == {"a"}
    assert not run.is_due(900)


def test_a_commit_that_is_too_new_is_asked_for_later_too() -> None:
    run = asking()
    run.hint({"a"}, 100)
    run.hint({"a", "b"}, 200)
    assert run.take(400).changed == {"a"}
    assert not run.is_due(640)  # a round a quarter of the interval
    assert run.take(650).changed == {"a", "b"}
    assert run.take(999).changed == frozenset()


def test_what_is_not_copied_yet_is_asked_for_once_more_and_then_with_the_others() -> None:
    run = asking()
    run.hint({"a"}, 0)
    assert run.take(375).changed == {"a"}
    run.again({"a"})
    assert not run.is_due(624)
    assert run.is_due(625)
    assert run.take(625).changed == {"a"}
    run.again({"a"})
    assert run.take(875).changed == frozenset()
    assert run.take(1_000).includes("a", in_step=False)


@pytest.mark.parametrize("interval_ms", [1_000, 10_000, 45_000, 600_000])
def test_every_group_is_asked_for_within_a_minute_without_hints(interval_ms: int) -> None:
    """Or in each round, if these are rarer."""
    run, left, now = asking(interval_ms), set(GROUPS), 0
    while left:
        now += interval_ms
        found = run.take(now)
        assert found.part is not None
        assert not found.everything
        left = {group for group in left if not found.includes(group, in_step=True)}
        assert now <= max(60_000, interval_ms)


def test_a_round_that_is_brought_forward_asks_for_no_others() -> None:
    run = asking()
    run.hint({"a"}, 0)
    found = run.take(375)
    assert found.part is None
    assert [group for group in [*GROUPS, "a"] if found.includes(group, in_step=False)] == ["a"]
    assert run.take(999).part is None
    assert run.take(1_000).part is not None


@pytest.mark.parametrize("loses", ["hint", "ask_all"])
def test_what_may_have_been_missed_has_all_groups_asked_for(loses: str) -> None:
    run = asking()
    run.hint({"a"}, 0)
    run.hint(None, 10) if loses == "hint" else run.ask_all()
    assert run.take(20) == ALL
    assert run.take(500).changed == frozenset()


@given(hints=st.lists(st.tuples(st.integers(0, 400), st.sampled_from(GROUPS[:6])), max_size=40))
def test_each_hint_is_followed_by_a_round_that_begins_late_enough_and_within_the_interval(
    hints: list[tuple[int, str]],
) -> None:
    """Polled as the driver does, sixteen times an interval."""
    run, now, open_hints, next_ms = asking(), 0, dict[str, list[int]](), 0
    for wait_ms, group in [*hints, (3 * INTERVAL_MS, "none")]:
        next_ms += wait_ms
        while now < next_ms:
            now += INTERVAL_MS // 16
            if run.is_due(now):
                for name in run.take(now).changed:
                    open_hints[name] = [at for at in open_hints.get(name, []) if now - at < AGE_MS]
            assert all(now - at < INTERVAL_MS * 5 // 8 for times in open_hints.values() for at in times)
        if group != "none":
            run.hint({group}, now)
            open_hints.setdefault(group, []).append(now)
    assert not any(open_hints.values())
