"""The process from which Spark forks its Python workers, started as Spark starts it."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from mirror.spark.driver.session import DAEMON_MODULE


def _read_int(stream: IO[bytes]) -> int:
    (number,) = struct.unpack(">i", stream.read(4))
    return int(number)


@pytest.fixture
def daemon_port() -> Iterator[int]:
    environment = {**os.environ, "PYTHON_UNIX_DOMAIN_ENABLED": "false", "SPARK_REUSE_WORKER": "1"}
    command = [sys.executable, "-m", DAEMON_MODULE, "pyspark.worker"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield _read_int(process.stdout)
        finally:
            process.kill()


def test_a_forked_worker_has_imported_what_a_copy_needs(daemon_port: int) -> None:
    with socket.create_connection(("127.0.0.1", daemon_port), timeout=30) as worker, worker.makefile("rb") as answers:
        pid = _read_int(answers)
        # Nothing has been sent to it: what it has mapped is its parent's.
        mapped = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
        parent = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        threads = list(Path(f"/proc/{parent}/task").iterdir())
    assert all(library in mapped for library in ("crc32c", "_pydantic_core"))
    assert len(threads) == 1, "a lock that another thread holds during a fork is never released in the child"
