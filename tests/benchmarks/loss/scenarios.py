"""What is lost, and how; what is done about it; and what that has cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from tests.benchmarks.loss import accounting, moves, page
from tests.benchmarks.loss.copiers import NotApplicableError
from tests.benchmarks.loss.site import Site

CUT_S: Final = 30.0
DOWN_S: Final = 10.0
_STARTS_S: Final = 300.0
_LATER_S: Final = 3.0
"""What was acknowledged so long before the end of an observation has come, or is missing."""

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """``act`` causes the loss, and returns when (monotonic seconds) and figures of its own. ``ends`` the session."""

    act: Callable[[Site], tuple[float, Figures]]
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """Scenarios that one site sees in their order; ``brokers`` of each cluster."""

    brokers: int
    scenarios: tuple[str, ...]


def _kill(part: str) -> Callable[[Site], tuple[float, Figures]]:
    return lambda site: (site.copier.kill(part), {})


def _kill_leader(side: str) -> Callable[[Site], tuple[float, Figures]]:
    def act(site: Site) -> tuple[float, Figures]:
        cluster = site.brokers_of(side)
        broker = moves.leader(cluster)
        at = time.monotonic()
        cluster.kill(broker)
        return at, {"killed": [broker]}

    return act


def _stop_all(side: str) -> Callable[[Site], tuple[float, Figures]]:
    """All brokers at once; they are started again 10 s later."""

    def act(site: Site) -> tuple[float, Figures]:
        cluster = site.brokers_of(side)
        at = moves.kill_all(cluster)
        site.wait_while(lambda: time.monotonic() < at + DOWN_S, DOWN_S + 1)
        with ThreadPoolExecutor(1, "brokers") as pool:  # the copier is supervised meanwhile
            started = pool.submit(moves.start_all, cluster)
            site.wait_while(lambda: not started.done(), _STARTS_S)
            started.result()
        return at, {"down_s": round(time.monotonic() - at, 1)}

    return act


def _cut(side: str) -> Callable[[Site], tuple[float, Figures]]:
    def act(site: Site) -> tuple[float, Figures]:
        link = site.links[("source", "target").index(side)]
        at = time.monotonic()
        link.cut()
        site.wait_while(lambda: time.monotonic() < at + CUT_S, CUT_S + 1)
        link.heal()
        return at, {"down_s": round(time.monotonic() - at, 1)}

    return act


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "worker": Scenario(_kill("worker")),
    "executor": Scenario(_kill("executor")),
    "driver": Scenario(_kill("driver")),
    "source-broker": Scenario(_kill_leader("source")),
    "target-broker": Scenario(_kill_leader("target")),
    "source-down": Scenario(_stop_all("source")),
    "target-down": Scenario(_stop_all("target")),
    "source-cut": Scenario(_cut("source")),
    "target-cut": Scenario(_cut("target")),
    "source-lost": Scenario(moves.fail_over, ends=True),
    "cut-over": Scenario(moves.cut_over, ends=True),
}
assert SCENARIOS.keys() == page.SCENARIOS.keys()
SESSIONS: Final[Mapping[str, Session]] = {
    "processes": Session(1, ("worker", "executor", "driver")),
    "brokers": Session(3, ("source-broker", "target-broker", "source-down", "target-down")),
    "network": Session(1, ("source-cut", "target-cut")),
    "disaster": Session(3, ("source-lost",)),
    "move": Session(1, ("cut-over",)),
}


def play(site: Site, name: str) -> Figures | None:
    """Cause the loss, and return its figures; None: the copier has no such part."""
    scenario, began = SCENARIOS[name], time.monotonic()
    try:
        at, own = scenario.act(site)
    except NotApplicableError:
        return None
    served = None if scenario.ends else site.await_served(at, page.WITHIN_S)
    acknowledged, arrivals = site.writer.acknowledged.copy(), site.reader.arrivals.copy()
    until = at if name == "source-lost" else time.monotonic() - _LATER_S
    exposed = accounting.exposure(acknowledged, arrivals, at)
    moved = site.writer.moved.copy()
    copied = [(came, number) for came, number in arrivals if number not in moved]
    found: Figures = {
        "exposed": exposed.records,
        "exposed_s": exposed.seconds,
        "served_s": None if served is None else round(served - at, 1),
        "missing": accounting.missing(acknowledged, copied, began, until),
        "doubled": accounting.doubled(copied, began),
    }
    return found | own
