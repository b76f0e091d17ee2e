"""Commits what a round has decided: intents first, then the offsets of each group, by coordinator."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple, TypeVar

from mirror.client import Admin, OffsetAndMetadata, Outcomes, TopicPartition
from mirror.errors import KafkaError, KafkaTimeout
from mirror.groups.commit_decision import Act, Intent, Reason
from mirror.groups.coordinators import CALL_MS, CoordinatorCalls, answers_any
from mirror.groups.group_partition import GroupPartition, offset_of
from mirror.groups.intents import GroupTopicKey, StoredIntents, encoded
from mirror.groups.positions import reason_of
from mirror.groups.reader import GroupReader
from mirror.groups.rules import GroupRules
from mirror.relay.progress.fenced_writer import FencedWriter
from mirror.relay.progress.flow_topic import FlowTopic
from mirror.relay.progress.followed_topic import FollowedTopic
from mirror.timing import Clock
from mirror.wire.decode import Record
from mirror.wire.integers import INT16_MAX

K = TypeVar("K")
V = TypeVar("V")

_Outcomes = Outcomes[TopicPartition, None]
_OfGroups = Outcomes[str, _Outcomes]
_Offsets = dict[TopicPartition, OffsetAndMetadata]

_GROUPS: Final = 32
"""Groups whose commits share a call."""
_AT_ONCE: Final = 2
"""Such calls in flight per coordinator: it answers one while the next one is encoded."""
_DELETIONS: Final = 64
"""Deletions in flight per coordinator, each of a group."""
_FENCED_MS: Final = 10_000
"""Nothing is sent later than this after the intents were to be stored: a later run may have begun since."""
_COMMIT_BYTES: Final = 256 * 1024
"""The offsets of one commit: a coordinator writes them as one batch, of at most 1 MiB unless it is configured."""
_OFFSET_BYTES: Final = 100
"""One of them in that batch, without its names and metadata."""
_MAX_METADATA_BYTES: Final = INT16_MAX
"""The largest string that requests have."""


class _Part(NamedTuple):
    """Some partitions of a group, which share a request."""

    group: str
    number: int = 0


_Bundle = tuple[_Part, ...]
"""Parts of different groups of one coordinator, which share a call: it ends once all of them have an outcome."""


# Invariant: Intents are stored in transactions of one id before anything is committed or deleted, so that an earlier
#   run is fenced; its late commits are corrected, and its late records replace nothing.
# Test: tests/groups/test_sync_after_crashes.py::test_a_commit_that_a_killed_run_has_sent_arrives_late_and_is_corrected
# Test: tests/copying/groups/
#   test_killed_rounds.py::test_no_position_skips_a_record_or_goes_back_while_what_writes_it_is_killed
# Test: tests/groups/test_sync_after_crashes.py::test_an_intent_that_becomes_visible_late_does_not_replace_a_later_one
class GroupCommits:
    """The intents of a flow, and its commits on the target. Its calls wait for the target; use it in one thread."""

    def __init__(
        self,
        topic: FlowTopic,
        writer: FencedWriter,
        target: Admin,
        reader: GroupReader,
        clock: Clock,
        timeout_ms: int,
        rules: GroupRules,
    ) -> None:
        """``topic`` is the flow's group topic, to which ``writer`` writes; ``reader`` is that of the target.

        ``timeout_ms`` limits each call. Of ``rules``, the names of groups are used.
        """
        self._writer: Final = writer
        self._admin: Final = target
        self._reader: Final = reader
        self._clock: Final = clock
        self._timeout_ms: Final = timeout_ms
        self._followed: Final = FollowedTopic(topic)
        self._commits: Final = CoordinatorCalls[_Bundle, _OfGroups](clock, at_once=_AT_ONCE, is_answer=answers_any)
        self._deletions: Final = CoordinatorCalls[str, _Outcomes](clock, at_once=_DELETIONS, is_answer=answers_any)
        self._target_group: Final = rules.target_group
        self.intents: Final = StoredIntents(rules.source_group)
        self._late: Final[set[str]] = set()
        """Groups whose last commit had no outcome in time, though their coordinator has answered for others."""
        self._settled: Final[set[GroupTopicKey]] = set()
        """Of which records it is not stored yet that commits have succeeded."""

    def close(self) -> None:
        """Store which commits have succeeded, if that is possible, and close the connections."""
        with contextlib.closing(self._followed), contextlib.closing(self._writer), contextlib.suppress(KafkaError):
            if self._writer.has_begun:  # not again: that would fence a later run
                self._put(self._unstored())

    def begin(self) -> bool:
        """Fence other runs of the flow, if this one has not since it failed; return whether it has now.

        Raises KafkaError, and FlowHeld or LatchMoved if the flow may not change anything.
        """
        return self._writer.begin()

    def read_intents(self) -> set[str]:
        """Read what was stored since the last call; return the groups of which others have stored something.

        Raises KafkaError if that is not all: the next call goes on.
        """
        stored, changed = self.intents, set[str]()

        def take(record: Record) -> None:
            if (group := stored.take(record.key, record.value, record.offset)) is not None:
                changed.add(group)

        self._followed.follow(self._clock, self._timeout_ms, clear=stored.clear, take=take)
        return changed

    def write(self, rows: Sequence[GroupPartition]) -> int:
        """Store the intents, and commit; return how many offsets were committed. Raises KafkaError, Fenced.

        That commits have succeeded is stored with the intents of the next call, or by :meth:`close`.
        """
        by_act = _by_act(rows)
        writes, deletions, forgotten = by_act[Act.WRITE], by_act[Act.DELETE], by_act[Act.FORGET]
        until_ms = self._clock.now() + _FENCED_MS
        self._store([row for of in (writes, deletions) for of_group in of.values() for row in of_group])
        done = self._commit(writes, until_ms)
        self._settle(rows)
        gone = self._delete(deletions, until_ms)
        self._forget([*gone, *(row for of_group in forgotten.values() for row in of_group)])
        return done

    def _store(self, rows: Iterable[GroupPartition]) -> None:
        changes = self._unstored()
        for key, some in _by_key(rows):
            of_topic = self._changed(changes, key)
            for row in some:
                if row.intent is not None:
                    of_topic[row.target.partition] = row.intent
        self._put(changes)

    def _settle(self, rows: Iterable[GroupPartition]) -> None:
        """Remember that commits have succeeded: what they have replaced is not this flow's own any more."""
        done = (row for row in rows if row.intent is not None and row.intent.target == row.at_target)
        for key, some in _by_key(done):
            settled = {
                row.target.partition: row.intent.settled()
                for row in some
                if row.intent is not None and not row.intent.is_settled
            }
            if settled:
                self.intents.put(key, {**self.intents.of(key), **settled}, self.intents.times(key))
                self._settled.add(key)

    def _unstored(self) -> dict[GroupTopicKey, dict[int, Intent]]:
        """Return the intents, as they are now, of which it is not stored yet that their commits have succeeded."""
        return {key: dict(self.intents.of(key)) for key in self._settled}

    def _forget(self, rows: Iterable[GroupPartition]) -> None:
        changes: dict[GroupTopicKey, dict[int, Intent]] = {}
        for key, some in _by_key(rows):
            of_topic = self._changed(changes, key)
            for row in some:
                of_topic.pop(row.target.partition, None)
        self._put(changes)

    def _changed(self, changes: dict[GroupTopicKey, dict[int, Intent]], key: GroupTopicKey) -> dict[int, Intent]:
        """Return the intents of ``key`` that are to be changed."""
        found = changes.get(key)
        if found is None:
            found = changes[key] = dict(self.intents.of(key))
        return found

    def _put(self, changes: Mapping[GroupTopicKey, Mapping[int, Intent]]) -> None:
        if changes:
            resumed = self.intents.resumed_after(changes)
            now_ms = self._clock.unix_ms()
            times = {key: self.intents.times_after(key, intents, now_ms) for key, intents in changes.items()}
            records = encoded(changes, resumed, times, self._target_group)
            at = self._writer.write(records.values())
            self.intents.written(dict(zip(records, at, strict=True)))
            self._settled.difference_update(changes)
            for key, intents in changes.items():
                self.intents.put(key, intents, times[key])
            for group, offsets in resumed.items():
                self.intents.put_resumed(group, offsets)

    def _commit(self, rows: Mapping[str, list[GroupPartition]], until_ms: int) -> int:
        offsets: dict[str, _Offsets] = {}
        for row in (row for of_group in rows.values() for row in of_group):
            offset = offset_of(row)
            if (size := _size_of(offset.metadata)) > _MAX_METADATA_BYTES:
                row.hold(
                    Reason.REFUSED, f"its metadata have {size} bytes; Kafka's protocol takes {_MAX_METADATA_BYTES}"
                )
            else:
                offsets.setdefault(row.group, {})[row.target] = offset
        parts = {
            _Part(group, number): part
            for group, of_group in offsets.items()
            for number, part in enumerate(in_parts(group, of_group))
        }
        outcomes = self._commits.run(
            self._bundled(parts),
            lambda bundle: self._begin(
                until_ms,
                lambda ms: self._admin.commit_offsets_of_groups_async(
                    {self._reader.name_here(part.group): parts[part] for part in bundle}, ms
                ),
            ),
        )
        count = 0
        for bundle, outcome in outcomes.items():
            for part in bundle:
                of_group = _of_group(outcome, self._reader.name_here(part.group))
                if isinstance(of_group, KafkaTimeout) and not isinstance(outcome, KafkaError):
                    self._late.add(part.group)
                elif not isinstance(of_group, KafkaError):
                    self._late.discard(part.group)
                of_part = (row for row in rows[part.group] if row.target in parts[part])
                for row in _succeeded(of_part, of_group):
                    row.at_target = parts[part][row.target].offset
                    count += 1
        return count

    def _delete(self, rows: Mapping[str, list[GroupPartition]], until_ms: int) -> list[GroupPartition]:
        """Delete the target's offsets of groups; return the rows whose offsets are gone."""
        outcomes = self._deletions.run(
            self._by_coordinator(rows, str),
            lambda group: self._begin(
                until_ms,
                lambda ms: self._admin.delete_group_offsets_async(
                    self._reader.name_here(group), [row.target for row in rows[group]], ms
                ),
            ),
        )
        done = [row for group, outcome in outcomes.items() for row in _succeeded(rows[group], outcome)]
        for row in done:
            row.at_target = None
        return done

    def _bundled(self, parts: Iterable[_Part]) -> dict[int, list[_Bundle]]:
        """Return parts by coordinator and call. Only the first ones of groups share calls, so that these are small.

        Those of groups that were late come last, in calls of their own, since these may be late again: while a
        partition of ``__consumer_offsets`` lacks replicas, its groups are refused with COORDINATOR_NOT_AVAILABLE, and
        the other groups of its leader are not (``GroupMetadataManager``).
        """
        found: dict[int, list[_Bundle]] = {}
        for node, of_node in self._by_coordinator(parts, lambda part: part.group).items():
            late = [part for part in of_node if part.group in self._late]
            prompt = [part for part in of_node if part.group not in self._late]
            found[node] = [*_shared(prompt), *_shared(late)]
        return found

    def _by_coordinator(self, keys: Iterable[K], group_of: Callable[[K], str]) -> dict[int, list[K]]:
        found: dict[int, list[K]] = {}
        for key in keys:
            found.setdefault(self._reader.node_of(group_of(key)), []).append(key)
        return found

    def _begin(self, until_ms: int, submit: Callable[[int], Future[V]]) -> Future[V]:
        """Begin a call, which is given up before ``until_ms``; it fails if that has passed."""
        left_ms = until_ms - self._clock.now()
        if left_ms > 0:
            return submit(min(CALL_MS, left_ms))
        too_late: Future[V] = Future()
        msg = f"not sent within {_FENCED_MS} ms after its intent; the next round tries again"
        too_late.set_exception(KafkaTimeout(msg))
        return too_late


