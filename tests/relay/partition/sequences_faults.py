"""Courses of events that single faults at random hit too seldom: each is what one check of the product guards."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mirror.relay.model.way import Way
from mirror.relay.progress.committed import group_of
from mirror.wire.api import Api
from tests.fakes.transactions import State
from tests.relay.partition.sequences_site import DAY_MS, FLOW, TARGET, CopySite, progress_of

NEARLY_EXPIRED_MS: Final = DAY_MS - 600_000
"""An age of records behind which brokers forget their producer within ten minutes."""
_ATTEMPT_MS: Final = 8_000
_FORGOTTEN_AFTER_DAYS: Final = 8
"""More than ``transactional.id.expiration.ms`` (7 days)."""


class FaultySite(CopySite):
    """A site with faults that consist of several events."""

    def minutes_pass(self, minutes: int) -> None:
        """Late requests may still come afterwards."""
        self.time_passes(20_000)
        self.target.clock.jump_to(self.target.clock.now() + 60_000 * minutes)
        self.time_passes(1)

    def progress_comes_late(self, number: int) -> None:
        """A late copy of a plain commit of an older attempt."""
        self.request_comes_again(Api.OFFSET_COMMIT, number)

    def progress_comes_late_after_transactions(self, counts: list[int], number: int) -> None:
        """An attempt in transactions has gone on from what the late commit says."""
        policy = self.policy
        for by in ("auto", Way.TRANSACTIONS.value):
            self.flow_is_configured(by)
            self._copy_on(counts, 0)
        self.progress_comes_late(number)
        self.policy = replace(self.policy, exactly_once_by=policy.exactly_once_by)

    def batch_comes_late_when_producers_are_forgotten(self, counts: list[int], number: int) -> None:
        """Two attempts copy records of an age at which brokers soon forget their producers, fences included."""
        for _ in range(2):
            self._copy_on(counts, NEARLY_EXPIRED_MS)
        self.minutes_pass(11)
        self.request_comes_again(Api.PRODUCE, number)

    def producer_id_changes_between_attempts_that_die(self, counts: list[int]) -> None:
        """The first dies with records that no progress names, the second one, under another id, when it has fenced."""
        policy = self.policy
        self.flow_is_configured("auto")
        self._end_all()
        self.attempt_is_cut_short([2, *counts], 0, 2, 0, killed=True)
        self.days_pass(_FORGOTTEN_AFTER_DAYS)
        ids = self.target.transactions.ids
        for name in [name for name, one in ids.items() if one.state in {State.EMPTY, State.ENDED}]:
            del ids[name]
        self.forget_commits()  # without them, no progress names the producer id that is forgotten
        self.attempt_is_cut_short([1], 0, 1, 0, killed=True)
        self.policy = replace(self.policy, exactly_once_by=policy.exactly_once_by)

    def target_is_made_again_and_progress_comes_late(
        self, offsets_too: bool, counts: list[int], batches: int, number: int
    ) -> None:
        """The first attempt at the new topic dies before it commits its progress."""
        self._copy_on(counts, 0)
        self._end_all()
        self.target_is_made_again(offsets_too)
        if self.policy.start_over:
            self.attempt_is_cut_short(counts, 0, 1 + batches, 0, killed=True)
            self.progress_comes_late(number)

    def transactions_of_lost_commits(self, counts: list[int], kept: int, lost: int, more: list[int]) -> None:
        """Another attempt finds an older progress than that of the records in the target."""
        policy = self.policy
        self.flow_is_configured(Way.TRANSACTIONS.value)
        for _ in range(kept + lost):
            self._copy_on(counts, 0)
        self._end_all()
        self.offsets_topic_loses_commits(lost, lost)
        self._copy_on(more, 0)
        self.policy = replace(self.policy, exactly_once_by=policy.exactly_once_by)

    def transaction_of_the_progress_is_deleted(self, counts: list[int], copies: int, more: list[int]) -> None:
        """Those behind it have lost their commits. Its mark is of the time before its data had offsets."""
        policy = self.policy
        self.flow_is_configured(Way.TRANSACTIONS.value)
        for _ in range(copies):
            self._copy_on(counts, 0)
        self._end_all()
        self.time_passes(20_000)  # a marker that comes late commits the progress that goes with it
        claims = [progress_of(found) for found in self._commits.get(group_of(FLOW, TARGET), [])]
        inexact = [
            (number, one.target.end)
            for number, one in enumerate(claims)
            if one.offset < claims[-1].offset and one.target and one.target.since and not one.target.is_exact
        ]
        if inexact:
            kept, end = inexact[-1]
            self.offsets_topic_loses_commits(len(claims) - 1 - kept, 0)
            markers = [one.next_offset for one in self.log.batches() if one.is_control and one.base_offset >= end]
            if markers:
                self.log.delete_before(markers[0])
        self._copy_on(more, 0)
        self.policy = replace(self.policy, exactly_once_by=policy.exactly_once_by)

    def _end_all(self) -> None:
        for one in self.alive:
            one.kill()

    def _copy_on(self, counts: list[int], age_ms: int) -> None:
        self.source_grows(counts, age_ms)
        if self.has_room:
            process = self.attempt()
            self.simulation.run(until=lambda: process.ended, ms=_ATTEMPT_MS)
            self.check()
