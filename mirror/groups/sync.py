"""Brings the committed offsets of consumer groups from the source to the target, one round at a time.

::

    1 groups of the source ──► what they committed ─┐
    2 offset index, logs   ──► translations        ─┼─► decide ─► intents, stored ─► commits ─► report
    3 groups of the target ──► what is committed   ─┘
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from typing import Final

from mirror.client import TopicPartition
from mirror.closing import Closing
from mirror.errors import Fenced, KafkaError, named
from mirror.groups.bundles import Committed
from mirror.groups.clusters import TIMEOUT_MS, FlowAccess, FlowClusters
from mirror.groups.commit_decision import NEVER, Act, Observed, Reason, decide, next_intent, passed_text
from mirror.groups.commits import GroupCommits
from mirror.groups.group_partition import (
    GroupPartition,
    has_other_metadata,
    moved_groups,
    position_of,
    translated_position,
)
from mirror.groups.intents import GroupTopicKey, ResumeKey, encode_key, encode_resumed
from mirror.groups.other_direction import came_back, has_left
from mirror.groups.positions import GroupPosition, GroupsReport, GroupState, reason_of
from mirror.groups.reader import unsupported_state
from mirror.groups.routes import Partners, Route, open_routes
from mirror.groups.rules import GroupRules
from mirror.groups.translation.logs import PartitionLogs
from mirror.groups.watching.asked_groups import AskedGroups
from mirror.groups.watching.asking import Asked
from mirror.groups.watching.commit_watch import CommitWatch
from mirror.relay.offsets.index import UNKNOWN
from mirror.relay.progress.fenced_writer import FencedWriter, groups_transactional_id
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue, group_topic_of
from mirror.relay.progress.latch import LatchCheck
from mirror.timing import Clock

_FULL_ROUNDS: Final = 6
"""Each of so many rounds of all groups reads what they have on the target, to find those that were taken over."""
_GATHERED: Final = 8
"""A broker gathers commits for this part of an interval."""


class GroupSync(Closing):
    """Rounds of one flow. Its calls wait for the clusters; use it in one thread."""

    def __init__(
        self,
        flow: FlowAccess,
        rules: GroupRules,
        clock: Clock,
        partners: Partners | None = None,
        *,
        interval_ms: int = 0,
    ) -> None:
        """With ``interval_ms``, rounds ask only for groups that have changed, if that can be seen, and others in turn.

        Raises ConfigError, FlowError.
        """
        self._rules: Final = rules
        self._clock: Final = clock
        topic = self._topic = FlowTopic(flow.target_options, group_topic_of(flow.name))
        self._check_latch: Final = LatchCheck(flow.target_options, flow.name, flow.holder)
        with ExitStack() as stack:
            clusters = stack.enter_context(FlowClusters(flow, rules, clock))
            check = LatchCheck(flow.target_options, flow.name, flow.holder)
            writer = FencedWriter(topic, groups_transactional_id(flow.name), TIMEOUT_MS, check=check)
            self._commits: Final = GroupCommits(
                topic, writer, clusters.target, clusters.of_target, clock, TIMEOUT_MS, rules
            )
            stack.callback(self._commits.close)
            self._routes: Final = open_routes(stack, flow, clusters, rules, partners or Partners(), clock)
            watch: CommitWatch | None = None
            if interval_ms:
                watch = CommitWatch(clusters.source, flow.source_options, clock, interval_ms // _GATHERED)
                stack.enter_context(watch)
            self.asked: Final = AskedGroups(clusters.of_source, rules, clock, watch, interval_ms)
            """Which groups rounds ask for."""
            self._clients: Final = stack.pop_all()
        self._clusters: Final = clusters
        self._of_source: Final = clusters.of_source
        self._of_target: Final = clusters.of_target
        self._intents: Final = self._commits.intents
        self._settled: Final[dict[str, Committed]] = {}
        """What groups had committed on the source when they were last in step."""
        self._states: dict[str, GroupState] = {}
        self._over: set[str] = set()
        """The groups that were left out, because there are too many."""
        self._ends: Final[dict[TopicPartition, tuple[int, int]]] = {}
        """Where the index of a source partition ended, and since when (ms)."""
        self._rounds = 0
        self.logs: Mapping[TopicPartition, PartitionLogs] = {}
        """What the last round has read, by partition of the target, if it was to keep that."""

    def close(self) -> None:
        """Close the connections."""
        self._clients.close()

    # Invariant: What a watch of the source says decides only which groups are asked for, and when: a position is always
    #   what the group's coordinator answers.
    # Test: tests/groups/watching/
    #   test_rounds_on_fakes.py::test_rounds_of_what_has_changed_end_where_rounds_of_all_groups_end
    def round(self, *, write: bool = True, keep_logs: bool = False, last: bool = False) -> GroupsReport:
        """Bring what groups have committed since the last round to the target; without ``write`` only look.

        With ``keep_logs``, :attr:`logs` has what was read of the partitions of all groups. The ``last`` round leaves
        nothing to a later one.

        Raises KafkaError if a cluster does not answer, and Fenced if another run writes the groups of the flow, which
        the next round fences. What concerns single groups is in the report.
        """
        try:
            return self._round(write=write, keep_logs=keep_logs, last=last)
        except BaseException:
            self.asked.forget()
            raise

    def _round(self, *, write: bool, keep_logs: bool, last: bool) -> GroupsReport:
        if write and self._commits.begin():
            self._settled.clear()  # another run may have committed since
            self.asked.forget()
        stored = self._commits.read_intents()
        asked = self.asked.begin(stored, everything=last or keep_logs or not write)
        listed = self.asked.listed

        def is_wanted(name: str) -> bool:
            return self._rules.includes(name) and asked.includes(name, in_step=name in self._settled)

        intents = self._intents.partitions(is_wanted)
        wanted = {name for name in listed if is_wanted(name)}
        others = {name for name in wanted if not listed[name].is_supported}
        known = intents.keys() - others
        committed = self._of_source.offsets(sorted((wanted | known) - others))
        self._leave_out(committed, {name for name in self._over if not is_wanted(name)})
        committed = {name: found for name, found in committed.items() if name not in self._over}
        # Only now: what the other flow has committed on the source by then, it has stored before.
        unread = tuple(problem for route in self._routes.each if (problem := route.read_theirs()))
        changed = self._changed(committed, asked)
        parts = self._routes.one_row_each(
            (route, row)
            for route in self._routes.each
            for group in sorted(changed)
            for row in self._rows(route, group, committed[group], intents.get(group, set()))
        )
        logs = self._translate((route, row) for route, row in parts if keep_logs or not route.only_came_back(row))
        rows = [row for _, row in parts]
        # Only now: translations may take minutes, and what a consumer commits meanwhile is not to be overwritten.
        self._of_target.list_groups()
        partitions: dict[str, list[TopicPartition]] = {group: [] for group in sorted(changed)}
        for row in rows:
            partitions[row.group].append(row.target)
        at_target = self._of_target.stable_offsets(partitions)
        if not write:  # another run may have committed since: what it did, it had stored before
            self._commits.read_intents()
            for row in rows:
                row.intent = self._intents.get(row.group, row.target)
        logs |= self._translate(
            (route, row) for route, row in parts if row.target not in logs and _is_absent(row, at_target[row.group])
        )
        self.logs = logs if keep_logs else {}
        moved = moved_groups(rows, at_target)
        for route, row in parts:
            row.moved = row.group in moved
            self._decide(row, route, at_target[row.group], logs.get(row.target))
        written = self._commits.write(rows) if write else 0
        self._conclude(rows, committed, at_target, changed, write=write)
        self._states = {name: state for name, state in self._states.items() if name in committed or not is_wanted(name)}
        self.asked.conclude(name for name in committed if self._is_not_copied(name))
        for name in others:
            self._states[name] = unsupported_state(listed[name])
        problems = [*self._of_source.problems("source"), *self._of_target.problems("target"), *unread]
        if self._over:
            left_out = f"{named('group', sorted(self._over))} left out; name fewer in include, or raise it"
            problems.append(f"max-groups is {self._rules.most}: {left_out}")
        problems += [
            f"group {name} is left out: its name on the target is kept for group {other}; give it another in names"
            for name in listed
            if (other := self._rules.name_taken_by(name)) is not None
        ]
        own = (row for route, row in parts if route.is_ahead and self._rules.lists_translated)
        translated = tuple(found for row in own if (found := translated_position(row)) is not None)
        return GroupsReport(
            dict(self._states),
            tuple(problems),
            written,
            self._clock.unix_ms(),
            translated,
            sync=write,
            only_changes=not asked.everything,
        )

    def fenced(self, error: Fenced) -> GroupsReport:
        """Return the report of a round that ended with ``error``: another run writes the groups."""
        names = self._states.keys() | self.asked.names
        groups = {name: self._held(name, Reason.OTHER_RUN, str(error)) for name in sorted(names)}
        return GroupsReport(groups, (str(error),), 0, self._clock.unix_ms())

    def has_news(self) -> bool:
        """Whether groups have changed, or are new, and a round can bring them over now. Raises KafkaError."""
        return self.asked.has_news()

    def network_ms(self) -> int:
        """Return the CPU time of the network threads, which all clients of the process share."""
        return self._clusters.network_ms()

    def resume(self, group: str) -> int:
        """Take the target's offsets of a group for this flow's own, so that they are replaced by later positions.

        Any process may call this: the one that runs the rounds reads it. Return how many there are. Raises FlowHeld,
        KafkaError.
        """
        found = self._of_target.offsets([group])[group]
        if isinstance(found, KafkaError):
            raise found
        for error in found.failed.values():
            raise error
        offsets: dict[str, dict[int, int]] = {}
        for tp, committed in found.items():
            if any(route.source_topic(tp.topic) is not None for route in self._routes.each):
                offsets.setdefault(tp.topic, {})[tp.partition] = committed.offset
        if not offsets:
            return 0
        self._check_latch()
        record = KeyValue(encode_key(ResumeKey(group), self._rules.target_group), encode_resumed(offsets))
        for error in self._topic.write({group: record}, TIMEOUT_MS).values():
            raise error
        return sum(len(of_topic) for of_topic in offsets.values())

    # --- what there is

    def _is_not_copied(self, group: str) -> bool:
        state = self._states.get(group)
        return state is not None and any(
            one.reason in {Reason.NOT_COPIED, Reason.NOT_COPIED_BACK} for one in state.positions
        )

    def _leave_out(self, committed: Mapping[str, Committed | KafkaError], before: AbstractSet[str]) -> None:
        """Set which groups are left out: those of ``before``, and of those that were asked for."""
        if len(self._states.keys() | committed.keys() | before) <= self._rules.most:
            self._over = set()
            return
        listed = self.asked.listed
        known = {
            name
            for name in self._intents.groups()
            if name in listed and listed[name].is_supported and self._rules.includes(name)
        }
        self._over = {*before, *self._over_limit(committed, known)}

    def _over_limit(self, committed: Mapping[str, Committed | KafkaError], known: Collection[str]) -> list[str]:
        """Return the groups beyond the limit, of those with offsets in copied topics. The ``known`` ones come first."""
        topics = {
            name: {tp.topic for tp in found.keys() | found.failed.keys()}
            for name, found in committed.items()
            if name not in known and not isinstance(found, KafkaError)
        }
        each = self._routes.each
        copied = {
            topic for topic in set().union(*topics.values()) if any(one.target_topic(topic) is not None for one in each)
        }
        new = sorted(name for name, of_group in topics.items() if of_group & copied)
        return new[max(0, self._rules.most - len(known)) :]

    def _changed(self, committed: Mapping[str, Committed | KafkaError], asked: Asked) -> set[str]:
        """Return the groups to compare with the target: those that changed, or were not in step."""
        full = asked.everything and self._rounds % _FULL_ROUNDS == 0
        self._rounds += asked.everything
        changed = set()
        for group, found in committed.items():
            if isinstance(found, KafkaError):
                self._settled.pop(group, None)
                self._states[group] = self._held(group, reason_of(found), f"on the source: {found}")
            elif full or self._settled.get(group) != found or (asked.part is not None and asked.sweeps(group)):
                changed.add(group)
        return changed

    def _held(self, group: str, reason: Reason, detail: str) -> GroupState:
        return self._states.get(group, GroupState(group)).held(reason, detail, self._clock.unix_ms())

    def _rows(
        self,
        route: Route,
        group: str,
        committed: Committed | KafkaError,
        intents: AbstractSet[TopicPartition],
    ) -> Iterable[GroupPartition]:
        """Yield the partitions of a group that the flow copies, and those whose offsets it has written before."""
        if isinstance(committed, KafkaError):
            return
        partitions: dict[TopicPartition, TopicPartition] = {}
        for source in {**committed, **committed.failed}:
            topic = route.target_topic(source.topic)
            if topic is not None:
                partitions[TopicPartition(topic, source.partition)] = source
        for target in intents - partitions.keys():
            topic = route.source_topic(target.topic)
            if topic is not None:
                partitions[target] = TopicPartition(topic, target.partition)
        stored = {topic: self._intents.of(GroupTopicKey(group, topic)) for topic in {tp.topic for tp in partitions}}
        for target, source in sorted(partitions.items()):
            intent = stored[target.topic].get(target.partition)
            row = GroupPartition(group, source, target, committed.get(source), intent)
            if source in committed.failed:
                row.fail("on the source", committed.failed[source])
            yield row

    # --- decisions

    def _translate(self, parts: Iterable[tuple[Route, GroupPartition]]) -> dict[TopicPartition, PartitionLogs]:
        """Translate what each row has committed; return what was read of the logs, by target. Raises KafkaError."""
        by_route: dict[Route, list[GroupPartition]] = {}
        for route, row in parts:
            by_route.setdefault(route, []).append(row)
        found: dict[TopicPartition, PartitionLogs] = {}
        for route, rows in by_route.items():
            logs = self._opened(route, rows)
            # Once for each partition, and before anything is read: it takes as long as there are runs.
            moving = {source: self._is_moving(source, one) for source, one in logs.items()}
            for row in rows:
                found[row.target] = logs[row.source]
                if row.decision.reason is None:
                    self._translate_one(row, logs[row.source], patient=moving[row.source])
        return found

    def _opened(self, route: Route, rows: Iterable[GroupPartition]) -> dict[TopicPartition, PartitionLogs]:
        partitions: dict[TopicPartition, TopicPartition] = {}
        epochs: dict[TopicPartition, set[int]] = {}
        source_epochs: dict[TopicPartition, set[int]] = {}
        for row in rows:
            partitions[row.source] = row.target
            if row.intent is not None and row.intent.epoch != NEVER:
                epochs.setdefault(row.target, set()).add(row.intent.epoch)
            if row.committed is not None and row.committed.leader_epoch is not None:
                source_epochs.setdefault(row.source, set()).add(row.committed.leader_epoch)
        try:
            return route.logs.open(partitions, source_epochs, epochs)
        except KafkaError as error:
            if route.is_ahead:
                raise
            return {source: PartitionLogs(problem=f"the index of flow {route.name}: {error}") for source in partitions}

    def _translate_one(self, row: GroupPartition, logs: PartitionLogs, *, patient: bool) -> None:
        if logs.problem:  # a group whose topic is gone has not deleted its offset itself
            gone = Reason.NO_PARTITION if logs.is_missing else Reason.UNAVAILABLE
            row.hold(Reason.DELETED if row.committed is None else gone, logs.problem)
        elif row.committed is None and logs.offsets is not None and not logs.offsets.is_of_copied_topic:
            row.hold(Reason.DELETED, logs.offsets.reason)  # with the topic, which was made again
        elif row.committed is None:
            row.translation = UNKNOWN
        else:
            try:
                row.continued_at = logs.continued_at(row.committed)
                if row.continued_at is None:
                    row.hold(Reason.UNKNOWN, f"the source does not know leader epoch {row.committed.leader_epoch}")
                else:
                    row.translation, row.copied_to = logs.translate(row.continued_at, patient=patient)
                    row.passed = logs.passed(row.continued_at, row.translation)
            except KafkaError as error:
                row.hold(reason_of(error), str(error))

    def _decide(
        self, row: GroupPartition, route: Route, at_target: Committed | KafkaError, logs: PartitionLogs | None
    ) -> None:
        """Decide what to do about a row, from what its group has committed on the target."""
        if isinstance(at_target, KafkaError):
            return
        if row.target in at_target.failed:
            row.fail("on the target", at_target.failed[row.target])
            return
        there = at_target.get(row.target)
        row.at_target = None if there is None else there.offset
        if row.translation is None or logs is None:
            return
        theirs, now_ms = route.intent_of_other(row), self._clock.unix_ms()
        committed = None if row.committed is None else row.committed.offset
        returned = came_back(
            theirs, row.intent, committed, row.at_target, now_ms, both_directions=route.is_both_directions
        )
        if returned is not None:
            row.decision = returned
            return
        standing = None
        if row.intent is not None and row.at_target is not None:
            # Of what is behind its own offset, the intent does not say in which epoch the log had reached that.
            standing = logs.standing(min(row.at_target, row.intent.target), row.intent.epoch)
        row.seen = Observed(
            source=row.continued_at,
            target=row.at_target,
            translation=row.translation,
            copied_to=row.copied_to,
            repeats=route.repeats,
            truncated=row.is_truncated,
            passed=row.passed,
            moved=row.moved,
            waits_for_back=logs.waits_for_back(row.translation),
            intent=None if row.intent is None else row.intent.at(now_ms),
            resumed=self._intents.resumed(row.group, row.target),
            left=has_left(theirs, row.intent, row.at_target),
            left_from=None if theirs is None else theirs.source,
            both_directions=route.is_both_directions,
            other_metadata=has_other_metadata(row.committed, there),
            active=self._of_target.is_active(row.group),
            standing=standing,
        )
        row.decision = decide(row.seen, delete=route.delete and not logs.kept_because)
        row.detail = _detail(row, route, logs) or row.detail
        position = row.decision.position
        goes_on_at = row.at_target if position is None else position.target
        if row.continued_at is not None and goes_on_at is not None:
            row.read_again = logs.read_again(row.continued_at, goes_on_at)
        if row.decision.act is Act.WRITE and position is not None:
            epoch = logs.epoch_at(position.target)
            row.intent = next_intent(row.seen, position, epoch=epoch, now_ms=now_ms)

    def _is_moving(self, source: TopicPartition, logs: PartitionLogs) -> bool:
        """Whether the index of a partition has grown lately, so that its copy will write what it lacks."""
        if not self._rules.patience_ms or logs.offsets is None:
            return False
        end, now = logs.indexed_to, self._clock.now()
        if self._ends.get(source, (-1, 0))[0] != end:
            self._ends[source] = end, now
        return now - self._ends[source][1] < self._rules.patience_ms

    # --- the report

    def _conclude(
        self,
        rows: Iterable[GroupPartition],
        committed: Mapping[str, Committed | KafkaError],
        at_target: Mapping[str, Committed | KafkaError],
        changed: Iterable[str],
        *,
        write: bool,
    ) -> None:
        now_ms = self._clock.unix_ms()
        of_group: dict[str, list[GroupPosition]] = {group: [] for group in changed}
        since = {
            (group, one.target): one.since_ms
            for group in of_group.keys() & self._states.keys()
            for one in self._states[group].positions
            if one.since_ms is not None
        }
        for row in rows:
            if row.unread or row.committed is not None or row.at_target is not None:
                since_ms = since.get((row.group, row.target))
                stored_ms = None if write else self._intents.stored_ms(row.group, row.target, row.at_target)
                of_group[row.group].append(position_of(row, since_ms, now_ms, write=write, stored_ms=stored_ms))
        for group, positions in of_group.items():
            found, there = committed[group], at_target[group]
            if isinstance(there, KafkaError):
                self._settled.pop(group, None)
                self._states[group] = self._held(group, reason_of(there), f"on the target: {there}")
                continue
            self._states[group] = state = GroupState(group, tuple(positions))
            if state.is_in_step and not isinstance(found, KafkaError):
                self._settled[group] = found
            else:
                self._settled.pop(group, None)
            if not positions:
                del self._states[group]


def _is_absent(row: GroupPartition, at_target: Committed | KafkaError) -> bool:
    return not isinstance(at_target, KafkaError) and row.target not in {**at_target, **at_target.failed}


def _detail(row: GroupPartition, route: Route, logs: PartitionLogs) -> str:
    """Return what there is to say about the reason of a decision."""
    match row.decision.reason:
        case Reason.UNKNOWN | Reason.NOT_COPIED:
            return logs.unknown_because
        case Reason.NOT_COPIED_BACK if row.translation is not None:
            at = f"{row.target} has records of its own from offset {row.translation.offset} on"
            return f"{at} that flow {route.flows[-1]} has not copied: run it"
        case Reason.PASSED:
            return passed_text(row.passed, "target")
        case Reason.TRUNCATED:
            return f"the source has lost the records from offset {row.continued_at} on"
        case Reason.DELETED if route.delete:
            return logs.kept_because
    return ""
