"""The document's table of other brokers says what is known of each."""

from __future__ import annotations

from mirror.spark.preflight.api_table import API_USES
from tests.foreign.implementations import DOCUMENT, IMPLEMENTATIONS, STARTS
from tests.foreign.table import with_table


def test_the_document_has_the_table_of_what_is_known() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert with_table(text) == text, "run python -m tests.foreign.table"


def test_what_is_run_can_be_started_and_what_is_not_run_is_not_called_so() -> None:
    used = {api.label for use in API_USES for api in use.apis}
    for one in IMPLEMENTATIONS:
        assert one.start in {"", *STARTS}
        assert bool(one.start) == (one.source is not None or one.target is not None)
        assert used >= set(one.missing)
