"""Runs blocking work (name lookups, tokens) off the network thread, which may wait for sockets only."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

SocketAddress = tuple[socket.AddressFamily, tuple[object, ...]]
"""A family, and the address for ``connect``."""


# Invariant: The network thread never blocks: name lookups and token requests run on threads of their own.
# Test: tests/runtime/test_silence.py::test_a_look_up_that_hangs_holds_nobody_up
class Background:
    """Runs work in daemon threads, which do not delay the end of the process, and wakes the loop after each."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def run(self, name: str, work: Callable[[], T]) -> Future[T]:
        """Start ``work`` and return its future, which fails if the system has no thread left."""
        future: Future[T] = Future()

        def body() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - any error must reach the network thread
                future.set_exception(error)
            self._wake()

        try:
            threading.Thread(target=body, name=name, daemon=True).start()
        except RuntimeError as error:
            future.set_exception(OSError(f"no thread for the work: {error}"))
        return future


class Resolver:
    """Looks up all addresses of host names (KIP-302). Numeric addresses need no lookup."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._pending: dict[tuple[str, int], Future[list[SocketAddress]]] = {}
        self._avoided: dict[tuple[str, int], list[SocketAddress]] = {}

    def look_up(self, host: str, port: int) -> Future[list[SocketAddress]]:
        """Return the addresses of ``host`` in the order of the system; the future fails with OSError.

        For the network thread only.
        """
        # Pending lookups are shared: otherwise every reconnect would leave another hanging thread.
        known = self._pending.get((host, port))
        if known is not None and not known.done():
            return known
        try:
            numeric: Future[list[SocketAddress]] = Future()
            numeric.set_result(_addresses(host, port, socket.AI_NUMERICHOST))
        except OSError:
            self._pending = {key: future for key, future in self._pending.items() if not future.done()}
            future = self._background.run(f"mirror-lookup-{host}", lambda: _addresses(host, port, 0))
            self._pending[host, port] = future
            return future
        return numeric

    def avoid(self, host: str, port: int, address: SocketAddress) -> None:
        """Have the next connection try ``address`` last: it accepts connections, but no broker answers there.

        Java's client, too, begins its next connection at the next address (``ClusterConnectionStates``).
        """
        avoided = [each for each in self._avoided.get((host, port), []) if each != address]
        self._avoided[host, port] = [*avoided, address]

    def in_order(self, host: str, port: int, addresses: Iterable[SocketAddress]) -> list[SocketAddress]:
        """Return ``addresses`` in the order in which to try them: those to avoid last, the latest last of all.

        Addresses that the host no longer has are forgotten: a broker with a new one after each restart would fill the
        memory.
        """
        found = list(addresses)
        avoided = [each for each in self._avoided.pop((host, port), []) if each in found]
        if avoided:
            self._avoided[host, port] = avoided
        return sorted(found, key=lambda each: avoided.index(each) if each in avoided else -1)


def _addresses(host: str, port: int, flags: int) -> list[SocketAddress]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except (ValueError, OverflowError) as error:  # a label that is empty or too long, a NUL
        raise OSError(f"not a host name: {host!r}") from error
    return [(family, address) for family, _, _, _, address in found]
