"""Check that the Spark master of ``--master`` can be reached, before Spark tries for more than a minute."""

from __future__ import annotations

import re
import socket
from typing import Final

from mirror.errors import FlowError

_CONNECT_TIMEOUT_S: Final = 5.0
_STANDALONE: Final = "spark://"
_OTHER_MASTERS: Final = re.compile(
    r"local(\[(\*|0*[1-9]\d*)(\s*,\s*\d+)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|yarn|k8s://.+", re.ASCII
)
"""As org.apache.spark.SparkContext reads them; what it cannot read it refuses only once the topics are prepared."""


def check_master(master: str) -> None:
    """Raise FlowError if Spark has no such kind of master, or if a standalone master cannot be reached."""
    if master.startswith(_STANDALONE):
        _reach(master)
    elif not _OTHER_MASTERS.fullmatch(master):
        raise FlowError(f'--master "{master}": must be local[*] or local[CORES], spark://HOST:PORT, yarn or k8s://URL')


def _reach(master: str) -> None:
    """Raise FlowError unless one of the addresses accepts a connection; the others may be standby masters."""
    failures = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise FlowError(
                f'--master "{master}": must be spark://HOST:PORT, or spark://HOST:PORT,HOST:PORT for several masters'
            )
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT_S):
                return
        except (OSError, OverflowError) as error:  # OverflowError: the port is too large
            failures.append(f"{address}: {getattr(error, 'strerror', None) or error}")
    raise FlowError(
        f"--master {master}: no Spark master answers ({'; '.join(failures)}); check the address, and that it runs"
    )
