"""What a job sets before Spark starts: what Spark leaves open to others is closed, and what a user has set stands."""

from __future__ import annotations

import errno
import os
import re
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Final, NoReturn

import pytest

from mirror.cluster.auth.security import SECURITY_KEYS
from mirror.errors import FlowError
from mirror.spark.driver.launch.submission import is_local
from mirror.spark.driver.session import (
    SOCKET_FOLDER,
    UNIX_SOCKETS,
    local_only_settings,
    refuse_speculation,
    socket_settings,
    stream_settings,
    worker_settings,
)

CONFIG: Final = Path(__file__).parents[3] / "config"
DEFAULTS: Final = sorted(CONFIG.rglob("spark-defaults.conf"))
LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,4]", "local[*, 4]"])
def test_a_local_master_is_one_process(master: str) -> None:
    assert is_local(master)


@pytest.mark.parametrize(
    "master", ["local-cluster[2,1,1024]", "spark://a:7077", "yarn", "k8s://https://a", "localhost"]
)
def test_other_masters_are_not_one_process(master: str) -> None:
    assert not is_local(master)


def test_a_local_master_accepts_no_connections_of_others() -> None:
    closed = {"spark.ui.enabled": "false", "spark.authenticate": "true"}
    assert local_only_settings({}) == closed | LOOPBACK
    assert local_only_settings({"spark.master": "local", "spark.ui.port": "4041"}) == closed | LOOPBACK


@pytest.mark.parametrize("name", ["spark.ui.enabled", "spark.authenticate", *LOOPBACK])
def test_settings_of_the_user_are_kept(name: str) -> None:
    assert name not in local_only_settings({name: "own"})


@pytest.mark.parametrize("name", [UNIX_SOCKETS, SOCKET_FOLDER])
def test_sockets_of_the_user_s_choice_are_kept(name: str) -> None:
    assert socket_settings({name: "own"}) == {}


@pytest.mark.parametrize("length", [1, 150])
def test_the_sockets_of_workers_are_in_a_short_folder_of_this_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """A socket's path has at most 107 bytes, and a temporary folder may have more."""
    temporary = tmp_path / ("t" * length)
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    found = socket_settings({"spark.master": "local"})
    assert found[UNIX_SOCKETS] == "true"
    folder = Path(found[SOCKET_FOLDER])
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(str(folder / f".{uuid.uuid4()}.sock")) <= 107
    folder.rmdir()
    assert list(temporary.iterdir()) == []


def refuse(code: int) -> NoReturn:
    raise OSError(code, os.strerror(code))


