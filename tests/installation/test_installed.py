"""The distribution as people install it: by pipx from the wheel, and as an image; `make cluster` runs these."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirror.sandbox.cluster import Cluster
from mirror.version import VERSION
from tests.e2e.broker_side import Side
from tests.installation.image import USER, Image
from tests.installation.lowest import ROOT, outside
from tests.installation.newcomer import STEPS, newcomer
from tests.installation.test_base import built

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(1_800)]
VALUES = [b"value %d" % number for number in range(1_000)]


def configured(folder: Path, source: Side, target: Side, topic: str) -> Path:
    """Write a configuration that copies ``topic``, which has records."""
    source.create(topic)
    source.fill(topic, VALUES)
    path = folder / "mirror.toml"
    clusters = {"a": source.address, "b": target.address}
    servers = "".join(f'[clusters.{name}]\n"bootstrap.servers" = "{address}"\n' for name, address in clusters.items())
    path.write_text(f'{servers}[flows.f]\nsource = "a"\ntarget = "b"\ntopics = ["{topic}"]\n', "utf-8")
    return path


def test_what_the_document_says_leads_from_an_empty_home_to_the_first_copy(tmp_path: Path) -> None:
    """By pipx, between two clusters that want passwords over TLS, with a plan that is written and applied."""
    assert newcomer(tmp_path, built(tmp_path)).keys() == {one.command for one in STEPS}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    subprocess.run(["make", "--no-print-directory", "dist"], cwd=ROOT, env=outside(), check=True)
    made = Image(tmp_path_factory.mktemp("image"))
    made.build()
    yield made
    made.delete()


def test_the_image_runs_as_any_user_with_a_read_only_root(
    image: Image, source_cluster: Cluster, target_cluster: Cluster
) -> None:
    source, target = Side(source_cluster.bootstrap_servers), Side(target_cluster.bootstrap_servers)
    assert image.run("/usr/bin/id", "-u").stdout == f"{USER}\n"
    assert image.run("/usr/bin/touch", "/opt/mirror/file").returncode != 0
    assert image.run("--version").stdout == f"mirror {VERSION}\n"
    configured(image.reports, source, target, "in-the-image")
    for command in ("check-config", "plan"):
        answer = image.run(command, "--config", "mirror.toml")
        assert "in-the-image" in answer.stdout, answer.stderr
    doctor = image.run("doctor", "--config", "mirror.toml")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    ran = image.run("run", "--config", "mirror.toml", "--json")
    assert ran.returncode == 0, ran.stderr
    assert target.read("a.in-the-image") == VALUES
    assert next(image.reports.rglob("summary.json")).stat().st_uid == USER
    by_submit = ("/opt/spark/bin/spark-submit", "--properties-file", "/opt/mirror/config/spark-defaults.conf")
    verified = image.run(*by_submit, "/opt/mirror/jobs/verify.py", "--config", "mirror.toml", "--strict")
    assert verified.returncode == 0, verified.stdout


def test_an_executor_of_spark_on_kubernetes_is_started_in_the_image(image: Image) -> None:
    executor = {
        "JAVA_OPT_0": "-Dmirror.option=with space",
        "EXECUTOR_MEMORY": "512m",
        "DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1",
        "EXECUTOR_ID": "1",
        "EXECUTOR_CORES": "1",
        "APPLICATION_ID": "spark-test",
        "EXECUTOR_POD_IP": "127.0.0.1",
        "RESOURCE_PROFILE_ID": "0",
        "EXECUTOR_POD_NAME": "test-exec-1",
    }
    ended = image.run("executor", variables=[f"SPARK_{name}={value}" for name, value in executor.items()])
    assert ended.returncode != 0
    assert "Failed to connect to /127.0.0.1:1" in ended.stdout + ended.stderr
