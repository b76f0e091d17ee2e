"""More of a real cluster: `make cluster`. Not in the suite: what `make dist` makes takes long.

When Spark begins another attempt is its own time; its event log must show that the later one gave the answer for both.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from mirror.sandbox import copy_verifier
from tests.e2e.broker_side import Side
from tests.e2e.site import Site
from tests.e2e.spark_hosts import ARCHIVE, pack
from tests.e2e.standalone import SPARK_HOME, Standalone
from tests.e2e.test_on_a_cluster import CHECKOUT, HERE, Flow, cores, executors, write

__all__ = ["executors"]
pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]


def test_a_batch_by_spark_submit_with_the_packed_environment(
    site: Site, source: Side, target: Side, executors: Standalone, unique: Callable[[str], str]
) -> None:
    """As config/standalone and jobs/README.md have it: Python and the mirror come from the archive, on all sides."""
    one = Flow(source, target, unique("orders"), 4, site, executors)
    one.prepare()
    secrets = site.folder / "secrets"  # as mounted on every host
    secrets.mkdir()
    (secrets / "clusters__b__bootstrap_servers").write_text(target.address, encoding="utf-8")
    site.config.write_text(
        site.config.read_text(encoding="utf-8").replace(target.address, "nowhere:1"), encoding="utf-8"
    )
    for partition in range(one.partitions):
        source.fill(one.topic, (b"%d-%d" % (partition, number) for number in range(1_000)), partition)
    pack()
    archive = CHECKOUT / "dist" / ARCHIVE
    (site.folder / "environment").mkdir()
    subprocess.run(["tar", "xzf", str(archive), "-C", str(site.folder / "environment")], check=True)
    (site.folder / archive.name).symlink_to(archive)
    own = site.folder / "own.conf"
    write(own, cores(2))
    options = ["--properties-file", str(CHECKOUT / "config/standalone/spark-defaults.conf"), "--master", executors.url]
    for line in own.read_text(encoding="utf-8").splitlines():
        options += ["--conf", line.replace(" ", "=", 1)]
    job = [str(CHECKOUT / "jobs/replicate.py"), "--config", str(HERE / "mirror.toml")]
    command = [
        str(SPARK_HOME / "bin/spark-submit"),
        *options,
        *job,
        "--report-dir",
        str(site.report),
        "--secrets-dir",
        str(secrets),
    ]
    run = site.finish(site.launch(command, environ={"PYTHONPATH": "", "SPARK_HOME": str(SPARK_HOME)}))

    assert run.status == 0, run.err
    assert site.flows()["f"]["outcome"] == "complete"
    assert sum(each["records"] for each in site.partitions("f").values()) == 4_000
    assert one.equal() == copy_verifier.CopyCheck(4_000, None)
    unpacked = list(executors.folder.glob("work-*/app-*/*/environment/bin/python"))
    assert len(unpacked) == 2, "an executor on each worker"
