"""What all messages share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

OPERATIONS_NOT_TOLD: Final = -(2**31)
"""Where a broker was not asked what may be done (KIP-430), or does not say."""

Segment = bytes | bytearray | memoryview
"""A piece of a frame, sent as it is (``sendmsg``), never joined to its neighbours."""


class Message:
    """Base of every request and response body."""

    __slots__ = ()

    most_items: ClassVar[int] = 2**31
    """Items that each list of the message may have when it is read; all brokers stay far below."""


@dataclass(slots=True)
class Records:
    """The ``records`` field of a Produce partition: batches in order, as segments that are never copied."""

    segments: tuple[Segment, ...]

    def __len__(self) -> int:
        return sum(map(len, self.segments))

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> Records:
        """Records made of ``segments``, in order."""
        return cls(tuple(segments))
