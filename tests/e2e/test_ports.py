"""Which ports a job on this machine opens: none that another host could connect to.

Spark's web page and its RPC ports know no user (``spark.ui.enabled``, ``spark.driver.bindAddress``).
"""

from __future__ import annotations

import contextlib
import ipaddress
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil
import pytest
from pyspark.find_spark_home import _find_spark_home

from mirror.sandbox.ports import free_ports
from tests.e2e.broker_side import Side
from tests.e2e.site import Site, flow
from tests.polling import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(600)]

CHECKOUT: Final = Path(__file__).parents[2]
RECORDS: Final = [b"%d" % number for number in range(50)]


class Ports:
    """All addresses at which a process of ``site`` listened while the block ran."""

    def __init__(self, site: Site) -> None:
        self.seen: Final = set[tuple[str, str, int]]()
        self._site: Final = site
        self._over: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._watch, name="watch-ports", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            for process in self._site.processes():
                with contextlib.suppress(psutil.Error):
                    for one in process.net_connections("tcp"):
                        if one.status == psutil.CONN_LISTEN:
                            self.seen.add((process.name(), one.laddr.ip, one.laddr.port))

    def of(self, program: str) -> int:
        """At how many addresses processes of this name listened."""
        return sum(name.startswith(program) for name, _, _ in self.seen)

    def open_to_others(self) -> list[tuple[str, str, int]]:
        """Those that are not the loopback's."""
        return sorted(one for one in self.seen if not _is_loopback(one[1]))


def _is_loopback(text: str) -> bool:
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is set where the tests run must not stand in for what the job does."""
    for name in ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def topic(site: Site, source: Side, target: Side, unique: Callable[[str], str]) -> str:
    """Of one flow, ``f``, with records to copy."""
    name = unique("ports")
    source.create(name, 2)
    source.fill(name, RECORDS)
    site.write(
        {"a": source.address, "b": target.address},
        {"f": flow("a", "b", [name], "period-ms = 4000", "refresh-ms = 1000")},
    )
    return name


def await_copy(target: Side, topic: str, child: subprocess.Popen[str]) -> None:
    def there() -> bool:
        assert child.poll() is None, child.communicate()
        return f"a.{topic}" in target.topics() and target.read(f"a.{topic}") == RECORDS

    eventually(there, within_s=200, what=f"the copy of {topic}")


def test_a_stream_listens_for_this_machine_alone(site: Site, target: Side, topic: str) -> None:
    with Ports(site) as ports:
        child = site.start(command="stream")
        await_copy(target, topic, child)
        child.send_signal(signal.SIGTERM)
        run = site.finish(child)
    assert (run.status, run.errors) == (0, [])
    assert ports.of("java") >= 2, "py4j, the driver's RPC, ... were there to be seen"
    assert ports.open_to_others() == []


def test_a_web_page_that_was_asked_for_is_there_for_this_machine_alone(site: Site, target: Side, topic: str) -> None:
    (port,) = free_ports(1)
    conf = site.folder / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(f"spark.ui.enabled true\nspark.ui.port {port}\n")
    with Ports(site) as ports:
        run = site.run(environ={"SPARK_CONF_DIR": str(conf)})
    assert (run.status, run.errors) == (0, [])
    assert target.read(f"a.{topic}") == RECORDS
    assert port in {each for _, _, each in ports.seen}
    assert ports.open_to_others() == []


def test_a_job_that_is_submitted_by_hand_listens_for_this_machine_alone(site: Site, target: Side, topic: str) -> None:
    submit = Path(_find_spark_home()) / "bin/spark-submit"
    job = CHECKOUT / "jobs/replicate.py"
    by_hand = [str(submit), "--master", "local[2,4]", str(job)]
    environ = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(CHECKOUT)}
    with Ports(site) as ports:
        child = site.launch([*by_hand, "--config", str(site.config), "--report-dir", str(site.report)], environ=environ)
        run = site.finish(child)
    assert run.status == 0, run.err
    assert target.read(f"a.{topic}") == RECORDS
    assert ports.of("java") >= 2
    assert ports.open_to_others() == []
