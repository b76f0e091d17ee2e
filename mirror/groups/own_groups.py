"""The groups in which this program keeps the progress of its flows, and its control commands. Pure."""

from __future__ import annotations

import re
from typing import Final

_OWN: Final = re.compile(r"mirror\.[^.]+\.((progress\.)?[0-9]+|control)")


def is_own_group(group: str) -> bool:
    """Return whether a flow of this program uses ``group``: on its target, which may be the source of another flow."""
    return _OWN.fullmatch(group) is not None
