"""From source batches to pieces: order, putting together, remedies, holes, and whose bytes are whose."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.consumer.fetched import Fetched
from mirror.errors import CorruptBatch, FlowError
from mirror.relay.batches.batch_pipeline import BatchPipeline
from mirror.relay.batches.output_batch import BufferRef, OutputBatch
from mirror.relay.batches.reencode import Reason, ReencodeResult, ReencodeSpec, reencode
from mirror.relay.batches.target_limits import TargetLimits
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


class Feeding:
    """A feed whose pieces are done with in order, and the parts that it holds."""

    def __init__(
        self,
        *,
        batch_size: int = 10_000,
        facts: TargetLimits | None = None,
        policy: CopyPolicy | None = None,
        failing: Exception | None = None,
    ) -> None:
        self._failing = failing
        self.held: list[BufferRef] = []
        self.runs: list[int] = []
        self.feed = BatchPipeline(
            facts or TargetLimits(),
            policy or CopyPolicy(),
            batch_size,
            reencode=self._remake,
            on_held=self.held.append,
            on_released=self.held.remove,
        )

    def _remake(self, sources: Sequence[AnyBatch], recipe: ReencodeSpec) -> Future[ReencodeResult]:
        self.runs.append(len(sources))
        future: Future[ReencodeResult] = Future()
        try:
            if self._failing is not None:
                raise self._failing
            future.set_result(reencode(sources, recipe))
        except (CorruptBatch, MemoryError) as error:
            future.set_exception(error)
        return future

    def take(self, *batches: Batch, end: int = 10**9) -> None:
        size = sum(one.size for one in batches)
        self.feed.add_fetched(
            Fetched(tp=SOURCE, offset=0, next_offset=batches[-1].next_offset, batches=list(batches), size=size), end
        )

    def pieces(self, found: list[OutputBatch] | None = None) -> list[OutputBatch]:
        found = [] if found is None else found
        while (piece := self.feed.peek(WALL)) is not None:
            found.append(self.feed.pop())
            if piece.buffer is not None:
                piece.buffer.release()
        return found


@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    holes=st.lists(st.integers(0, 2), min_size=12, max_size=12),
    batch_size=st.sampled_from([1, 500, 10_000, 262_144]),
)
def test_pieces_cover_the_source_in_order_without_a_break(counts: list[int], holes: list[int], batch_size: int) -> None:
    feeding, at, batches = Feeding(batch_size=batch_size), 0, []
    for count, hole in zip(counts, holes, strict=False):
        batches.append(made(at + hole, count))
        at += hole + count
    feeding.take(*batches)
    pieces = feeding.pieces()
    assert [piece.next_offset for piece in pieces] == sorted(piece.next_offset for piece in pieces)
    assert pieces[-1].next_offset == at
    assert sum(piece.count for piece in pieces) == sum(counts)
    assert sum(piece.gaps["compacted"] for piece in pieces) == sum(holes[: len(counts)])
    assert feeding.held == []
    assert feeding.feed.empty


def test_small_batches_are_put_together_up_to_the_batch_size() -> None:
    small = made(0).size
    feeding = Feeding(batch_size=3 * small)
    feeding.take(*(made(n) for n in range(7)))
    pieces = feeding.pieces()
    assert feeding.runs == [3, 3]
    assert [piece.count for piece in pieces if piece.batch is not None] == [3, 3, 1]
    assert sum(piece.reencoded.get(Reason.SMALL, 0) for piece in pieces) == 6


def test_batches_of_two_codecs_are_not_put_together() -> None:
    feeding = Feeding()
    feeding.take(made(0), made(1, attributes=3))
    assert [piece.reencoded for piece in feeding.pieces()] == [{}, {}]


def test_of_thousands_of_small_batches_only_those_in_question_are_seen() -> None:
    """As objects they take a dozen times their bytes."""
    log = b"".join(build((b"",), base_offset=n) for n in range(5_000))
    feeding = Feeding(batch_size=1_000)
    records = memoryview(bytearray(log))
    gc.collect()
    before = sum(isinstance(one, Batch) for one in gc.get_objects())
    feeding.feed.add_fetched(Fetched(tp=SOURCE, offset=0, next_offset=5_000, batches=Batches(records, 0)), 10**9)
    copied = 0
    while (piece := feeding.feed.peek(WALL)) is not None:
        assert sum(isinstance(one, Batch) for one in gc.get_objects()) - before < 100
        copied += feeding.feed.pop().count
        if piece.buffer is not None:
            piece.buffer.release()
        del piece
        if copied > 100:
            break
    copied += sum(piece.count for piece in feeding.pieces())
    assert copied == 5_000
    assert feeding.feed.empty
    assert feeding.held == []


def test_markers_in_a_row_are_passed_at_once() -> None:
    feeding = Feeding(batch_size=1)
    feeding.take(made(0), *(_marker(n) for n in range(1, 501)), made(501))
    pieces = feeding.pieces()
    assert [(piece.base_offset, piece.next_offset, piece.count) for piece in pieces] == [
        (0, 1, 1),
        (1, 501, 0),
        (501, 502, 1),
    ]
    assert pieces[1].dropped == {"control": 500}
    assert pieces[1].gaps["markers"] == 500
    assert feeding.held == []


def test_what_is_cut_off_lets_go_of_what_was_not_seen_yet() -> None:
    feeding = Feeding(batch_size=1)
    feeding.take(*(made(n) for n in range(10)))
    feeding.feed.clear()
    assert feeding.held == []
    assert feeding.feed.empty


def test_what_comes_after_the_end_is_left() -> None:
    feeding = Feeding()
    feeding.take(made(0, 40), made(40, 40), end=40)
    assert [piece.next_offset for piece in feeding.pieces()] == [40]


def test_a_remedy_is_for_what_it_was_found_in_and_nothing_behind_it() -> None:
    feeding = Feeding(batch_size=1, policy=CopyPolicy(on_no_key="skip"))
    feeding.take(made(0, 2), made(2, 2))
    first, _ = feeding.pieces()
    assert feeding.feed.apply_remedy(first, Reason.NO_KEY)
    feeding.feed.restart(0)
    feeding.take(made(0, 2), made(2, 2))
    pieces = feeding.pieces()
    assert [piece.reason for piece in pieces if piece.batch is not None] == [None]
    assert sum(piece.dropped.get(Reason.NO_KEY, 0) for piece in pieces) == 2


def test_a_remedy_that_was_tried_is_none() -> None:
    feeding = Feeding(batch_size=1)
    feeding.take(made(0, 2))
    (first,) = feeding.pieces()
    assert feeding.feed.apply_remedy(first, Reason.BAD_TIMESTAMP)
    feeding.feed.restart(0)
    feeding.take(made(0, 2, timestamp=WALL))
    again = feeding.pieces()[0]
    assert not feeding.feed.apply_remedy(again, Reason.BAD_TIMESTAMP)
    assert feeding.feed.apply_remedy(again, Reason.TOO_LARGE)


def _lessons(refused: int, reason: Reason) -> list[int]:
    """How many offsets from the refused batch's on are made anew, after each of ``refused`` refusals in a row."""
    feeding, found = Feeding(batch_size=1), []
    for _ in range(refused):
        feeding.feed.restart(0)
        feeding.take(*(made(at, 2) for at in range(0, 60, 2)))
        shallow = [one for one in feeding.pieces() if one.batch is not None and one.reason is None]
        assert feeding.feed.apply_remedy(shallow[0], reason)
        feeding.feed.restart(0)
        feeding.take(*(made(at, 2) for at in range(0, 60, 2)))
        deep = sum(sum(one.reencoded.values()) for one in feeding.pieces())
        found.append(2 * deep - shallow[0].base_offset)
    return found


