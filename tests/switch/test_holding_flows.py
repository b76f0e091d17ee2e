"""How a switch holds its flows, on two clusters in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from mirror.config.load import load
from mirror.errors import LatchMoved
from mirror.relay.progress.latch import Latch, Role, read_latch, set_latch
from mirror.spark import holding
from mirror.spark.holding import HoldOutcome
from mirror.switch import acting
from mirror.switch.acting import ClusterSite, Files
from mirror.switch.facts import FlowLatch
from mirror.switch.machine import Act
from tests.relay.fake_pair import FakePair
from tests.switch.test_machine import FACTS, MOVED, TERMS

FLOW = 'source = "paris"\ntarget = "berlin"\nnaming = "identity"\n'
FREE = {name: FlowLatch(is_held=False, generation=0, by="") for name in ("f", "g")}


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    return FakePair(monkeypatch)


@pytest.fixture
def site(pair: FakePair, tmp_path: Path) -> Iterator[ClusterSite]:
    file = tmp_path / "mirror.toml"
    file.write_text(
        f'[clusters.paris]\n"bootstrap.servers" = "{pair.source.bootstrap}"\n'
        f'[clusters.berlin]\n"bootstrap.servers" = "{pair.target.bootstrap}"\n'
        f'[flows.f]\ntopics = ["t"]\n{FLOW}[flows.g]\ntopics = ["u"]\n{FLOW}[switches.s]\nflows = ["f", "g"]\n'
    )
    config = load(file)
    with ClusterSite(config, config.switch("s"), TERMS, Files(file, None, tmp_path), print) as found:
        yield found


def test_a_late_hold_leaves_a_flow_alone_that_was_held_and_released_since(
    pair: FakePair, site: ClusterSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting, "hold", partial(holding.hold, wait=False))
    facts, record = replace(FACTS, latches=FREE), replace(MOVED, latches={"f": 1})
    assert not site.act(Act.HOLD, record, facts).ok  # what it stored may still be sent
    options = {"bootstrap.servers": pair.target.bootstrap}
    assert read_latch(options, "f").is_held
    set_latch(options, "f", Role.ACTIVE, reason="", by="switch s", now_ms=1)
    with pytest.raises(LatchMoved):
        site.act(Act.HOLD, record, facts)
    assert not read_latch(options, "f").is_held


def test_flows_are_held_at_the_same_time(site: ClusterSite, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)

    def hold(*_: object, **__: object) -> HoldOutcome:
        both.wait(10)
        return HoldOutcome(latch=Latch(role=Role.HELD))

    monkeypatch.setattr(acting, "hold", hold)
    assert site.act(Act.HOLD, replace(MOVED, latches={"f": 1, "g": 1}), replace(FACTS, latches=FREE)).ok
