"""A target with three replicas and a stopped follower: what that costs the partitions that it does not follow.

    python tests/campaign/follower.py [--rounds 5] [--megabytes 100] [--lag-seconds 10] [--minutes 40] [NAME ...]

NAME, one or more of (all of them by default):

holds    the follower is stopped and still in sync, so that nothing written to the sick partitions is acknowledged;
out      it has left the replicas in sync, and the sick partitions want three (``min.insync.replicas``);
coupled  what brokers tie together: markers of transactions that one broker coordinates, and coordinators' own logs;
heals    the sick partitions want two: their copy goes on within the call, once the follower is out.

In ``holds`` and ``out`` healthy throughput is measured with and without the sick, in turns (medians). Every round ends
with the follower resumed, the same ranges copied again, and all read by another client. Prints a table and what was
wrong; exit status 1 where anything was. No round begins after ``--minutes``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from mirror.errors import DeliveryCause
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.sandbox.cluster import Cluster
from tests.campaign.follower_stage import HEALTHY, SICK, STOPPED, Coordinators, FollowerStage, follower_stage
from tests.polling import eventually

DELIVERY_MS: Final = 5_000
SHORT: Final[dict[str, Any]] = {
    "delivery_timeout_ms": DELIVERY_MS,
    "request_timeout_ms": 3_000,
    # Shorter than the request's, so that the leader's word (error 7) comes before the connection is given up.
    "ack_timeout_ms": 500,
}
LATE_MS: Final = 1_000
MOST_SLOWER: Final = 0.10
_SICK_BYTES: Final = 2_000_000
_SESSION_S: Final = 3_600
_DELIVERIES: Final = ((True, "exactly once"), (False, "at least once"))


def rate(results: Sequence[RangeResult]) -> float:
    """MB per second of the healthy, from the beginning to the end of the last of them."""
    healthy = results[:HEALTHY]
    return sum(one.bytes for one in healthy) / max(one.seconds for one in healthy) / 1e6


def told(results: Sequence[RangeResult]) -> str:
    """How they ended, and what their expiries say: phase, cause, the brokers' last word."""
    outcomes = Counter(one.outcome.value for one in results)
    parts = [f"{count} {outcome}" for outcome, count in outcomes.items()]
    expiries = Counter(
        f"{each['phase']}, {each['cause']} ({_word(str(each['last_error']))})"
        for one in results
        for each in one.expiries
    )
    return "; ".join(parts + [f"{count} x {text}" for text, count in expiries.most_common(4)])


def _word(error: str) -> str:
    """The name of a broker's error, or the end of what else was said."""
    return next((word for word in error.split() if word.isupper() and "_" in word), error[-40:])


def strange_expiries(results: Sequence[RangeResult]) -> list[str]:
    """Of the sick: late ones, and such as do not say why. The first is the follower's, those behind it may be the
    transaction's, whose abort wants all replicas, too.
    """
    strange = []
    for one in results:
        for number, each in enumerate(one.expiries):
            why = {DeliveryCause.NOT_ENOUGH_REPLICAS} | ({DeliveryCause.COORDINATOR} if number else set())
            in_time = DELIVERY_MS <= each.get("age_ms", -1) <= DELIVERY_MS + LATE_MS
            if each["cause"] not in why or not in_time:
                strange.append(f"sick {one.partition}, expiry {number + 1}: {_short(each)}")
    return strange


def _short(expiry: dict[str, Any]) -> str:
    return f"{expiry['phase']}, {expiry['cause']}, {expiry.get('age_ms')} ms, {expiry['last_error']}"


