"""What is done to attempts at a copy: killed, held back, doubled, their broker or their driver taken away."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.sandbox.cluster import Cluster
from tests.campaign.murder_worker import POINTS
from tests.campaign.scene import Scene
from tests.campaign.victims import Victim
from tests.e2e.site import Site, flow

_OUTDONE: Final = frozenset({Outcome.COMPLETE, Outcome.FENCED})
"""How an attempt may end beside which there is another one."""


def kill_any_time(scene: Scene, _target: Cluster) -> None:
    """At a moment that nobody chose."""
    with scene.attempt() as victim:
        victim.await_point("opening")
        _linger(scene, 0.6)
        victim.kill()


def kill_at_a_point(scene: Scene, _target: Cluster) -> None:
    """Exactly there: between produce and commit, after commit before the result, while fencing or reading progress."""
    point = scene.rng.choice(POINTS)
    with scene.attempt((point, scene.rng.randint(1, 6))) as victim:
        came = victim.await_held()
        victim.kill()
    scene.told[f"killed at {point}" if came else f"ended before {point}"] += 1


def kill_behind_a_point(scene: Scene, _target: Cluster) -> None:
    """With what was just asked on its way: nobody knows whether it arrived."""
    point = scene.rng.choice(("fencing", "reading", "sending", "commit-asked", "commit-asked", "committed"))
    with scene.attempt() as victim:
        victim.await_point(point, scene.rng.choice((1, 2, 4)))
        _linger(scene, 0.02)
        victim.kill()


def two_at_once(scene: Scene, _target: Cluster) -> None:
    """Of one range, both alive."""
    before = scene.judge.progress(scene.places)
    with scene.attempt() as older, scene.attempt() as newer:
        told = [_outdone(scene, victim) for victim in (older, newer)]
    after = scene.judge.check(scene.places, complete=False)
    for n, place in enumerate(scene.places):
        # Each partition has a winner, who is the last to fence and copies all that was planned.
        outcomes = [results[n].outcome for results in told]
        assert Outcome.COMPLETE in outcomes, f"{place}: {[results[n] for results in told]}"
        if not place.source.compacted:
            due = sum(before[n] <= offset < after[n] for offset in place.truth)
            counted = sum(results[n].records for results in told)
            # Not all: a commit whose answer the fence took away is counted by nobody.
            assert counted <= due, f"{place}: {counted} counted, {due} due"


def zombie(scene: Scene, _target: Cluster) -> None:
    """Stopped, forgotten; another attempt completes; then it goes on."""
    frozen = scene.rng.random() < 0.5
    hold = None if frozen else (scene.rng.choice(POINTS[:-1]), scene.rng.choice((1, 1, 1, 2, 5)))
    with scene.attempt(hold) as victim:
        if frozen:
            victim.await_point("opening")
            _linger(scene, 0.5)
            victim.stop()
        else:
            victim.await_held()
        scene.grow()
        scene.finish()
        before = scene.judge.progress(scene.places)
        victim.proceed() if frozen else victim.go_on()
        _outdone(scene, victim)
    assert scene.judge.check(scene.places, complete=True) == before, "a zombie moved the progress"


def kill_the_broker(scene: Scene, target: Cluster) -> None:
    """The target's, with -9, and start it again; sometimes the attempt dies as well."""
    with scene.attempt() as victim:
        victim.await_point(scene.rng.choice(("opening", "fencing", "sending", "commit-asked")))
        _linger(scene, 0.3)
        target.kill(1)
        if dies := scene.rng.random() < 0.4:
            victim.kill()
        target.restart(1)
        if not dies:
            scene.count(victim.await_end())


def kill_the_driver(scene: Scene, _target: Cluster) -> None:
    """Of a real Spark job, with all of it or alone; and start the job again, which must complete."""
    with TemporaryDirectory(prefix="mirror-murder-") as folder:
        site = Site(Path(folder))
        topics = [topic.topic for topic in scene.topics]
        # What the killed driver leaves alive must not hold the next one's lock of the report folder.
        site.write(
            {scene.source_name: scene.source.address, "b": scene.target.address},
            {scene.flow: flow(scene.source_name, "b", topics, "commit-interval-ms = 200")},
        )
        try:
            first = site.start()
            with first:
                _linger(scene, 25.0, until=lambda: first.poll() is not None)
                if scene.rng.random() < 0.5:
                    site.kill()
                else:
                    first.kill()
                first.communicate()
            again = site.run()
            assert again.status == 0, again.err
        finally:
            site.kill()
    scene.judge.check(scene.places, complete=True)


ATTACKS: Final[Mapping[str, tuple[Callable[[Scene, Cluster], None], int]]] = {
    "killed at any time": (kill_any_time, 8),
    "killed at a point": (kill_at_a_point, 10),
    "killed behind a point": (kill_behind_a_point, 8),
    "two at once": (two_at_once, 5),
    "zombie": (zombie, 5),
    "broker killed": (kill_the_broker, 2),
    "driver killed": (kill_the_driver, 1),
}
"""Each with how often it comes, against the others."""
QUICK: Final = tuple(name for name in ATTACKS if name not in {"broker killed", "driver killed"})


def _outdone(scene: Scene, victim: Victim) -> list[RangeResult]:
    """The results of an attempt that was not alone."""
    results = victim.await_end()
    scene.count(results)
    strange = [f"{one.outcome}: {one.error}" for one in results if one.outcome not in _OUTDONE]
    assert not strange, strange
    return results


def _linger(scene: Scene, most_s: float, until: Callable[[], bool] = lambda: False) -> None:
    """Let the attempt go on for a time by chance: what is harmed is the moment, no condition is waited for."""
    end = time.monotonic() + scene.rng.random() * most_s
    while time.monotonic() < end and not until():
        time.sleep(min(0.05, max(0, end - time.monotonic())))
