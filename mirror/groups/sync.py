"""Brings the committed offsets of consumer groups from the source to the target, one round at a time.

::

    1 groups of the source ──► what they committed ─┐
    2 offset index, logs   ──► translations        ─┼─► decide ─► intents, stored ─► commits ─► report
    3 groups of the target ──► what is committed   ─┘
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Final

from mirror.client import TopicPartition
from mirror.closing import Closing
from mirror.errors import Fenced, KafkaError
from mirror.groups.clusters import TIMEOUT_MS, FlowAccess, FlowClusters
from mirror.groups.commit_decision import Reason
from mirror.groups.commits import GroupCommits
from mirror.groups.group_partition import GroupPartition, moved_groups, translated_position
from mirror.groups.intents import ResumeKey, encode_key, encode_resumed
from mirror.groups.positions import GroupsReport
from mirror.groups.reader import unsupported_state
from mirror.groups.rounds.deciding import decide_row
from mirror.groups.rounds.rows import is_absent, rows_of
from mirror.groups.rounds.states import GroupStates
from mirror.groups.rounds.translating import RowTranslation
from mirror.groups.routes import Partners, Route, open_routes
from mirror.groups.rules import GroupRules
from mirror.groups.translation.logs import PartitionLogs
from mirror.groups.watching.asked_groups import AskedGroups
from mirror.groups.watching.commit_watch import CommitWatch
from mirror.relay.progress.fenced_writer import FencedWriter, groups_transactional_id
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue, group_topic_of
from mirror.relay.progress.latch import LatchCheck
from mirror.timing import Clock

_GATHERED: Final = 16
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
        self._states: Final = GroupStates(rules.most)
        self._translation: Final = RowTranslation(rules.patience_ms)
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
        states = self._states
        if write and self._commits.begin():
            states.forget_settled()  # another run may have committed since
            self.asked.forget()
        stored = self._commits.read_intents()
        asked = self.asked.begin(stored, everything=last or keep_logs or not write)
        listed = self.asked.listed

        def is_wanted(name: str) -> bool:
            return self._rules.includes(name) and asked.includes(name, in_step=states.is_settled(name))

        intents = self._intents.partitions(is_wanted)
        wanted = {name for name in listed if is_wanted(name)}
        others = {name for name in wanted if not listed[name].is_supported}
        known = intents.keys() - others
        committed = self._of_source.offsets(sorted((wanted | known) - others))
        states.leave_out(
            committed, {name for name in states.over if not is_wanted(name)}, self._brought_over, self._is_copied
        )
        committed = {name: found for name, found in committed.items() if name not in states.over}
        # Only now: what the other flow has committed on the source by then, it has stored before.
        unread = tuple(problem for route in self._routes.each if (problem := route.read_theirs()))
        changed = states.changed(committed, asked, self._clock.unix_ms())
        parts = self._routes.one_row_each(
            (route, row)
            for route in self._routes.each
            for group in changed
            for row in rows_of(route, group, committed[group], intents.get(group, set()), self._intents)
        )
        logs = self._translate((route, row) for route, row in parts if keep_logs or not route.only_came_back(row))
        rows = [row for _, row in parts]
        # Only now: translations may take minutes, and what a consumer commits meanwhile is not to be overwritten.
        self._of_target.list_groups()
        partitions: dict[str, list[TopicPartition]] = {group: [] for group in changed}
        for row in rows:
            partitions[row.group].append(row.target)
        at_target = self._of_target.stable_offsets(partitions)
        if not write:  # another run may have committed since: what it did, it had stored before
            self._commits.read_intents()
            for row in rows:
                row.intent = self._intents.get(row.group, row.target)
        logs |= self._translate(
            (route, row) for route, row in parts if row.target not in logs and is_absent(row, at_target[row.group])
        )
        self.logs = logs if keep_logs else {}
        moved, now_ms = moved_groups(rows, at_target), self._clock.unix_ms()
        for route, row in parts:
            row.moved = row.group in moved
            active, resumed = self._of_target.is_active(row.group), self._intents.resumed(row.group, row.target)
            there = at_target[row.group]
            decide_row(row, route, there, logs.get(row.target), now_ms, active=active, resumed=resumed)
        written = self._commits.write(rows) if write else 0
        states.conclude(rows, committed, at_target, self._clock.unix_ms(), None if write else self._stored_ms)
        states.keep(lambda name: name in committed or not is_wanted(name))
        self.asked.conclude(name for name in committed if states.is_not_copied(name))
        for name in others:
            states.each[name] = unsupported_state(listed[name])
        own = (row for route, row in parts if route.is_ahead and self._rules.lists_translated)
        translated = tuple(found for row in own if (found := translated_position(row)) is not None)
        return GroupsReport(
            dict(states.each),
            (*self._problems(), *unread, *states.left_out(), *self._taken_names()),
            written,
            self._clock.unix_ms(),
            translated,
            sync=write,
            is_watching=self.asked.is_watching,
        )

    def _problems(self) -> Iterable[str]:
        return [*self._of_source.problems("source"), *self._of_target.problems("target")]

    def _taken_names(self) -> Iterable[str]:
        return (
            f"group {name} is left out: its name on the target is kept for group {other}; give it another in names"
            for name in self.asked.listed
            if (other := self._rules.name_taken_by(name)) is not None
        )

    def _translate(self, parts: Iterable[tuple[Route, GroupPartition]]) -> dict[TopicPartition, PartitionLogs]:
        return self._translation.translate(parts, self._clock.now())

    def _brought_over(self) -> set[str]:
        """Return the groups that were brought over before, and still can be."""
        listed = self.asked.listed
        return {
            name
            for name in self._intents.groups()
            if name in listed and listed[name].is_supported and self._rules.includes(name)
        }

    def _is_copied(self, topic: str) -> bool:
        return any(route.target_topic(topic) is not None for route in self._routes.each)

    def _stored_ms(self, row: GroupPartition) -> int | None:
        return self._intents.stored_ms(row.group, row.target, row.at_target)

    def fenced(self, error: Fenced) -> GroupsReport:
        """Return the report of a round that ended with ``error``: another run writes the groups."""
        states, now_ms = self._states, self._clock.unix_ms()
        names = states.each.keys() | self.asked.names
        groups = {name: states.held(name, Reason.OTHER_RUN, str(error), now_ms) for name in sorted(names)}
        return GroupsReport(groups, (str(error),), 0, now_ms)

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
