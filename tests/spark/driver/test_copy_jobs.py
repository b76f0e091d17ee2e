"""How long the driver waits for what its tasks have to settle."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.config.load import load
from mirror.relay.model.assignments import EARLIER_ENDS_MS
from mirror.spark.driver.copy_jobs import settle_within_ms

CONFIG = """
[clusters.a]
"bootstrap.servers" = "a:1"
[clusters.b]
"bootstrap.servers" = "b:1"
"request.timeout.ms" = 1000
[flows.f.producer]
"delivery.timeout.ms" = 2000
[flows.f]
source = "a"
target = "b"
topics = ["t"]
shutdown-timeout-ms = 4000
delivery = "%s"
"""


@pytest.mark.parametrize(("delivery", "late_ms"), [("exactly-once", 0), ("at-least-once", EARLIER_ENDS_MS)])
def test_a_task_that_was_begun_again_settles_in_time(tmp_path: Path, delivery: str, late_ms: int) -> None:
    """It waits for the end of its earlier attempt: no warning may say that it does not answer."""
    path = tmp_path / "mirror.toml"
    path.write_text(CONFIG % delivery, encoding="utf-8")
    config = load(path)
    (flow,) = config.select(None)
    assert settle_within_ms(config, flow) == 1_000 + 2_000 + 1_000 + late_ms