def _shared(parts: Sequence[_Part]) -> list[_Bundle]:
    first = [part for part in parts if not part.number]
    alone = [(part,) for part in parts if part.number]
    return [*(tuple(first[at : at + _GROUPS]) for at in range(0, len(first), _GROUPS)), *alone]


def _of_group(outcome: _OfGroups | KafkaError, group: str) -> _Outcomes | KafkaError:
    if isinstance(outcome, KafkaError):
        return outcome
    return outcome.failed[group] if group in outcome.failed else outcome[group]


def _succeeded(rows: Iterable[GroupPartition], outcome: _Outcomes | KafkaError) -> list[GroupPartition]:
    """Return the rows for which a call has succeeded; the others are held."""
    done = []
    for row in rows:
        error = outcome if isinstance(outcome, KafkaError) else outcome.failed.get(row.target)
        if error is None:
            done.append(row)
        else:
            row.hold(reason_of(error), str(error))
    return done


def _by_act(rows: Iterable[GroupPartition]) -> dict[Act, dict[str, list[GroupPartition]]]:
    """Return the rows by what was decided, and by group."""
    found: dict[Act, dict[str, list[GroupPartition]]] = {act: {} for act in Act}
    for row in rows:
        found[row.decision.act].setdefault(row.group, []).append(row)
    return found


def _by_key(rows: Iterable[GroupPartition]) -> Iterator[tuple[GroupTopicKey, Iterator[GroupPartition]]]:
    """Yield rows by the record that their intents are in; rows of one record are mostly one behind the other."""
    for (group, topic), some in itertools.groupby(rows, key=lambda row: (row.group, row.target.topic)):
        yield GroupTopicKey(group, topic), some


def in_parts(group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Iterator[_Offsets]:
    """Divide the offsets of a group, so that each part fits one batch of its coordinator."""
    part: _Offsets = {}
    room, fixed = _COMMIT_BYTES, _OFFSET_BYTES + _size_of(group)
    for tp, offset in offsets.items():
        size = fixed + len(tp.topic) + _size_of(offset.metadata)
        if part and size > room:
            yield part
            part, room = {}, _COMMIT_BYTES
        part[tp] = offset
        room -= size
    if part:
        yield part


def _size_of(text: str) -> int:
    """Return the size of a text in a request, in bytes."""
    return len(text) if text.isascii() else len(text.encode())
