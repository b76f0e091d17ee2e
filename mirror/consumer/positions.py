"""Where each assigned partition stands (``SubscriptionState``)."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mirror.backoff import Backoff
from mirror.cluster.metadata import Leader
from mirror.cluster.request_state import RequestState
from mirror.cluster.types import TopicPartition
from mirror.consumer.fetch_buffer import FetchBuffer
from mirror.consumer.fetched import Fetched
from mirror.errors import KafkaError


@dataclass(slots=True)
class Position:
    """One assigned partition.

    ``fetch`` is the next offset to fetch, ``consumed`` the next that a poll returns; None until one is known.
    ``epoch`` is the leader epoch of the last record before it, ``validated`` the leader epoch in which it was last
    found to be in the log (KIP-320), ``consumed_epoch`` that of the last record taken. ``by_leader``: no record's epoch
    is known, and ``epoch`` is that of a leader whose log had the position. ``reset`` is the ListOffsets time to begin
    at. ``generation`` tells late answers: every decision of the application has one of its own, and so has every giving
    up of what was fetched; ``sought`` is that of the decision.
    ``asked`` is whether somebody waits to know ``consumed``, also while it is paused.
    ``buffered`` is the bytes of its batches that wait to be taken.
    ``heard_ms`` is when its broker last answered without a refusal, also that there is nothing new; ``end`` is where
    the log ends for this reader, as it last said.
    ``topic_id`` is the topic that it is a place in: another one under the same name has other offsets (KIP-516). It is
    known from a seek, or from the first answer. ``proof`` is the number of the metadata request whose answer can say
    whether that topic is still there; ``denials`` counts the answers in a row that had another topic. ``unproven``:
    records that came by the topic's name are not to be had before such an answer.
    """

    state: RequestState
    fetch: int | None = None
    consumed: int | None = None
    epoch: int | None = None
    by_leader: bool = False
    validated: int = -1
    reset: int | None = None
    looking_up: bool = False
    paused: bool = False
    asked: bool = False
    error: KafkaError | None = None
    stopped: bool = False
    buffered: int = 0
    generation: int = 0
    sought: int = 0
    consumed_epoch: int | None = None
    topic_id: uuid.UUID | None = None
    proof: int = 0
    denials: int = 0
    unproven: bool = False
    preferred: int | None = None
    preferred_until_ms: int = 0
    heard_ms: int | None = None
    end: int | None = None

    def must_validate(self, leader: Leader) -> bool:
        """Whether the leader changed since the position was known to be in its log."""
        return self.epoch is not None and leader.epoch > self.validated

    def learn_epoch(self, leader_epoch: int) -> None:
        """A leader of this epoch has the position in its log: a later one that cut its log back lacks it."""
        if self.epoch is None and leader_epoch >= 0:
            self.epoch, self.by_leader = leader_epoch, True

    def is_outside(self, topic_id: uuid.UUID | None) -> bool:
        """Whether the topic with this id (None: not known) is another one than the position's."""
        return None not in {topic_id, self.topic_id} and topic_id != self.topic_id


class LastResponse(NamedTuple):
    """When a partition's broker last answered (``at_ms``, monotonic), and where its log ends for this reader.

    ``end`` is the last stable offset, or the high watermark for who reads uncommitted records; None: not known.
    """

    at_ms: int
    end: int | None


class Taken(NamedTuple):
    """What a poll took, and where its partition stood before: it may never have reached the application."""

    fetched: Fetched
    sought: int
    consumed: int | None
    consumed_epoch: int | None


