"""A target with three replicas and a stopped follower: what that costs the partitions that it does not follow.

    python tests/campaign/measurements/follower.py [--rounds 5] [--megabytes 100]
        [--lag-seconds 10] [--minutes 40] [NAME ...]

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
from tests.campaign.measurements.follower_cluster import (
    HEALTHY,
    SICK,
    STOPPED,
    Coordinators,
    FollowerCluster,
    follower_cluster,
)
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
    """Return the MB per second of the healthy partitions, from the beginning to the end of the last one."""
    healthy = results[:HEALTHY]
    return sum(one.bytes for one in healthy) / max(one.seconds for one in healthy) / 1e6


def summary(results: Sequence[RangeResult]) -> str:
    """Summarize the outcomes and the expiries: phase, cause and the last error of a broker."""
    outcomes = Counter(one.outcome.value for one in results)
    parts = [f"{count} {outcome}" for outcome, count in outcomes.items()]
    expiries = Counter(
        f"{each['phase']}, {each['cause']} ({_word(str(each['last_error']))})"
        for one in results
        for each in one.expiries
    )
    return "; ".join(parts + [f"{count} x {text}" for text, count in expiries.most_common(4)])


def _word(error: str) -> str:
    """Return the name of a broker's error, or the end of another text."""
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
    """The options, and the findings so far."""

    rounds: int
    lag_s: float
    until: float
    cluster: FollowerCluster = field(init=False)
    table: Table = field(default_factory=lambda: Table("case", "alone MB/s", "beside MB/s", "ratio", "healthy", "sick"))
    wrong: list[str] = field(default_factory=list)
    console: Console = field(default_factory=lambda: Console(width=160))

    def warm_up(self, healthy_bytes: int) -> None:
        """Fill the source, and copy it twice to warm up the brokers."""
        self.cluster.fill(healthy_bytes, SICK * _SICK_BYTES)
        for _ in range(2):
            ranges = self.cluster.target(Coordinators.APART, min_in_sync=2)
            self.cluster.copy(ranges, CopyPolicy())
            self.cluster.side.delete(ranges[0].target_topic)

    def note(self, case: str, alone: Sequence[float], beside: Sequence[float], *groups: Sequence[RangeResult]) -> float:
        """Add a line to the table and return the ratio of the medians."""
        ratio = statistics.median(beside) / statistics.median(alone)
        figures = [" ".join(f"{one:.1f}" for one in some) for some in (alone, beside)]
        self.table.add_row(case, *figures, f"{ratio:.3f}", *(summary(group) for group in groups))
        self.console.print(
            f"{case}: {' | '.join(figures)}: {ratio:.3f}; {' / '.join(summary(group) for group in groups)}"
        )
        return ratio

    def wants_another(self, case: str, number: int) -> bool:
        """Return whether there is time for round ``number`` (from 0)."""
        if time.monotonic() < self.until:
            return number < self.rounds
        self.wrong.append(f"{case}: {number} of {self.rounds} rounds, then the time was up")
        return False

    def heal(self, case: str, ranges: Sequence[Range], *, exactly_once: bool) -> None:
        """Resume the follower, copy the same ranges again, and check that nothing is missing."""
        self.cluster.heal(ranges[0].target_topic)
        results = self.cluster.copy(ranges, CopyPolicy(exactly_once=exactly_once))
        left = [f"{one.partition}: {one.error}" for one in results if one.outcome is not Outcome.COMPLETE]
        left += [text for one in ranges for text in self.cluster.missing(one, exactly_once=exactly_once)]
        self.wrong += [f"{case}, after all was well again: {text}" for text in left]
        self.cluster.side.delete(ranges[0].target_topic)

    # --- the cost for healthy partitions

    def holds(self) -> None:
        """Measure with a follower that is in sync and was stopped just before."""
        for exactly_once, name in _DELIVERIES:
            case = f"{name}, follower in sync"
            policy = CopyPolicy(exactly_once=exactly_once)
            alone, beside, all_results = list[float](), list[float](), list[RangeResult]()
            number = 0
            while self.wants_another(case, number):
                for sick in (number % 2 == 0, number % 2 == 1):  # Alternating, with alternating first ones.
                    ranges = self.cluster.target(Coordinators.APART, min_in_sync=2 + number % 2)
                    if sick:
                        self.cluster.stop_follower()
                        results = self.cluster.copy(ranges, policy, **SHORT)
                        beside.append(rate(results))
                        all_results += results
                        if STOPPED not in self.cluster.in_sync(ranges[0].target_topic):
                            self.wrong.append(f"{case}: the follower was not in sync to the end")
                        self.heal(case, ranges, exactly_once=exactly_once)
                    else:
                        alone.append(rate(self.cluster.copy(ranges[:HEALTHY], policy, **SHORT)))
                        self.cluster.side.delete(ranges[0].target_topic)
                number += 1
            self._check_throughput(case, alone, beside, all_results)

    def out(self) -> None:
        """Measure with a stopped follower outside the ISR: leaders that require three replicas refuse writes."""
        for exactly_once, name in _DELIVERIES:
            case = f"{name}, follower out, three wanted"
            policy = CopyPolicy(exactly_once=exactly_once)
            alone, beside, all_results = list[float](), list[float](), list[RangeResult]()
            number = 0
            while self.wants_another(case, number):
                apart, together = (self.cluster.target(Coordinators.APART, min_in_sync=3) for _ in range(2))
                self.cluster.stop_follower()
                # Written to, or a follower that knows all that there is would not be out.
                self.cluster.copy(together[HEALTHY:], policy, **SHORT)
                self._await_out(together)
                for sick in (number % 2 == 0, number % 2 == 1):
                    if sick:
                        results = self.cluster.copy(together, policy, **SHORT)
                        beside.append(rate(results))
                        all_results += results
                    else:
                        alone.append(rate(self.cluster.copy(apart[:HEALTHY], policy, **SHORT)))
                self.heal(case, together, exactly_once=exactly_once)
                self.cluster.side.delete(apart[0].target_topic)
                number += 1
            # The transactions of these were left open by the first copy.
            earlier = DeliveryCause.COORDINATOR if exactly_once else None
            self._check_throughput(case, alone, beside, all_results, earlier=earlier)

    def _await_out(self, ranges: Sequence[Range]) -> None:
        topic = ranges[0].target_topic
        eventually(
            lambda: STOPPED not in self.cluster.in_sync(topic), within_s=3 * self.lag_s + 30, what="the follower out"
        )

    def _check_throughput(
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

    # --- what brokers share

    def coupled(self) -> None:
        """Check that expiries name their cause, that a longer timeout succeeds, and that nothing is lost."""
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
        apart, together = (self.cluster.target(coordinators, min_in_sync=2) for _ in range(2))
        alone = rate(self.cluster.copy(apart[:HEALTHY], policy, **times))
        self.cluster.stop_follower()
        results = self.cluster.copy(together, policy, **times)
        self.note(case, [alone], [rate(results)], results[:HEALTHY], results[HEALTHY:])
        for one in results[:HEALTHY]:
            causes = {each["cause"] for each in one.expiries}
            if patient and (one.outcome is not Outcome.COMPLETE or causes):
                self.wrong.append(f"{case}: healthy {one.partition}: {one.outcome}, {one.error}")
            if causes - {DeliveryCause.COORDINATOR}:
                self.wrong.append(f"{case}: healthy {one.partition} expired by {causes}: {_short(one.expiries[0])}")
        self.heal(case, together, exactly_once=exactly_once)
        self.cluster.side.delete(apart[0].target_topic)

    # --- what an ISR without the follower heals

    def heals(self) -> None:
        """Slow the healthy partitions down, so that they are still being copied when the follower leaves the ISR."""
        slowly_s = 1.5 * self.lag_s + 3 * DELIVERY_MS / 1000 + 5
        for exactly_once, name in _DELIVERIES:
            for min_in_sync in (2, 3):
                case = f"{name}, {min_in_sync} wanted, out while copying"
                if not self.wants_another(case, 0):
                    return
                ranges = self.cluster.target(Coordinators.APART, min_in_sync=min_in_sync)
                size = sum(one.end - one.start for one in ranges[:HEALTHY]) * 10_000
                policy = CopyPolicy(exactly_once=exactly_once, max_bytes_per_second=int(size / slowly_s))
                began = time.monotonic()
                self.cluster.stop_follower()
                results = self.cluster.copy(ranges, policy, **SHORT)
                took_s = time.monotonic() - began
                limit = policy.max_bytes_per_second / 1e6
                self.note(f"{case} ({took_s:.0f} s)", [limit], [rate(results)], results[:HEALTHY], results[HEALTHY:])
                self._check_healing(case, ranges, results, min_in_sync)
                self.heal(case, ranges, exactly_once=exactly_once)

    def _check_healing(
        self, case: str, ranges: Sequence[Range], results: Sequence[RangeResult], min_in_sync: int
    ) -> None:
        wanted = Outcome.COMPLETE if min_in_sync < len((1, 2, STOPPED)) else Outcome.EXPIRED
        if STOPPED in self.cluster.in_sync(ranges[0].target_topic):
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
    """Parse the command line."""
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
    """Run the requested measurements and return the exit status."""
    asked = parsed(arguments)
    names = asked.names or list(CAMPAIGNS)
    campaign = Campaign(asked.rounds, asked.lag_seconds, time.monotonic() + asked.minutes * 60)
    with Cluster() as source:
        for name in names:
            lag_s = _SESSION_S if name == "holds" else asked.lag_seconds
            with follower_cluster(lag_s, _SESSION_S, source.bootstrap_servers) as campaign.cluster:
                campaign.warm_up(asked.megabytes * 1_000_000)
                CAMPAIGNS[name](campaign)
    campaign.console.print(campaign.table)
    for text in campaign.wrong:
        campaign.console.print(f"WRONG {text}")
    campaign.console.print("as it must be" if not campaign.wrong else f"{len(campaign.wrong)} things are wrong")
    return int(bool(campaign.wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
