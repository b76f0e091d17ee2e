"""Makes malformed responses from a seed: by changed bytes, and by absurd values in a valid format.

It works on this project's own messages and on kio's, because both are trees of dataclasses.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
import struct
import uuid
from typing import Any, Final, TypeVar

T = TypeVar("T")

_SIZE: Final = struct.Struct(">i")
_LENGTHS: Final = (
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 10,
    b"\xff\xff\xff\xff\x07",
    b"\x7f\xff",
    b"\xff\xff",
    b"\0",
)
_SIZES: Final = (*_LENGTHS[:2], b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\3", b"\1\0\0\0")
_INTEGERS: Final = (-(2**63), -(2**31), -1, 0, 1, 7, 2**15 - 1, 2**31 - 1, 2**62, 2**63 - 1)
_TEXTS: Final = (
    "",
    "\0",
    "a" * 300,
    "..",
    "no such host.invalid",
    "\x1b[31mred\n",
    "<script>alert(1)</script>",
    "é" * 90,
)
_CODES: Final = (-1, 1, 2, 3, 5, 6, 7, 14, 15, 16, 29, 41, 42, 45, 47, 51, 56, 58, 70, 71, 74, 90, 100, 999, -32768)


class Fuzzer:
    """The results depend on ``seed`` and on the previous calls."""

    def __init__(self, seed: int) -> None:
        self._rng: Final = random.Random(seed)
        self.made = 0

    def chance(self) -> float:
        """Return a random number from 0 to 1."""
        return self._rng.random()

    # --- bytes

    def frame(self, frame: bytes, *, readable: bool = True) -> bytes:
        """Return a malformed frame with its size. Unless ``readable``, it cannot decode to another valid message."""
        self.made += 1
        kinds = [self._cut, self._longer, self._foreign, self._resized]
        if readable:
            kinds += [self._flipped, self._wrong_length]
        return self._rng.choice(kinds)(bytearray(frame))

    def _flipped(self, frame: bytearray) -> bytes:
        for _ in range(self._rng.randint(1, 8)):
            at = self._rng.randrange(_SIZE.size, len(frame))
            frame[at] ^= 1 << self._rng.randrange(8)
        return bytes(frame)

    def _cut(self, frame: bytearray) -> bytes:
        """Truncate the frame; its size may be adjusted."""
        del frame[self._rng.randrange(len(frame)) :]
        return self._sized(frame)

    def _longer(self, frame: bytearray) -> bytes:
        frame += self._rng.randbytes(self._rng.randint(1, 40))
        return self._sized(frame)

    def _wrong_length(self, frame: bytearray) -> bytes:
        """Overwrite some bytes with a wrong length."""
        at = self._rng.randrange(_SIZE.size, len(frame))
        length = self._rng.choice(_LENGTHS)
        frame[at : at + self._rng.choice((1, len(length)))] = length
        return self._sized(frame)

    def _foreign(self, frame: bytearray) -> bytes:
        """Change the correlation id, or the whole body."""
        if self._rng.random() < 0.5:
            frame[_SIZE.size : _SIZE.size + 4] = self._rng.randbytes(4)
            return bytes(frame)
        head = frame[: _SIZE.size + 4]
        return self._sized(head + self._rng.randbytes(self._rng.randint(0, 200)))

    def _resized(self, frame: bytearray) -> bytes:
        frame[: _SIZE.size] = self._rng.choice(_SIZES)
        return bytes(frame)

    def _sized(self, frame: bytearray) -> bytes:
        if len(frame) >= _SIZE.size and self._rng.random() < 0.8:
            _SIZE.pack_into(frame, 0, len(frame) - _SIZE.size)
        return bytes(frame)

    # --- values

    def body(self, body: T) -> T:
        """Return the message with some absurd values; a field that cannot have one is unchanged."""
        self.made += 1
        places = list(_places(body, ()))
        for path in self._rng.sample(places, min(len(places), self._rng.randint(1, 3))):
            body = self._changed(body, path)
        return body

    def _changed(self, value: Any, path: tuple[str | int, ...]) -> Any:
        if not path:
            return self._absurd(value)
        step, *rest = path
        if isinstance(step, int):
            if step >= len(value):
                return value  # an earlier change has removed the item
            return (*value[:step], self._changed(value[step], tuple(rest)), *value[step + 1 :])
        if not dataclasses.is_dataclass(value):
            return value
        found = getattr(value, step)
        if not rest and "error_code" in step:
            return dataclasses.replace(value, **{step: self._code(found)})  # type: ignore[type-var]
        return dataclasses.replace(value, **{step: self._changed(found, tuple(rest))})  # type: ignore[type-var]

    def _code(self, found: Any) -> Any:
        code = self._rng.choice(_CODES)
        try:
            return type(found)(code)
        except ValueError:  # kio has no such code
            return found

    def _absurd(self, value: Any) -> Any:  # noqa: PLR0911 - one for each type
        rng = self._rng
        match value:
            case bool():
                return not value
            case int():
                return rng.choice((*_INTEGERS, value - 1, value + 1))
            case str():
                return rng.choice(_TEXTS)
            case tuple():
                return rng.choice(((), value[1:], value + value, value[::-1]))
            case bytes() | memoryview():
                return rng.choice((b"", bytes(value)[:-1], bytes(value)[1:], rng.randbytes(50)))
            case uuid.UUID():
                return uuid.UUID(int=rng.getrandbits(128))
            case dt.timedelta():
                return type(value)(milliseconds=rng.choice((-1, 0, 1_000)))
            case _:
                return value


def _places(value: Any, path: tuple[str | int, ...]) -> Any:
    """Yield the paths of values that can be changed: (field or index, ...)."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _places(getattr(value, field.name), (*path, field.name))
        return
    if path and value is not None:
        yield path
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _places(item, (*path, index))
