"""Finds the Java that runs the brokers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mirror.errors import SandboxError

OLDEST_JAVA: Final = 17
"""What brokers of Kafka 4 and Spark 4 both need (KIP-1013)."""

_ADVICE: Final = f"install a JDK of version {OLDEST_JAVA} or later, or point JAVA_HOME to one"
_ANSWER_WITHIN_S: Final = 30


@dataclass(frozen=True, slots=True)
class Java:
    """An executable ``java`` and its feature release (17, 21, ...)."""

    path: Path
    version: int


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The ``java`` of ``JAVA_HOME``, else the first one on ``PATH``.

    A JAVA_HOME without one is an error and not passed over, as Spark would stumble over it later. Raises SandboxError
    where there is none or it is too old.
    """
    if home := environ.get("JAVA_HOME"):
        path = Path(home) / "bin" / "java"
        if not os.access(path, os.X_OK):
            raise SandboxError(f"JAVA_HOME is {home}, but there is no {path}: {_ADVICE}")
    else:
        found = shutil.which("java", path=environ.get("PATH", ""))
        if found is None:
            raise SandboxError(f"no Java found: neither JAVA_HOME is set nor is there a java on PATH: {_ADVICE}")
        path = Path(found)
    version = parse_version(_version_text(path))
    if version is None:
        raise SandboxError(f"{path} does not tell its version, so it is no working Java: {_ADVICE}")
    if version < OLDEST_JAVA:
        raise SandboxError(f"{path} is Java {version}, which is too old: {_ADVICE}")
    return Java(path, version)


def parse_version(text: str) -> int | None:
    """The feature release in what ``java -version`` says: 8 for ``"1.8.0_402"``, 21 for ``"21-ea"``; None if none."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def _version_text(path: Path) -> str:
    try:
        # It answers on standard error, as it always has.
        answer = subprocess.run(
            [path, "-version"], capture_output=True, text=True, errors="replace", timeout=_ANSWER_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr + answer.stdout if answer.returncode == 0 else ""
