"""Whether groups can be moved exactly is known before producers are fenced, and is what the move then finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mirror.client import Admin
from mirror.config.load import load
from mirror.config.models import MirrorConfig
from mirror.relay.model.ranges import Outcome
from mirror.relay.model.way import Way
from mirror.spark.preflight.flow_groups import open_sync
from mirror.switch.readiness import blockers, inexact
from mirror.switch.reading import FactReader
from tests.groups.sync_site import GROUP
from tests.groups.test_both_directions_on_fakes import BothDirections
from tests.relay.both_directions import FLOWS, A, B
from tests.relay.fake_pair import FakePair


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[BothDirections]:
    """Clients were moved from A to B, where the group has read a part of what they have written since."""
    site = BothDirections(FakePair(monkeypatch), Way.SEQUENCES)
    site.write(A, b"1", b"2")
    site.copy_all()
    site.write(B, b"3", b"4")
    site.consume(B, 3)
    yield site
    site.close()


def configured(site: BothDirections, folder: Path) -> MirrorConfig:
    file = folder / "mirror.toml"
    file.write_text(site.config("groups = {{}}") + f'[switches.home]\nflows = ["{FLOWS[B]}"]\nback = ["{FLOWS[A]}"]\n')
    return load(file)


def moved(config: MirrorConfig) -> bool:
    with open_sync(config, config.flows[FLOWS[B]]) as sync:
        return sync.round().groups[GROUP].is_in_step


def test_what_the_move_would_wait_for_is_said_before_the_fence(home: BothDirections, tmp_path: Path) -> None:
    config = configured(home, tmp_path)
    home.write(A, b"only at home")
    assert home.copy_from(B).outcome is Outcome.COMPLETE
    (line,) = inexact(config, config.switch("home"))
    assert line.startswith(f"flow {FLOWS[B]}: group {GROUP} cannot be moved exactly (not-copied-back: ")
    assert line.endswith(f"that flow {FLOWS[A]} has not copied: run it)")
    with Admin(home.options(B)[0]) as source, Admin(home.options(B)[1]) as target:
        assert line in [
            *blockers(config, config.switch("home"), FactReader(config, config.switch("home"), source, target))
        ]
    home.write(B, *(b"not copied %d" % number for number in range(20)))
    assert [*inexact(config, config.switch("home"))] == [line], "also while the flow has something to copy"
    assert home.copy_from(B).outcome is Outcome.COMPLETE
    assert not moved(config)
    home.copy_all()
    assert not [*inexact(config, config.switch("home"))]
    assert moved(config)


def test_a_record_behind_all_copies_is_said_before_the_fence(home: BothDirections, tmp_path: Path) -> None:
    config = configured(home, tmp_path)
    home.consume(B, 1)
    assert home.copy_from(B).outcome is Outcome.COMPLETE
    home.write(A, b"only at home")
    assert len([*inexact(config, config.switch("home"))]) == 1
    assert not moved(config)


def test_what_the_flow_will_copy_keeps_no_switch_from_its_fence(home: BothDirections, tmp_path: Path) -> None:
    config = configured(home, tmp_path)
    assert not [*inexact(config, config.switch("home"))]
    assert not moved(config)
    assert home.copy_from(B).outcome is Outcome.COMPLETE
    assert not [*inexact(config, config.switch("home"))]
    assert moved(config)
