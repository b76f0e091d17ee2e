"""How many examples the suite takes, which runs for each change; more are taken where others are looked for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings


def examples(few: int, many: int) -> int:
    """Return ``few`` in the suite, ``many`` in ``make properties`` and ``make mutations``."""
    return few if settings.get_current_profile_name() == "mirror" else many


def crossed(first: Sequence[object], second: Sequence[object]) -> list[ParameterSet]:
    """Return each value of ``first`` with each of ``second``; the suite has each value once or more, not each pair.

    The others are for ``make cluster``.
    """
    in_suite = {(n % len(first), n % len(second)) for n in range(max(len(first), len(second)))}
    return [
        pytest.param(one, other, marks=() if (at, other_at) in in_suite else pytest.mark.cluster)
        for at, one in enumerate(first)
        for other_at, other in enumerate(second)
    ]
