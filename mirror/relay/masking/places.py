"""Which part of a record a mask is about, as a configuration names it: ``value:$.customer.email``. Pure.

The paths are a part of RFC 9535's: names and ``[*]``.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final

MAX_STEPS: Final = 32
_NAME: Final = r"[^\W\d]\w*"
_STEP: Final = re.compile(rf"""\.({_NAME})|\['([^']*)'\]|\["([^"]*)"\]|\[(\*)\]""")
_HELP: Final = 'a place is "key", "value", "key:$.PATH", "value:$.PATH" or "header:NAME"'
_PATH_HELP: Final = "a path is $, followed by .NAME, ['NAME'] or [*] for all members or elements"

Steps = tuple[str | None, ...]
"""The names of members, from the root on; None: all members of an object, or all elements of an array."""


class Part(enum.StrEnum):
    """A part of a record that can be masked."""

    KEY = "key"
    VALUE = "value"
    HEADER = "header"


@dataclass(frozen=True, slots=True)
class Place:
    """What one mask is about."""

    part: Part
    steps: Steps | None = None
    """Of a key or value: the path in its JSON; None: all its bytes, whatever they are."""
    header: str | None = None
    """The name of a header; None: all that have no mask of their own."""


def place_of(text: str) -> Place:
    """Return the place that ``text`` names. Raises ValueError."""
    part, colon, rest = text.partition(":")
    if part == Part.HEADER and rest:
        return Place(Part.HEADER, header=None if rest == "*" else rest)
    if part not in {Part.KEY, Part.VALUE} or (colon and not rest):
        raise ValueError(_HELP)
    return Place(Part(part), _steps(rest) if colon else None)


def _steps(path: str) -> Steps:
    if not path.startswith("$"):
        raise ValueError(_PATH_HELP)
    steps, at = list[str | None](), 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise ValueError(_PATH_HELP)
        steps.append(None if step[4] else next(name for name in step.group(1, 2, 3) if name is not None))
        at = step.end()
    if len(steps) > MAX_STEPS:
        raise ValueError(f"a path has at most {MAX_STEPS} steps")
    return tuple(steps)


def path_text(steps: Steps) -> str:
    """Return a path as a configuration may have it, for a message."""
    return "$" + "".join(_step_text(step) for step in steps)


def _step_text(step: str | None) -> str:
    if step is None:
        return "[*]"
    return f".{step}" if re.fullmatch(_NAME, step) else f"['{step}']"