class Positions:
    """All assigned partitions, and what was fetched of them and not yet taken. Sizes in bytes.

    ``spare`` is what the application has room for, as it said with its last poll, less what it was given since:
    negative after an entry that is larger. None where it did not say. ``hungry``: that poll found nothing.
    """

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._generations = itertools.count(1)
        self._by_tp: dict[TopicPartition, Position] = {}
        self.ready = FetchBuffer()
        self.spare: int | None = None
        self.hungry = True

    @property
    def buffered(self) -> int:
        """Bytes of memory that what was fetched and not yet taken holds."""
        return self.ready.held

    def __iter__(self) -> Iterator[tuple[TopicPartition, Position]]:
        return iter(self._by_tp.items())

    def __len__(self) -> int:
        return len(self._by_tp)

    def get(self, tp: TopicPartition, generation: int | None = None) -> Position | None:
        """The position, unless ``tp`` was let go, or decided anew since ``generation``."""
        position = self._by_tp.get(tp)
        if position is None or (generation is not None and position.generation != generation):
            return None
        return position

    # --- what the application decides

    def assign(self, tps: Iterable[TopicPartition], *, paused: bool = False) -> None:
        """Exactly these; positions of those kept stay, and the others begin ``paused``."""
        wanted = dict.fromkeys(tps)
        gone = {tp for tp in self._by_tp if tp not in wanted}
        self._drop_buffered(gone)
        for tp in gone:
            del self._by_tp[tp]
        for tp in wanted:
            if tp not in self._by_tp:
                self._by_tp[tp] = self._new()
                self._by_tp[tp].paused = paused

    def _new(self) -> Position:
        generation = next(self._generations)
        return Position(RequestState(self._backoff), generation=generation, sought=generation)

    def seek(self, tp: TopicPartition, offset: int, epoch: int | None) -> None:
        """Go on at ``offset``; what was fetched is dropped, what is under way will be."""
        position = self._restart(tp)
        position.fetch = position.consumed = offset
        position.epoch = position.consumed_epoch = epoch

    def expect(self, tp: TopicPartition, topic_id: uuid.UUID, proof: int) -> None:
        """The position that was just sought is one in this topic; ``proof`` as in :class:`Position`."""
        position = self._by_tp[tp]
        position.topic_id, position.proof = topic_id, proof

    def reset(self, tp: TopicPartition, time: int) -> None:
        """Go on at the offset of ``time`` (ms, EARLIEST or LATEST), once it is looked up."""
        self._restart(tp).reset = time

    def _restart(self, tp: TopicPartition) -> Position:
        self._drop_buffered({tp})
        new = self._new()
        new.paused = self._by_tp[tp].paused
        self._by_tp[tp] = new
        return new

    def pause(self, tps: Collection[TopicPartition], *, paused: bool) -> None:
        """Neither fetch nor return these, or go on with them."""
        for tp in tps:
            self._by_tp[tp].paused = paused

    def evict_paused(self) -> None:
        """Give up what was fetched of paused partitions, to be fetched again: others need the room now."""
        held = {tp for tp, position in self._by_tp.items() if position.paused and position.buffered}
        self._drop_buffered(held)
        for tp in held:
            position = self._by_tp[tp]
            position.fetch, position.epoch = position.consumed, position.consumed_epoch
            position.by_leader = False
            position.generation = next(self._generations)

    # --- what was fetched

    def put(self, fetched: Fetched, epoch: int | None) -> None:
        """Batches came in: the position moves behind them."""
        position = self._by_tp[fetched.tp]
        position.fetch = fetched.next_offset
        position.epoch, position.by_leader = epoch, False
        position.buffered += fetched.size
        self.ready.add(fetched)

    def report(self, tp: TopicPartition, error: KafkaError) -> None:
        """Tell the application once what is wrong; it is tried again all the same."""
        position = self._by_tp[tp]
        if str(position.error) != str(error):
            offset = position.fetch if position.fetch is not None else -1
            self.ready.add(Fetched(tp=tp, offset=offset, next_offset=offset, error=error))
        position.error = error

    def stop(self, tp: TopicPartition, error: KafkaError) -> None:
        """Nothing more comes of ``tp`` until a seek; the application hears why with its next poll."""
        position = self._by_tp[tp]
        position.stopped, position.error = True, error
        offset = position.fetch if position.fetch is not None else -1
        self.ready.add(Fetched(tp=tp, offset=offset, next_offset=offset, error=error))

    def take(self, max_bytes: int | None = None) -> list[Taken]:
        """What is ready and not paused, as :meth:`FetchBuffer.take` has it; it is the application's from here on."""
        taken: list[Taken] = []
        self.spare = max_bytes
        for fetched in self.ready.take(self._paused, max_bytes):
            if self.spare is not None:
                self.spare -= fetched.held
            position = self._by_tp[fetched.tp]
            taken.append(Taken(fetched, position.sought, position.consumed, position.consumed_epoch))
            position.buffered -= fetched.size
            if fetched.error is None:
                position.consumed = fetched.next_offset
                last_epoch = fetched.batches[-1].leader_epoch if fetched.batches else -1
                position.consumed_epoch = last_epoch if last_epoch >= 0 else None
        self.hungry = not taken
        return taken

    def untake(self, taken: Sequence[Taken]) -> None:
        """The application never got ``taken``, the last that was taken: it comes again, unless it was sought since."""
        back = [one for one in taken if (p := self._by_tp.get(one.fetched.tp)) is not None and p.sought == one.sought]
        self.ready.put_back(one.fetched for one in back)
        for one in reversed(back):
            position = self._by_tp[one.fetched.tp]
            position.buffered += one.fetched.size
            position.consumed, position.consumed_epoch = one.consumed, one.consumed_epoch

    def _paused(self, tp: TopicPartition) -> bool:
        return self._by_tp[tp].paused

    def _drop_buffered(self, tps: set[TopicPartition]) -> None:
        for tp in tps:
            for fetched in self.ready.drop(tp):
                fetched.release()
            self._by_tp[tp].buffered = 0
