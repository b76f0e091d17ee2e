"""What a flow checks on its clusters before Spark is asked for anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.errors import FlowError
from mirror.spark import flow_run
from mirror.spark.flow_run import FlowRun
from tests.spark import fakes

if TYPE_CHECKING:
    from mirror.spark.console import Consoles

from datetime import UTC, datetime

from mirror.config.load import load
from mirror.spark.results import FlowReport

CONFIG = """
[clusters.a]
"bootstrap.servers" = "127.0.0.1:9"
[clusters.b]
"bootstrap.servers" = "localhost:9"
[flows.f]
source = "a"
target = "b"
topics = [".*"]
"""


def test_a_cluster_under_two_names_is_not_copied_into_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fakes.FOLDER, str(tmp_path))
    monkeypatch.setattr(flow_run, "Admin", fakes.Admin)
    clusters = [fakes.Cluster(address).make() for address in ("127.0.0.1:9", "localhost:9")]
    for each in clusters:
        with each.change() as state:
            state["id"] = "the-same"
    clusters[0].add_topic("orders", [1])
    path = tmp_path / "mirror.toml"
    path.write_text(CONFIG)
    config = load(path)
    nothing = cast("Any", None)
    run = FlowRun(
        nothing,
        config,
        cast("Consoles", nothing),
        config_path=path,
        secrets_dir=None,
        report_dir=tmp_path / "report",
        debug=False,
    )
    expected = (
        r"flow f: a and b are one cluster under two names \(cluster id the-same\), it would be copied into itself;"
        " correct a bootstrap.servers"
    )
    with pytest.raises(FlowError, match=expected):
        run.run(config.flows["f"], FlowReport("f", datetime.now(UTC)))
    assert clusters[1].state()["topics"] == {}
