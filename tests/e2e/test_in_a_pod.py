"""A stream as a pod of Kubernetes has it: the image's entry point, the Deployment's variables, probes, and SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.broker_side import Side
from tests.e2e.said import PROMETHEUS, Said
from tests.e2e.site import Site, flow
from tests.polling import eventually
from tests.schedules.test_kubernetes import ENTRYPOINT, VARIABLES, container, values
from tests.schedules.tools import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(600)]

OF_A_DRIVER = {
    "spark.submit.deployMode": "cluster",
    "spark.kubernetes.submitInDriver": "true",
    "spark.master": "local[2,4]",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
"""What Spark's submission writes into the pod, but for the master."""


def mounted(folder: Path, text: str) -> None:
    """As the kubelet changes a mounted ConfigMap: a link to a new folder replaces the one before."""
    number = len(list(folder.glob("..v*")))
    (folder / f"..v{number}").mkdir()
    (folder / f"..v{number}" / "mirror.toml").write_text(text, "utf-8")
    (folder / "..new").symlink_to(f"..v{number}")
    (folder / "..new").rename(folder / "..data")
    if number == 0:
        (folder / "mirror.toml").symlink_to("..data/mirror.toml")


@pytest.mark.parametrize("name", ["mirror-stream", "driver of stream.py"])
def test_a_stream_in_a_pod_answers_probes_takes_edits_and_ends_in_order(
    site: Site, source: Side, target: Side, unique: Callable[[str], str], name: str
) -> None:
    topic = unique("pod")
    etc, secrets = site.folder / "etc", site.folder / "secrets"
    etc.mkdir()
    secrets.mkdir()
    clusters = "".join(
        f'[clusters.{one}]\n"bootstrap.servers" = "{side.address}"\n' for one, side in (("a", source), ("b", target))
    )
    for number in (1, 2):
        source.create(f"{topic}-{number}")
        source.fill(f"{topic}-{number}", [b"%d" % number])
    mounted(etc, f"{clusters}[flows.f]\n{flow('a', 'b', [f'{topic}-1'])}\n")
    environment = values(name) | {
        "MIRROR_CONFIG": str(etc / "mirror.toml"),
        "MIRROR_SECRETS_DIR": str(secrets),
        "OTEL_EXPORTER_PROMETHEUS_HOST": "127.0.0.1",
        "OTEL_EXPORTER_PROMETHEUS_PORT": "0",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1",
        "HOME": str(site.folder),
        "PYSPARK_PYTHON": sys.executable,
    }
    assert environment.keys() >= VARIABLES.keys()
    if name == "mirror-stream":
        arguments = [one.replace("$(CORES)", "2").replace("/var/mirror", str(site.report)) for one in args(name)]
    else:
        properties = site.folder / "spark.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in OF_A_DRIVER.items()))
        script = ["--class", "org.apache.spark.deploy.PythonRunner", f"local://{ROOT}/jobs/stream.py"]
        arguments = ["driver", "--properties-file", str(properties), *script, "--report-dir", str(site.report)]
    child = site.launch(["sh", str(ENTRYPOINT), *arguments], environ=environment)
    said = Said(child)
    health = f"http://{said.find(PROMETHEUS)}/healthz"

    def await_copy(of: str, value: bytes) -> None:
        def there() -> bool:
            assert child.poll() is None, said.all()
            with urllib.request.urlopen(health, timeout=5) as answer:
                assert answer.status == 200
            return of in target.topics() and target.end(of) > 0 and target.read(of) == [value]

        try:
            eventually(there, within_s=120, what=f"the copy of {of}", every_s=0.5)
        except AssertionError as error:
            raise AssertionError(said.text) from error

    await_copy(f"a.{topic}-1", b"1")
    mounted(etc, f"{clusters}[flows.f]\n{flow('a', 'b', [f'{topic}-[12]'])}\n")
    await_copy(f"a.{topic}-2", b"2")
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 0, said.all()
    assert "ending after SIGTERM: committing what the target has acknowledged" in said.all()
    assert site.flows()["f"]["outcome"] == "complete"
    site.await_end()


def args(name: str) -> list[str]:
    found: list[str] = container(name)["args"]
    return found
