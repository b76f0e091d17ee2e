"""The optional parts of the package, each an extra of the distribution, and the command that installs one.

The base copies, plans and compares; what is large, or compiled where it is installed, or for one cloud only, is apart.
"""

from __future__ import annotations

import importlib.util
import shlex
import sys
from typing import Final

from mirror.errors import FlowError
from mirror.version import VERSION

DISTRIBUTION: Final = "kafka-spark-mirror"
SPARK: Final = "spark"
REPORT: Final = "report"
OTLP_GRPC: Final = "otlp-grpc"
GSSAPI: Final = "gssapi"
LINEAGE: Final = "lineage"

_PARTS: Final = {
    SPARK: ("PySpark", "pyspark"),
    REPORT: ("Plotly and Jinja", "plotly", "jinja2"),
    LINEAGE: ("OpenLineage's client", "openlineage.client"),
    OTLP_GRPC: ("OpenTelemetry's exporter for gRPC", "opentelemetry.exporter.otlp.proto.grpc"),
}
"""What an extra brings, in words, and the modules to find it by. Others are only ever imported."""


def install(extra: str) -> str:
    """Return the command that installs ``extra`` for this Python, from the wheel: the package is in no index."""
    wheel = f"{DISTRIBUTION.replace('-', '_')}-{VERSION}-py3-none-any.whl"
    return f"{shlex.quote(sys.executable)} -m pip install 'dist/{wheel}[{extra}]'"


def missing(extra: str) -> str | None:
    """Return what ``extra`` brings and how to install it, or None if it is installed. Imports no part of it."""
    words, *modules = _PARTS[extra]
    return None if all(map(_is_there, modules)) else f"needs {words}: {install(extra)}"


def require(what: str, extra: str) -> None:
    """Raise FlowError if ``what``, such as a command, lacks ``extra``."""
    if problem := missing(extra):
        raise FlowError(f"{what} {problem}")


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it
        return False
