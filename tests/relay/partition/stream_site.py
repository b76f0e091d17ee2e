"""One partition of a stream: each epoch's attempt runs on some host, and may continue the one before on that host.

The attempts are those of :mod:`.sequences_site`, with epochs, leases and plans of any age. Besides, what the source
returns may be damaged or refused, its log may be cut back, and the target may lose the last commits of its groups.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import Any, Final

from mirror.relay.model.ranges import OPEN_END, Outcome, RangeResult
from mirror.relay.progress.committed import group_of
from mirror.wire.api import Api
from mirror.wire.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from tests.fakes import errors
from tests.fakes.control import Action, ServerCall
from tests.fakes.record_batches import values_of
from tests.relay.partition.sequences_site import FLOW, SOURCE, TARGET, CopySite, Jitter
from tests.relay.simulation import Process

HOSTS: Final = 2
_EPOCH_MS: Final = 86_400_000
"""Longer than any example: epochs end when the model ends them."""
_LEASE_MS: Final = 30_000
_REPORTS_WITHIN_MS: Final = 8_000
_COPIES_WITHIN_MS: Final = 120_000
"""A failed attempt is retried after 15 s, a source that has stalled is asked after 10 s, and calls to a process that
does not answer have timeouts of some seconds."""


_WITHOUT_EPOCH: Final = {Outcome.UNFINISHED: Outcome.COMPLETE}
"""An attempt that has copied all may still have commits in flight when its epoch ends."""
_PASSED: Final = -1
"""A response that is passed on as it is."""


class StreamSite(CopySite):
    """A site whose attempts are those of a stream, except the last one, which copies what there is then."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.simulation.stays_in_poll = True
        self._epoch = 0
        self._plans: list[str | None] = [None]
        self._streams: list[list[bytes]] = []
        """What the source held when its log was cut back, each time."""
        self._examined: set[str] = set()
        self._again_ms: dict[str, int] = {}
        self._delays_ms: dict[str, int] = {}
        self._failing: dict[str, list[int | None]] = defaultdict(list)
        """What happens to the next fetches of records, by process."""
        self.source.control.add(self._decide_fetch)

    # --- attempts

    def epoch_begins(self, host: int, plan_age: int = 0, *, reported: bool = True) -> None:
        """An attempt on ``host``, with the plan of so many epochs before.

        ``reported``: the epoch before has ended; otherwise its task is taken for lost.
        """
        if not self.has_room:
            return
        if reported:
            running = [one for one in self.alive if one.reported is None and not one.suspended]
            self.end_epochs()
            self.simulation.run(until=lambda: all(one.reported for one in running), ms=_REPORTS_WITHIN_MS)
            self.check()
        self._epoch += 1
        self._plan()
        self.planned = self._plans[max(0, len(self._plans) - 1 - plan_age)]
        until_ms = self.target.clock.unix_ms() + _EPOCH_MS
        policy = replace(self.policy, epoch=self._epoch, until_ms=until_ms, lease_ms=_LEASE_MS)
        followed = replace(self.range(), end=OPEN_END)
        name = f"attempt-{len(self.simulation.processes)}"
        self.simulation.start(name, [followed], policy, f"host-{host}")
        self.planned = None

    def end_epochs(self) -> None:
        for one in self.alive:
            one.end_epoch()

    def leases_end(self) -> None:
        for one in self.alive:
            one.end_lease()

    def task_stands_still(self, number: int, ms: int) -> None:
        """While its networks and the other processes go on."""
        if alive := self.alive:
            alive[-1 - number % len(alive)].stands_until_ms = self.target.clock.now() + ms

    def epoch(
        self,
        host: int,
        plan_age: int = 0,
        *,
        reported: bool = True,
        first_ms: int = 950,
        stands_ms: tuple[int, int] = (0, 0),
        batches: int = 1,
        later_ms: int = 100,
        every_ms: int = 40,
    ) -> None:
        """An attempt begins, and some batches are written later.

        The task of the one before stands still from ``first_ms`` on, its own when the first of the batches is written.
        """
        self.epoch_begins(host, plan_age, reported=reported)
        self.time_passes(first_ms)
        own_ms, other_ms = stands_ms
        self.task_stands_still(1, other_ms)
        self.source.after(later_ms, lambda: self.task_stands_still(0, own_ms))
        self.source_trickles(batches, later_ms, every_ms)

    # --- the source

    def source_trickles(self, batches: int, later_ms: int, every_ms: int) -> None:
        for number in range(batches):
            self.source.after(later_ms + every_ms * number, lambda: self.source_grows([1], 0))

    def fetch_fails(self, number: int, code: int | None, skipped: int, times: int, again_ms: int) -> None:
        """Of the records that a process fetches: ``times`` responses, after some that are ``skipped``.

        They are refused with ``code``, or damaged (None). What is fetched instead takes ``again_ms``.
        """
        if alive := self.alive:
            name = alive[-1 - number % len(alive)].name
            self._failing[name] = [*[_PASSED] * skipped, *[code] * times]
            self._again_ms[name] = again_ms

    def _decide_fetch(self, call: ServerCall) -> Action | None:
        """What becomes of a fetch is decided when it is answered, which may be long after it was sent."""
        if call.api is not Api.FETCH:
            return None
        name = self.simulation.owners.get(("paris", call.connection), "")
        assert isinstance(self.source.control, Jitter)
        action = self.source.control.delays()
        action.stall_ms += self._delays_ms.pop(name, 0)
        action.rewrite = partial(self._answer_fetch, name)
        return action

    def _answer_fetch(self, name: str, response: FetchResponse) -> FetchResponse:
        failing = self._failing[name]
        if not failing or not any(part.records for topic in response.responses for part in topic.partitions):
            return response
        code = failing.pop(0)
        if code == _PASSED:
            return response
        self._delays_ms[name] = self._again_ms[name]
        return replace(response, responses=tuple(_failed(topic, code) for topic in response.responses))

    def source_leader_moves(self, node: int, *, epoch_unknown: bool) -> None:
        """``epoch_unknown``: it does not know the leader epochs of its log at once."""
        self.source_log.move(node)
        if epoch_unknown:
            refused = Action(errors={SOURCE: errors.UNKNOWN_LEADER_EPOCH})
            self.source.control.on(Api.OFFSET_FOR_LEADER_EPOCH, refused, times=2)

    def source_is_cut_back(self, batches: int, node: int, counts: list[int]) -> None:
        """An unclean election: the last ``batches`` are lost, and others are written."""
        log = self.source_log
        bases = [one.base_offset for one in log.batches() if not one.is_control]
        if not bases:
            return
        self._streams.append(self.stream)
        log.truncate(bases[-min(batches, len(bases))])
        log.move(node)
        kept = [value for one in log.batches() if not one.is_control for value in values_of(one.view)]
        self.stream = [value for value in kept if value != b"aborted"]
        self.source_grows(counts, 0)

    def gaps_are_skipped(self, *, skipped: bool) -> None:
        """Attempts that begin later resume behind gaps, or fail."""
        self.policy = replace(self.policy, on_gap="skip" if skipped else "fail")

    def gap_is_skipped_once(self, batches: int, counts: list[int], ms: int) -> None:
        """An epoch moves back in the source, and the next one, which does not skip gaps, dies when it has begun."""
        skipped = self.policy.on_gap == "skip"
        self.kill(-1)
        self.gaps_are_skipped(skipped=True)
        self.source_is_cut_back(batches, 2, counts)
        self.epoch(1)
        self.time_passes(2_000)
        self.kill(-1)
        self.gaps_are_skipped(skipped=False)
        self.source_grows([1], 0)
        self.epoch_begins(1)
        self.time_passes(ms)
        self.kill(-1)
        self.gaps_are_skipped(skipped=skipped)

    # --- what must hold

    def _plan(self) -> None:
        self.flow_is_planned()
        self._plans.append(self.planned)
        self.planned = None

    def check(self) -> None:
        super().check()
        for one in self.simulation.processes:
            if one.reported is not None and one.name not in self._examined:
                self._examined.add(one.name)
                self._check_fenced(one)

    def _check_fenced(self, process: Process) -> None:
        """An attempt is FENCED only if another one has fenced it, or asks it to yield."""
        assert process.reported is not None
        (result,) = process.reported
        if result.outcome is not Outcome.FENCED:
            return
        owners = self.simulation.owners
        fenced = any(
            call.received_ms >= process.began_ms and owners.get(("berlin", call.connection)) != process.name
            for call in self.target.calls(Api.INIT_PRODUCER_ID)
            if call.body.transactional_id is not None
        )
        assert fenced, (
            f"{process.name} is the only one that has fenced since it began, and ends as fenced: {result.error}"
        )

    def check_prefix(self, values: list[bytes]) -> None:
        self._position_of(values)

    def _position_of(self, values: list[bytes]) -> tuple[list[bytes], int]:
        """Return the stream of which ``values`` are the last, and how far they go there.

        A copy that was in a log when that was cut back goes on in a later one, where the two diverge.
        """
        later = [*self._streams, self.stream]
        current, at = later.pop(0), 0
        for number, value in enumerate(values):
            while not (at < len(current) and current[at] == value):
                assert later, (
                    f"{value!r}, number {number}, does not follow in {values} of {[*self._streams, self.stream]}"
                )
                following = later.pop(0)
                at = min(at, _common(current, following))
                current = following
            at += 1
        return current, at

    def _check_result(self, result: RangeResult) -> None:
        excused = set(self.excused)
        if self._streams and (self._commits_lost or not self._has_moved_on):
            self.excused.add("position-unproved")
        super()._check_result(result)
        self.excused = excused

    @property
    def _has_moved_on(self) -> bool:
        """Whether the target has records that the source has since its log was cut back last.

        Until then, it may have records behind the progress that the source has lost. The attempt that has moved on has
        proved its position, and committed it.
        """
        return self._position_of(self.visible(committed=True))[0] is self.stream

    def _check_complete(self) -> None:
        values = self.visible(committed=True)
        current, at = self._position_of(values)
        if current is not self.stream:
            at = min(at, _common(current, self.stream))
        assert at == len(self.stream), f"{values} of {self.stream}"

    def check_index(self) -> None:
        if not self._streams:  # otherwise it has offsets of records that the source has lost
            super().check_index()

    # --- the end

    def finish(self) -> None:
        """The present attempt copies everything once faults have stopped; so does another one, without any fault."""
        self._check_progress()
        self.gaps_are_skipped(skipped=True)
        committed = self.target.groups[group_of(FLOW, TARGET)].get(TARGET)
        while committed is not None and self.source_log.end_offset <= committed.offset:
            self.source_grows([1], 0)  # a range that ends at the progress shows no cut: the next one does
        super().finish()

    def end_faults(self) -> None:
        super().end_faults()
        self._failing.clear()
        self._delays_ms.clear()
        self.source.control.add(self._decide_fetch)

    def _check_progress(self) -> None:
        running = [one for one in self.alive if one.reported is None]
        if not running:
            return
        newest = running[-1]
        for one in self.alive:
            one.suspended = one is not newest  # if it was, the others may have copied
        newest.stands_until_ms = 0
        self.end_faults()
        self.log.replicated_to = None
        self.source_grows([1], 0)
        until_ms = self.target.clock.now() + _COPIES_WITHIN_MS
        while not (self._is_complete or newest.ended) and self.target.clock.now() < until_ms:
            self.simulation.run(until=lambda: newest.ended, ms=1_000)
        if not newest.ended:
            newest.end_epoch()
            self.simulation.run(until=lambda: newest.reported, ms=_REPORTS_WITHIN_MS)
        assert newest.reported is not None, f"{newest.name} does not report"
        self.check()
        (result,) = newest.reported
        if result.outcome is not Outcome.FENCED and not (self._streams and newest.policy.on_gap == "fail"):
            self._check_result(replace(result, outcome=_WITHOUT_EPOCH.get(result.outcome, result.outcome)))
        newest.suspended = True

    @property
    def _is_complete(self) -> bool:
        try:
            self._check_complete()
        except AssertionError:
            return False
        return True


def _common(one: list[bytes], other: list[bytes]) -> int:
    """How many records two logs have in common."""
    pairs = zip(one, other, strict=False)
    return next((number for number, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))


def _failed(topic: FetchResponseTopic, code: int | None) -> FetchResponseTopic:
    return replace(topic, partitions=tuple(_failed_part(part, code) for part in topic.partitions))


def _failed_part(part: FetchResponsePartition, code: int | None) -> FetchResponsePartition:
    if not part.records:
        return part
    if code is not None:
        return FetchResponsePartition(part.partition_index, code, records=memoryview(b""))
    records = bytearray(part.records)
    records[-1] ^= 1
    return replace(part, records=memoryview(records))