@pytest.mark.parametrize(
    ("refused", "code"), [((tempfile, "mkdtemp"), errno.EROFS), ((socket.socket, "bind"), errno.EOPNOTSUPP)]
)
def test_workers_are_on_tcp_where_no_folder_can_have_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: tuple[object, str], code: int
) -> None:
    """A temporary folder with a long path and no /tmp, or file systems without sockets."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(*refused, lambda *_, **__: refuse(code))
    assert socket_settings({"spark.master": "local"}) == {}
    assert list(tmp_path.iterdir()) == []


SAFE_PATH = {"spark.executorEnv.PYTHONSAFEPATH": "1"}


def test_workers_are_forked_from_a_process_with_the_package_unless_the_user_says_otherwise() -> None:
    assert worker_settings({}) == {"spark.python.daemon.module": "mirror.spark.worker_daemon"} | SAFE_PATH
    for name in ("spark.submit.pyFiles", "spark.yarn.dist.pyFiles", "spark.python.daemon.module"):
        assert worker_settings({name: "own"}) == SAFE_PATH
    assert not SAFE_PATH.keys() & worker_settings(dict.fromkeys(SAFE_PATH, "own")).keys()


@pytest.mark.parametrize("hostile", [["mirror.py"], ["mirror/__init__.py", "pyspark.py", "random.py"]], ids=len)
def test_the_process_of_the_workers_imports_nothing_from_the_current_folder(tmp_path: Path, hostile: list[str]) -> None:
    """It is started as Spark starts it, and ends with its stdin; its first output is its port, four bytes."""
    for name in hostile:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise ImportError('this is a file of the current folder')\n")
    settings = worker_settings({})
    prefix = "spark.executorEnv."
    environ = {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
    command = [sys.executable, "-m", settings["spark.python.daemon.module"], "pyspark.worker"]
    secret = {"PYTHON_WORKER_FACTORY_SECRET": "x"}
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **secret, **environ}, input=b"", capture_output=True, check=False
    )
    assert b"ImportError" not in done.stderr
    assert len(done.stdout) == 4, done.stderr


@pytest.mark.parametrize("name", LOOPBACK)
def test_one_address_of_a_user_s_is_not_joined_by_another_of_ours(name: str) -> None:
    """Files are fetched from the advertised address: to bind another one would break that."""
    assert not LOOPBACK.keys() & local_only_settings({name: "10.1.2.3"}).keys()


# --- config/


def settings(path: Path) -> dict[str, str]:
    lines = (line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#"))
    return dict(line.split(None, 1) for line in lines)


def test_there_is_a_file_for_each_kind_of_cluster() -> None:
    assert [str(path.parent.relative_to(CONFIG)) for path in DEFAULTS] == [
        "kubernetes/spark",
        ".",
        "standalone",
        "yarn",
    ]


@pytest.mark.parametrize("path", DEFAULTS, ids=lambda path: path.parent.name)
def test_clusters_authenticate_and_encrypt(path: Path) -> None:
    found = settings(path)
    for name in ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled"):
        assert found[name] == "true"
    assert found["spark.ui.killEnabled"] == "false"
    # Only YARN has a proxy that knows its users.
    assert found.get("spark.ui.enabled") == "false" or found["spark.acls.enable"] == "true"
    assert not any("secret" in name for name in found), "a secret in a file of the checkout would be everybody's"


@pytest.mark.parametrize("path", DEFAULTS, ids=lambda path: path.parent.name)
def test_settings_with_secrets_are_hidden_by_their_names(path: Path) -> None:
    """Spark's own default misses private keys, login lines and where telemetry goes."""
    hidden = re.compile(settings(path)["spark.redaction.regex"])
    secrets = [key.name for key in SECURITY_KEYS.values() if key.secret]
    names = [f"MIRROR_CLUSTERS__B__{name.upper().replace('.', '_')}" for name in secrets]
    assert len(names) >= 6
    names += ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "MIRROR_FLOWS__F__HEADERS"]
    for name in names:
        assert hidden.search(f"spark.executorEnv.{name}"), name
    for name in (
        "spark.master",
        "spark.executor.memory",
        "spark.executorEnv.PYTHONPATH",
        "spark.sql.shuffle.partitions",
    ):
        assert not hidden.search(name)


def test_a_streams_tasks_may_be_lost_often_and_flows_share_the_slots() -> None:
    settings = stream_settings({"spark.master": "yarn"}, cores=8)
    assert settings == {
        "spark.scheduler.mode": "FAIR",
        "spark.task.maxFailures": "100",
    }
    given = {"spark.master": "yarn", "spark.scheduler.mode": "FIFO", "spark.task.maxFailures": "7"}
    assert stream_settings(given, cores=8) == {}


@pytest.mark.parametrize(
    ("master", "wanted", "slots"),
    [
        ("local[2,4]", "local[34,100]", "2"),
        ("local[*,4]", "local[40,100]", "8"),
        ("local[3, 200]", "local[35,200]", "3"),
        ("local[4]", "local[36,100]", "4"),
        ("local", "local[33,100]", "1"),
    ],
)
def test_a_local_master_has_slots_in_reserve_for_flows_that_are_added(master: str, wanted: str, slots: str) -> None:
    settings = stream_settings({"spark.master": master}, cores=8)
    assert (settings["spark.master"], settings["spark.default.parallelism"]) == (wanted, slots)


def test_a_job_refuses_tasks_that_begin_a_second_time_while_the_first_one_runs() -> None:
    with pytest.raises(FlowError, match=r"spark\.speculation=true begins tasks a second time"):
        refuse_speculation({"spark.speculation": "true"})
    refuse_speculation({"spark.speculation": "false"})
