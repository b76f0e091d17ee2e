"""When the copies of a task are visited, and when the rules of its topics are read again. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirror.errors import KafkaTimeout
from mirror.relay.batches.exactly_once_way import WayRules
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range
from mirror.relay.task.topic_rules import RulesRefresh, TopicRules
from mirror.relay.task.upkeep import Upkeep
from mirror.timing import FOREVER_MS

MINUTE_MS = 60_000
HOUR_MS = 3_600_000


class Visited:
    def __init__(self, *, old: bool = False) -> None:
        self.done = False
        self.old = old
        self.periods: list[int] = []
        self.asked = self.forgot = 0

    @property
    def renewal_due(self) -> bool:
        return self.old

    def renew(self) -> bool:
        self.asked += 1
        return self.old

    def forget_refusals(self) -> None:
        self.forgot += 1


def upkeep(unix_ms: Callable[[], int] = lambda: 0, **policy: Any) -> Upkeep:
    def end_period(copy: Any, now: int) -> None:
        copy.periods.append(now)

    return Upkeep(CopyPolicy(**policy), end_period, unix_ms, 0)


def visit(one: Upkeep, copies: Sequence[Visited], now: int) -> list[Visited]:
    return cast("list[Visited]", one.update(cast("Any", copies), now))


def test_copies_are_asked_a_few_in_each_turn_whether_their_progress_is_old() -> None:
    one, copies = upkeep(renew_ms=HOUR_MS), [Visited(old=number == 300) for number in range(450)]
    assert visit(one, copies, MINUTE_MS - 1) == []
    renewed = [visit(one, copies, MINUTE_MS) for _ in range(4)]
    assert renewed == [[], [copies[300]], [], []]
    assert {copy.asked for copy in copies} == {1}
    assert one.due_ms == min(2 * MINUTE_MS, 3 * MINUTE_MS)


def test_a_few_are_renewed_at_a_time_and_one_that_takes_long_holds_up_no_other() -> None:
    """A copy that is renewed reads nothing meanwhile, and all of a task together would take half a minute."""
    one, copies = upkeep(renew_ms=HOUR_MS), [Visited(old=True) for _ in range(11)]
    assert visit(one, copies, MINUTE_MS) == copies[:4]
    assert visit(one, copies, MINUTE_MS + 1) == []
    assert one.due_ms == MINUTE_MS + 3_000, "the task does not turn without end"
    copies[0].old, copies[1].done = False, True
    assert visit(one, copies, MINUTE_MS + 2) == copies[4:6]
    assert visit(one, copies, MINUTE_MS + 3_000) == copies[6:8]
    assert visit(one, copies, MINUTE_MS + 3_001) == []
    assert visit(one, copies, MINUTE_MS + 9_000) == copies[8:]
    assert one.due_ms == 2 * MINUTE_MS, "none waits"


@pytest.mark.parametrize(("renew_ms", "every_ms"), [(0, FOREVER_MS), (20_000, 5_000), (HOUR_MS, MINUTE_MS)])
def test_progress_that_brokers_forget_soon_is_asked_for_more_often(renew_ms: int, every_ms: int) -> None:
    assert upkeep(renew_ms=renew_ms, period_ms=FOREVER_MS // 4)._renew_at == every_ms


def test_periods_end_at_multiples_since_1970_for_all_copies() -> None:
    unix_ms = 1_000_000_000_000 - 1_000_000_000_000 % 180_000 + 170_000
    now = 0
    one, copies = upkeep(lambda: unix_ms + now, period_ms=180_000), [Visited() for _ in range(250)]
    for now in (9_999, 10_000, 10_001, 180_000, 190_000, 190_001):
        visit(one, copies, now)
    assert copies[0].periods == [190_000], "the first ten seconds are no period of their own"
    assert copies[249].periods == [190_001]
    assert {copy.forgot for copy in copies} == {1}


def test_a_copy_that_ended_meanwhile_is_not_visited() -> None:
    one, copies = upkeep(renew_ms=HOUR_MS), [Visited(old=True) for _ in range(201)]
    visit(one, copies, MINUTE_MS)
    copies[200].done = True
    assert visit(one, copies, MINUTE_MS) == []


# --- rules


class Refreshed:
    """A refresh whose reads the test answers."""

    def __init__(self, refresh_ms: int = MINUTE_MS) -> None:
        self.reads: list[Future[TopicRules]] = []
        self.asked: list[list[str]] = []
        self.refresh = RulesRefresh(self.read, self.submit, lambda: None, refresh_ms, 0)
        self.copies = {number: SimpleNamespace(range=_range(f"topic-{number % 3}", number)) for number in range(6)}

    def read(self, ranges: Sequence[Range]) -> TopicRules:
        self.asked.append(sorted(one.target_topic for one in ranges))
        return TopicRules({}, {})

    def submit(self, read: Callable[..., Any], ranges: Sequence[Range]) -> Future[Any]:
        read(ranges)
        self.reads.append(Future())
        return self.reads[-1]

    def update(self, now: int) -> TopicRules | None:
        return self.refresh.update(lambda: [copy.range for copy in self.copies.values()], now)


def _range(topic: str, partition: int) -> Range:
    return Range(
        flow="f",
        topic=topic,
        target_topic=topic,
        partition=partition,
        start=0,
        end=1,
        source_cluster_id="a",
        topic_id="id",
    )


def test_rules_are_read_once_for_each_topic_and_interval() -> None:
    one, rules = Refreshed(), TopicRules({"topic-0": TargetLimits()}, {})
    assert [one.update(now) for now in (0, MINUTE_MS - 1, MINUTE_MS, MINUTE_MS + 1)] == [None] * 4
    assert one.asked == [["topic-0", "topic-1", "topic-2"]]
    one.reads[0].set_result(rules)
    assert [one.update(now) for now in (MINUTE_MS + 2, 2 * MINUTE_MS - 1, 2 * MINUTE_MS)] == [rules, None, None]
    assert len(one.asked) == 2


def test_rules_of_many_topics_are_read_less_often() -> None:
    one = Refreshed()
    one.copies = {number: SimpleNamespace(range=_range(f"topic-{number}", 0)) for number in range(10_000)}
    one.update(MINUTE_MS)
    one.reads[0].set_result(TopicRules({}, {}))
    for now in (MINUTE_MS, 2 * MINUTE_MS, 4 * MINUTE_MS):
        one.update(now)
    assert len(one.reads) == 1
    one.update(5 * MINUTE_MS)
    assert len(one.reads) == 2


def test_rules_are_read_soon_after_a_failure() -> None:
    """The target may have refused what its topic's configuration forbids by now."""
    one = Refreshed(refresh_ms=HOUR_MS)
    for _ in range(100):
        one.refresh.on_failed("topic-1")
    one.update(9_999)
    assert one.reads == []
    one.update(10_000)
    one.reads[0].set_result(TopicRules({}, {}))
    one.update(10_000)
    one.refresh.on_failed("topic-1")
    one.update(19_999)
    assert len(one.reads) == 1, "a partition that fails for days does not have them read without end"
    one.update(20_000)
    assert one.asked == [["topic-1"]] * 2, "those of other topics are not"


