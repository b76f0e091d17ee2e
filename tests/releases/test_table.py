"""The document's table of releases says what tests are run on which."""

from __future__ import annotations

from typing import Any

import pytest

from tests.releases.releases import MAIN_VERSION
from tests.releases.table import DOCUMENT, versions, with_table


def test_the_document_has_the_table_of_the_tests() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert with_table(text) == text, "run python -m tests.releases.table"


@pytest.mark.parametrize(
    ("names", "values", "expected"),
    [
        ("version", ["1", pytest.param("2", marks=pytest.mark.cluster)], ["1", "2"]),
        ("version", {"1": "x", "2": "y"}, ["1", "2"]),
        (("version", "level"), [("1", 0), ("2", 1), ("2", 2)], ["1", "2", "2"]),
        ("name, version", [("x", "1")], ["1"]),
        ("level", [1, 2], [MAIN_VERSION]),
    ],
)
def test_versions_are_those_of_the_parameters(names: Any, values: Any, expected: list[str]) -> None:
    def run() -> None:
        pass

    assert versions(pytest.mark.parametrize(names, values)(run)) == expected
