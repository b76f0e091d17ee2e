"""Where a group goes on at home: in front of the tail, and behind one that was exported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from mirror.config.load import load
from mirror.relay.model.ranges import Outcome
from mirror.relay.model.way import Way
from mirror.switch.failback.divergence import skip_tails
from mirror.switch.failback.tail import Span
from tests.fakes.cluster import GroupOffset
from tests.groups.sync_site import GROUP
from tests.groups.test_both_directions_on_fakes import BothDirections
from tests.relay.both_directions import FLOWS, TP, A, B
from tests.relay.fake_pair import FakePair

_NEW: Final = [b"new 0", b"new 1", b"new 2", b"new 3"]


@pytest.fixture(params=[Way.SEQUENCES, Way.TRANSACTIONS])
def failed_over(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[BothDirections]:
    """Ten records were copied and three were not; a group has read the half of what clients have written since."""
    site = BothDirections(FakePair(monkeypatch), request.param)
    site.write(A, *(b"%d" % number for number in range(10)))
    site.copy_all()
    site.consume(A, 5)
    assert site.round(A).reason is None
    site.write(A, b"tail 0", b"tail 1", b"tail 2")
    site.write(B, *_NEW)
    site.consume(B, 7)
    yield site
    site.close()


def test_a_group_is_in_front_of_a_tail_that_is_not_exported(failed_over: BothDirections) -> None:
    assert failed_over.copy_from(B).outcome is Outcome.COMPLETE
    failed_over.round(B)
    assert failed_over.values(A, failed_over.committed(A)) == [b"tail 0", b"tail 1", b"tail 2", *_NEW]


def test_a_group_passes_a_tail_that_was_exported_and_reads_nothing_again(
    failed_over: BothDirections, tmp_path: Path
) -> None:
    site, names, text = failed_over, {A: "a", B: "b"}, ""
    for side in (A, B):
        text += f'[clusters.{names[side]}]\n"bootstrap.servers" = "{site.options(side)[0]["bootstrap.servers"]}"\n'
        text += f'[flows.{FLOWS[side]}]\nsource = "{names[side]}"\ntarget = "{names[1 - side]}"\n'
        text += f'topics = ["{TP.topic}"]\nnaming = "identity"\norigin = "local"\n'
    file = tmp_path / "mirror.toml"
    file.write_text(text)
    config = load(file)
    tail = Span(site.progress(A), site.clusters[A].log(TP.topic).end_offset)
    for _ in range(2):  # a command that was killed is repeated
        skip_tails(config, config.flows[FLOWS[A]], {TP: tail}, 10**12, 10_000)
    assert site.progress(A) == tail.end
    for side in (B, A):
        assert site.copy_from(side).outcome is Outcome.COMPLETE
    assert site.round(B).reason is None
    assert site.values(A, site.committed(A)) == _NEW[2:]
    assert not {b"tail 0", b"tail 1", b"tail 2"} & {*site.values(B)}
    site.write(A, b"home")
    assert site.copy_from(A).outcome is Outcome.COMPLETE
    assert site.values(B)[-1] == b"home"
    # Also once later copies are in the index: the tail has none in front of these.
    site.clusters[B].groups[GROUP][TP] = GroupOffset(site.committed(B) + 1, -1, "")
    assert site.round(B).reason is None
    assert site.values(A, site.committed(A)) == [*_NEW[3:], b"home"]
