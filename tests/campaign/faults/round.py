"""One round: a stream that follows a load, harm, and whether everything is as it must be afterwards."""

from __future__ import annotations

import contextlib
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from mirror.errors import SandboxError
from mirror.relay.progress.progress_topic import topic_of
from tests.campaign.faults.compare import Record, difference, of_remade
from tests.campaign.faults.counting import Counts, counted, excess, most
from tests.campaign.faults.deal import Deal, Harm, Kind
from tests.campaign.faults.harms import STEPS, Hands, Topics
from tests.campaign.faults.load import Load
from tests.campaign.faults.reading import Place, begun, ends, read, settled
from tests.campaign.faults.stage import Stage
from tests.campaign.faults.stream import Stream
from tests.e2e.standalone import Standalone
from tests.polling import eventually

CATCH_UP_S: Final = 120.0
"""How long after the last harm everything may take to be visible at the target."""
SETTLES_WITHIN_S: Final = 60.0
RATES: Final = {"plain": 500.0, "grown": 150.0, "remade": 75.0, "renewed": 75.0, "ended": 200.0}
"""Records per second and topic; the last one's in transactions."""
REMADE: Final = "deleted and made again"
"""What the error of a copy says whose source topic has another id than before."""
_FOLLOWS_WITHIN_S: Final = 300.0
_READ_WITHIN_S: Final = 180.0
_SETTLED_WITHIN_S: Final = 60.0
_TAIL: Final = 500
"""Offsets."""
_QUIET_S: Final = 12.0
"""Longer than an epoch: what comes and goes with one is counted, too."""
_LOOK_S: Final = 0.5


@dataclass(slots=True)
class Told:
    """What came of a round. ``wrong`` is empty where everything was as it must be."""

    deal: Deal
    events: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    records: int = 0
    catch_up_s: float = 0.0
    quiet: Counts = field(default_factory=dict)
    after: Counts = field(default_factory=dict)


def _settled(look: Callable[[], list[str]]) -> list[str]:
    """What is still wrong once it had its time; not by one look: for a moment a JVM's child looks like another JVM."""
    wrong = list[str]()

    def right() -> bool:
        wrong[:] = look()
        return not wrong

    with contextlib.suppress(AssertionError):
        eventually(right, within_s=SETTLES_WITHIN_S, every_s=_LOOK_S)
    return wrong


