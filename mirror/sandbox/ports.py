"""Picks ports for brokers."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

from mirror.errors import SandboxError

HOST: Final = "127.0.0.1"
_FIRST, _LAST = 16384, 32767
"""Below the ephemeral ports of Linux (32768) and macOS (49152).

A port that the system hands out for outgoing connections could be taken while its broker is down for a test, even by a
client that tries to reach just this broker: TCP then connects the client to itself, and the broker cannot come back.
"""
# Not the shared generator: tests seed it, and two of them would then try the same ports at the same time.
_RANDOM: Final = random.SystemRandom()
_TRIES: Final = 1000


def free_ports(count: int) -> list[int]:
    """``count`` different TCP ports on which nothing listens at :data:`HOST` now.

    Another process may take one before it is used: who starts a server on it must be ready to ask again. Raises
    SandboxError where none can be found.
    """
    with contextlib.ExitStack() as held:  # held together, so that they differ
        return [held.enter_context(_bound()).getsockname()[1] for _ in range(count)]


def _bound() -> socket.socket:
    for _ in range(_TRIES):
        candidate = socket.socket()
        try:
            candidate.bind((HOST, _RANDOM.randint(_FIRST, _LAST)))
        except OSError:
            candidate.close()
        else:
            return candidate
    raise SandboxError(f"found no free port from {_FIRST} to {_LAST} on {HOST} in {_TRIES} tries; close what uses them")
