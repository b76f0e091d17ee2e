"""Does each kind of harm to a stage, a stream and its load, and undoes it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import psutil

from mirror.wire.api import Api
from tests.campaign.faults.deal import Harm, Kind, On
from tests.campaign.faults.load import Load
from tests.campaign.faults.stage import End, Stage
from tests.campaign.faults.stream import Stream
from tests.campaign.faults.wall_clock import WallClock
from tests.faults.proxy import Action, Fault
from tests.faults.proxy import On as Way

_ACTIONS: Final = {
    Kind.CUT: Action.CUT,
    Kind.DELAY: Action.DELAY,
    Kind.RESET: Action.RESET,
    Kind.SILENCE: Action.SILENCE,
    Kind.SWALLOW: Action.SWALLOW,
}
_ASKED: Final[Mapping[On, tuple[Api | None, ...]]] = {
    On.SOURCE: (None, Api.FETCH, Api.FETCH, Api.METADATA, Api.LIST_OFFSETS),
    On.TARGET: (
        None,
        Api.PRODUCE,
        Api.PRODUCE,
        Api.END_TXN,
        Api.TXN_OFFSET_COMMIT,
        Api.INIT_PRODUCER_ID,
        Api.FIND_COORDINATOR,
        Api.OFFSET_FETCH,
        Api.METADATA,
    ),
}
"""What a copy asks of each side; None stands for all of it."""
_STEPS_S: Final = (3_600, -3_600, 600, -600, 60, -60, 5, -5)
STEPS: Final = 3
MORE_PARTITIONS: Final = 2
REMADE_PER_SECOND: Final = 50.0


@dataclass(frozen=True, slots=True)
class Topics:
    """Of a round, by what they are for; with the number of partitions that they begin with."""

    plain: str
    ended: str
    grown: str
    remade: str
    renewed: str

    COUNTS = {"plain": 4, "ended": 2, "grown": 2, "remade": 1, "renewed": 1}  # noqa: RUF012 - no field

    @property
    def all(self) -> list[str]:
        return [getattr(self, name) for name in self.COUNTS]


class Hands:
    """Of one round. ``told`` is what was done in detail; ``remade``: two topics were."""

    def __init__(self, stage: Stage, stream: Stream, load: Load, topics: Topics) -> None:
        self.told: Final = list[str]()
        self.remade = False
        self._stage: Final = stage
        self._stream: Final = stream
        self._load: Final = load
        self._topics: Final = topics
        self._faults: Final = dict[Harm, tuple[Fault, ...]]()

    def begin(self, harm: Harm) -> None:
        """AssertionError, SandboxError or KafkaException where it cannot be done: then the campaign is at fault."""
        end = self._end(harm)
        match harm.kind:
            case Kind.KILL:
                end.down.add(harm.broker)
                end.cluster.kill(harm.broker)
            case Kind.STOP:
                end.down.add(harm.broker)
                end.cluster.pause(harm.broker)
            case Kind.RESTART:
                end.down.add(harm.broker)
                end.cluster.restart(harm.broker)
                end.down.discard(harm.broker)
            case Kind.FULL_DISK:
                assert self._stage.disk is not None
                end.down.add(harm.broker)
                self._stage.disk.fill()
            case Kind.EXPIRED:
                self._stage.certify(harm.broker, "expired")
                end.cluster.restart(harm.broker)  # who is connected has seen the good one
            case Kind.CLOCK:
                self._step(harm, 0)
            case Kind.LEADERS:
                self._move_leaders(harm, end)
            case _:
                self._begin_other(harm, end)

    def _begin_other(self, harm: Harm, end: End) -> None:
        match harm.kind:
            case Kind.EXECUTOR:
                self._kill_executor(random.Random(harm.seed))
            case Kind.DRIVER:
                alone = random.Random(harm.seed).random() < 0.5
                self.told.append(f"killed {'mirror stream alone' if alone else 'all of the driver'}")
                self._stream.kill(alone=alone)
                self._stream.start()
            case Kind.PARTITIONS:
                topic = self._topics.grown
                count = Topics.COUNTS["grown"] + MORE_PARTITIONS
                end.grow(topic, count)
                self._load.writers[topic].partitions = count
            case Kind.REMADE:
                self._remake(end)
            case _:
                self._faults[harm] = faults_of(harm)
                self.told.extend(map(_said, self._faults[harm]))
                end.fault(*self._faults[harm])

    def step(self, harm: Harm, number: int) -> None:
        """What is done once more while it lasts."""
        if harm.kind is Kind.CLOCK:
            self._step(harm, number)

    def end(self, harm: Harm) -> None:
        """Undo it; nothing where it only happened."""
        end = self._end(harm)
        match harm.kind:
            case Kind.KILL:
                end.cluster.restart(harm.broker)
                end.down.discard(harm.broker)
            case Kind.STOP:
                end.cluster.resume(harm.broker)
                end.down.discard(harm.broker)
            case Kind.FULL_DISK:
                assert self._stage.disk is not None
                died = harm.broker not in end.cluster.pids
                self.told.append(f"the broker with the full disk had {'ended' if died else 'gone on'}")
                self._stage.disk.clear()
                end.cluster.restart(harm.broker)
                end.down.discard(harm.broker)
            case Kind.EXPIRED:
                self._stage.certify(harm.broker, "good")
            case Kind.CLOCK:
                self._set_clocks(self._stream.clocks, 0)
            case _ if harm in self._faults:
                end.unfault(*self._faults.pop(harm))

    def _end(self, harm: Harm) -> End:
        return self._stage.source if harm.on is On.SOURCE else self._stage.target

    # --- each of them

    def _step(self, harm: Harm, number: int) -> None:
        rng = random.Random(harm.seed + number)
        both = self._stream.clocks
        which = rng.choice([both, both[:1], both[1:]])
        self._set_clocks(which, rng.choice(_STEPS_S))

    def _set_clocks(self, which: tuple[WallClock, ...], seconds: int) -> None:
        names = [name for name, clock in zip(("driver", "workers"), self._stream.clocks, strict=True) if clock in which]
        self.told.append(f"clock of {' and '.join(names)} at {seconds:+d} s")
        for clock in which:
            clock.step(seconds)

    def _move_leaders(self, harm: Harm, end: End) -> None:
        names = self._topics.all if harm.on is On.SOURCE else [f"a.{name}" for name in self._topics.all]
        internal = ["__consumer_offsets", "__transaction_state"]
        there = end.topics().keys()
        moved = end.move_leaders([name for name in (*names, *internal) if name in there], random.Random(harm.seed))
        self.told.append(f"{moved} partitions have another leader")

    def _kill_executor(self, rng: random.Random) -> None:
        workers, executors = self._stream.copying(), self._stream.executors.executors()
        kinds = [(name, found) for name, found in (("executor", executors), ("Python worker", workers)) if found]
        if not kinds:
            self.told.append("there was no executor to be killed")  # the driver has only just been killed
            return
        name, found = rng.choice(kinds)
        one = rng.choice(sorted(found, key=_pid))
        self.told.append(f"killed {name} {one.pid}")
        try:
            one.kill()
        except psutil.NoSuchProcess:
            self.told.append("which had just ended")

    def _remake(self, end: End) -> None:
        """Both topics, one after the other, under load until just before."""
        for topic in (self._topics.remade, self._topics.renewed):
            self._load.pause(topic)
            self.told.append(f"deleted {topic} behind {len(self._load.gone[topic])} records")
            end.delete(topic)
            end.create(topic, 1)
            self._load.write(topic, 1, REMADE_PER_SECOND)
        self.remade = True


def faults_of(harm: Harm) -> tuple[Fault, ...]:
    """One to three kinds of requests or answers, each broken off (or delayed) behind some byte, some times."""
    rng = random.Random(harm.seed)
    found = []
    for _ in range(rng.randint(1, 3)):
        delays = harm.kind is Kind.DELAY
        found.append(
            Fault(
                action=_ACTIONS[harm.kind],
                api=rng.choice(_ASKED[harm.on]),
                broker=rng.choice((None, 1, 2, 3)),
                on=rng.choice(list(Way)),
                after=_some_byte(rng),
                delay_ms=rng.randint(20, 3_000) if delays else 0,
                times=rng.randint(5, 50) if delays else rng.randint(1, 12),
            )
        )
    return tuple(found)


def _some_byte(rng: random.Random) -> int:
    """At the size, the header, or anywhere in what follows."""
    kind: Callable[[], int] = rng.choice(
        [lambda: 0, lambda: rng.randint(1, 12), lambda: rng.randint(12, 300), lambda: rng.randint(12, 20_000)]
    )
    return kind()


def _said(fault: Fault) -> str:
    api = "any API" if fault.api is None else fault.api.label
    whom = f"broker {fault.broker}" if fault.broker else "any broker"
    what = "request" if fault.on is Way.REQUEST else "answer"
    late = f" by {fault.delay_ms} ms" if fault.delay_ms else ""
    return (
        f"{fault.action.name.lower()}{late}: {fault.times} times a {what} of {api}, {whom}, behind byte {fault.after}"
    )


def _pid(process: psutil.Process) -> int:
    return int(process.pid)