def test_a_remedy_reaches_further_with_each_refusal() -> None:
    """Where each of a thousand batches is refused, that must not cost a thousand transactions."""
    assert _lessons(4, Reason.BAD_TIMESTAMP) == [2, 4, 8, 16]


def test_batches_as_large_as_one_that_was_refused_are_made_anew_beforehand() -> None:
    feeding = Feeding(batch_size=1)
    large, small = made(0, 40), made(40, 2)
    feeding.take(large, small)
    first, second = feeding.pieces()
    assert (first.reason, second.reason) == (None, None)
    assert feeding.feed.apply_remedy(first, Reason.TOO_LARGE)
    feeding.take(made(42, 2), made(44, 40))
    assert [one.reencoded for one in feeding.pieces() if one.batch is None or one.reason is None] == [
        {},
        {Reason.TOO_LARGE: 1},
    ]


def test_small_batches_are_put_together_over_what_holds_nothing_to_copy() -> None:
    """Transactions of one record each: a marker stands behind every one of them."""
    feeding = Feeding()
    feeding.take(made(0), _marker(1), made(2), _empty(3), _marker(4), made(5), _marker(6))
    pieces = feeding.pieces()
    assert feeding.runs == [3]
    assert [piece.count for piece in pieces if piece.batch is not None] == [3]
    assert [piece.next_offset for piece in pieces] == [6, 6, 7]
    assert sum((Counter(piece.dropped) for piece in pieces), Counter()) == {"control": 3, "empty": 1}
    assert sum((piece.gaps for piece in pieces), Counter()) == {"markers": 3, "compacted": 1}
    assert sum(sum(piece.reencoded.values()) for piece in pieces) == 3
    assert feeding.held == []


