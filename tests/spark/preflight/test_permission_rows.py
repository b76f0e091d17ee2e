"""config/README.md has the table of permissions that the check uses."""

from __future__ import annotations

from tests.spark.preflight.permission_rows import DOCUMENT, rows, with_table


def test_the_document_s_table_is_the_present_one() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert with_table(text) == text, "run python -m tests.spark.preflight.permission_rows"


def test_each_row_is_there_once() -> None:
    assert len(rows()) == len(set(rows()))
