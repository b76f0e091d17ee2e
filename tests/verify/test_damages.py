"""Every kind of damage to a target is found, with its kind and its offsets."""

from __future__ import annotations

import pytest

from mirror.verify.values import Rules
from tests.verify.damages import DAMAGES, Damage, source_records
from tests.verify.logs import TARGET_BASE, by_sevens, by_tens, copied, found_in, log_of, verdict_of
from tests.verify.more_damages import MORE_DAMAGES

_ALL = [*DAMAGES, *MORE_DAMAGES]
_LAYOUTS = {"the source's batches": by_tens, "other batches": by_sevens}


def test_there_are_ninety_kinds_of_damage() -> None:
    assert len({damage.name for damage in _ALL}) == len(_ALL) >= 90


@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("damage", _ALL, ids=lambda damage: damage.name)
def test_damage_is_found_with_its_kind_and_offsets(damage: Damage, layout: str) -> None:
    source = source_records()
    target = list(source)
    expected = [found._replace(target=found.target + TARGET_BASE) for found in damage.change(target)]
    verdict = verdict_of(log_of(by_tens(source)), copied(_LAYOUTS[layout](target)), Rules())
    assert sorted(found_in(verdict.differences)) == sorted(expected)
    assert not verdict.equal
