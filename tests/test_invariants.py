"""The page of invariants is that of the code, and each of them names tests that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.invariants import PAGE, Invariant, faults, invariants, page

TWO = """
# Invariant: Nothing is sent twice,
#   whoever asks.
# Test: tests/test_a.py::test_b
# Test: tests/
#   test_a.py::
#   test_c
# The reason of something else.
class A:
    # Invariant: Second.
    x = 1  # a comment
    # Test: of nothing
"""


def test_page_is_that_of_the_code() -> None:
    assert PAGE.read_text("utf-8") == page(invariants()), "run python -m tests.invariants"


def test_each_invariant_names_tests_that_exist() -> None:
    assert list(faults(invariants())) == []


def test_invariants_are_found_with_their_lines_and_tests(tmp_path: Path) -> None:
    room = tmp_path / "mirror" / "relay" / "task" / "deeper"
    room.mkdir(parents=True)
    (room / "a.py").write_text(TWO)
    tests = ("tests/test_a.py::test_b", "tests/test_a.py::test_c")
    first = Invariant("mirror/relay/task/deeper/a.py", 2, "Nothing is sent twice, whoever asks.", tests)
    assert invariants(tmp_path) == [first, Invariant(first.file, 10, "Second.", ())]
    assert first.room == "relay/task"
    assert "## relay/task\n\n- Nothing is sent twice, whoever asks.\n" in page([first])


@pytest.mark.parametrize(
    ("test", "fault"),
    [
        ("tests/test_a.py::test_b", None),
        ("tests/test_a.py::TestModel", None),
        ("tests/test_a.py::test_bb", "tests/test_a.py::test_bb does not exist; did you mean test_b?"),
        ("tests/test_aa.py::test_b", "tests/test_aa.py::test_b does not exist; did you mean tests/test_a.py?"),
        ("tests/test_a.py", "tests/test_a.py is no path of a test"),
    ],
)
def test_cited_test_that_does_not_exist_is_a_fault(test: str, fault: str | None, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("TestModel = A.TestCase\nclass X:\n    async def test_b(self): ...\n")
    found = list(faults([Invariant("mirror/a.py", 3, "Text.", (test,))], tmp_path))
    assert found == ([] if fault is None else [f"mirror/a.py:3: {fault}"])
    assert list(faults([Invariant("mirror/a.py", 3, "Text.", ())], tmp_path)) == [
        "mirror/a.py:3: the invariant names no test"
    ]