def test_a_read_that_fails_changes_nothing_and_is_repeated() -> None:
    one = Refreshed()
    one.update(MINUTE_MS)
    one.reads[0].set_exception(KafkaTimeout("no answer"))
    assert one.update(MINUTE_MS + 1) is None
    one.update(2 * MINUTE_MS)
    assert len(one.reads) == 2


LIMITS, WAYS = TargetLimits(max_message_bytes=5), WayRules(mode="auto", expiration_ms=9)


@pytest.mark.parametrize(
    ("read", "news"),
    [
        (TopicRules({"t": LIMITS}, {"t": WAYS}), TopicRules({}, {})),
        (TopicRules({"t": TargetLimits()}, {"t": WAYS}), TopicRules({"t": TargetLimits()}, {})),
        (TopicRules({"t": TargetLimits()}, {"t": WAYS}, frozenset({"t"})), TopicRules({}, {})),
        (TopicRules({"t": LIMITS}, {"t": WayRules(mode="auto")}), TopicRules({}, {})),
        (TopicRules({"t": LIMITS}, {"t": WayRules(mode="auto", expiration_ms=9, unread="source")}), TopicRules({}, {})),
        (
            TopicRules({"t": LIMITS}, {"t": WayRules(mode="auto", expiration_ms=8)}),
            TopicRules({}, {"t": WayRules(mode="auto", expiration_ms=8)}),
        ),
    ],
)
def test_what_could_not_be_read_again_has_not_changed(read: TopicRules, news: TopicRules) -> None:
    assert TopicRules({"t": LIMITS}, {"t": WAYS}).news(read) == news
