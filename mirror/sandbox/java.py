"""Finds the Java that runs the brokers, and Spark."""

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
"""The oldest version that both Kafka 4 brokers (KIP-1013) and Spark 4 support. Spark 3.5 also runs with older ones."""

_ADVICE: Final = f"install a JDK of version {OLDEST_JAVA} or later, or point JAVA_HOME to one"
_CALL_TIMEOUT_S: Final = 30


@dataclass(frozen=True, slots=True)
class Java:
    """An executable ``java``."""

    path: Path
    version: int
    """The feature release (17, 21, ...)."""


def find_java(environ: Mapping[str, str] = os.environ, *, oldest: int = OLDEST_JAVA) -> Java:
    """Return the ``java`` of ``JAVA_HOME``, or else the first one on ``PATH``.

    A JAVA_HOME without a ``java`` is an error, because Spark would fail with it later. Raises SandboxError if there is
    no Java, or it is older than ``oldest``.
    """
    if home := environ.get("JAVA_HOME"):
        path = Path(home) / "bin" / "java"
        if not os.access(path, os.X_OK):
            raise SandboxError(f"JAVA_HOME is {home}, but there is no {path}: {_ADVICE}")
    else:
        found = shutil.which("java", path=environ.get("PATH", ""))
        if found is None:
            raise SandboxError(f"no Java found: JAVA_HOME is not set, and there is no java on PATH: {_ADVICE}")
        path = Path(found)
    version = parse_version(_version_text(path))
    if version is None:
        raise SandboxError(f"{path} is no working Java, because it does not print its version: {_ADVICE}")
    if version < oldest:
        raise SandboxError(f"{path} is Java {version}, which is too old: {_ADVICE}")
    return Java(path, version)


def parse_version(text: str) -> int | None:
    """Return the feature release in the output of ``java -version`` (8 for ``"1.8.0_402"``, 21 for ``"21-ea"``)."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def _version_text(path: Path) -> str:
    try:
        # Java prints its version to standard error.
        result = subprocess.run(
            [path, "-version"], capture_output=True, text=True, errors="replace", timeout=_CALL_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stderr + result.stdout if result.returncode == 0 else ""
