"""Whether there is a Spark master where ``--master`` says, before Spark looks for it for more than a minute."""

from __future__ import annotations

import re
import socket
from typing import Final

from mirror.errors import FlowError

_WITHIN_S: Final = 5.0
_STANDALONE: Final = "spark://"
_OTHERS: Final = re.compile(r"local|local\[[^\]]+\]|local-cluster\[[^\]]+\]|yarn|k8s://.+")


def check_master(master: str) -> None:
    """Raises FlowError where Spark knows no such master, or where no standalone one can be reached."""
    if master.startswith(_STANDALONE):
        _reach(master)
    elif not _OTHERS.fullmatch(master):
        raise FlowError(f'--master "{master}": must be local[*], spark://HOST:PORT, yarn or k8s://URL')


def _reach(master: str) -> None:
    """One of several is enough: the others stand by."""
    troubles = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise FlowError(f'--master "{master}": must be spark://HOST:PORT, several of them as HOST:PORT,HOST:PORT')
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_WITHIN_S):
                return
        except (OSError, OverflowError) as error:  # no such port is the latter
            troubles.append(f"{address}: {getattr(error, 'strerror', None) or error}")
    raise FlowError(
        f"--master {master}: no Spark master answers ({'; '.join(troubles)}); check the address, and its host"
    )
