"""MirrorMaker 2's own classes in a JVM that answers one question after the other."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mirror.sandbox.fetch import class_path
from mirror.sandbox.java import find_java
from tests import jvm
from tests.benchmarks.mirrormaker import mirrormaker_jars

_SOURCE: Final = Path(__file__).parent / "java" / "KafkasClasses.java"
_PACKAGE: Final = "org.apache.kafka.connect.mirror"
_END_S: Final = 30
_QUIET: Final = ("-Dorg.apache.logging.log4j.level=OFF", "-Dlog4j2.level=OFF")


class KafkasClasses:
    """A running JVM."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        self._process = process
        self._errors = errors

    def ask(self, **question: object) -> Any:
        """The answer to a question."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._errors.read_text(encoding="utf-8")
        return json.loads(line)


@contextlib.contextmanager
def kafkas_classes(folder: Path, source: Path = _SOURCE) -> Iterator[KafkasClasses]:
    """Compiled into ``folder``, and running while the block runs. ``source`` is a Java file in that package."""
    jars = class_path(mirrormaker_jars())
    classes = jvm.compiled(source, folder, jars)
    errors = folder / "errors.log"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [find_java().path, *jvm.PLAIN, *_QUIET, "-cp", f"{classes}:{jars}", f"{_PACKAGE}.{source.stem}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    with process:
        try:
            yield KafkasClasses(process, errors)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(_END_S) == 0
        finally:
            process.kill()
