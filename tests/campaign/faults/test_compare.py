from __future__ import annotations

from dataclasses import replace

import pytest

from tests.campaign.faults.compare import NUMBER, Record, difference, of_remade


def records(*numbers: int) -> list[Record]:
    return [Record(b"k%d" % n, b"v%d" % n, ((NUMBER, b"%d" % n), ("more", None)), 1_000 + n) for n in numbers]


WANTED = records(1, 3, 4, 9)


def test_the_same_is_the_same() -> None:
    assert difference(WANTED, records(1, 3, 4, 9)) == ""
    assert difference([], []) == ""


@pytest.mark.parametrize(
    ("actual", "said"),
    [
        (records(1, 3, 9), "3 records, not 4: 1 lost (4)"),
        (records(1, 3, 4), "3 records, not 4: 1 lost (9)"),
        ([], "0 records, not 4: 4 lost (1, 3, 4, ...)"),
        (records(1, 3, 3, 4, 9), "5 records, not 4: 1 doubled (3)"),
        (records(1, 3, 4, 9, 1, 3, 4, 9), "8 records, not 4: 4 doubled (1, 3, 4, ...)"),
        (records(1, 4, 4, 9), "4 records, not 4: 1 lost (3); 1 doubled (4)"),
        (records(1, 3, 4, 9, 12), "5 records, not 4: 1 strange (12)"),
        (records(1, 4, 3, 9), "4 records, not 4: out of order from place 1 on"),
    ],
)
def test_what_differs_is_said(actual: list[Record], said: str) -> None:
    assert difference(WANTED, actual) == said


@pytest.mark.parametrize(
    ("field", "value"),
    [("key", None), ("value", b""), ("headers", ((NUMBER, b"4"), ("more", b""))), ("time_ms", 7)],
)
def test_each_field_counts(field: str, value: object) -> None:
    changed = [*WANTED[:2], replace(WANTED[2], **{field: value}), *WANTED[3:]]  # type: ignore[arg-type]
    assert difference(WANTED, changed) == f"4 records, not 4: {field} of record 4 changed"


OLD, NEW = records(1, 2, 3), records(7, 8)


def test_a_topic_made_again_stops_its_copy() -> None:
    assert of_remade(OLD, NEW, records(1, 2), goes_on=False) == ("", 2)
    assert of_remade(OLD, NEW, [], goes_on=False) == ("", 0)
    assert of_remade(OLD, NEW, records(1, 2, 3, 7), goes_on=False)[0] == "4 records, not 3: 1 strange (7)"
    assert of_remade(OLD, NEW, records(1, 3), goes_on=False)[0] == "2 records, not 2: 1 lost (2); 1 strange (3)"


def test_or_goes_on_behind_what_was_copied_of_the_old_one() -> None:
    assert of_remade(OLD, NEW, records(1, 2, 7, 8), goes_on=True) == ("", 2)
    assert of_remade(OLD, NEW, records(7, 8), goes_on=True) == ("", 0)
    assert of_remade(OLD, NEW, records(1, 2, 8), goes_on=True)[0] == "3 records, not 4: 1 lost (7)"
    assert of_remade(OLD, NEW, records(1, 7, 2, 8), goes_on=True)[0] == "4 records, not 3: 1 strange (2)"
    assert of_remade(OLD, NEW, records(1, 2, 2, 7, 8), goes_on=True)[0] != ""
