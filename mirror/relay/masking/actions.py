"""What takes the place of a masked text or number. Pure."""

from __future__ import annotations

import enum
import hmac
import json
from dataclasses import dataclass
from typing import Final

from mirror.relay.masking.places import Part, Place

_HEX_DIGITS: Final = 32
_FIRST_NUMBER: Final = 10**14
"""Pseudonyms of whole numbers have 15 digits: every JSON reader keeps these exactly (RFC 7493)."""


class Kind(enum.StrEnum):
    """What a mask does. The values are those of a configuration."""

    HASH = "hash"
    NULL = "null"
    DROP = "drop"
    CONSTANT = "constant"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Action:
    """What one mask does; ``text`` is what it puts there: for JSON, as JSON."""

    kind: Kind
    text: str = ""


def action_of(text: str, place: Place) -> Action:
    """Return the action at ``place`` that ``text`` names. Raises ValueError with those that are possible there."""
    possible = _possible(place)
    name, colon, rest = text.partition(":")
    kind = next((one for one in possible if one == name and (one is Kind.CONSTANT) == bool(colon)), None)
    if kind is None:
        texts = [f'"{one}:TEXT"' if one is Kind.CONSTANT else f'"{one}"' for one in possible]
        raise ValueError(f"here a mask is {' or '.join(texts)}")
    if kind is Kind.CONSTANT:
        _check_constant(rest, place)
    return Action(kind, rest)


def _possible(place: Place) -> tuple[Kind, ...]:
    """Return what may be done. A mask of keys keeps different ones apart, and one of values makes no tombstone."""
    if place.part is Part.HEADER:
        return Kind.HASH, Kind.NULL, Kind.DROP, Kind.CONSTANT, Kind.KEEP
    if place.part is Part.KEY:
        return (Kind.HASH,) if place.steps is None else (Kind.HASH, Kind.KEEP)
    return (Kind.HASH, Kind.CONSTANT) if place.steps is None else (Kind.HASH, Kind.NULL, Kind.CONSTANT, Kind.KEEP)


def _check_constant(text: str, place: Place) -> None:
    try:
        text.encode()
        if place.steps is not None:
            json.loads(text, parse_int=float, parse_constant=_refuse)
    except (ValueError, RecursionError):
        where = 'JSON, such as 0 or "none" with its quotes' if place.steps is not None else "text that UTF-8 can encode"
        raise ValueError(f"a constant here is {where}") from None


def _refuse(constant: str) -> None:
    raise ValueError(constant)


class Pseudonyms:
    """The pseudonyms under one secret: equal for equal texts, wherever they are, and not to be guessed without it."""

    def __init__(self, secret: bytes) -> None:
        self._secret: Final = secret

    def of_bytes(self, data: bytes) -> bytes:
        """Return that of a key, a value or a header: as of a text with these bytes."""
        return self.of_text(data).encode()

    def of_text(self, data: bytes) -> str:
        """Return that of a text in UTF-8: 32 hexadecimal digits, and of a whole number that of the number."""
        return self.of_number(data) if data.removeprefix(b"-").isdigit() else self._digest(data).hex()[:_HEX_DIGITS]

    def of_number(self, data: bytes) -> str:
        """Return that of a number, as it is written: a whole number of 15 digits."""
        return str(_FIRST_NUMBER + int.from_bytes(self._digest(data)) % (9 * _FIRST_NUMBER))

    def _digest(self, data: bytes) -> bytes:
        return hmac.digest(self._secret, data, "sha256")