class Round:
    """On ``stage``, with all that is written in ``folder``; ``faketime`` is None where no clock is stepped."""

    def __init__(self, stage: Stage, executors: Standalone, deal: Deal, folder: Path, faketime: Path | None) -> None:
        self.told: Final = Told(deal)
        self._began = time.monotonic()
        self._events: Final = folder / "events.txt"
        self._stage: Final = stage
        marker = uuid.uuid4().hex[:8]  # not from the seed: it may come twice on one stage
        self._topics: Final = Topics(*(f"{name}-{marker}" for name in Topics.COUNTS))
        self._stream: Final = Stream(folder, executors, faketime, marker)
        self._load: Final = Load(stage.source.address, deal.seed)
        self._hands: Final = Hands(stage, self._stream, self._load, self._topics)

    def play(self) -> Told:
        """All of it; whatever fails is told as wrong, and nothing of the round is left behind."""
        try:
            with self._load:
                self._begin()
                self._harm()
                self._load.stop()
                self._say("the load has stopped")
                self._judge()
        except (AssertionError, SandboxError, KafkaException) as error:
            self.told.wrong.append(f"{type(error).__name__}: {error}")
        except Exception:  # noqa: BLE001 - the next round has topics and a stream of its own
            self.told.wrong.append(traceback.format_exc())
        finally:
            self._stream.end()
        self._clean()
        return self.told

    def _say(self, line: str) -> None:
        self.told.events.append(f"{time.monotonic() - self._began:6.1f} s {line}")
        with self._events.open("a", encoding="utf-8") as file:  # for who wants to look on
            file.write(self.told.events[-1] + "\n")

    def _begin(self) -> None:
        """The load runs, the stream follows it, and what it consists of is counted."""
        source, target = self._stage.source, self._stage.target
        topics = self._topics
        for name, count in Topics.COUNTS.items():
            source.create(getattr(topics, name), count)
        failing = "|".join(topics.all[:-1])
        target_keys = self._stage.keys(target, tls=self.told.deal.tls)
        self._stream.configure(self._stage.keys(source), target_keys, f"({failing})", topics.renewed)
        self._stream.start()
        # Beside the load, all its JVMs would take long to start.
        eventually(self._stream.has_executors, within_s=_FOLLOWS_WITHIN_S, every_s=_LOOK_S, what="executors")
        for name, rate in RATES.items():
            begin = self._load.transact if name == "ended" else self._load.write
            begin(getattr(topics, name), Topics.COUNTS[name], rate)
        self._say("the load has begun")
        eventually(
            self._follows, within_s=_FOLLOWS_WITHIN_S, every_s=_LOOK_S, what="a stream that follows all partitions"
        )
        self._say("the stream follows")
        until = time.monotonic() + _QUIET_S
        while time.monotonic() < until:
            self.told.quiet = most(self.told.quiet, counted(self._stream.roles()))
            time.sleep(_LOOK_S)
        missing = _settled(self._stream.missing)
        assert not missing, f"before any harm: {missing}"

    def _follows(self) -> bool:
        self._stream.check()
        places = [(f"a.{topic}", number) for topic, number in self._places()]
        there = {topic for topic, _ in places} <= self._stage.target.topics().keys()
        return there and begun(self._stage.target.address, places)

    def _places(self) -> list[Place]:
        counts = {topic: self._stage.source.partitions(topic) for topic in self._topics.all}
        return [(topic, number) for topic, count in counts.items() for number in range(count)]

    # --- harm

    def _harm(self) -> None:
        """What was dealt, at its times, as far as each harm lets the next one be on time; then everything is healed."""
        began = time.monotonic()
        for at_s, line, act in self._timeline():
            while (early := began + at_s - time.monotonic()) > 0:
                self._stream.check()
                time.sleep(min(early, _LOOK_S))
            self._say(line)
            act()
            for more in self._hands.told:
                self._say(f"  {more}")
            self._hands.told.clear()
        for end in (self._stage.source, self._stage.target):
            for line in end.heal():
                self._say(line)
        self._say("all is healed")

    def _timeline(self) -> list[tuple[float, str, Callable[[], None]]]:
        hands = self._hands
        found: list[tuple[float, str, Callable[[], None]]] = []

        def at(at_s: float, line: str, act: Callable[[Harm], None], harm: Harm) -> None:
            found.append((at_s, line, lambda: act(harm)))

        for harm in self.told.deal.harms:
            at(harm.at_s, str(harm), hands.begin, harm)
            if harm.kind is Kind.CLOCK:
                for n in range(1, STEPS):
                    at(harm.at_s + n * harm.for_s / STEPS, "once more", lambda one, n=n: hands.step(one, n), harm)  # type: ignore[misc]
            if harm.for_s:
                at(harm.ends_s, f"end of {harm.kind}", hands.end, harm)
        return sorted(found, key=lambda one: one[0])

    # --- judgment

    def _judge(self) -> None:
        healed = time.monotonic()
        source, places = self._stage.source, self._places()
        eventually(
            lambda: settled(source.well, places),
            within_s=_SETTLED_WITHIN_S,
            every_s=_LOOK_S,
            what="an end of all transactions",
        )
        truth, missing = read(source.address, places, _READ_WITHIN_S)
        assert not missing, f"the source cannot be read: {sorted(missing)}"
        self.told.records = sum(map(len, truth.values()))
        self._source_as_sent(truth)
        self._await_copy(truth, healed)
        self._look_at_processes()
        status = self._stream.stop()
        self._say(f"the stream has ended with {status}")
        if status:
            self.told.wrong.append(f"the stream ended with {status}, not 0: {self._stream.last_words()}")
        self._compare(truth)
        self._look_at_results(truth)

    def _source_as_sent(self, truth: Mapping[Place, list[Record]]) -> None:
        """Else the brokers, or the campaign, are at fault, and not the copy."""
        for place, sent in self._load.sent().items():
            if wrong := difference(sent, truth.get(place, [])):
                self.told.wrong.append(f"the source's {place}, against what was sent: {wrong}")

    def _await_copy(self, truth: Mapping[Place, list[Record]], healed: float) -> None:
        """Until the last record of every partition can be read at the target."""
        last = {(f"a.{topic}", n): found[-1].number for (topic, n), found in truth.items() if found}
        if self._hands.remade:
            del last[f"a.{self._topics.remade}", 0]

        def there(place: Place, found: list[Record]) -> bool:
            return bool(found) and found[-1].number == last[place]

        address, until = self._stage.target.address, healed + CATCH_UP_S
        # The ends alone: to read all of it takes a busy machine as long.
        now = dict(zip(last, ends(address, last, committed=True), strict=True))
        first = {place: max(0, end - _TAIL) for place, end in now.items()}
        _, late = read(address, last, until - time.monotonic(), there, first)
        self.told.catch_up_s = round(time.monotonic() - healed, 1)
        self._stream.check()
        if late:
            self.told.wrong.append(f"not copied {CATCH_UP_S:.0f} s after the last harm: {sorted(late)}")
        self._say(f"caught up, {self.told.catch_up_s} s after the load's end")

    def _look_at_processes(self) -> None:
        """Those that should be there are, and have no more threads, sockets and children than before."""

        def wrong() -> list[str]:
            self.told.after = counted(self._stream.roles())
            return self._stream.missing() + excess(self.told.quiet, self.told.after)

        self.told.wrong += _settled(wrong)

    def _compare(self, truth: Mapping[Place, list[Record]]) -> None:
        """Every partition from its beginning, now that nothing more will come."""
        copied, unread = read(self._stage.target.address, [(f"a.{topic}", n) for topic, n in truth], _READ_WITHIN_S)
        self.told.wrong += [f"the target's {place} cannot be read" for place in sorted(unread)]
        for (topic, n), wanted in truth.items():
            actual = copied[f"a.{topic}", n]
            if topic in self._load.gone:
                goes_on = topic == self._topics.renewed
                wrong, kept = of_remade(self._load.gone[topic], wanted, actual, goes_on=goes_on)
                self._say(f"of the old {topic}, {kept} of {len(self._load.gone[topic])} were copied")
            else:
                wrong = difference(wanted, actual)
            if wrong:
                self.told.wrong.append(f"a.{topic}-{n}: {wrong}")

    def _look_at_results(self, truth: Mapping[Place, list[Record]]) -> None:
        """What the stream itself tells: complete, but for the topic that is another one now."""
        results = self._stream.results()
        for place in truth:
            told = results.get(place, {"outcome": "not told of", "error": ""})
            remade = self._hands.remade and place[0] == self._topics.remade
            as_it_must_be = (
                told["outcome"] == "failed" and REMADE in str(told["error"])
                if remade
                else told["outcome"] == "complete"
            )
            if not as_it_must_be:
                self.told.wrong.append(f"the summary says of {place}: {told['outcome']}: {told['error']}")

    def _clean(self) -> None:
        """Leave nothing to the next round: the disk is small."""
        flows = [topic_of(name) for name in (self._stream.failing, self._stream.skipping)]
        for clean in (
            self._stage.source.heal,
            self._stage.target.heal,
            lambda: self._stage.source.delete(*self._topics.all),
            lambda: self._stage.target.delete(*(f"a.{name}" for name in self._topics.all), *flows),
        ):
            with contextlib.suppress(AssertionError, SandboxError, KafkaException):
                clean()
        for end in (self._stage.source, self._stage.target):
            # Of each request something is kept.
            end.proxy.seen.clear()
            end.proxy.opened.clear()
