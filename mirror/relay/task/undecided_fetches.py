"""Holds fetches with batches of an undecided origin until the source's registry was read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from dataclasses import replace
from typing import Final, Protocol

from mirror.cluster.events import as_kafka_error
from mirror.cluster.types import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.errors import KafkaError
from mirror.relay.byte_limits import SourceBudget


class OriginDecisions(Protocol):
    """The part of ``LocalOrigin`` that is needed."""

    def undecided(self, fetched: Fetched) -> set[int]:
        """Return the producer ids of a fetch that have to be decided first."""
        ...

    def decide(self, producer_ids: Collection[int]) -> None:
        """Decide these producer ids. Waits. Raises MirrorError."""
        ...

    def refusal(self, fetched: Fetched) -> KafkaError | None:
        """Return the error of a fetch whose records' origin cannot be known; None if it can."""
        ...


class UndecidedFetches:
    """The fetches of a task that wait for the registry, in order. Used on the task's thread.

    While one waits, later ones of its partition do, too. They count in the source budget.
    """

    def __init__(
        self,
        origin: OriginDecisions,
        submit: Callable[..., Future[None]],
        budget: SourceBudget,
        wake: Callable[[], None],
    ) -> None:
        """``submit`` runs a function with arguments in a thread; ``wake`` may be called from any thread."""
        self._origin: Final = origin
        self._submit: Final = submit
        self._budget: Final = budget
        self._wake: Final = wake
        self._held: Final = deque[Fetched]()
        self._deciding: Future[None] | None = None
        self._asked: set[int] = set()

    def hold(self, fetches: Iterable[Fetched]) -> list[Fetched]:
        """Return those of ``fetches`` that can be copied now; hold the others."""
        waiting = {fetched.tp for fetched in self._held}
        ready: list[Fetched] = []
        for fetched in fetches:
            if fetched.tp in waiting or (fetched.error is None and self._origin.undecided(fetched)):
                waiting.add(fetched.tp)
                self._held.append(fetched)
                self._budget.add(fetched.held)
            elif fetched.error is None and (error := self._origin.refusal(fetched)) is not None:
                ready.append(replace(fetched, error=error))
            else:
                ready.append(fetched)
        self._decide()
        return ready

    def drop(self, tp: TopicPartition) -> None:
        """Forget what is held of ``tp``, which is read from another position from now on, or not at all."""
        held = list(self._held)
        self._held.clear()
        for fetched in held:
            if fetched.tp != tp:
                self._held.append(fetched)
            else:
                self._budget.release(fetched.held)
                fetched.release()

    def take_decided(self) -> list[Fetched]:
        """Return the held fetches that can be copied now; with the error, if the registry could not be read."""
        if self._deciding is None or not self._deciding.done():
            return []
        error, asked, self._deciding = self._deciding.exception(), self._asked, None
        held = list(self._held)
        self._held.clear()
        for fetched in held:
            self._budget.release(fetched.held)
        if error is not None:
            failed = {fetched.tp for fetched in held if self._origin.undecided(fetched) & asked}
            held = [replace(one, error=as_kafka_error(error)) if one.tp in failed else one for one in held]
        return self.hold(held)

    def _decide(self) -> None:
        if self._deciding is not None or not self._held:
            return
        self._asked = set().union(*(self._origin.undecided(fetched) for fetched in self._held))
        self._deciding = deciding = self._submit(self._origin.decide, self._asked)
        deciding.add_done_callback(lambda _: self._wake())
