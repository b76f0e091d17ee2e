"""In which order the addresses of a host are tried."""

from __future__ import annotations

import socket
from typing import Final

from mirror.runtime.network.background import Background, Resolver, SocketAddress

HOST: Final = ("broker", 9092)


def address(last: int) -> SocketAddress:
    return socket.AF_INET, (f"10.0.0.{last}", HOST[1])


A, B, C = map(address, (1, 2, 3))


def test_addresses_to_avoid_are_tried_last_and_the_latest_last_of_all() -> None:
    resolver = Resolver(Background(lambda: None))
    resolver.avoid(*HOST, A)
    resolver.avoid(*HOST, B)
    for _ in range(2):
        assert resolver.in_order(*HOST, [A, B, C]) == [C, A, B]
    resolver.avoid(*HOST, A)
    assert resolver.in_order(*HOST, [A, B, C]) == [C, B, A]
    assert resolver.in_order("other", 9092, [A, B, C]) == [A, B, C]


def test_an_address_that_the_host_no_longer_has_is_forgotten() -> None:
    resolver = Resolver(Background(lambda: None))
    for gone in range(10, 200):
        resolver.avoid(*HOST, address(gone))
    resolver.avoid(*HOST, A)
    assert resolver.in_order(*HOST, [A, B]) == [B, A]
    assert resolver.in_order(*HOST, [address(10), A, B]) == [address(10), B, A]