@pytest.mark.parametrize(("time", "deep"), [(WALL, 0), (WALL - 7_200_000, 1), (WALL + 7_200_000, 1), (-1, 0)])
def test_a_batch_whose_header_tells_of_a_time_out_of_bounds_is_made_anew_beforehand(time: int, deep: int) -> None:
    facts = TargetLimits(before_max_ms=3_600_000, after_max_ms=3_600_000)
    feeding = Feeding(batch_size=1, facts=facts, policy=CopyPolicy(on_bad_timestamp="clamp"))
    feeding.take(made(0, 2, timestamp=time))
    assert sum(piece.reencoded.get(Reason.BAD_TIMESTAMP, 0) for piece in feeding.pieces()) == deep


def test_what_is_cut_off_holds_nothing() -> None:
    feeding = Feeding(batch_size=1)
    feeding.take(made(0, 2), made(2, 2))
    feeding.feed.stop_at(OutputBatch(2, 4, 0), FlowError("no"))
    feeding.feed.peek(WALL)
    piece = feeding.feed.pop()
    assert piece.buffer is not None
    piece.buffer.release()
    with pytest.raises(FlowError):
        feeding.feed.peek(WALL)
    feeding.feed.clear()
    assert feeding.held == []
    assert feeding.feed.empty


@pytest.mark.parametrize("exact", [True, False])
def test_times_leave_the_broker_s_clock_some_room(exact: bool) -> None:
    facts = TargetLimits(before_max_ms=3_600_000, after_max_ms=1_000)
    earliest, latest = facts.bounds_ms(WALL, exact=exact)
    assert (earliest, latest) == ((WALL - 3_600_000, WALL + 1_000) if exact else (WALL - 3_540_000, WALL + 500))
    assert TargetLimits().bounds_ms(WALL, exact=exact) == (-1, 2**63 - 1)


@pytest.mark.parametrize("end", [11, 15, 20, 25, 30])
def test_nothing_from_the_end_on_is_copied_and_progress_stops_there(end: int) -> None:
    feeding = Feeding(batch_size=1)
    feeding.take(made(0, 10), made(10, 10), made(20, 10), end=end)
    pieces = feeding.pieces()
    copied = [value for piece in pieces if piece.batch is not None for value in values_of(piece.batch.view)]
    assert copied == [b"%d" % number for number in range(end)]
    assert pieces[-1].next_offset == end
    assert sum((Counter(piece.reencoded) for piece in pieces), Counter()) == ({Reason.TRIMMED: 1} if end % 10 else {})
    assert not feeding.held


def test_an_end_behind_which_a_compacted_batch_has_its_only_records_leaves_nothing_to_write() -> None:
    feeding = Feeding()
    feeding.take(batch(build([b"x"], base_offset=0, deltas=[7], last_offset_delta=9)), end=5)
    pieces = feeding.pieces()
    assert [piece.batch for piece in pieces] == [None]
    assert pieces[0].next_offset == 5


def _damaged(base: int) -> Batch:
    data = build((b"bad",), base_offset=base)
    data[-1] ^= 1
    return batch(data)


@pytest.mark.parametrize("bad", range(5))
def test_of_batches_put_together_those_before_a_damaged_one_are_copied(bad: int) -> None:
    """One at a time then: it is not to be seen from outside which one it is."""
    feeding = Feeding()
    batches = [made(base) for base in range(5)]
    batches[bad] = _damaged(bad)
    feeding.take(*batches)
    found: list[OutputBatch] = []
    with pytest.raises(CorruptBatch, match=f"the batch at offset {bad} "):
        feeding.pieces(found)
    assert [piece.next_offset for piece in found if piece.batch is not None] == list(range(1, bad + 1))
    feeding.feed.clear()


def test_what_is_cut_off_is_no_longer_encoded() -> None:
    futures = list[Future[ReencodeResult]]()

    def later(sources: Sequence[AnyBatch], recipe: ReencodeSpec) -> Future[ReencodeResult]:
        del sources, recipe
        futures.append(Future())
        return futures[-1]

    feed = Feeding().feed
    feed._reencode = later
    feed.add_fetched(Fetched(tp=SOURCE, offset=0, next_offset=2, batches=[made(0), made(1)], size=1), 2)
    assert feed.peek(WALL) is None
    feed.clear()
    assert [one.cancelled() for one in futures] == [True]


