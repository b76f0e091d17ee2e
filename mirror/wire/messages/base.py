"""The base class of all messages, and the types that several messages use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

OPERATIONS_NOT_TOLD: Final = -(2**31)
"""Kafka's value for authorized operations (KIP-430) that were not requested or are not available."""

Segment = bytes | bytearray | memoryview
"""Part of a frame. Segments are sent with ``sendmsg`` without being joined."""


FEW_BYTES: Final = 1024 * 1024
"""The bound of a response that has no list of topics, partitions or groups. Real ones have a few thousand bytes."""


class Message:
    """Base of every request and response body.

    The bounds of a response keep a hostile broker from taking all memory, or the network thread, with a response that
    is correct but huge: 64 MiB of groups with names of one letter would take 640 MB and 13 s. The bounds are twice what
    a response about 100,000 partitions needs, in as many topics with names of 249 letters and five replicas: 33 MB and
    1.2 million items, of Metadata.
    """

    __slots__ = ()

    most_bytes: ClassVar[int] = 64 * 1024 * 1024
    """The largest size of a response in bytes, without the records that a request asks for."""
    most_items: ClassVar[int] = 2_500_000
    """The most items in all lists of a response."""


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
