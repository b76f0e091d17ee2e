"""The encoder's schedule, simulated with jobs of given lengths and sizes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from mirror.relay.batches.encoding_schedule import TURN_MS, EncodingJob, EncodingSchedule, TurnOutcome

SPARE = 1_000


@dataclass(slots=True, eq=False)
class Job(EncodingJob):
    takes_ms: int = 1
    needs: int = 0
    done_ms: int = 0
    begun: int = 0
    came_ms: int = 0
    ended_ms: int = -1


@dataclass
class ScheduleSimulation:
    """Runs jobs in steps of 1 ms."""

    turns: EncodingSchedule[Job] = field(default_factory=lambda: EncodingSchedule[Job](SPARE))
    now: int = 0
    begun: set[Job] = field(default_factory=set)
    most_held: int = 0
    order: list[Job] = field(default_factory=list)

    def add(self, key: str, takes_ms: int = 1, needs: int = 0) -> Job:
        job = Job(key, takes_ms=takes_ms, needs=needs, came_ms=self.now)
        self.turns.add(job)
        return job

    def turn(self) -> bool:
        job = self.turns.next()
        if job is None:
            return False
        self.order.append(job)
        began = self.now
        job.begun += job not in self.begun
        self.begun.add(job)
        while job.done_ms < job.takes_ms:
            self.now += 1
            job.done_ms += 1
            self.most_held = max(self.most_held, sum(one.needs for one in self.begun))
            verdict = self.turns.on_ran(job, self.now - began, job.needs)
            if verdict is TurnOutcome.RESTART:
                job.done_ms = 0
                self.begun.discard(job)
            if verdict is not TurnOutcome.CONTINUE:
                return True
        job.ended_ms = self.now
        self.begun.discard(job)
        self.turns.on_ended(job, job.needs)
        return True

    def run(self) -> None:
        for _ in range(100_000):
            if not self.turn():
                return
        pytest.fail("it never ends")


def test_long_job_yields() -> None:
    world = ScheduleSimulation()
    long = world.add("hostile", 20_000, 10 * SPARE)
    world.turn()
    assert long.ended_ms == 20_000, "with nothing beside it, it is not interrupted"
    long, short = world.add("hostile", 20_000, 10 * SPARE), world.add("healthy", 5)
    world.run()
    assert short.ended_ms - short.came_ms <= TURN_MS + 5
    assert long.begun == 1, "what was made of it is kept"


def test_partitions_take_turns_however_many_jobs_wait() -> None:
    """However many jobs a partition has, another partition's next job waits for one turn only."""
    world = ScheduleSimulation()
    many = [world.add("busy", 10) for _ in range(50)]
    one = world.add("other", 10)
    world.run()
    assert world.order[:3] == [many[0], one, many[1]]


def test_only_one_large_job_runs_at_a_time() -> None:
    world = ScheduleSimulation()
    large = [world.add(f"hostile-{number}", 1_000, 50 * SPARE) for number in range(6)]
    waits = []
    while any(job.ended_ms < 0 for job in large):
        healthy = world.add("healthy", 5, 10)
        while healthy.ended_ms < 0:
            assert world.turn()
        waits.append(healthy.ended_ms - healthy.came_ms)
    assert world.most_held <= 2 * 50 * SPARE + 10, "the one that was interrupted, and the one that runs"
    assert [job.begun for job in large] == [1, 2, 2, 2, 2, 2], "set back once, and no more"
    assert max(waits) <= len(large) * TURN_MS + 5, "once each, until it is known how large they are"
    assert max(waits[len(large) :]) <= TURN_MS + 5


def test_partition_whose_last_job_was_large_waits_for_memory_before_it_starts() -> None:
    world = ScheduleSimulation()
    world.add("a", 1_000, 50 * SPARE)
    world.add("b", 1_000, 50 * SPARE)
    world.run()
    again = [world.add("a", 1_000, 50 * SPARE), world.add("b", 1_000, 50 * SPARE)]
    world.run()
    assert [job.begun for job in again] == [1, 1]


def test_medium_jobs_continue_beside_a_large_one() -> None:
    """They take longer than a turn, but need not wait for the 20 s of the large job."""
    world = ScheduleSimulation()
    for number in range(2):
        world.add(f"hostile-{number}", 20_000, 50 * SPARE)
    middling = [world.add(f"healthy-{number}", 3 * TURN_MS, SPARE // 3) for number in range(3)]
    world.run()
    assert [job.begun for job in middling] == [1, 1, 1]
    assert max(job.ended_ms for job in middling) <= (2 + 3 + 3 * 4) * TURN_MS


@pytest.mark.parametrize("seed", range(20))
def test_all_jobs_end_within_their_memory(seed: int) -> None:
    rng, world = random.Random(seed), ScheduleSimulation()
    jobs = []
    for _ in range(200):
        for _ in range(rng.randrange(4)):
            needs = rng.choice([0, 10, SPARE // 5, SPARE, 20 * SPARE])
            jobs.append(world.add(f"p{rng.randrange(12)}", rng.choice([1, 5, TURN_MS, 300]), needs))
        world.turn()
    world.run()
    assert all(job.ended_ms >= 0 for job in jobs)
    assert world.most_held <= 2 * 20 * SPARE + SPARE
