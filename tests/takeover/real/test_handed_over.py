"""What goes on behind a takeover from real MirrorMaker 2: its checkpoints."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from mirror.mirrormaker.records import Checkpoint, CheckpointKey
from tests.copying.group_site import commit
from tests.e2e.connect_worker import START_S
from tests.e2e.site import Site
from tests.mirrormaker.kafkas_classes import kafkas_classes
from tests.polling import eventually
from tests.takeover.real.rounds import Way
from tests.takeover.real.site import Log, MirrorMakerSite

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.timeout(900)]

GROUPS = {"early": 137, "late": 250, "at-the-end": 300}
VALUES = [b"%d" % number for number in range(300)]
DEFAULT = pytest.mark.parametrize("site", [Way()], ids=str, indirect=True)


def with_checkpoints(site: MirrorMakerSite) -> Log:
    """Have MirrorMaker 2 write checkpoints of groups of one partition, which is returned with its records."""
    log = Log(site.plain, 0)
    site.source.fill(log.topic, VALUES)
    for group, offset in GROUPS.items():
        commit(site.source, f"{site.flow}-{group}", log.topic, offset, partition=log.partition)
    pair = f"{site.alias}->{site.other}"
    site.settings.update(
        {
            f"{pair}.emit.checkpoints.enabled": "true",
            f"{pair}.emit.checkpoints.interval.seconds": "1",
            f"{pair}.refresh.groups.interval.seconds": "1",
            f"{pair}.groups": f"{site.flow}-.*",
        }
    )
    return log


def checkpoints(site: MirrorMakerSite) -> dict[str, list[Checkpoint]]:
    """The checkpoints of each group, in the order of their log."""
    topic, found = f"{site.alias}.checkpoints.internal", defaultdict[str, list[Checkpoint]](list)
    if topic not in site.target.topics():
        return found
    for record in site.target.records(topic):
        key, one = CheckpointKey.parse(record.key), Checkpoint.parse(record.value)
        assert key is not None
        assert one is not None
        found[key.group.removeprefix(f"{site.flow}-")].append(one)
    return found


@pytest.mark.spark
@DEFAULT
def test_checkpoints_go_on_without_a_step_back(site: MirrorMakerSite, tmp_path: Path) -> None:
    log = with_checkpoints(site)
    with site.mirrormaker():
        eventually(lambda: checkpoints(site).keys() >= GROUPS.keys(), within_s=START_S, what="checkpoints", every_s=0.5)
    theirs = checkpoints(site)
    assert theirs["early"][-1].target < 137, "MirrorMaker 2 translates no offset between two syncs exactly"
    site.lines.extend(
        [
            "mirrormaker.checkpoints = true",
            f'groups = {{ include = ["{site.flow}-.*"], sync = false }}',
        ]
    )
    assert site.takeover()["complete"]
    site.source.fill(log.topic, [b"%d" % number for number in range(300, 320)])
    commit(site.source, f"{site.flow}-late", log.topic, 310, partition=log.partition)
    folder = Site(site.folder)
    run = folder.run("--flow", site.flow)
    assert (run.status, run.errors) == (0, []), run
    found = checkpoints(site)
    for group, all_of_it in found.items():
        assert [one.target for one in all_of_it] == sorted(one.target for one in all_of_it), group
    assert found["early"][-1].target == 137
    copied = site.target_topic(log.topic)
    with kafkas_classes(tmp_path) as kafka:
        for group, value in {"early": b"137", "late": b"310", "at-the-end": b"300"}.items():
            answer = kafka.ask(
                about="translation",
                servers=site.target.address,
                source=site.alias,
                group=f"{site.flow}-{group}",
                pattern="none",
            )
            translated, _ = answer["group"][f"{copied}-0"]
            assert dict(site.target.seen(copied))[translated].value == value, group
