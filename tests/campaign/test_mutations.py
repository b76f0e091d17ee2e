"""The mutations apply to the code as it is: their campaign is long, and would notice late."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.mutations.campaign import Mutation, read_mutations

_ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mutation", read_mutations(), ids=lambda one: one.name)
def test_mutation_applies(mutation: Mutation) -> None:
    path = _ROOT / mutation.file
    text = path.read_text("utf-8")
    assert mutation.applied_to(text) != text
    assert (_ROOT / mutation.fails.partition("::")[0]).is_file()
