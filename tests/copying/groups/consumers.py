"""Processes that read as members of a group until they are killed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from mirror.sandbox.fetch import class_path, fetch
from mirror.sandbox.java import find_java
from tests import jvm
from tests.polling import eventually

_HERE: Final = Path(__file__).parent
_QUIET: Final = ("-Dorg.apache.logging.log4j.level=OFF", "-Dlog4j2.level=OFF")

Command = Sequence[str | Path]


def java_consumer(folder: Path, name: str = "GroupConsumer") -> Command:
    """Java's, compiled into ``folder``."""
    jars = class_path(fetch())
    classes = jvm.compiled(_HERE / "java" / f"{name}.java", folder, jars)
    return [find_java().path, *jvm.PLAIN, *_QUIET, "-cp", f"{classes}:{jars}", name]


def confluent_consumer(_: Path) -> Command:
    """confluent-kafka's."""
    return [sys.executable, _HERE / "group_consumer.py"]


class ReadingProcess:
    """A consumer under way, with the values that it has read."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        self._process: Final = process
        self._errors: Final = errors
        self.values: Final[list[bytes]] = []
        self._thread: Final = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._thread.start()

    def _read(self, lines: IO[bytes]) -> None:
        self.values.extend(line.rstrip(b"\n") for line in lines if line.endswith(b"\n"))

    def await_values(self, count: int, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Return as soon as it has read so many; ``meanwhile`` is called again and again."""

        def enough() -> bool:
            meanwhile()
            assert self._process.poll() is None, self._errors.read_text(encoding="utf-8")
            return len(self.values) >= count

        eventually(enough, what=f"{count} records", every_s=0.001)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()


@contextlib.contextmanager
def reading(command: Command, *arguments: str, errors: Path) -> Iterator[ReadingProcess]:
    """Running until it is killed, at the latest behind the block; ``errors`` gets its stderr."""
    with errors.open("wb") as stderr:
        process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=stderr)
    with process:
        running = ReadingProcess(process, errors)
        try:
            yield running
        finally:
            running.kill()
