"""The live configuration is served from the planner's memory; without a planner there is none."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.live_config_store import LiveConfigStore, read_live_config, remove_socket
from tests.other_user import OtherUser

TEXT = b"x" * 1_000_000

PLANNER = """
import pathlib, sys
from mirror.spark.ledger.live_config_store import LiveConfigStore

LiveConfigStore(pathlib.Path(sys.argv[1])).publish(b"secret")
print("published", flush=True)
sys.stdin.read()
"""


def test_concurrent_clients_get_the_last_published_text(tmp_path: Path) -> None:
    published = LiveConfigStore(tmp_path)
    assert read_live_config(tmp_path) is None
    published.publish(b"")
    assert read_live_config(tmp_path) == b""
    published.publish(TEXT)
    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(read_live_config, [tmp_path] * 100)) == {TEXT}
    published.close()
    published.close()
    assert read_live_config(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_only_the_owner_may_connect(tmp_path: Path) -> None:
    published = LiveConfigStore(tmp_path)
    published.publish(TEXT)
    (address,) = tmp_path.iterdir()
    folder = Path(address.read_text()).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    published.close()
    assert not folder.exists()


def test_a_long_temporary_folder_is_replaced_by_a_short_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("t" * 120)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    published = LiveConfigStore(tmp_path)
    published.publish(b"it")
    assert read_live_config(tmp_path) == b"it"
    published.close()
    assert list(long.iterdir()) == []


def test_a_killed_planner_serves_nothing_and_leaves_no_text_on_disk(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    ledger, temporary = tmp_path / "ledger", tmp_path / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-c", PLANNER, str(ledger)]
    environ = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as planner:
        assert planner.stdout is not None
        assert planner.stdout.readline() == b"published\n"
        assert read_live_config(ledger) == b"secret"
        planner.send_signal(signal.SIGKILL)
    assert read_live_config(ledger) is None
    remove_socket(ledger)
    assert not any(temporary.iterdir())
    assert not any(ledger.iterdir())
    assert [path for path in tmp_path.rglob("*") if path.is_file() and b"secret" in path.read_bytes()] == []


def test_the_next_run_removes_the_socket_of_a_killed_one(tmp_path: Path) -> None:
    before = Ledger.open(tmp_path, "f", "run-1").path
    gone = tmp_path / "mirror-config-x"
    gone.mkdir()
    (gone / "socket").touch()
    (before / "config.socket").write_text(str(gone / "socket"), encoding="utf-8")
    (before / "config.toml").write_text("of an earlier version", encoding="utf-8")
    (before.parent / "stray").touch()
    Ledger.open(tmp_path, "f", "run-2")
    assert not gone.exists()
    assert list(before.iterdir()) == []


@pytest.mark.parametrize("address", ["", "/nowhere/config", "a" * 300, "\0", "mirror.toml"])
def test_the_address_of_another_host_yields_no_configuration(address: str, tmp_path: Path) -> None:
    (tmp_path / "config.socket").write_text(address, encoding="utf-8")
    (tmp_path / "mirror.toml").touch()
    assert read_live_config(tmp_path) is None
    remove_socket(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mirror.toml"]


def test_the_configuration_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would name the brokers to which this process sends its password."""
    other, address = OtherUser(monkeypatch), tmp_path / "config.socket"
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        Path(folder).chmod(0o777)
        with other.acts():
            listener.bind(f"{folder}/socket")
            listener.listen()
        Path(folder, "socket").chmod(0o777)
        address.write_text(f"{folder}/socket", encoding="utf-8")

        def answer() -> None:
            accepted, _ = listener.accept()
            with accepted, contextlib.suppress(BrokenPipeError):
                accepted.sendall(struct.pack(">I", 4) + b"evil")

        answering = threading.Thread(target=answer)
        answering.start()
        assert read_live_config(tmp_path) is None
        answering.join()


def test_another_user_is_sent_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published = LiveConfigStore(tmp_path)
    published.publish(TEXT)
    path = Path((tmp_path / "config.socket").read_text())
    for each in (path, path.parent):
        each.chmod(0o777)
    assert OtherUser(monkeypatch).received(path, "") == b""
    published.close()
