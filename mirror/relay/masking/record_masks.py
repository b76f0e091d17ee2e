"""Which records a test copy has, and what it masks of them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from hashlib import sha256
from typing import Final

from mirror.errors import RecordNotMasked
from mirror.relay.masking.actions import Action, Kind, Pseudonyms, action_of
from mirror.relay.masking.json_masks import NotMasked, mask_of
from mirror.relay.masking.places import Part, Place, place_of
from mirror.wire.decode import Record
from mirror.wire.header_names import Headers

ALL: Final = "100%"
_SHARE: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%")
_HASH_BITS: Final = 64
_KEEP: Final = Action(Kind.KEEP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking:
    """What makes a copy a test copy: settings that ``config`` has checked."""

    sample: str = ALL
    """The part of the keys that is copied, such as "1%"."""
    masks: tuple[tuple[str, str], ...] = ()
    """Places and actions, as of a configuration."""
    secret: bytes = field(default=b"", repr=False)
    """The key of the pseudonyms."""
    leaves_out: bool = False
    """Whether a record that cannot be masked is left out, instead of being an error."""


def share_of(text: str) -> Fraction:
    """Return the part of all that a percentage is: above 0, and at most 1. Raises ValueError."""
    found = _SHARE.fullmatch(text)
    share = Fraction(found[1]) / 100 if found is not None else Fraction(0)
    if not 0 < share <= 1:
        raise ValueError('must be a percentage from "0.000001%" to "100%"')
    return share


def check_masks(table: Mapping[str, str]) -> None:
    """Check places and actions. Raises ValueError with the first one that is wrong."""
    texts = dict[Place, str]()
    for text, action in table.items():
        try:
            place = place_of(text)
            action_of(action, place)
        except ValueError as error:
            raise ValueError(f"{_quoted(text)} = {_quoted(action)}: {error}") from None
        if (other := texts.setdefault(place, text)) != text:
            raise ValueError(f"{_quoted(other)} and {_quoted(text)} are the same place: remove one")
    for part in (Part.KEY, Part.VALUE):
        inside = [text for text in table if text.startswith(f"{part}:")]
        if part in table and inside:
            raise ValueError(f"{_quoted(part)} masks all of it, with {_quoted(inside[0])}: remove one")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def needs_secret(table: Mapping[str, str]) -> bool:
    """Whether a mask makes pseudonyms."""
    return Kind.HASH in table.values()


# Invariant: The same keys are copied of all topics and flows, whatever their partitions, and a larger sample has all
#   keys of a smaller one: a key is in by its SHA-256 alone, which has nothing in common with a partitioner's murmur2.
# Test: tests/relay/masking/test_record_masks.py::test_a_key_is_in_or_out_by_its_bytes_alone
class Sample:
    """Which records are copied."""

    def __init__(self, share: Fraction) -> None:
        """``share`` is above 0."""
        self._everything: Final = share == 1
        # Hashes begin with a number of 64 bits; that of a longer text of bytes with the same beginning is not below it.
        self._limit: Final = b"" if share == 1 else int(share * 2**_HASH_BITS).to_bytes(_HASH_BITS // 8)

    def has(self, record: Record) -> bool:
        """Whether a record is copied: by its key, and without one by its offset."""
        if self._everything:
            return True
        key = record.key
        return sha256(str(record.offset).encode() if key is None else key).digest() < self._limit


class RecordMasks:
    """Masks records. What cannot be masked is an error, so that nothing of it is copied."""

    def __init__(self, masking: Masking) -> None:
        """Raises ValueError if ``masking`` was not checked."""
        pseudonyms = Pseudonyms(masking.secret)
        places = [(place_of(place), action) for place, action in masking.masks]
        rules = [(place, action_of(action, place)) for place, action in places]
        headers = {place.header: action for place, action in rules if place.part is Part.HEADER}
        self._leaves_out: Final = masking.leaves_out
        self._pseudonym: Final = pseudonyms.of_bytes
        self._other_headers: Final = headers.pop(None, _KEEP)
        self._headers: Final = headers
        self._key: Final = _mask_of(Part.KEY, rules, pseudonyms)
        self._value: Final = _mask_of(Part.VALUE, rules, pseudonyms)

    def masked(self, record: Record) -> Record:
        """Return the record with its masks. Null stays null: a tombstone is one still. Raises RecordNotMasked."""
        _, timestamp_ms, key, value, headers = record
        part = Part.KEY
        try:
            if key is not None and self._key is not None:
                key = self._key(key)
            part = Part.VALUE
            if value is not None and self._value is not None:
                value = self._value(value)
        except NotMasked as error:
            raise self._error(record.offset, part, str(error)) from None
        if headers and (self._headers or self._other_headers != _KEEP):
            headers = tuple(self._masked_headers(headers))
        return Record(record.offset, timestamp_ms, key, value, headers)

    def _masked_headers(self, headers: Headers) -> Iterator[tuple[str, bytes | None]]:
        for name, value in headers:
            action = self._headers.get(name, self._other_headers)
            if action.kind is Kind.KEEP or (value is None and action.kind is not Kind.DROP):
                yield name, value
            elif action.kind is Kind.HASH and value is not None:
                yield name, self._pseudonym(value)
            elif action.kind is not Kind.DROP:
                yield name, action.text.encode() if action.kind is Kind.CONSTANT else None

    def _error(self, offset: int, part: Part, problem: str) -> RecordNotMasked:
        remedies = [
            'mask all of it ("value")' if part is Part.VALUE else 'mask all of it ("key")',
            "copy its topic by a flow with other masks",
            'leave such records out (on-unmaskable = "skip")',
        ]
        text = f"the {part} of the record at offset {offset} cannot be masked: {problem}; {', or '.join(remedies)}"
        return RecordNotMasked(text, left_out=self._leaves_out)


def _mask_of(
    part: Part, rules: Sequence[tuple[Place, Action]], pseudonyms: Pseudonyms
) -> Callable[[bytes], bytes] | None:
    """Return what masks a key or a value; it raises NotMasked. None: nothing of it is masked."""
    of_part = [(place, action) for place, action in rules if place.part is part]
    paths = [(place.steps, action) for place, action in of_part if place.steps is not None]
    if paths:
        return partial(_in_json, mask_of(paths, pseudonyms))
    if not of_part:
        return None
    ((_, action),) = of_part
    constant = action.text.encode()
    return pseudonyms.of_bytes if action.kind is Kind.HASH else lambda _: constant


def _in_json(mask: Callable[[str], str], data: bytes) -> bytes:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or text[0] == "\0":
        registry = ", but begins as a schema registry's serializers do" if data[:1] == b"\0" else ""
        raise NotMasked(f"it is not JSON{registry}")
    masked = mask(text)
    return data if masked is text else masked.encode()
