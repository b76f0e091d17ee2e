"""Whose turn it is to be encoded: partitions in turn, a bounded time each, in bounded memory. Pure.

::

    add ──► line ──next──► runs ──ran──► GO_ON
              ▲                  ├─────► GIVE_WAY   to the end of the line, with what it has made so far
              └── as memory allows ◄────  SET_BACK   what it has made is given up, it begins again later

A batch of 1 MB can unfold to 128 MB of records, and keep the encoder busy for 20 s. Jobs that are interrupted hold what
they have decompressed and made, so that only one of them may be as large as it likes (``_large``). The others share
``spare`` bytes, and who would need more waits until that much is free.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T", bound="EncodingJob")

TURN_MS: Final = 20
_SMALL: Final = 4
"""A partition whose last job held more than this part of ``spare`` waits for memory before it begins."""


class TurnOutcome(enum.Enum):
    """What the job that runs does next."""

    CONTINUE = enum.auto()
    YIELD = enum.auto()
    RESTART = enum.auto()


@dataclass(slots=True, eq=False)
class EncodingJob:
    """One job of the partition ``key``; ``held`` are the bytes that it holds, or needs where it has not begun."""

    key: Hashable
    held: int = 0


class EncodingSchedule(Generic[T]):
    """All jobs of a task. Each job is in the line, waits for memory, waits for its partition's own, or runs."""

    def __init__(self, spare: int) -> None:
        self._spare: Final = spare
        self._line: Final = deque[T]()
        self._too_large: Final = deque[T]()
        self._later: Final = dict[Hashable, deque[T]]()
        self._interrupted: Final = set[T]()
        self._large: T | None = None
        self._needed: Final = dict[Hashable, int]()

    def add(self, turn: T) -> None:
        """A new job. A partition has one at a time: further ones wait for it."""
        if turn.key in self._later:
            self._later[turn.key].append(turn)
        else:
            self._later[turn.key] = deque()
            self._enter(turn)

    def _enter(self, turn: T) -> None:
        turn.held = self._needed.get(turn.key, 0)
        (self._too_large if turn.held > self._spare // _SMALL else self._line).append(turn)

    def next(self) -> T | None:
        """Who runs now; None where there is nothing to do."""
        self._admit()
        return self._line.popleft() if self._line else None

    def _admit(self) -> None:
        for turn in list(self._too_large):
            if self._fits(turn):
                self._interrupted.add(turn)
            elif self._large is None:
                self._large = turn
            else:
                continue
            self._too_large.remove(turn)
            self._line.append(turn)

    def _fits(self, turn: T) -> bool:
        others = sum(one.held for one in self._interrupted if one is not turn)
        return others + turn.held <= self._spare

    def on_ran(self, turn: T, ran_ms: float, held: int) -> TurnOutcome:
        """``turn`` runs since ``ran_ms`` and holds ``held`` bytes."""
        turn.held = held
        if ran_ms < TURN_MS:
            return TurnOutcome.CONTINUE
        self._admit()
        if not self._line:
            return TurnOutcome.CONTINUE
        if turn is not self._large:
            if self._fits(turn):
                self._interrupted.add(turn)
            elif self._large is None:
                self._interrupted.discard(turn)
                self._large = turn
            else:
                self._interrupted.discard(turn)
                self._too_large.append(turn)
                return TurnOutcome.RESTART
        self._line.append(turn)
        return TurnOutcome.YIELD

    def on_ended(self, turn: T, held: int) -> None:
        """``turn``, which ran, is done, and has held ``held`` bytes at most: its partition's next job may run."""
        self._interrupted.discard(turn)
        if self._large is turn:
            self._large = None
        if held > self._spare // _SMALL:
            self._needed[turn.key] = held
        else:
            self._needed.pop(turn.key, None)
        later = self._later[turn.key]
        if later:
            self._enter(later.popleft())
        else:
            del self._later[turn.key]
