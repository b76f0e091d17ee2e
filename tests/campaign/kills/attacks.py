"""What is done to attempts at a copy: they are killed, stopped or duplicated, or their broker or driver is killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.model.way import Way
from mirror.sandbox.cluster import Cluster
from tests.campaign.kills.attempt_process import AttemptProcess
from tests.campaign.kills.points import POINTS
from tests.campaign.kills.round import KillRound
from tests.e2e.site import Site, flow

_OUTDONE: Final = frozenset({Outcome.COMPLETE, Outcome.FENCED})
"""How one of two concurrent attempts may end."""
_COUNTS: Final = (1, 1, 2, 3, 4, 6)
"""How often an attempt passes a point before it is killed there."""
_SENT: Final = (
    "initializing",
    "reading",
    "fencing",
    "fenced",
    "sending",
    "sending",
    "commit-asked",
    "commit-asked",
    "committed",
)
"""Points at which a request is sent, or was just answered."""


def kill_any_time(round_: KillRound, _target: Cluster) -> None:
    """Kill the attempt at a random time."""
    with round_.attempt() as attempt:
        attempt.await_point("opening")
        _wait_randomly(round_, 0.6)
        attempt.kill()


def kill_at_a_point(round_: KillRound, _target: Cluster) -> None:
    """Kill it between produce and commit, between commit and result, or while it fences or finds its position."""
    point = round_.rng.choice(POINTS)
    with round_.attempt((point, round_.rng.choice(_COUNTS))) as attempt:
        came = attempt.await_held()
        attempt.kill()
    round_.counts[f"killed at {point}" if came else f"ended before {point}"] += 1


def kill_behind_a_point(round_: KillRound, _target: Cluster) -> None:
    """Kill it just after a request was sent: it is unknown whether the request arrived."""
    point = round_.rng.choice(_SENT)
    with round_.attempt() as attempt:
        came = attempt.await_point(point, round_.rng.choice((1, 2, 4)))
        _wait_randomly(round_, 0.02)
        attempt.kill()
    round_.counts[f"killed behind {point}" if came else f"ended before {point}"] += 1


def two_at_once(round_: KillRound, _target: Cluster) -> None:
    """Run two attempts at the same ranges at the same time."""
    before = round_.verifier.progress(round_.places)
    with round_.attempt() as older, round_.attempt() as newer:
        both = [_results_of_one_of_two(round_, attempt) for attempt in (older, newer)]
    after = round_.verifier.check(round_.places, complete=False)
    for n, place in enumerate(round_.places):
        # In each partition, the last attempt that fences the other one copies everything that was planned.
        outcomes = [results[n].outcome for results in both]
        assert Outcome.COMPLETE in outcomes, f"{place}: {[results[n] for results in both]}"
        if not place.source.compacted:
            counted = [results[n].records for results in both]
            # A commit whose answer was lost because of the fence is counted by neither. By sequences both count what
            # one had appended, and the other one found: the first one learns only later that it was fenced.
            by_sequences = any(results[n].way == Way.SEQUENCES for results in both)
            exact = before[n].exact and after[n].exact and not by_sequences
            # By sequences the late commit of one may say less than that of the other one, which it replaces.
            end = after[n].offset if exact else max(after[n].offset, *(results[n].end for results in both))
            due = sum(before[n].offset <= offset < end for offset in place.truth)
            moved = f"{due} due from {before[n]} to {after[n]}: {[results[n] for results in both]}"
            assert (sum(counted) if exact else max(counted)) <= due, f"{place}: {counted} counted, {moved}"


def zombie(round_: KillRound, _target: Cluster) -> None:
    """Stop an attempt, have another one complete, and continue the first one."""
    frozen = round_.rng.random() < 0.5
    point = round_.rng.choice(POINTS[:-1])
    hold = None if frozen else (point, round_.rng.choice((1, 1, 1, 2, 5)))
    with round_.attempt(hold) as attempt:
        if frozen:
            attempt.await_point("opening")
            _wait_randomly(round_, 0.5)
            attempt.stop()
        else:
            came = attempt.await_held()
            round_.counts[f"held at {point}" if came else f"ended before {point}"] += 1
        round_.grow()
        round_.finish()
        before = round_.verifier.progress(round_.places)
        attempt.proceed() if frozen else attempt.resume()
        _results_of_one_of_two(round_, attempt)
    after = round_.verifier.check(round_.places, complete=True)
    # By sequences a late commit may say less than the progress that it replaces, never more. An attempt that was held
    # before its fence, and goes on in transactions, commits the same offset as exact.
    moved = [
        one.offset != other.offset if one.exact else one.offset > other.offset
        for one, other in zip(after, before, strict=True)
    ]
    assert not any(moved), f"a zombie moved the progress from {before} to {after}"


def kill_the_broker(round_: KillRound, target: Cluster) -> None:
    """Kill the target's broker and restart it; sometimes kill the attempt, too."""
    with round_.attempt() as attempt:
        attempt.await_point(round_.rng.choice(("opening", "initializing", "fencing", "sending", "commit-asked")))
        _wait_randomly(round_, 0.3)
        target.kill(1)
        if dies := round_.rng.random() < 0.4:
            attempt.kill()
        target.restart(1)
        if not dies:
            round_.count(attempt.await_end())


def kill_the_driver(round_: KillRound, _target: Cluster) -> None:
    """Kill the driver of a Spark job, alone or with all processes, and run the job again, which must complete."""
    with TemporaryDirectory(prefix="mirror-kills-") as folder:
        site = Site(Path(folder))
        topics = [topic.topic for topic in round_.topics]
        by = f'exactly-once-by = "{"auto" if round_.by == "mixed" else round_.by}"'
        # The processes that a killed driver leaves must not hold the lock of the report folder.
        site.write(
            {round_.source_name: round_.source.address, "b": round_.target.address},
            {round_.flow: flow(round_.source_name, "b", topics, "commit-interval-ms = 200", by)},
        )
        try:
            first = site.start()
            with first:
                _wait_randomly(round_, 25.0, until=lambda: first.poll() is not None)
                if round_.rng.random() < 0.5:
                    site.kill()
                else:
                    first.kill()
                first.communicate()
            again = site.run()
            assert again.status == 0, again.err
        finally:
            site.kill()
    round_.verifier.check_finished(round_.places)


ATTACKS: Final[Mapping[str, tuple[Callable[[KillRound, Cluster], None], int]]] = {
    "killed at any time": (kill_any_time, 8),
    "killed at a point": (kill_at_a_point, 10),
    "killed behind a point": (kill_behind_a_point, 8),
    "two at once": (two_at_once, 5),
    "zombie": (zombie, 5),
    "broker killed": (kill_the_broker, 2),
    "driver killed": (kill_the_driver, 1),
}
"""The attacks and their relative frequencies."""
QUICK: Final = tuple(name for name in ATTACKS if name not in {"broker killed", "driver killed"})


def _results_of_one_of_two(round_: KillRound, attempt: AttemptProcess) -> list[RangeResult]:
    """Return the results of one of two concurrent attempts."""
    results = attempt.await_end()
    round_.count(results)
    unexpected = [f"{one.outcome}: {one.error}" for one in results if one.outcome not in _OUTDONE]
    assert not unexpected, unexpected
    return results


def _wait_randomly(round_: KillRound, most_s: float, until: Callable[[], bool] = lambda: False) -> None:
    """Let the attempt continue for a random time: the attack is to come at any moment, not after a condition."""
    end = time.monotonic() + round_.rng.random() * most_s
    while time.monotonic() < end and not until():
        time.sleep(min(0.05, max(0, end - time.monotonic())))
