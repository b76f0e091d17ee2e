from __future__ import annotations

from dataclasses import replace

import pytest

from tests.campaign.chaos.compare import NUMBER, Record, difference, recreated_difference


def records(*numbers: int) -> list[Record]:
    return [Record(b"k%d" % n, b"v%d" % n, ((NUMBER, b"%d" % n), ("more", None)), 1_000 + n) for n in numbers]


WANTED = records(1, 3, 4, 9)


def test_equal_records_have_no_difference() -> None:
    assert difference(WANTED, records(1, 3, 4, 9)) == ""
    assert difference([], []) == ""


@pytest.mark.parametrize(
    ("actual", "said"),
    [
        (records(1, 3, 9), "3 records, not 4: 1 lost (4)"),
        (records(1, 3, 4), "3 records, not 4: 1 lost (9)"),
        ([], "0 records, not 4: 4 lost (1, 3, 4, ...)"),
        (records(1, 3, 3, 4, 9), "5 records, not 4: 1 duplicated (3)"),
        (records(1, 3, 4, 9, 1, 3, 4, 9), "8 records, not 4: 4 duplicated (1, 3, 4, ...)"),
        (records(1, 4, 4, 9), "4 records, not 4: 1 lost (3); 1 duplicated (4)"),
        (records(1, 3, 4, 9, 12), "5 records, not 4: 1 unknown (12)"),
        (records(1, 4, 3, 9), "4 records, not 4: out of order from place 1 on"),
    ],
)
def test_difference_is_described(actual: list[Record], said: str) -> None:
    assert difference(WANTED, actual) == said


@pytest.mark.parametrize(
    ("field", "value"),
    [("key", None), ("value", b""), ("headers", ((NUMBER, b"4"), ("more", b""))), ("time_ms", 7)],
)
def test_change_of_any_field_is_found(field: str, value: object) -> None:
    changed = [*WANTED[:2], replace(WANTED[2], **{field: value}), *WANTED[3:]]  # type: ignore[arg-type]
    assert difference(WANTED, changed) == f"4 records, not 4: {field} of record 4 changed"


OLD, NEW = records(1, 2, 3), records(7, 8)


def test_copy_of_recreated_topic_ends_with_old_records() -> None:
    assert recreated_difference(OLD, NEW, records(1, 2), resumes=False) == ("", 2)
    assert recreated_difference(OLD, NEW, [], resumes=False) == ("", 0)
    assert recreated_difference(OLD, NEW, records(1, 2, 3, 7), resumes=False)[0] == "4 records, not 3: 1 unknown (7)"
    assert (
        recreated_difference(OLD, NEW, records(1, 3), resumes=False)[0] == "2 records, not 2: 1 lost (2); 1 unknown (3)"
    )


def test_resumed_copy_of_recreated_topic_continues_with_new_records() -> None:
    assert recreated_difference(OLD, NEW, records(1, 2, 7, 8), resumes=True) == ("", 2)
    assert recreated_difference(OLD, NEW, records(7, 8), resumes=True) == ("", 0)
    assert recreated_difference(OLD, NEW, records(1, 2, 8), resumes=True)[0] == "3 records, not 4: 1 lost (7)"
    assert recreated_difference(OLD, NEW, records(1, 7, 2, 8), resumes=True)[0] == "4 records, not 3: 1 unknown (2)"
    assert recreated_difference(OLD, NEW, records(1, 2, 2, 7, 8), resumes=True)[0] != ""
