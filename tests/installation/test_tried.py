"""jobs/TRIED.md has the tables of ``tried.toml``, whose tests exist; jobs/INSTALL.md has what a newcomer types."""

from __future__ import annotations

import pytest

from tests.installation import newcomer
from tests.installation.lowest import ROOT
from tests.installation.tried import DOCUMENT, parts, with_tables

TESTS = sorted({one for _, rows in parts() for row in rows for one in row.by})


def test_the_document_has_the_tables() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert with_tables(text) == text, "run python -m tests.installation.tried"


@pytest.mark.parametrize("name", TESTS)
def test_each_test_exists(name: str) -> None:
    file, _, function = name.partition("::")
    text = (ROOT / "tests" / file).read_text("utf-8")
    assert f"def {function}(" in text if function else "def test_" in text


def test_the_document_has_each_command_of_the_first_copy() -> None:
    text = newcomer.DOCUMENT.read_text("utf-8")
    assert [one.command for one in newcomer.STEPS if one.command not in text] == [], "run make newcomer"
