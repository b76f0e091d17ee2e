"""The comparison of consumer groups takes a limited time and raises nothing."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, Self

import pytest

from mirror.errors import ConfigError, KafkaTimeout, Problem
from mirror.groups.positions import GroupsReport
from mirror.spark.preflight import flow_groups
from mirror.spark.preflight.flow_groups import compare_groups, rules_of, with_the_same_name
from tests.spark.planning.test_range_planner import flow
from tests.spark.preflight.test_flow_checks import config_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.groups.forecast import GroupsForecast

WRONG: Final = Problem("file", "key", "value", "another")


class Sync:
    """Fails, or does not answer."""

    def __init__(self, error: Exception | None, done: threading.Event) -> None:
        self._error, self._done = error, done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def round(self, *, write: bool) -> GroupsReport:
        assert not write
        if self._error is not None:
            raise self._error
        self._done.wait()
        return GroupsReport()


def test_groups_of_mirrormaker_have_the_same_name_on_both_sides() -> None:
    rules = rules_of(flow(groups={"exclude": ["no", "old-b"], "names": {"old-(.*)": "$1"}}))
    assert [rules.includes(group) for group in ("old-a", "a", "b", "no")] == [True, False, True, False]
    assert [with_the_same_name(rules)(group) for group in ("old-a", "b", "no")] == [False, True, False]
    assert not rules_of(flow(groups={"names": {"x": "mirror.f.control"}})).includes("x"), "it is the flow's own"


@pytest.fixture
def done() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def compare(**limits: float) -> GroupsForecast:
    one = flow(groups={"sync": True})
    found = compare_groups(config_of(one), one, **limits)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (KafkaTimeout("no answer of broker 1"), "no answer of broker 1"),
        (ConfigError([WRONG, WRONG]), f"{WRONG} {WRONG}"),
        (ValueError("of a bug"), "ValueError: of a bug"),
    ],
)
def test_an_error_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, done: threading.Event, error: Exception, problem: str
) -> None:
    monkeypatch.setattr(flow_groups, "open_sync", lambda *_: Sync(error, done))
    found = compare()
    assert found.problems == (f"consumer groups could not be compared: {problem}",)
    assert (found.pending, list(found.lines())) == (False, [])


def test_a_cluster_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, done: threading.Event) -> None:
    monkeypatch.setattr(flow_groups, "open_sync", lambda *_: Sync(None, done))
    (problem,) = compare(timeout_s=0.05).problems
    assert problem.endswith("not done within 0.05 s; mirror groups waits longer")


def test_a_flow_without_groups_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: Any) -> None:
        pytest.fail("a client is opened")

    monkeypatch.setattr(flow_groups, "open_sync", opened)
    assert compare_groups(config_of(flow()), flow()) is None
