"""A source is killed and comes back with a truncated and a rebuilt topic: they are rebuilt, and clients go home."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirror.client import Admin, NewTopic
from mirror.relay.progress.latch import read_latch
from tests.alignment.permissions.guarded import acls
from tests.polling import eventually
from tests.switch.failback.test_failback_on_brokers import (
    _HOME,
    both,
    killed_at,
    messages,
    mirror,
    run_flow,
    values,
    write,
)
from tests.switch.guarded_pair import PARTITIONS, TOPICS, Pair, as_user, pair, read_some
from tests.topic_creation import create_topics

pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(1200)]

TRUNCATED, REBUILT = TOPICS


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path, f'back = ["back"]\n{_HOME}') as found:
        yield found


def lose_first_partition(folder: Path, topic: str) -> None:
    """Remove the log of a partition, as a broker that dies with its disk's last writes loses the end of one."""
    (partition,) = folder.rglob(f"{topic}-0")
    for file in partition.iterdir():
        if file.suffix in {".log", ".index", ".timeindex", ".snapshot"} or file.name == "leader-epoch-checkpoint":
            file.unlink()


def make_again(bootstrap: str, topic: str) -> None:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.delete_topics([topic])
        eventually(lambda: topic not in admin.list_topics(), what="the deletion", within_s=30)
        create_topics(admin, [NewTopic(topic, PARTITIONS)])


def test_topics_that_cannot_be_continued_are_rebuilt_and_clients_go_home(clusters: Pair) -> None:
    old, new = clusters.source, clusters.target
    before = write(old, "before", 200)
    read = read_some(as_user(old, "bob"), 50)
    for flow in ("ahead", "back", "ahead"):  # groups have positions once both flows have progress
        run_flow(clusters, flow)
    original = acls(old)
    write(old, "tail", 100)
    (broker,) = old.pids
    old.kill(broker)
    mirror(clusters, "failover", "move")
    after = write(new, "after", 100)
    read += read_some(as_user(new, "bob"), len(before) - len(read) + len(after))
    assert sorted(read) == sorted(before + after)
    lose_first_partition(old.directory, TRUNCATED)
    old.restart(broker)
    make_again(old.bootstrap_servers, REBUILT)
    write(old, "again", 60)

    shown = json.loads(mirror(clusters, "failback", "move", "--inspect", "--json", status=3).stdout)
    verdicts = {one["topic"]: one["verdict"] for one in shown["inspection"]["topics"]}
    assert verdicts == {TRUNCATED: "truncated", REBUILT: "rebuilt", "idle": "same"}
    refused = mirror(clusters, "failback", "move", "--rebuild-all", status=3)
    assert "--export first" in refused.stderr
    refused = mirror(clusters, "failback", "move", "--export", status=3)
    assert "cannot be continued" in refused.stderr
    only_old = Counter((one.value() or b"").decode() for one in messages(old.bootstrap_servers, TRUNCATED))
    only_old -= Counter(before)
    assert values(new.bootstrap_servers, f"{TRUNCATED}.tail.1") == only_old
    assert values(new.bootstrap_servers, f"{REBUILT}.tail.1") == values(old.bootstrap_servers, REBUILT)

    planned = mirror(clusters, "failback", "move", "--rebuild-all", "--dry-run").stdout
    assert f"topic {REBUILT}: deletes partition 0" in planned
    assert {*values(old.bootstrap_servers, REBUILT)}, "a dry run changes nothing"
    for line in ("deleting topic", "copies it as a whole"):
        killed_at(clusters, line, "failback", "move", "--rebuild-all")
    run_flow(clusters, "back", status=4)  # nothing copies while topics are rebuilt
    mirror(clusters, "failback", "move", "--rebuild-all")
    assert sum(both(old.bootstrap_servers).values()) == 0
    mirror(clusters, "failback", "move", "--export")
    assert not read_latch({"bootstrap.servers": new.bootstrap_servers}, "ahead").is_held

    everything = Counter(before + after)
    for flow in ("back", "ahead"):
        run_flow(clusters, flow)
        assert (both(old.bootstrap_servers), both(new.bootstrap_servers)) == (everything, everything)
    mirror(clusters, "cutover", "home", "--folder", str(clusters.config.parent / "proofs"))
    mirror(clusters, "failback", "move", "--lift")
    assert acls(old) == original
    home = write(old, "home", 20)
    rest = read_some(as_user(old, "bob"), len(home))
    assert sorted(rest) == sorted(home), "nothing is skipped, and nothing read again"
    run_flow(clusters, "ahead")
    both_now = (both(old.bootstrap_servers), both(new.bootstrap_servers))
    assert both_now == (everything + Counter(home), everything + Counter(home))
