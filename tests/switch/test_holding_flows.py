"""What a switch does about flows that are held, and about topics that were fenced, on two clusters in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from mirror.cluster.acls import read_denial, write_denial
from mirror.config.load import load
from mirror.config.models import MirrorConfig
from mirror.errors import LatchMoved
from mirror.relay.progress.latch import Latch, Role, read_latch, set_latch
from mirror.spark import holding
from mirror.spark.holding import HoldOutcome
from mirror.spark.preflight.flow_reconciler import acl_rules
from mirror.switch import acting
from mirror.switch.acting import ClusterSite, Files
from mirror.switch.facts import FlowLatch
from mirror.switch.machine import Act
from mirror.switch.readiness import denied_by_switches, held
from mirror.switch.record import FailbackRecord
from tests.relay.fake_pair import FakePair
from tests.switch.test_machine import FACTS, MOVED, TERMS

FLOW = 'source = "paris"\ntarget = "berlin"\nnaming = "identity"\norigin = "local"\norigin-from = "earliest"\n'
FREE = {name: FlowLatch(is_held=False, generation=0, by="") for name in ("f", "g")}


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    return FakePair(monkeypatch)


@pytest.fixture
def config(pair: FakePair, tmp_path: Path) -> MirrorConfig:
    file = tmp_path / "mirror.toml"
    file.write_text(
        f'[clusters.paris]\n"bootstrap.servers" = "{pair.source.bootstrap}"\n'
        f'[clusters.berlin]\n"bootstrap.servers" = "{pair.target.bootstrap}"\n'
        f'[flows.f]\ntopics = ["t"]\n{FLOW}[flows.g]\ntopics = ["u"]\n{FLOW}'
        '[flows.b]\nsource = "berlin"\ntarget = "paris"\nnaming = "identity"\ntopics = ["t"]\n'
        'origin = "local"\norigin-from = "earliest"\n'
        '[switches.s]\nflows = ["f", "g"]\nback = ["b"]\n'
    )
    return load(file)


@pytest.fixture
def site(config: MirrorConfig, tmp_path: Path) -> Iterator[ClusterSite]:
    file = tmp_path / "mirror.toml"
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


def test_a_comparison_that_fails_does_not_wait_for_the_flows_that_are_held_beside_it(
    site: ClusterSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prove(*_: object) -> tuple[int, str]:
        return 3, '{"flows": [{"error": "both clusters differ", "partitions": []}]}'

    monkeypatch.setattr(site, "_run", prove)
    began_s = time.monotonic()
    result = site.act(Act.PROVE, replace(MOVED, latches={"f": 1, "g": 1}), replace(FACTS, latches=FREE))
    assert (result.ok, "both clusters differ" in result.why) == (False, True)
    assert time.monotonic() - began_s < holding.SETTLED_MS / 2000


def test_flows_are_held_while_both_clusters_are_compared(site: ClusterSite, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()

    def hold(*_: object, **__: object) -> HoldOutcome:
        held.set()
        return HoldOutcome(latch=Latch(role=Role.HELD))

    def prove(*_: object) -> tuple[int, str]:
        assert held.wait(10)
        return 0, '{"flows": [{"error": "", "partitions": [], "proof": "hash"}]}'

    monkeypatch.setattr(acting, "hold", hold)
    monkeypatch.setattr(site, "_run", prove)
    record = replace(MOVED, ends={}, latches={"f": 1, "g": 1})
    result = site.act(Act.PROVE, record, replace(FACTS, latches=FREE))
    assert (result.ok, result.held, dict(result.evidence)) == (True, True, {"f": "hash", "g": "hash"})


def test_a_way_back_that_others_hold_is_a_blocker_and_is_named(
    pair: FakePair, config: MirrorConfig, site: ClusterSite
) -> None:
    assert [*held(config, config.switch("s"))] == []
    holding.hold(config, config.flows["b"], why="cut over", by="switch saturday", wait=False)
    (line,) = held(config, config.switch("s"))
    assert line.startswith("flow b is held since")
    result = site.act(Act.REVERSE, MOVED, FACTS)
    assert result.ok
    assert "flow b of the way back is held" in result.why
    assert read_latch({"bootstrap.servers": pair.source.bootstrap}, "b").is_held


def test_the_topics_are_known_that_switches_have_fenced(pair: FakePair, site: ClusterSite) -> None:
    site.prepare()
    site.store(replace(MOVED, denied=("t",), topics=("t", "u"), denied_groups=("g",)))
    options = {"bootstrap.servers": pair.target.bootstrap}
    assert denied_by_switches(options, site.target) == {write_denial("t"), read_denial("g")}
    assert denied_by_switches(options, site.target, "another") == set()


def test_what_a_failback_has_fenced_is_known_by_the_record_on_the_standby(pair: FakePair, site: ClusterSite) -> None:
    site.prepare()
    back = FailbackRecord(denied=("t",), denied_groups=("g",))
    site.store(replace(MOVED, clusters=("old", "new"), failback=back))
    options = {"bootstrap.servers": pair.target.bootstrap}
    assert denied_by_switches(options, site.target, "old") == {write_denial("t"), read_denial("g")}


def test_the_flows_of_a_switch_do_not_copy_its_fence(config: MirrorConfig) -> None:
    assert [acl_rules(config, config.flows[name]).fenced for name in ("f", "b")] == [True, False]
