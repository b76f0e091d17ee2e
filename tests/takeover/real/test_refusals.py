"""A takeover and a hand back are refused while the other side still runs; one that was killed is done again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from mirror.client import Admin, TopicPartition
from mirror.relay.progress.committed import group_of
from tests.e2e.connect_worker import START_S
from tests.e2e.site import Site
from tests.polling import eventually
from tests.takeover.real.rounds import RECORDS, Kill, Rounds, Way
from tests.takeover.real.site import MirrorMakerSite
from tests.takeover.real.traffic import Traffic

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.timeout(900)]

PARTITIONS = 30
"""A takeover commits one after the other, so that it can be killed between two."""
DEFAULT = pytest.mark.parametrize("site", [Way()], ids=str, indirect=True)


@DEFAULT
def test_takeover_is_refused_while_mirrormaker_writes(site: MirrorMakerSite) -> None:
    with site.mirrormaker(), Traffic(site):
        site.await_copied(site.logs, RECORDS)
        refused = site.invoke()
        assert refused.exit_code == 1
        assert "MirrorMaker 2 seems to run still" in refused.output
        assert f"written to the target meanwhile: {site.target_topic('')}" in refused.output
        assert f"members of group {site.alias}-mm2" in refused.output
        assert committed(site) == {}
        # It was not disturbed.
        site.await_copied(site.logs, RECORDS)
    assert {one["outcome"] for one in site.takeover()["partitions"]} == {"settled"}


@pytest.fixture
def folder(site: MirrorMakerSite) -> Iterator[Site]:
    """Where the commands are started as programs."""
    found = Site(site.folder)
    try:
        yield found
    finally:
        found.kill()


@pytest.mark.spark
@DEFAULT
def test_hand_back_is_refused_while_a_stream_runs(site: MirrorMakerSite, folder: Site) -> None:
    rounds = Rounds(site)
    rounds.take_over(kills=[])
    stream = folder.start("--flow", site.flow, command="stream")
    with Traffic(site):
        site.await_copied(site.logs, RECORDS)
        for options in (["--back"], ["--back", "--dry-run"], []):
            refused = site.invoke(*options)
            assert refused.exit_code == 1
            assert f"flow {site.flow} is copied now, by run " in refused.output
    site.await_caught_up()
    before = committed(site)
    assert len(before) == len(site.logs)
    folder.ask("stop", "--flow", site.flow)
    assert folder.finish(stream).status == 0
    rounds.hand_back()
    assert committed(site) == {}
    rounds.go_on()


@pytest.mark.parametrize("site", [{"partitions": PARTITIONS}], ids=["many"], indirect=True)
def test_takeover_that_is_killed_is_done_again(site: MirrorMakerSite) -> None:
    """It is killed when it has committed the progress of some partitions, and once more when it commits them again."""
    seen = list[int]()

    def kill_it() -> None:
        with Admin({"bootstrap.servers": site.target.address}) as admin:
            for _ in range(2):
                so_far = len(seen)
                child = subprocess.Popen(
                    [sys.executable, "-m", "mirror.cli", *site.command()], stdout=subprocess.DEVNULL
                )

                def has_committed(
                    child: subprocess.Popen[bytes] = child, before: int = seen[-1] if seen else 0
                ) -> bool:
                    found = len(committed(site, admin))
                    if found > before:
                        seen.append(found)
                    return found > before or child.poll() is not None

                try:
                    eventually(has_committed, within_s=START_S, what="progress of some partitions", every_s=0.001)
                finally:
                    child.kill()
                    child.wait()
                assert len(seen) > so_far, "it has ended before it was killed"
                assert len(committed(site, admin)) < len(site.logs)

    Rounds(site).take_over(kills=[Kill(0.5)], before=kill_it)
    assert len(seen) == 2
    assert len(committed(site)) == len(site.logs)


def committed(site: MirrorMakerSite, admin: Admin | None = None) -> dict[TopicPartition, int]:
    """The progress that the flow has committed on the target, by target partition."""
    if admin is None:
        with Admin({"bootstrap.servers": site.target.address}) as own:
            return committed(site, own)
    groups: dict[str, list[TopicPartition]] = {}
    for log in site.logs:
        tp = TopicPartition(site.target_topic(log.topic), log.partition)
        groups.setdefault(group_of(site.flow, tp), []).append(tp)
    return {
        tp: one.offset
        for group, tps in groups.items()
        # The transaction of one that was killed is open until it times out.
        for tp, one in admin.group_offsets(group, tps, require_stable=False).items()
        if one.offset >= 0
    }
