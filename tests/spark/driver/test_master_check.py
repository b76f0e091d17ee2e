"""A master that does not exist is said at once, and not after a minute of Spark's own attempts."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.errors import FlowError
from mirror.spark.driver.launch.master_check import check_master
from mirror.spark.driver.launch.submission import is_local

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typer.testing import Result


MALFORMED = ("loacl[*]", "local[x]", "local[0]", "local[]", "local[2", "local[-1]", "local[*,x]", "local-cluster[2]")


@pytest.fixture
def port() -> Iterator[int]:
    """Where something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed() -> int:
    """Where nothing does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize(
    "master",
    ["local", "local[*,4]", "local[2]", "local[2 , 4]", "local-cluster[2, 1, 1024]", "yarn", "k8s://https://host:6443"],
)
def test_masters_that_spark_accepts_pass(master: str) -> None:
    check_master(master)
    assert is_local(master) is (master.startswith("local") and "cluster" not in master)


def test_one_standalone_master_of_several_is_enough(port: int, closed: int) -> None:
    check_master(f"spark://127.0.0.1:{closed},127.0.0.1:{port}")


@pytest.mark.parametrize("master", [*MALFORMED, "", "127.0.0.1:7077", "spark://", "spark://host", "spark://h:p"])
def test_masters_that_spark_does_not_accept_are_refused(master: str) -> None:
    with pytest.raises(FlowError, match=r"^--master .*: must be .*spark://HOST:PORT"):
        check_master(master)


def test_an_unreachable_master_is_reported(closed: int) -> None:
    with pytest.raises(
        FlowError, match=rf"no Spark master answers \(127.0.0.1:{closed}: Connection refused\); check the"
    ):
        check_master(f"spark://127.0.0.1:{closed}")
    with pytest.raises(FlowError, match=r"no Spark master answers \(no-such-host.invalid:7077: .*99999: "):
        check_master("spark://no-such-host.invalid:7077,127.0.0.1:99999")


def test_a_malformed_master_is_one_line_before_anything_is_touched(tmp_path: Path) -> None:
    """Spark would refuse it only after the topics were prepared, with a line about a secret."""
    found = run(tmp_path, "local[x]")
    allowed = "must be local[*] or local[CORES], spark://HOST:PORT, yarn or k8s://URL"
    assert (found.exit_code, found.stderr) == (1, f'mirror: --master "local[x]": {allowed}\n')
    assert not (tmp_path / "report").exists()


def run(tmp_path: Path, master: str) -> Result:
    config = tmp_path / "mirror.toml"
    config.write_text(
        '[clusters.a]\n"bootstrap.servers" = "a:1"\n[clusters.b]\n"bootstrap.servers" = "b:1"\n'
        '[flows.f]\nsource = "a"\ntarget = "b"\ntopics = ["t"]\n'
    )
    arguments = ["--config", str(config), "--report-dir", str(tmp_path / "report")]
    return CliRunner().invoke(app, ["run", *arguments, "--master", master])


def test_an_unreachable_master_is_reported_before_spark_starts(tmp_path: Path, closed: int) -> None:
    began = time.monotonic()
    result = run(tmp_path, f"spark://127.0.0.1:{closed}")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"mirror: --master spark://127.0.0.1:{closed}: no Spark master answers")
    assert time.monotonic() - began < 20
    assert not (tmp_path / "report").exists()
