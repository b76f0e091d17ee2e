"""MirrorMaker 2's metrics, as the guide has them in its table, are attributes of its MBeans."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from mirror.sandbox.java import find_java
from tests import jvm
from tests.e2e.broker_side import WITHIN_S
from tests.e2e.connect_worker import START_S
from tests.migration.guide import JMX_ATTRIBUTES
from tests.polling import eventually
from tests.takeover.real.rounds import Way
from tests.takeover.real.site import MirrorMakerSite
from tests.takeover.real.test_handed_over import GROUPS, checkpoints, with_checkpoints

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.timeout(900)]


@pytest.mark.parametrize("site", [Way()], ids=str, indirect=True)
def test_metrics_of_the_guide_are_attributes_of_mbeans(site: MirrorMakerSite, tmp_path: Path) -> None:
    with_checkpoints(site)
    with site.mirrormaker() as process:
        eventually(lambda: checkpoints(site).keys() >= GROUPS.keys(), within_s=START_S, what="checkpoints", every_s=0.5)
        found = mbeans(process.pid, "kafka.connect.mirror:type=Mirror*,*", tmp_path)
    by_type = {re.findall(r"type=(\w+)", name)[0]: attributes for name, attributes in found.items()}
    assert by_type.keys() == {"MirrorSourceConnector", "MirrorCheckpointConnector"}
    assert set().union(*by_type.values()) == JMX_ATTRIBUTES
    assert {name for name in JMX_ATTRIBUTES if name.startswith("checkpoint-")} == by_type["MirrorCheckpointConnector"]


def mbeans(pid: int, pattern: str, folder: Path) -> dict[str, set[str]]:
    """Return the attributes of another JVM's MBeans that match the pattern."""
    classes = jvm.compiled(Path(__file__).parent / "java" / "MBeans.java", folder, ".")
    command: list[str | Path] = [find_java().path, *jvm.PLAIN, "-cp", classes, "MBeans", str(pid), pattern]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_S)
    assert done.returncode == 0, done.stderr
    lines = (line.split("\t") for line in done.stdout.splitlines())
    return {name: set(attributes.split()) for name, attributes in lines}
