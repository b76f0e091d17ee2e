"""Flows that feed each other: what the campaign expects and finds, and short rounds of it (``make directions``)."""

from __future__ import annotations

import random

import pytest
from rich.console import Console

from tests.campaign.both_ways.campaign import play
from tests.campaign.both_ways.layouts import LAYOUTS
from tests.campaign.both_ways.verification import NUMBERS_EACH, findings, foreign_records, left_out_findings
from tests.campaign.chaos.compare import NUMBER, Record


@pytest.mark.cluster
@pytest.mark.brokers
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("layout", "by"), [("pair", "sequences"), ("mesh", "transactions"), ("ring", "auto")])
def test_killed_processes_bring_nothing_back(layout: str, by: str) -> None:
    seed = random.SystemRandom().randrange(10**9)  # a new one in each run; a failure reports it
    found = play(layout, by, seconds=30, seed=seed, brokers=1, console=Console(soft_wrap=True))
    assert found == [], f"seed {seed}"


def test_topics_of_a_ring_go_on_until_they_would_come_back() -> None:
    assert LAYOUTS["ring"].origins("t") == {
        ("a", "t"): {"a"},
        ("b", "t"): {"b"},
        ("c", "t"): {"c"},
        ("b", "a.t"): {"a"},
        ("c", "b.a.t"): {"a"},
        ("c", "b.t"): {"b"},
        ("a", "c.b.t"): {"b"},
        ("a", "c.t"): {"c"},
        ("b", "a.c.t"): {"c"},
    }
    assert LAYOUTS["pair"].origins("t") == {("a", "t"): {"a", "b"}, ("b", "t"): {"a", "b"}}


def _record(producer: int, number: int) -> Record:
    return Record(None, b"v", ((NUMBER, b"%d" % (producer * NUMBERS_EACH + number)),), number)


A1, A2, B1, B2, UNKNOWN = _record(0, 1), _record(0, 2), _record(1, 1), _record(1, 2), Record(None, b"v", (), 0)


@pytest.mark.parametrize(
    ("on_a", "on_b", "expected"),
    [
        ([A1, B1, A2, B2], [B1, B2, A1, A2], []),  # each side has its own order of the producers
        ([A1, A2], [B1, A1, A2], ["t-0 of a, producer 1: 0 records, not 1: 1 lost"]),
        ([A1, B1, B1], [B1, A1], ["t-0 of a, producer 1: 2 records, not 1: 1 duplicated"]),
        ([A1, B2, B1], [B1, B2, A1], ["t-0 of a, producer 1: 2 records, not 2: out of order"]),
        (
            [A1, A1],
            [A1],
            ["producer 0 has 1 records twice in partition 0 of a", "t-0 of b, producer 0: 1 records, not 2"],
        ),
        ([A2, A1], [A2, A1], []),  # as it was produced
        ([UNKNOWN], [], ["t-0 of a, producer -1: 1 records, not 0: 1 unknown"]),
    ],
)
def test_what_is_wrong_is_found(on_a: list[Record], on_b: list[Record], expected: list[str]) -> None:
    logs = {("a", "t"): [on_a], ("b", "t"): [on_b]}
    found = findings(logs, LAYOUTS["pair"].origins("t"), "t", {0: "a", 1: "b"})
    assert len(found) == len(expected)
    for line, beginning in zip(found, expected, strict=True):
        assert line.startswith(beginning), line


@pytest.mark.parametrize(
    ("count", "disturbed", "wrong"),
    [(3, False, False), (3, True, False), (2, True, False), (2, False, True), (4, True, True)],
)
def test_the_count_of_records_that_are_left_out_is_exact_unless_processes_are_killed(
    count: int, disturbed: bool, wrong: bool
) -> None:
    foreign = foreign_records({("a", "t"): [[A1, B1, B2], [B1]], ("b", "t"): [[B1], [A2]]}, "t", {0: "a", 1: "b"})
    assert foreign == {"a": 3, "b": 1}
    assert bool(left_out_findings({("a", "b"): count, ("b", "a"): 1}, foreign, disturbed=disturbed)) == wrong
