"""How many examples a model has: few in the suite, which runs for each change, many where others are looked for."""

from __future__ import annotations

from hypothesis import settings


def examples(few: int, many: int) -> int:
    """Return ``few`` in the suite, ``many`` in ``make properties`` and ``make mutations``."""
    return few if settings.get_current_profile_name() == "mirror" else many
