"""The afternoon of the guide "Coming from MirrorMaker 2", with its commands as they are printed there."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks.mirrormaker import mirrormaker
from tests.conftest import NewCluster
from tests.copying.group_site import commit
from tests.copying.pair import End
from tests.e2e.connect_worker import HEAP, START_S
from tests.e2e.site import Run, Site
from tests.migration.guide import commands
from tests.polling import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

ONE = "replication.factor"
SETTINGS = {
    "clusters": "A, B",
    "A->B.enabled": "true",
    "A->B.topics": "orders, payments",
    # Both clusters have one broker.
    **{f"{kind}.storage.{ONE}": "1" for kind in ("offset", "status", "config")},
    **{f"{topic}.topic.{ONE}": "1" for topic in ("offset-syncs", "checkpoints", "heartbeats")},
    ONE: "1",
}
VALUES = [b"%d" % number for number in range(300)]
GROUP = "billing"


class Afternoon:
    """What is done in a folder with ``mm2.properties``."""

    def __init__(self, folder: Path, source: End, target: End) -> None:
        self.site = Site(folder)
        self.source, self.target = source, target
        self.settings = {**SETTINGS, "A.bootstrap.servers": source.address, "B.bootstrap.servers": target.address}
        self._commands = iter(commands())

    def start(self, name: str) -> subprocess.Popen[str]:
        """Start the next command of the guide, which is ``mirror name``."""
        command = next(self._commands)
        # As the guide says of a file without passwords.
        words = shlex.split(command.replace(" --secrets-dir mirror-secrets", ""))
        assert words[:2] == ["mirror", name]
        return self.site.launch([sys.executable, "-m", "mirror.cli", *words[1:]])

    def run(self, name: str, status: int = 0) -> Run:
        run = self.site.finish(self.start(name))
        assert run.status == status, run
        return run

    def write(self, topic: str, values: list[bytes]) -> None:
        self.source.fill(topic, values)

    def await_copied(self, topic: str, count: int) -> None:
        eventually(
            lambda: f"A.{topic}" in self.target.topics() and len(self.target.read(f"A.{topic}")) >= count,
            within_s=START_S,
            what=f"{count} records in A.{topic}",
            every_s=0.5,
        )


@pytest.fixture
def afternoon(tmp_path: Path, new_cluster: NewCluster) -> Iterator[Afternoon]:
    source, target = (End(new_cluster().bootstrap_servers) for _ in range(2))
    for topic in ("orders", "payments"):
        source.create(topic)
    found = Afternoon(tmp_path, source, target)
    try:
        yield found
    finally:
        found.site.kill()


def test_a_flow_is_taken_over_and_handed_back_by_the_commands_of_the_guide(afternoon: Afternoon) -> None:
    site = afternoon.site
    for topic in ("orders", "payments"):
        afternoon.write(topic, VALUES[:200])
    commit(afternoon.source, GROUP, "orders", 137)
    with mirrormaker(site.folder, afternoon.settings, heap=HEAP):
        for topic in ("orders", "payments"):
            afternoon.await_copied(topic, 200)
        assert "dangerous" in afternoon.run("lint", 3).out
        afternoon.run("import")
        assert not (site.folder / "mirror-secrets").exists()
        afternoon.run("check-config")
        assert "mirror takeover" in " ".join(afternoon.run("plan", 3).out.replace("│", " ").split())
        assert "orders-0: the flow continues at 200" in afternoon.run("takeover").out
    assert "3 settled" in afternoon.run("takeover").out
    afternoon.write("orders", VALUES[200:250])
    stream = afternoon.start("stream")
    afternoon.await_copied("orders", 250)
    eventually(lambda: stream.poll() is None, what="a stream that runs")
    afternoon.run("status")
    assert GROUP in afternoon.run("groups", 3).out  # sync is off, MirrorMaker 2's default
    assert "137" in afternoon.run("offsets").out
    afternoon.run("stop")
    assert site.finish(stream).status == 0
    assert "MirrorMaker 2 continues at 250" in afternoon.run("takeover").out
    assert "MirrorMaker 2 continues at 250" in afternoon.run("takeover").out
    afternoon.write("orders", VALUES[250:])
    with mirrormaker(site.folder, afternoon.settings, heap=HEAP):
        afternoon.await_copied("orders", 300)
    assert afternoon.target.read("A.orders") == VALUES
    assert afternoon.target.read("A.payments") == VALUES[:200]