@dataclass(slots=True)
class Campaign:
    """What is asked for, and what was found."""

    rounds: int
    lag_s: float
    until: float
    stage: FollowerStage = field(init=False)
    table: Table = field(default_factory=lambda: Table("case", "alone MB/s", "beside MB/s", "ratio", "healthy", "sick"))
    wrong: list[str] = field(default_factory=list)
    console: Console = field(default_factory=lambda: Console(width=160))

    def warm_up(self, healthy_bytes: int) -> None:
        """The source is filled, and copied twice, for the brokers' sake."""
        self.stage.fill(healthy_bytes, SICK * _SICK_BYTES)
        for _ in range(2):
            ranges = self.stage.target(Coordinators.APART, min_in_sync=2)
            self.stage.copy(ranges, CopyPolicy())
            self.stage.side.delete(ranges[0].target_topic)

    def note(self, case: str, alone: Sequence[float], beside: Sequence[float], *groups: Sequence[RangeResult]) -> float:
        """A line of the table; the ratio of the medians."""
        ratio = statistics.median(beside) / statistics.median(alone)
        figures = [" ".join(f"{one:.1f}" for one in some) for some in (alone, beside)]
        self.table.add_row(case, *figures, f"{ratio:.3f}", *(told(group) for group in groups))
        self.console.print(f"{case}: {' | '.join(figures)}: {ratio:.3f}; {' / '.join(told(group) for group in groups)}")
        return ratio

    def wants_another(self, case: str, number: int) -> bool:
        """Whether there is time for round ``number`` (from 0)."""
        if time.monotonic() < self.until:
            return number < self.rounds
        self.wrong.append(f"{case}: {number} of {self.rounds} rounds, then the time was up")
        return False

    def heal(self, case: str, ranges: Sequence[Range], *, exactly_once: bool) -> None:
        """The follower is back; the same ranges again, and nothing is missing."""
        self.stage.heal(ranges[0].target_topic)
        results = self.stage.copy(ranges, CopyPolicy(exactly_once=exactly_once))
        left = [f"{one.partition}: {one.error}" for one in results if one.outcome is not Outcome.COMPLETE]
        left += [text for one in ranges for text in self.stage.missing(one, exactly_once=exactly_once)]
        self.wrong += [f"{case}, after all was well again: {text}" for text in left]
        self.stage.side.delete(ranges[0].target_topic)

    # --- what it costs the healthy

    def holds(self) -> None:
        """The follower is in sync, and stopped just before."""
        for exactly_once, name in _DELIVERIES:
            case = f"{name}, follower in sync"
            policy = CopyPolicy(exactly_once=exactly_once)
            alone, beside, all_results = list[float](), list[float](), list[RangeResult]()
            number = 0
            while self.wants_another(case, number):
                for sick in (number % 2 == 0, number % 2 == 1):  # in turns, and in turns which is first
                    ranges = self.stage.target(Coordinators.APART, min_in_sync=2 + number % 2)
                    if sick:
                        self.stage.stop_follower()
                        results = self.stage.copy(ranges, policy, **SHORT)
                        beside.append(rate(results))
                        all_results += results
                        if STOPPED not in self.stage.in_sync(ranges[0].target_topic):
                            self.wrong.append(f"{case}: the follower was not in sync to the end")
                        self.heal(case, ranges, exactly_once=exactly_once)
                    else:
                        alone.append(rate(self.stage.copy(ranges[:HEALTHY], policy, **SHORT)))
                        self.stage.side.delete(ranges[0].target_topic)
                number += 1
            self._judge_throughput(case, alone, beside, all_results)

    def out(self) -> None:
        """The follower is stopped, and out: with three wanted, leaders refuse what is written."""
        for exactly_once, name in _DELIVERIES:
            case = f"{name}, follower out, three wanted"
            policy = CopyPolicy(exactly_once=exactly_once)
            alone, beside, all_results = list[float](), list[float](), list[RangeResult]()
            number = 0
            while self.wants_another(case, number):
                apart, together = (self.stage.target(Coordinators.APART, min_in_sync=3) for _ in range(2))
                self.stage.stop_follower()
                # Written to, or a follower that knows all that there is would not be out.
                self.stage.copy(together[HEALTHY:], policy, **SHORT)
                self._await_out(together)
                for sick in (number % 2 == 0, number % 2 == 1):
                    if sick:
                        results = self.stage.copy(together, policy, **SHORT)
                        beside.append(rate(results))
                        all_results += results
                    else:
                        alone.append(rate(self.stage.copy(apart[:HEALTHY], policy, **SHORT)))
                self.heal(case, together, exactly_once=exactly_once)
                self.stage.side.delete(apart[0].target_topic)
                number += 1
            # The transactions of these were left open by the first copy.
            earlier = DeliveryCause.COORDINATOR if exactly_once else None
            self._judge_throughput(case, alone, beside, all_results, earlier=earlier)

    def _await_out(self, ranges: Sequence[Range]) -> None:
        topic = ranges[0].target_topic
        eventually(
            lambda: STOPPED not in self.stage.in_sync(topic), within_s=3 * self.lag_s + 30, what="the follower out"
        )

    def _judge_throughput(
        self,
        case: str,
        alone: Sequence[float],
        beside: Sequence[float],
        results: Sequence[RangeResult],
        *,
        earlier: DeliveryCause | None = None,
    ) -> None:
        if not alone or not beside:
            return
        healthy = [one for one in results if one.partition < HEALTHY]
        sick = [one for one in results if one.partition >= HEALTHY]
        ratio = self.note(case, alone, beside, healthy, sick)
        if ratio < 1 - MOST_SLOWER:
            self.wrong.append(f"{case}: healthy throughput is {ratio:.3f} of that without the sick")
        self.wrong += [
            f"{case}: healthy {one.partition}: {one.outcome}, {one.error}, {len(one.expiries)} expiries"
            for one in healthy
            if one.outcome is not Outcome.COMPLETE or one.expiries
        ]
        self.wrong += [f"{case}: sick {one.partition}: {one.outcome}" for one in sick if one.outcome != Outcome.EXPIRED]
        if earlier is None:
            self.wrong += [f"{case}: {text}" for text in strange_expiries(sick)]
        else:
            causes = {each["cause"] for one in sick for each in one.expiries}
            self.wrong += [f"{case}: the sick expired by {causes}"] if causes != {earlier} else []

    # --- what the brokers tie together

    def coupled(self) -> None:
        """Nothing is judged but that the cause is told, that who can wait gets through, and that nothing is lost."""
        for exactly_once, name in _DELIVERIES:
            for coordinators in (Coordinators.SHARED, Coordinators.FOLLOWED):
                if coordinators is Coordinators.FOLLOWED or exactly_once:
                    for patient in (False, True):
                        if self.wants_another(f"{name}, {coordinators}", 0):
                            self._couple(name, coordinators, exactly_once=exactly_once, patient=patient)

    def _couple(self, name: str, coordinators: Coordinators, *, exactly_once: bool, patient: bool) -> None:
        what = {
            Coordinators.SHARED: "one coordinator for all",
            Coordinators.FOLLOWED: "coordinators' logs followed, too",
        }[coordinators]
        case = f"{name}, {what}, {'long' if patient else 'short'} delivery.timeout.ms"
        times = {"delivery_timeout_ms": int(self.lag_s * 3_000) + 30_000} if patient else SHORT
        policy = CopyPolicy(exactly_once=exactly_once)
        apart, together = (self.stage.target(coordinators, min_in_sync=2) for _ in range(2))
        alone = rate(self.stage.copy(apart[:HEALTHY], policy, **times))
        self.stage.stop_follower()
        results = self.stage.copy(together, policy, **times)
        self.note(case, [alone], [rate(results)], results[:HEALTHY], results[HEALTHY:])
        for one in results[:HEALTHY]:
            causes = {each["cause"] for each in one.expiries}
            if patient and (one.outcome is not Outcome.COMPLETE or causes):
                self.wrong.append(f"{case}: healthy {one.partition}: {one.outcome}, {one.error}")
            if causes - {DeliveryCause.COORDINATOR}:
                self.wrong.append(f"{case}: healthy {one.partition} expired by {causes}: {_short(one.expiries[0])}")
        self.heal(case, together, exactly_once=exactly_once)
        self.stage.side.delete(apart[0].target_topic)

    # --- what an ISR without the follower heals

    def heals(self) -> None:
        """The healthy are slowed down, so that they are still being copied when the follower is out."""
        slowly_s = 1.5 * self.lag_s + 3 * DELIVERY_MS / 1000 + 5
        for exactly_once, name in _DELIVERIES:
            for min_in_sync in (2, 3):
                case = f"{name}, {min_in_sync} wanted, out while copying"
                if not self.wants_another(case, 0):
                    return
                ranges = self.stage.target(Coordinators.APART, min_in_sync=min_in_sync)
                size = sum(one.end - one.start for one in ranges[:HEALTHY]) * 10_000
                policy = CopyPolicy(exactly_once=exactly_once, max_bytes_per_second=int(size / slowly_s))
                began = time.monotonic()
                self.stage.stop_follower()
                results = self.stage.copy(ranges, policy, **SHORT)
                took_s = time.monotonic() - began
                limit = policy.max_bytes_per_second / 1e6
                self.note(f"{case} ({took_s:.0f} s)", [limit], [rate(results)], results[:HEALTHY], results[HEALTHY:])
                self._judge_healing(case, ranges, results, min_in_sync)
                self.heal(case, ranges, exactly_once=exactly_once)

    def _judge_healing(
        self, case: str, ranges: Sequence[Range], results: Sequence[RangeResult], min_in_sync: int
    ) -> None:
        wanted = Outcome.COMPLETE if min_in_sync < len((1, 2, STOPPED)) else Outcome.EXPIRED
        if STOPPED in self.stage.in_sync(ranges[0].target_topic):
            self.wrong.append(f"{case}: the follower was in sync to the end")
        for one in results[:HEALTHY]:
            if one.outcome is not Outcome.COMPLETE or one.expiries:
                self.wrong.append(f"{case}: healthy {one.partition}: {one.outcome}, {one.error}")
        for one in results[HEALTHY:]:
            if one.outcome is not wanted or not one.expiries or not one.retries:
                self.wrong.append(
                    f"{case}: sick {one.partition}: {one.outcome} after {one.retries} retries: {one.error}"
                )
        self.wrong += [f"{case}: {text}" for text in strange_expiries(results[HEALTHY:])]


