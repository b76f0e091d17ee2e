"""Which batches of a source become one of the target."""

from __future__ import annotations

from collections.abc import Iterator

from mirror.consumer.fetched import Fetched
from mirror.relay.batches.reencode import ReencodeReason
from mirror.relay.model.policy import CopyPolicy
from mirror.wire.records import Batch
from tests.fakes.record_batches import batch, build
from tests.relay.batches.test_batch_pipeline import WALL, PipelineHarness
from tests.relay.copy_harness import made
from tests.relay.hand_context import SOURCE


def test_number_of_merged_batches_is_bounded() -> None:
    harness = PipelineHarness(batch_size=10**6)
    harness.take(*(made(n) for n in range(150)))
    outputs = harness.outputs()
    assert harness.runs == [64, 64, 22]
    assert sum(output.count for output in outputs) == 150


def test_large_batches_of_few_records_are_merged_only_if_they_are_reencoded() -> None:
    large = [batch(build((bytes(10_000),), base_offset=n)) for n in range(4)]
    harness = PipelineHarness(batch_size=10**6)
    harness.take(*large)
    assert [output.reencoded for output in harness.outputs()] == [{}] * 4
    assert harness.runs == []
    harness = PipelineHarness(batch_size=10**6, policy=CopyPolicy(headers=(("by", b"mirror"),)))
    harness.take(*large)
    assert [output.reencoded for output in harness.outputs() if output.reencoded] == [{ReencodeReason.CONFIGURED: 4}]
    assert harness.runs == [4]


def test_recompressed_batches_are_merged_up_to_a_smaller_size() -> None:
    harness = PipelineHarness(batch_size=10**6, policy=CopyPolicy(compression="none"))
    harness.take(*(batch(build((bytes(5_000),), base_offset=n)) for n in range(6)))
    harness.outputs()
    assert harness.runs == [3, 3]


def test_backlog_of_passed_on_batches_holds_only_the_next_one() -> None:
    """Otherwise each small batch of many records would be checked again as a candidate for every earlier one."""
    harness, seen = PipelineHarness(batch_size=10**6), []
    batches = [batch(build((b"",) * 40, base_offset=40 * n)) for n in range(300)]

    def supply() -> Iterator[Batch]:
        for one in batches:
            seen.append(one.base_offset)
            yield one

    harness.pipeline.add_fetched(Fetched(tp=SOURCE, offset=0, next_offset=12_000, batches=supply(), size=10**6), 10**9)  # type: ignore[arg-type]
    while harness.pipeline.peek(WALL) is not None:
        output = harness.pipeline.pop()
        assert len(seen) <= output.next_offset // 40 + 1
    assert harness.runs == []


def test_large_batch_ends_a_run_of_small_ones() -> None:
    harness = PipelineHarness(batch_size=10**6)
    harness.take(made(0), made(1), batch(build((bytes(10_000),), base_offset=2)), made(3), made(4))
    harness.outputs()
    assert harness.runs == [2, 2]
