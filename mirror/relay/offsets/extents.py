"""Extents: source offsets and target offsets whose distance is constant, gathered from acknowledged appends. Pure.

An extent is stored as three numbers: how many offsets of the source and of the target are between it and the one
before, and its length. Most of them take one byte each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from mirror.wire.integers import INT64_MAX

MAX_EXTENTS: Final = 512
"""A span has at most this many extents, and the one that is not complete: about 2 KB."""

_MAX_VARINT_BITS: Final = 63


class Extent(NamedTuple):
    """The records at the source offsets from ``source`` on are at the target offsets from ``target`` on."""

    source: int
    target: int
    length: int


class Span(NamedTuple):
    """Source offsets ``[start, end)`` of which all records are known, and their extents."""

    start: int
    end: int
    target_start: int
    """None of its records is in front of this target offset."""
    target_end: int
    """The target offset behind its last record."""
    encoded: bytes
    """The extents, for :func:`decode_extents`."""


class AppendedExtents:
    """The extents of one copy from a source offset on; what is not committed can be taken back."""

    def __init__(self) -> None:
        self.restart(0, None)

    def restart(self, start: int, target_start: int | None) -> None:
        """Forget everything, and begin at the source offset ``start``.

        ``target_start`` is a target offset in front of which no record from there on will be; None: not known yet.
        """
        self._start = self.end = self._base_source = start
        self._target_start = target_start
        self._base_target = target_start or 0
        self._body = bytearray()
        self._parts: list[tuple[int, int, int]] = []
        """(Bytes, source end, target end) of each complete span."""
        self._count = 0
        self._source = self._target = self._length = 0
        self.is_broken = False
        """Whether the target offset of a record is not known: nothing more is gathered."""
        self._taken_end = -1
        self.commit()

    # --- appends, in order

    def append(self, source: int, target: int, count: int, jumps: Sequence[int], next_offset: int) -> None:
        """Take a batch of ``count`` records, at the target offset ``target`` (-1: not known).

        The first record is at the source offset ``source``. ``jumps`` has two numbers for each record that does not
        follow its predecessor in the source: its index in the batch, and its source offset. ``next_offset`` is the
        source offset behind the batch.
        """
        if self.is_broken or target < self.target_end or source < self.end:
            self.is_broken = True
            return
        if jumps:
            self._append_jumping(source, target, count, jumps)
        else:
            self._append_run(source, target, count)
        self.end = next_offset

    def _append_jumping(self, source: int, target: int, count: int, jumps: Sequence[int]) -> None:
        first = 0
        for position in range(0, len(jumps), 2):
            index = jumps[position]
            self._append_run(source, target + first, index - first)
            first, source = index, jumps[position + 1]
        self._append_run(source, target + first, count - first)

    def _append_run(self, source: int, target: int, count: int) -> None:
        length = self._length
        if length and source == self._source + length and target == self._target + length:
            self._length += count
            return
        if self._target_start is None:
            self._target_start = self._base_target = target
        self._complete_run()
        self._source, self._target, self._length = source, target, count

    def _complete_run(self) -> None:
        if not self._length:
            return
        _encode(self._body, self._source - self._base_source, self._target - self._base_target, self._length)
        self._base_source, self._base_target = self._source + self._length, self._target + self._length
        self._length = 0
        self._count += 1
        if self._count == MAX_EXTENTS:
            self._parts.append((len(self._body), self._base_source, self._base_target))
            self._count = 0

    def skip_to(self, next_offset: int) -> None:
        """There is nothing to copy up to the source offset ``next_offset``."""
        if not self.is_broken:
            self.end = max(self.end, next_offset)

    @property
    def target_end(self) -> int:
        """The target offset behind the last record; 0 if there is none, and none is known to be behind."""
        return self._target + self._length if self._length else self._base_target

    @property
    def is_full(self) -> bool:
        """Whether there is a complete span."""
        return bool(self._parts)

    # --- commits

    def commit(self) -> None:
        """Everything so far is committed."""
        extent = self._source, self._target, self._length
        base = self._base_source, self._base_target, self._target_start
        self._committed = len(self._body), len(self._parts), self._count, extent, base, self.end

    def roll_back(self) -> None:
        """Forget what is not committed."""
        size, parts, self._count, extent, base, self.end = self._committed
        self._source, self._target, self._length = extent
        self._base_source, self._base_target, self._target_start = base
        del self._body[size:], self._parts[parts:]
        self.is_broken = False

    def take(self) -> list[Span]:
        """Return the committed spans that have changed since the last call; call it after :meth:`commit`.

        The last one is returned again when it has grown.
        """
        spans: list[Span] = []
        if self._target_start is None:
            return spans
        at = 0
        for size, source_end, target_end in self._parts:
            spans.append(Span(self._start, source_end, self._target_start, target_end, bytes(self._body[at:size])))
            self._start, self._target_start, at = source_end, target_end, size
        del self._body[:at]
        self._parts.clear()
        if (self._body or self._length) and self.end != self._taken_end:
            encoded = bytearray(self._body)
            if self._length:
                _encode(encoded, self._source - self._base_source, self._target - self._base_target, self._length)
            spans.append(Span(self._start, self.end, self._target_start, self.target_end, bytes(encoded)))
        self._taken_end = self.end
        self.commit()
        return spans


def span_of(start: int, end: int, target_start: int, extents: Iterable[Extent]) -> list[Span]:
    """Return ``extents``, which are in order, as spans: adjoining ones become one, and too many become more spans."""
    gathered = AppendedExtents()
    gathered.restart(start, target_start)
    for extent in extents:
        gathered.append(extent.source, extent.target, extent.length, (), extent.source + extent.length)
    gathered.skip_to(end)
    return [] if gathered.is_broken else gathered.take()


def decode_extents(start: int, target_start: int, encoded: bytes) -> Iterator[Extent]:
    """Yield the extents of a span. Raises ValueError if ``encoded`` is none of :class:`Span`."""
    source, target = start, target_start
    numbers = decode_numbers(encoded)
    for gap in numbers:
        try:
            source, target, length = source + gap, target + next(numbers), next(numbers)
        except StopIteration:
            raise ValueError("an extent is incomplete") from None
        if length < 1 or max(source, target) + length > INT64_MAX:
            msg = f"an extent of {length} records at {source}"
            raise ValueError(msg)
        yield Extent(source, target, length)
        source, target = source + length, target + length


def is_full(encoded: bytes) -> bool:
    """Whether the extents of a span are as many as it may have: then others follow, unless the last one was growing.

    Raises ValueError if ``encoded`` is none of :class:`Span`.
    """
    return sum(1 for _ in decode_numbers(encoded)) >= len(Extent._fields) * MAX_EXTENTS


# --- numbers


def _encode(body: bytearray, *numbers: int) -> None:
    for number in numbers:
        rest = number
        while rest > 0x7F:  # noqa: PLR2004 - seven bits in each byte
            body.append(rest & 0x7F | 0x80)
            rest >>= 7
        body.append(rest)


def encode_numbers(*numbers: int) -> bytes:
    """Encode numbers from 0 to 2^63 - 1, seven bits in each byte, the lowest ones first."""
    body = bytearray()
    _encode(body, *numbers)
    return bytes(body)


def decode_numbers(encoded: bytes) -> Iterator[int]:
    """Yield what :func:`encode_numbers` has encoded. Raises ValueError for anything else."""
    number = shift = 0
    for byte in encoded:
        number |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
            if shift >= _MAX_VARINT_BITS:
                raise ValueError("a number is too long")
            continue
        yield number
        number = shift = 0
    if shift:
        raise ValueError("a number is incomplete")
