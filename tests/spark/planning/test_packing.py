"""Packing as properties: every range once, even, stable, lanes apart."""

from __future__ import annotations

import itertools
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from mirror.relay.model.ranges import Range
from mirror.spark.planning.packing import LIGHT_BYTES, pack, records_of, steady_size

SIZES = st.lists(st.integers(0, 10**9), max_size=60)
TASKS = st.integers(1, 12)
ROUNDING = 1 + 1 / 16


def backlog(partition: int, size: int, *, stuck_since_ms: int | None = None) -> Range:
    return Range(
        flow="f",
        topic="t",
        target_topic="a.t",
        partition=partition,
        start=10,
        end=10 + size,
        source_cluster_id="cluster-a",
        topic_id="t1",
        stuck_since_ms=stuck_since_ms,
    )


def backlogs(sizes: list[int]) -> list[Range]:
    return [backlog(number, size) for number, size in enumerate(sizes)]


def partitions(packed: list[list[Range]]) -> list[list[int]]:
    return [[each.partition for each in task] for task in packed]


def longest(packed: list[list[Range]]) -> int:
    return max((sum(records_of(each) for each in task) for task in packed), default=0)


def is_unhealthy(one: Range) -> bool:
    return one.stuck_since_ms is not None


def test_the_largest_backlogs_are_spread_first() -> None:
    assert partitions(pack(backlogs([2, 9, 3, 5]), 2)) == [[1], [3, 2, 0]]


@given(SIZES, TASKS)
def test_every_range_is_in_one_task_and_no_task_is_empty(sizes: list[int], tasks: int) -> None:
    packed = pack(backlogs(sizes), tasks)
    assert sorted(itertools.chain(*partitions(packed))) == list(range(len(sizes)))
    assert len(packed) == min(tasks, len(sizes))
    assert all(packed)
    # No packing is shorter than the average or the largest range; this one exceeds the average by less than a range.
    largest = max(sizes, default=0)
    bound = sum(sizes) / tasks + largest * (1 - 1 / tasks)
    assert max(largest, sum(sizes) / tasks) <= longest(packed) <= bound * ROUNDING + 1e-6


@given(st.lists(st.integers(0, 100), min_size=1, max_size=7), st.integers(1, 3))
def test_the_longest_task_is_at_most_four_thirds_of_the_best(sizes: list[int], tasks: int) -> None:
    best = min(
        max(sum(size for size, of in zip(sizes, way, strict=True) if of == task) for task in range(tasks))
        for way in itertools.product(range(tasks), repeat=len(sizes))
    )
    assert longest(pack(backlogs(sizes), tasks)) <= best * 4 / 3 * ROUNDING


@given(st.integers(1, 60), TASKS)
def test_packing_of_empty_ranges_is_even(count: int, tasks: int) -> None:
    lengths = [len(task) for task in pack(backlogs([0] * count), tasks)]
    assert max(lengths) - min(lengths) <= 1


SIMILAR = st.tuples(st.integers(16, 31), st.integers(0, 25), st.floats(0, 0.99))
"""A size's first five bits, what follows them, and how much of that it grows by."""


@given(st.lists(SIMILAR, max_size=40), TASKS, st.randoms())
def test_similar_backlogs_share_a_task_again(sizes: list[tuple[int, int, float]], tasks: int, rng: Random) -> None:
    """In whatever order they are listed, and where each grew by less than what sizes are rounded by."""
    before = backlogs([bits << more for bits, more, _ in sizes])
    after = backlogs([(bits << more) + int(part * (1 << more)) for bits, more, part in sizes])
    rng.shuffle(after)
    assert partitions(pack(before, tasks)) == partitions(pack(after, tasks))


def test_little_growth_moves_no_range() -> None:
    assert partitions(pack(backlogs([1000, 1003, 990, 500]), 2)) == partitions(
        pack(backlogs([1004, 1001, 994, 503]), 2)
    )


LANES = st.lists(st.tuples(st.integers(0, 10**9), st.booleans()), max_size=40)


@given(LANES, TASKS)
def test_lanes_are_kept_apart(ranges: list[tuple[int, bool]], tasks: int) -> None:
    all_of_them = [
        backlog(number, size, stuck_since_ms=5 if sick else None) for number, (size, sick) in enumerate(ranges)
    ]
    packed = pack(all_of_them, tasks, slow=is_unhealthy)
    assert sorted(itertools.chain(*partitions(packed))) == list(range(len(ranges)))
    assert len(packed) == min(tasks, len(ranges))
    assert all(packed)
    if tasks >= 2:
        assert all(len({is_unhealthy(each) for each in task}) == 1 for task in packed)
        steady = [task for task in packed if not is_unhealthy(task[0])]
        well = sum(not sick for _, sick in ranges)
        # At least half of the tasks, or one each, where there are any.
        assert len(steady) >= min(well, (len(packed) + 1) // 2)


@given(LANES, TASKS)
def test_each_lane_is_even(ranges: list[tuple[int, bool]], tasks: int) -> None:
    all_of_them = [
        backlog(number, size, stuck_since_ms=5 if sick else None) for number, (size, sick) in enumerate(ranges)
    ]
    packed = pack(all_of_them, max(2, tasks), slow=is_unhealthy)
    for sick in (False, True):
        lane = [task for task in packed if is_unhealthy(task[0]) is sick]
        sizes = [records_of(each) for task in lane for each in task]
        if sizes:
            bound = sum(sizes) / len(lane) + max(sizes) * (1 - 1 / len(lane))
            assert longest(lane) <= bound * ROUNDING + 1e-6


def test_sizes_may_be_bytes() -> None:
    weights = {0: 1, 1: 1, 2: 1, 3: 30}
    packed = pack(backlogs([9, 9, 9, 1]), 2, size_of=lambda each: weights[each.partition])
    assert partitions(packed) == [[3], [0, 1, 2]]


@given(st.lists(st.integers(0, LIGHT_BYTES - 1), min_size=1, max_size=40), st.randoms(use_true_random=False), TASKS)
def test_lightly_loaded_partitions_that_are_followed_stay_in_their_tasks(
    sizes: list[int], rng: Random, tasks: int
) -> None:
    size_of = steady_size(records_of)
    later = [rng.randrange(LIGHT_BYTES) for _ in sizes]
    first, second = (partitions(pack(backlogs(each), tasks, size_of=size_of)) for each in (sizes, later))
    assert [sorted(task) for task in first] == [sorted(task) for task in second]


def test_followed_partitions_with_a_load_are_spread_by_it() -> None:
    sizes = [9 * LIGHT_BYTES, 0, 8 * LIGHT_BYTES, 1, 7 * LIGHT_BYTES, 2]
    packed = partitions(pack(backlogs(sizes), 2, size_of=steady_size(records_of)))
    assert [sorted(set(task) & {0, 2, 4}) for task in packed] == [[0], [2, 4]]
