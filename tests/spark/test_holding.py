"""``mirror hold`` and ``mirror release``: when nothing of a flow writes any more, on a target in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.cli.commands import aside
from mirror.client import Admin, Producer
from mirror.config.load import load
from mirror.errors import Fenced, FlowError, FlowHeld, LatchMoved
from mirror.exit_status import HELD
from mirror.relay.batches.aside import AsideOrigin
from mirror.relay.progress.control_record import RunControl, control_partition
from mirror.relay.progress.fenced_writer import FencedWriter, transactional_id
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue, inventory_topic_of
from mirror.relay.progress.latch import Latch, LatchCheck, Role, read_latch
from mirror.spark import holding, run_control
from mirror.spark.holding import SETTLED_MS, still_writes
from mirror.spark.run_control import RunControlClient
from tests.relay.fake_pair import FLOW, FakePair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RUN = RunControl(run="r1", host="h1", since_ms=1, seen_ms=100_000)


@pytest.mark.parametrize(
    ("control", "is_dead", "unix_ms", "expected"),
    [
        (None, False, 100_000 + SETTLED_MS, ""),
        (None, False, 100_001, "stored before the latch"),
        (
            RUN,
            False,
            100_000 + SETTLED_MS,
            "run r1 on h1 has not said that it ended (its last sign of life was 12 s ago",
        ),
        (replace(RUN, stop=True), False, 10**9, "run r1 on h1"),
        (replace(RUN, stop=True, ended=True), False, 100_000 + SETTLED_MS, ""),
        (RUN, True, 100_000 + SETTLED_MS, ""),
    ],
)
def test_what_may_still_write(control: RunControl | None, is_dead: bool, unix_ms: int, expected: str) -> None:
    found = still_writes(control, is_dead=is_dead, fenced_ms=100_000, unix_ms=unix_ms)
    assert expected in found if expected else found == ""


class Site:
    """Flow ``f``, and the time, which passes while a command waits; ``on_pause`` is what others do meanwhile."""

    def __init__(self, pair: FakePair, file: Path, *keys: str) -> None:
        pair.target.add_topic(inventory_topic_of(FLOW))
        file.write_text(
            f'[clusters.paris]\n"bootstrap.servers" = "{pair.source.bootstrap}"\n'
            f'[clusters.berlin]\n"bootstrap.servers" = "{pair.target.bootstrap}"\n'
            f'[flows.{FLOW}]\nsource = "paris"\ntarget = "berlin"\ntopics = ["t"]\n' + "\n".join(keys)
        )
        self.config = load(file)
        self.flow = self.config.flows[FLOW]
        self.options = {"bootstrap.servers": pair.target.bootstrap}
        self.admin = Admin(self.options)
        self.inventory = FlowTopic(self.options, inventory_topic_of(FLOW))
        self.now_ms = RunControlClient(self.admin, FLOW, "x").wanted.since_ms
        self.on_pause: Callable[[], object] = bool

    def _pause(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)
        self.on_pause()

    def client(self, run: str = "") -> RunControlClient:
        return RunControlClient(self.admin, FLOW, run)

    def latch(self) -> Latch:
        return read_latch(self.options, FLOW)

    def run(self, name: str) -> RunControlClient:
        run = self.client(name)
        run.claim()
        return run

    def found(self) -> RunControl:
        found = self.client().read()
        assert found is not None
        return found

    def hold(self, *, wait: bool = True) -> str:
        by = "ada on h2"
        clock = {"pause": self._pause, "unix_ms": lambda: self.now_ms}
        return holding.hold(self.config, self.flow, why="loss", by=by, wait=wait, **clock).running  # type: ignore[arg-type]

    def release(self, expected: int | None = None) -> Latch:
        clock = {"pause": self._pause, "unix_ms": lambda: self.now_ms}
        return holding.release(self.config, self.flow, by="ada on h2", expected=expected, **clock)  # type: ignore[arg-type]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site(FakePair(monkeypatch), tmp_path / "mirror.toml")
    monkeypatch.setattr(run_control, "_unix_ms", lambda: site.now_ms)
    with site.admin:
        yield site


def test_a_flow_of_which_nothing_runs_is_held_and_released(site: Site) -> None:
    assert site.hold() == ""
    held = site.latch()
    assert (held.role, held.generation, held.reason, held.by) == (Role.HELD, 1, "loss", "ada on h2")
    with pytest.raises(FlowHeld):
        LatchCheck(site.options, FLOW)()
    assert site.hold() == "", "it may be repeated"
    with pytest.raises(LatchMoved, match="generation 1, not 7"):
        site.release(expected=7)
    assert site.release(expected=1).generation == 2
    assert site.release() == site.latch(), "it may be repeated"
    LatchCheck(site.options, FLOW)()


def test_hold_stops_a_copy_from_the_aside_topic_between_two_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, file = FakePair(monkeypatch), tmp_path / "mirror.toml"
    pair.target.add_topic("beside")
    site = Site(pair, file, 'aside = "beside"', 'on-too-large = "aside"')
    monkeypatch.setattr(run_control, "_unix_ms", lambda: site.now_ms)
    origin = AsideOrigin(FLOW, "paris", "t", 0, "paris.t")
    lines: list[str] = []

    def hold_then(line: str) -> None:
        lines.append(line)
        site.hold()

    monkeypatch.setattr(aside, "print_notice", hold_then)
    with site.admin:
        with Producer(site.options) as producer:
            for offset in (3, 4):
                producer.send(
                    "beside", 0, key=None, value=b"v", headers=origin.headers("too large", offset, offset + 1, 1)
                )
            producer.flush()
        result = CliRunner().invoke(app, ["aside", "--config", str(file), "--copy", "--all"])
    assert (result.exit_code, lines) == (HELD, ["t-0@3: copied to paris.t-0@0"]), result.output


def test_hold_waits_for_the_end_of_the_run(site: Site) -> None:
    run = site.run("run-1")
    seen: list[bool] = []

    def end_later() -> None:
        seen.append(run.sync().stop)
        if len(seen) == 40:
            run.want(ended=True)
            run.sync()

    site.on_pause = end_later
    assert site.hold() == ""
    assert (all(seen), len(seen)) == (True, 39 + SETTLED_MS // 500), "since it was last seen to run"
    assert site.found().job == 1, "its tasks end for good"


def test_what_does_not_end_is_named(site: Site) -> None:
    run = site.run("run-1")
    site.on_pause = run.sync
    assert "run run-1 on" in site.hold()
    with pytest.raises(FlowError, match=r"is not released: run run-1 on .* has not said that it ended"):
        site.release()
    assert site.latch().is_held


def test_without_waiting_it_says_what_may_still_write(site: Site) -> None:
    site.run("run-1")
    assert "run run-1 on" in site.hold(wait=False)
    assert site.found().stop


def test_hold_stops_a_run_whose_claim_replaces_the_command(site: Site) -> None:
    """It has read that the flow is active, and claims it a moment after the latch was stored."""
    late = site.client("run-2")
    claimed: list[bool] = []

    def claim_late() -> None:
        if not claimed:
            late.claim()
        claimed.append(late.sync().stop)
        if claimed[-1]:
            late.want(ended=True)

    site.on_pause = claim_late
    assert site.hold() == ""
    assert (site.found().run, site.found().ended) == ("run-2", True)


def test_a_run_that_prepares_while_another_one_has_the_flow_is_waited_for_once_it_claims_it(site: Site) -> None:
    """The control record does not show it until the other one has ended."""
    run, late = site.run("run-1"), site.client("run-2")
    ticks = iter(range(200))

    def live() -> None:
        tick = next(ticks)
        if tick == 40:
            run.want(ended=True)
        if tick < 42:
            run.sync()
        if tick == 50:
            late.claim()
        if tick > 50:
            late.want(ended=tick > 90)
            late.sync()

    site.on_pause = live
    assert site.hold() == ""
    assert (site.found().run, site.found().ended) == ("run-2", True)


def test_a_run_that_has_died_is_not_waited_for_longer_than_its_tasks_live(site: Site) -> None:
    began_ms = site.now_ms
    site.run("run-1")
    assert site.hold() == ""
    spent_ms = site.now_ms - began_ms - SETTLED_MS
    assert 60_000 <= spent_ms < 62_000, "its tasks end a minute after its last sign of life"
    assert site.found().ended


def test_a_run_whose_clock_is_behind_is_waited_for(site: Site) -> None:
    run = site.run("run-1")
    old = replace(site.found(), seen_ms=site.now_ms - 3_600_000)
    group, tp = control_partition(FLOW)
    ticks = iter(range(60))

    def live() -> None:
        tick = next(ticks, None)
        if tick is None:
            run.want(ended=True)
            run.sync()
        else:
            one = replace(old, seen_ms=old.seen_ms + 1_000 * tick, stop=True, job=1)
            site.admin.commit_group_offsets(group, {tp: one.to_offset()})

    site.on_pause = live
    began_ms = site.now_ms
    assert site.hold() == ""
    assert site.now_ms - began_ms >= 30_000


def test_a_run_that_another_one_has_replaced_just_before_has_time_to_end(site: Site) -> None:
    """Its tasks end once they see that; only the record of the other run can be followed."""
    site.run("run-1")
    other = site.run("run-2")
    other.want(ended=True)
    site.on_pause = other.sync
    site.flow = site.flow.model_copy(update={"shutdown_timeout_ms": 60_000})
    began_ms = site.now_ms
    assert site.hold() == ""
    assert site.now_ms - began_ms >= 17_000, "a task winds up for a quarter of shutdown-timeout-ms"


def test_a_round_that_has_begun_stores_nothing_any_more(site: Site) -> None:
    writer = FencedWriter(site.inventory, transactional_id(FLOW), 5_000)
    writer.begin()
    site.hold()
    with pytest.raises(Fenced):
        writer.write([KeyValue(b"k", b"v")])


def test_a_round_of_a_held_flow_stores_nothing_however_often_it_tries(site: Site) -> None:
    check = LatchCheck(site.options, FLOW)
    writer = FencedWriter(site.inventory, transactional_id(FLOW), 5_000, check=check)
    site.hold()
    for _ in range(2):
        with pytest.raises(FlowHeld):
            writer.write([KeyValue(b"k", b"v")])


def test_release_has_a_stream_that_holds_the_flow_begin_it_again(site: Site) -> None:
    run = site.run("run-1")
    run.want(ended=True)
    site.on_pause = run.sync
    site.hold()
    assert run.sync().stop
    site.release()
    assert not run.sync().stop


def test_a_release_that_was_killed_is_finished_by_the_next_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    run = site.run("run-1")
    run.want(ended=True)
    site.on_pause = run.sync
    site.hold()

    def killed(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RunControlClient, "resume", killed)
        with pytest.raises(KeyboardInterrupt):
            site.release()
    assert (site.latch().role, run.sync().stop) == (Role.ACTIVE, True)
    assert site.release() == site.latch()
    assert not run.sync().stop


@pytest.mark.parametrize("ahead_ms", [-120_000, 0, 3_600_000])
def test_release_does_not_rest_on_the_clock_of_the_host_that_held_the_flow(site: Site, ahead_ms: int) -> None:
    site.now_ms += ahead_ms
    site.hold(wait=False)
    site.now_ms -= ahead_ms
    began_ms = site.now_ms
    site.release()
    assert site.now_ms - began_ms == SETTLED_MS


def test_what_was_held_long_ago_is_released_at_once(site: Site) -> None:
    site.hold()
    began_ms = site.now_ms = site.now_ms + 3_600_000
    site.release()
    assert site.now_ms == began_ms
