"""Finds free ports for brokers."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

from mirror.errors import SandboxError

HOST: Final = "127.0.0.1"
_FIRST, _LAST = 16384, 32767
"""Below the ephemeral ports of Linux (32768) and macOS (49152).

The system may assign an ephemeral port to an outgoing connection while a test has stopped the broker of that port. The
client may even be one that tries to reach this broker: TCP then connects the client to itself, and the broker cannot
restart.
"""
# Not the shared generator: tests seed it, and two tests would try the same ports at the same time.
_RANDOM: Final = random.SystemRandom()
_ATTEMPTS: Final = 1000


def free_ports(count: int) -> list[int]:
    """Return ``count`` different TCP ports of :data:`HOST` that are free now.

    Another process may take a port before it is used, so the caller has to be able to retry with other ports. Raises
    SandboxError if no free port is found.
    """
    with contextlib.ExitStack() as bound:  # bound at the same time, so that they differ
        return [bound.enter_context(_bound()).getsockname()[1] for _ in range(count)]


def _bound() -> socket.socket:
    for _ in range(_ATTEMPTS):
        candidate = socket.socket()
        try:
            candidate.bind((HOST, _RANDOM.randint(_FIRST, _LAST)))
        except OSError:
            candidate.close()
        else:
            return candidate
    raise SandboxError(
        f"found no free port from {_FIRST} to {_LAST} on {HOST} in {_ATTEMPTS} attempts; end programs that use them"
    )