CAMPAIGNS: Final[dict[str, Callable[[Campaign], None]]] = {
    "holds": Campaign.holds,
    "out": Campaign.out,
    "coupled": Campaign.coupled,
    "heals": Campaign.heals,
}


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="copies beside partitions whose follower is stopped")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CAMPAIGNS)} (all of them)")
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement (5)")
    parser.add_argument("--megabytes", type=int, default=100, help="of each copy (100)")
    parser.add_argument("--lag-seconds", type=float, default=10, help="replica.lag.time.max.ms, but in holds (10)")
    parser.add_argument("--minutes", type=float, default=40, help="begin no round after this time (40)")
    found = parser.parse_args(arguments)
    if unknown := set(found.names) - CAMPAIGNS.keys():
        parser.error(f"no such measurement: {', '.join(sorted(unknown))}; there are {', '.join(CAMPAIGNS)}")
    if found.rounds < 1 or found.megabytes < 1 or found.lag_seconds <= 0:
        parser.error("--rounds and --megabytes must be at least 1, --lag-seconds more than 0")
    return found


def main(arguments: Sequence[str]) -> int:
    """All that is asked for."""
    asked = parsed(arguments)
    names = asked.names or list(CAMPAIGNS)
    campaign = Campaign(asked.rounds, asked.lag_seconds, time.monotonic() + asked.minutes * 60)
    with Cluster() as source:
        for name in names:
            lag_s = _SESSION_S if name == "holds" else asked.lag_seconds
            with follower_stage(lag_s, _SESSION_S, source.bootstrap_servers) as campaign.stage:
                campaign.warm_up(asked.megabytes * 1_000_000)
                CAMPAIGNS[name](campaign)
    campaign.console.print(campaign.table)
    for text in campaign.wrong:
        campaign.console.print(f"WRONG {text}")
    campaign.console.print("as it must be" if not campaign.wrong else f"{len(campaign.wrong)} things are wrong")
    return int(bool(campaign.wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
