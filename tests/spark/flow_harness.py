"""A configuration with one flow between two clusters in a folder, for tests of the command line and of Spark's side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.client import Admin, TopicPartition
from mirror.relay.model.way import Way
from mirror.relay.progress.committed import Progress, group_of, to_offset
from mirror.spark.driver import run_status
from mirror.spark.ledger import status_table
from mirror.spark.status import status_reader
from tests.spark import fakes

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from typer.testing import Result

UNREACHABLE_FLOW = """
[clusters.gone]
"bootstrap.servers" = "gone:1"
[flows.g]
source = "gone"
target = "b"
topics = ["clicks"]
"""
"""A second flow, ``g``, whose source cluster does not answer."""


def configuration(topics: str = "orders.*") -> str:
    """The TOML of flow ``f`` from cluster ``a`` to ``b``, whose lines come last; ``topics`` is a pattern."""
    return f"""
[clusters.a]
"bootstrap.servers" = "a:1"
[clusters.b]
"bootstrap.servers" = "b:1"
[flows.f]
source = "a"
target = "b"
topics = ["{topics}"]
configs = "create"
"""


def use_fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have statuses read no topic."""
    for module in (status_reader, status_table, run_status):
        monkeypatch.setattr(module, "StatusFollower", fakes.SilentFollower)
    monkeypatch.setattr(run_status, "StatusWriter", fakes.SilentWriter)


class FlowHarness:
    """Clusters ``a`` and ``b``, and a configuration file with flow ``f`` between them."""

    def __init__(self, folder: Path, topics: str = "orders.*") -> None:
        self.folder = folder
        self.report = folder / "report"
        self.config = folder / "mirror.toml"
        self.config.write_text(configuration(topics))
        self.a, self.b = (fakes.Cluster(f"{name}:1").make() for name in "ab")
        self.now_ms = fakes.NOW_MS

    def invoke(self, command: str, *arguments: str) -> Result:
        """``mirror command`` in this process."""
        folder = [] if command in {"status", "plan"} else ["--report-dir", str(self.report)]
        return CliRunner().invoke(app, [command, "--config", str(self.config), *folder, *arguments])

    def commit(
        self,
        offset: int,
        partition: int = 0,
        topic: str = "orders",
        *,
        topic_id: str = "",
        way: Way = Way.TRANSACTIONS,
    ) -> None:
        """Commit the progress of flow ``f`` in ``topic``, as of now."""
        tp = TopicPartition(f"a.{topic}", partition)
        progress = Progress(
            offset=offset, leader_epoch=0, source_cluster_id="id-a:1", topic_id=topic_id, time_ms=self.now_ms, way=way
        )
        Admin({"bootstrap.servers": "b:1"}).commit_group_offsets(group_of("f", tp), {tp: to_offset(progress)})