def test_an_encoder_that_breaks_down_leaves_nothing_held() -> None:
    """Such as one that finds no memory: what is held counts against what all copies may read."""
    broken = Feeding(failing=MemoryError())
    broken.take(made(0), made(1))
    with pytest.raises(MemoryError):
        broken.feed.peek(WALL)
    broken.feed.clear()
    assert not broken.held


def test_a_batch_that_goes_back_ends_what_is_copied() -> None:
    """Its records would be at the target twice."""
    feeding = Feeding()
    feeding.take(made(0, 3), made(2, 40), made(42))
    assert [piece.next_offset for piece in [feeding.feed.peek(WALL)] if piece] == [3]
    feeding.feed.pop()
    with pytest.raises(CorruptBatch, match="the batch at offset 2 is corrupt: it follows offset 2"):
        feeding.feed.peek(WALL)
    feeding.feed.clear()
    feeding.feed.restart(3)
    feeding.take(made(2, 40))
    with pytest.raises(CorruptBatch, match="the batch at offset 2 is corrupt: it follows offset 2"):
        feeding.feed.peek(WALL)


def test_what_goes_back_is_not_passed_over_with_what_holds_nothing() -> None:
    """Records may lie where it says that there are none."""
    feeding = Feeding()
    feeding.take(_empty(0), batch(build((), base_offset=0, last_offset_delta=50)), made(51))
    found: list[OutputBatch] = []
    with pytest.raises(CorruptBatch, match="the batch at offset 0 is corrupt: it follows offset 0"):
        feeding.pieces(found)
    assert [piece.next_offset for piece in found] == [1]
    feeding.feed.clear()


def test_a_copy_may_begin_inside_a_batch() -> None:
    feeding = Feeding()
    feeding.feed.restart(2)
    feeding.take(made(0, 3), made(3, 40))
    assert [piece.count for piece in feeding.pieces() if piece.batch is not None] == [1, 40]


def test_no_more_than_some_dozens_are_put_together_however_small_they_are() -> None:
    feeding = Feeding(batch_size=10**6)
    feeding.take(*(made(n) for n in range(150)))
    pieces = feeding.pieces()
    assert feeding.runs == [64, 64, 22]
    assert sum(piece.count for piece in pieces) == 150


def test_large_batches_of_few_records_are_passed_on_but_go_together_where_they_are_encoded_anew() -> None:
    large = [batch(build((bytes(10_000),), base_offset=n)) for n in range(4)]
    feeding = Feeding(batch_size=10**6)
    feeding.take(*large)
    assert [piece.reencoded for piece in feeding.pieces()] == [{}] * 4
    assert feeding.runs == []
    feeding = Feeding(batch_size=10**6, policy=CopyPolicy(headers=(("by", b"mirror"),)))
    feeding.take(*large)
    assert [piece.reencoded for piece in feeding.pieces() if piece.reencoded] == [{Reason.CONFIGURED: 4}]
    assert feeding.runs == [4]


def test_what_changes_its_codec_goes_together_in_small_amounts() -> None:
    feeding = Feeding(batch_size=10**6, policy=CopyPolicy(compression="none"))
    feeding.take(*(batch(build((bytes(5_000),), base_offset=n)) for n in range(6)))
    feeding.pieces()
    assert feeding.runs == [3, 3]


def test_of_batches_that_are_passed_on_no_more_are_seen_than_the_next() -> None:
    """Small ones of many records; as a row of candidates they would be looked at again for each of them."""
    feeding, seen = Feeding(batch_size=10**6), []
    batches = [batch(build((b"",) * 40, base_offset=40 * n)) for n in range(300)]

    def supply() -> Iterator[Batch]:
        for one in batches:
            seen.append(one.base_offset)
            yield one

    feeding.feed.add_fetched(Fetched(tp=SOURCE, offset=0, next_offset=12_000, batches=supply(), size=10**6), 10**9)  # type: ignore[arg-type]
    while feeding.feed.peek(WALL) is not None:
        piece = feeding.feed.pop()
        assert len(seen) <= piece.next_offset // 40 + 1
    assert feeding.runs == []


def test_a_large_batch_ends_a_run_of_small_ones() -> None:
    feeding = Feeding(batch_size=10**6)
    feeding.take(made(0), made(1), batch(build((bytes(10_000),), base_offset=2)), made(3), made(4))
    feeding.pieces()
    assert feeding.runs == [2, 2]
