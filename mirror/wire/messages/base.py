"""The base class of all messages, and the types that several messages use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

OPERATIONS_NOT_TOLD: Final = -(2**31)
"""Kafka's value for authorized operations (KIP-430) that were not requested or are not available."""

Segment = bytes | bytearray | memoryview
"""Part of a frame. Segments are sent with ``sendmsg`` without being joined."""


class Message:
    """Base of every request and response body."""

    __slots__ = ()

    most_items: ClassVar[int] = 2**31
    """The most items in any list of the message when it is decoded. Real brokers stay far below."""


@dataclass(slots=True)
class Records:
    """The ``records`` field of a Produce partition: batches in order, as segments that are never copied."""

    segments: tuple[Segment, ...]

    def __len__(self) -> int:
        return sum(map(len, self.segments))

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> Records:
        """Return records that consist of ``segments`` in order."""
        return cls(tuple(segments))
