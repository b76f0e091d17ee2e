"""The batch pipeline: order, merging, remedies, gaps, and the bytes that it holds."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.consumer.fetched import Fetched
from mirror.errors import CorruptBatch, FlowError
from mirror.relay.batches.batch_pipeline import BatchPipeline
from mirror.relay.batches.held_buffers import HeldBuffers
from mirror.relay.batches.output_batch import OutputBatch
from mirror.relay.batches.reencode import ReencodeReason, ReencodeResult, ReencodeSpec, reencode
from mirror.relay.batches.reencode_decision import IsForeign, SkipReason
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.byte_limits import SourceBudget
from mirror.relay.model.policy import CopyPolicy
from mirror.wire.records import AnyBatch, Batch, Batches
from tests.fakes.record_batches import ABORT, batch, build, build_marker, values_of
from tests.relay.copy_harness import made
from tests.relay.hand_context import SOURCE

WALL = 1_700_000_000_000


def _marker(base: int) -> Batch:
    return batch(build_marker(9, 0, ABORT, base_offset=base))


def _empty(base: int) -> Batch:
    return batch(build((), base_offset=base, last_offset_delta=0))


class PipelineHarness:
    """A pipeline whose outputs are released in order, and the buffers that it holds."""

    def __init__(
        self,
        *,
        batch_size: int = 10_000,
        limits: TargetLimits | None = None,
        policy: CopyPolicy | None = None,
        failing: Exception | None = None,
        is_foreign: IsForeign | None = None,
    ) -> None:
        self._failing = failing
        self.held = HeldBuffers(SourceBudget(10**9))
        self.runs: list[int] = []
        self.pipeline = BatchPipeline(
            limits or TargetLimits(),
            policy or CopyPolicy(),
            batch_size,
            reencode=self._reencode,
            held=self.held,
            is_foreign=is_foreign,
        )

    def _reencode(self, sources: Sequence[AnyBatch], spec: ReencodeSpec) -> Future[ReencodeResult]:
        self.runs.append(len(sources))
        future: Future[ReencodeResult] = Future()
        try:
            if self._failing is not None:
                raise self._failing
            future.set_result(reencode(sources, spec))
        except (CorruptBatch, MemoryError) as error:
            future.set_exception(error)
        return future

    def take(self, *batches: Batch, end: int = 10**9) -> None:
        size = sum(one.size for one in batches)
        self.pipeline.add_fetched(
            Fetched(tp=SOURCE, offset=0, next_offset=batches[-1].next_offset, batches=list(batches), size=size), end
        )

    def outputs(self, found: list[OutputBatch] | None = None) -> list[OutputBatch]:
        found = [] if found is None else found
        while (output := self.pipeline.peek(WALL)) is not None:
            found.append(self.pipeline.pop())
            if output.buffer is not None:
                output.buffer.release()
        return found


@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    holes=st.lists(st.integers(0, 2), min_size=12, max_size=12),
    batch_size=st.sampled_from([1, 500, 10_000, 262_144]),
)
def test_outputs_cover_the_source_in_order_without_a_hole(counts: list[int], holes: list[int], batch_size: int) -> None:
    harness, at, batches = PipelineHarness(batch_size=batch_size), 0, []
    for count, hole in zip(counts, holes, strict=False):
        batches.append(made(at + hole, count))
        at += hole + count
    harness.take(*batches)
    outputs = harness.outputs()
    assert [output.next_offset for output in outputs] == sorted(output.next_offset for output in outputs)
    assert outputs[-1].next_offset == at
    assert sum(output.count for output in outputs) == sum(counts)
    assert sum(output.gaps["compacted"] for output in outputs) == sum(holes[: len(counts)])
    assert harness.held.size == 0
    assert harness.pipeline.empty


def test_small_batches_are_merged_up_to_the_batch_size() -> None:
    small = made(0).size
    harness = PipelineHarness(batch_size=3 * small)
    harness.take(*(made(n) for n in range(7)))
    outputs = harness.outputs()
    assert harness.runs == [3, 3]
    assert [output.count for output in outputs if output.batch is not None] == [3, 3, 1]
    assert sum(output.reencoded.get(ReencodeReason.SMALL, 0) for output in outputs) == 6


@pytest.mark.parametrize("count", [1, 40])
def test_batches_that_flows_have_written_to_the_source_are_left_out_and_their_records_counted(count: int) -> None:
    """40 records are passed on as bytes, single ones are merged around those that are left out."""
    foreign = {2, 3, 5}
    harness = PipelineHarness(is_foreign=lambda one: one.base_offset // count in foreign)
    harness.take(*(made(number * count, count) for number in range(7)))
    outputs = harness.outputs()
    assert sum(output.count for output in outputs) == 4 * count
    assert sum(output.dropped.get(SkipReason.NOT_LOCAL, 0) for output in outputs) == 3 * count
    assert outputs[-1].next_offset == 7 * count
    assert not any(output.gaps for output in outputs)
    assert harness.held.size == 0


def test_batches_of_different_codecs_are_not_merged() -> None:
    harness = PipelineHarness()
    harness.take(made(0), made(1, attributes=3))
    assert [output.reencoded for output in harness.outputs()] == [{}, {}]
    assert harness.runs == []


def test_backlog_holds_only_the_batches_of_the_next_run() -> None:
    """As objects, batches take a dozen times their bytes."""
    log = b"".join(build((b"",), base_offset=n) for n in range(5_000))
    harness = PipelineHarness(batch_size=1_000)
    records = memoryview(bytearray(log))
    gc.collect()
    before = sum(isinstance(one, Batch) for one in gc.get_objects())
    harness.pipeline.add_fetched(Fetched(tp=SOURCE, offset=0, next_offset=5_000, batches=Batches(records, 0)), 10**9)
    copied = 0
    while (output := harness.pipeline.peek(WALL)) is not None:
        assert sum(isinstance(one, Batch) for one in gc.get_objects()) - before < 100
        copied += harness.pipeline.pop().count
        if output.buffer is not None:
            output.buffer.release()
        del output
        if copied > 100:
            break
    copied += sum(output.count for output in harness.outputs())
    assert copied == 5_000
    assert harness.pipeline.empty
    assert harness.held.size == 0


def test_consecutive_markers_give_one_output() -> None:
    harness = PipelineHarness(batch_size=1)
    harness.take(made(0), *(_marker(n) for n in range(1, 501)), made(501))
    outputs = harness.outputs()
    assert [(output.base_offset, output.next_offset, output.count) for output in outputs] == [
        (0, 1, 1),
        (1, 501, 0),
        (501, 502, 1),
    ]
    assert outputs[1].dropped == {"control": 500}
    assert outputs[1].gaps["markers"] == 500
    assert harness.held.size == 0


def test_clear_releases_unread_fetches() -> None:
    harness = PipelineHarness(batch_size=1)
    harness.take(*(made(n) for n in range(10)))
    harness.pipeline.clear()
    assert harness.held.size == 0
    assert harness.pipeline.empty


def test_batches_after_the_end_are_ignored() -> None:
    harness = PipelineHarness()
    harness.take(made(0, 40), made(40, 40), end=40)
    assert [output.next_offset for output in harness.outputs()] == [40]


def test_first_remedy_applies_only_to_the_refused_batch() -> None:
    harness = PipelineHarness(batch_size=1, policy=CopyPolicy(on_no_key="skip"))
    harness.take(made(0, 2), made(2, 2))
    first, _ = harness.outputs()
    assert harness.pipeline.remedies.apply(first, ReencodeReason.NO_KEY)
    harness.pipeline.restart(0)
    harness.take(made(0, 2), made(2, 2))
    outputs = harness.outputs()
    assert [output.reason for output in outputs if output.batch is not None] == [None]
    assert sum(output.dropped.get(ReencodeReason.NO_KEY, 0) for output in outputs) == 2


def test_remedy_is_not_tried_twice() -> None:
    harness = PipelineHarness(batch_size=1)
    harness.take(made(0, 2))
    (first,) = harness.outputs()
    assert harness.pipeline.remedies.apply(first, ReencodeReason.BAD_TIMESTAMP)
    harness.pipeline.restart(0)
    harness.take(made(0, 2, timestamp=WALL))
    again = harness.outputs()[0]
    assert not harness.pipeline.remedies.apply(again, ReencodeReason.BAD_TIMESTAMP)
    assert harness.pipeline.remedies.apply(again, ReencodeReason.TOO_LARGE)


def _lessons(refused: int, reason: ReencodeReason) -> list[int]:
    """Return how many offsets from the refused batch on are re-encoded, after each of ``refused`` refusals in a row."""
    harness, found = PipelineHarness(batch_size=1), []
    for _ in range(refused):
        harness.pipeline.restart(0)
        harness.take(*(made(at, 2) for at in range(0, 60, 2)))
        shallow = [one for one in harness.outputs() if one.batch is not None and one.reason is None]
        assert harness.pipeline.remedies.apply(shallow[0], reason)
        harness.pipeline.restart(0)
        harness.take(*(made(at, 2) for at in range(0, 60, 2)))
        deep = sum(sum(one.reencoded.values()) for one in harness.outputs())
        found.append(2 * deep - shallow[0].base_offset)
    return found


def test_remedy_reaches_further_with_each_refusal() -> None:
    """If each of a thousand batches is refused, that must not cost a thousand transactions."""
    assert _lessons(4, ReencodeReason.BAD_TIMESTAMP) == [2, 4, 8, 16]


def test_batches_as_large_as_a_refused_one_are_reencoded_in_advance() -> None:
    harness = PipelineHarness(batch_size=1)
    large, small = made(0, 40), made(40, 2)
    harness.take(large, small)
    first, second = harness.outputs()
    assert (first.reason, second.reason) == (None, None)
    assert harness.pipeline.remedies.apply(first, ReencodeReason.TOO_LARGE)
    harness.take(made(42, 2), made(44, 40))
    assert [one.reencoded for one in harness.outputs() if one.batch is None or one.reason is None] == [
        {},
        {ReencodeReason.TOO_LARGE: 1},
    ]


def test_small_batches_are_merged_across_skipped_batches() -> None:
    """Transactions of one record each: a marker follows every record."""
    harness = PipelineHarness()
    harness.take(made(0), _marker(1), made(2), _empty(3), _marker(4), made(5), _marker(6))
    outputs = harness.outputs()
    assert harness.runs == [3]
    assert [output.count for output in outputs if output.batch is not None] == [3]
    assert [output.next_offset for output in outputs] == [6, 6, 7]
    assert sum((Counter(output.dropped) for output in outputs), Counter()) == {"control": 3, "empty": 1}
    assert sum((output.gaps for output in outputs), Counter()) == {"markers": 3, "compacted": 1}
    assert sum(sum(output.reencoded.values()) for output in outputs) == 3
    assert harness.held.size == 0


@pytest.mark.parametrize(("time", "deep"), [(WALL, 0), (WALL - 7_200_000, 1), (WALL + 7_200_000, 1), (-1, 0)])
def test_batch_with_a_bad_timestamp_in_its_header_is_reencoded_in_advance(time: int, deep: int) -> None:
    limits = TargetLimits(before_max_ms=3_600_000, after_max_ms=3_600_000)
    harness = PipelineHarness(batch_size=1, limits=limits, policy=CopyPolicy(on_bad_timestamp="clamp"))
    harness.take(made(0, 2, timestamp=time))
    assert sum(output.reencoded.get(ReencodeReason.BAD_TIMESTAMP, 0) for output in harness.outputs()) == deep


def test_cleared_pipeline_holds_no_bytes() -> None:
    harness = PipelineHarness(batch_size=1)
    harness.take(made(0, 2), made(2, 2))
    harness.pipeline.stop_at(OutputBatch(2, 4, 0), FlowError("no"))
    harness.pipeline.peek(WALL)
    output = harness.pipeline.pop()
    assert output.buffer is not None
    output.buffer.release()
    with pytest.raises(FlowError):
        harness.pipeline.peek(WALL)
    harness.pipeline.clear()
    assert harness.held.size == 0
    assert harness.pipeline.empty


@pytest.mark.parametrize("exact", [True, False])
def test_timestamp_bounds_have_a_margin_for_the_broker_clock(exact: bool) -> None:
    limits = TargetLimits(before_max_ms=3_600_000, after_max_ms=1_000)
    earliest, latest = limits.bounds_ms(WALL, exact=exact)
    assert (earliest, latest) == ((WALL - 3_600_000, WALL + 1_000) if exact else (WALL - 3_540_000, WALL + 500))
    assert TargetLimits().bounds_ms(WALL, exact=exact) == (-1, 2**63 - 1)


@pytest.mark.parametrize("end", [11, 15, 20, 25, 30])
def test_copy_and_progress_stop_at_the_end(end: int) -> None:
    harness = PipelineHarness(batch_size=1)
    harness.take(made(0, 10), made(10, 10), made(20, 10), end=end)
    outputs = harness.outputs()
    copied = [value for output in outputs if output.batch is not None for value in values_of(output.batch.view)]
    assert copied == [b"%d" % number for number in range(end)]
    assert outputs[-1].next_offset == end
    reencoded = sum((Counter(output.reencoded) for output in outputs), Counter())
    assert reencoded == ({ReencodeReason.TRIMMED: 1} if end % 10 else {})
    assert harness.held.size == 0


def test_compacted_batch_with_records_only_after_the_end_writes_nothing() -> None:
    harness = PipelineHarness()
    harness.take(batch(build([b"x"], base_offset=0, deltas=[7], last_offset_delta=9)), end=5)
    outputs = harness.outputs()
    assert [output.batch for output in outputs] == [None]
    assert outputs[0].next_offset == 5


def _damaged(base: int) -> Batch:
    data = build((b"bad",), base_offset=base)
    data[-1] ^= 1
    return batch(data)


@pytest.mark.parametrize("bad", range(5))
def test_batches_before_a_corrupt_one_of_the_same_run_are_copied(bad: int) -> None:
    """The batches are then re-encoded one at a time: their headers do not show which one is corrupt."""
    harness = PipelineHarness()
    batches = [made(base) for base in range(5)]
    batches[bad] = _damaged(bad)
    harness.take(*batches)
    found: list[OutputBatch] = []
    with pytest.raises(CorruptBatch, match=f"the batch at offset {bad} "):
        harness.outputs(found)
    assert [output.next_offset for output in found if output.batch is not None] == list(range(1, bad + 1))
    harness.pipeline.clear()


def test_clear_cancels_the_reencoding() -> None:
    futures = list[Future[ReencodeResult]]()

    def later(sources: Sequence[AnyBatch], spec: ReencodeSpec) -> Future[ReencodeResult]:
        del sources, spec
        futures.append(Future())
        return futures[-1]

    pipeline = PipelineHarness().pipeline
    pipeline._reencode = later
    pipeline.add_fetched(Fetched(tp=SOURCE, offset=0, next_offset=2, batches=[made(0), made(1)], size=1), 2)
    assert pipeline.peek(WALL) is None
    pipeline.clear()
    assert [one.cancelled() for one in futures] == [True]


def test_failing_encoder_leaves_no_bytes_held() -> None:
    """For example for lack of memory: held bytes count against the budget of all copies."""
    broken = PipelineHarness(failing=MemoryError())
    broken.take(made(0), made(1))
    with pytest.raises(MemoryError):
        broken.pipeline.peek(WALL)
    broken.pipeline.clear()
    assert broken.held.size == 0


def test_overlapping_batch_ends_the_copy() -> None:
    """Its records would be in the target twice."""
    harness = PipelineHarness()
    harness.take(made(0, 3), made(2, 40), made(42))
    assert [output.next_offset for output in [harness.pipeline.peek(WALL)] if output] == [3]
    harness.pipeline.pop()
    with pytest.raises(CorruptBatch, match="the batch at offset 2 is corrupt: it follows offset 2"):
        harness.pipeline.peek(WALL)
    harness.pipeline.clear()
    harness.pipeline.restart(3)
    harness.take(made(2, 40))
    with pytest.raises(CorruptBatch, match="the batch at offset 2 is corrupt: it follows offset 2"):
        harness.pipeline.peek(WALL)


def test_overlapping_batch_is_not_skipped_with_empty_ones() -> None:
    """Its header is wrong, so there may be records where it shows none."""
    harness = PipelineHarness()
    harness.take(_empty(0), batch(build((), base_offset=0, last_offset_delta=50)), made(51))
    found: list[OutputBatch] = []
    with pytest.raises(CorruptBatch, match="the batch at offset 0 is corrupt: it follows offset 0"):
        harness.outputs(found)
    assert [output.next_offset for output in found] == [1]
    harness.pipeline.clear()


def test_copy_may_start_inside_a_batch() -> None:
    harness = PipelineHarness()
    harness.pipeline.restart(2)
    harness.take(made(0, 3), made(3, 40))
    assert [output.count for output in harness.outputs() if output.batch is not None] == [1, 40]
