"""SCRAM (RFC 5802, RFC 7677). No I/O. Imported where it is used, since its library is large."""

from __future__ import annotations

import re
from typing import Final

from scramp import ScramClient, ScramException  # type: ignore[import-untyped] # ships no types

from mirror.errors import brief

MIN_ITERATIONS: Final = 4_096
"""The minimum of RFC 7677 and of brokers: with fewer, a password is easier to find from a recorded exchange."""

MAX_ITERATIONS: Final = 131_072
"""Brokers allow 16384. The hashing runs on the network thread, which a hostile broker must not block."""

_ITERATIONS: Final = re.compile(rb",i=0*([0-9]+)(?:,|$)")
_LONGEST_COUNT: Final = 18


_DELEGATION: Final = ",tokenauth=true"
"""The extension of the first message that makes the user name the id of a token (``ScramExtensions``)."""


class Scram:
    """Both sides prove that they know the password without sending it."""

    def __init__(self, name: str, username: str, password: str, nonce: str, *, by_token: bool = False) -> None:
        """``by_token``: the user is the id of a delegation token, and the password its HMAC (KIP-48)."""
        self.name = name
        self.who = f"{'delegation token' if by_token else 'user'} {username!r}"
        self._extensions = _DELEGATION if by_token else ""
        self._username = username
        self._password = password
        self._nonce = nonce
        self._client: ScramClient | None = None
        self._proof_sent = False

    def first(self) -> bytes:
        """Return name and nonce.

        Brokers and Kafka's own tools take both texts as they are (``ScramFormatter.normalize``). The library would
        prepare them by RFC 4013, which replaces some characters and refuses others.
        """
        self._client = ScramClient([self.name], "-", "-", c_nonce=self._nonce)
        self._client.username.username, self._client.password.password = self._username, self._password
        first = f"{self._client.get_client_first()}{self._extensions}"
        self._client.client_first_bare += self._extensions  # the proofs are over what was sent
        return first.encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the client's proof; then check the broker's."""
        if self._client is None:
            raise ValueError("the broker answered before it was asked")
        if self._proof_sent:
            self._check(self._client, challenge)
            return None
        _check_iterations(challenge)
        try:
            self._client.set_server_first(challenge.decode())
        except (ScramException, ValueError) as error:
            raise ValueError(f"the broker's first SCRAM message is not valid: {_reason(error)}") from error
        self._proof_sent = True
        return str(self._client.get_client_final()).encode()

    def _check(self, client: ScramClient, challenge: bytes) -> None:
        try:
            client.set_server_final(challenge.decode())
        except (ScramException, ValueError) as error:
            what = "the broker did not prove that it knows the password: it may not be the broker it claims to be"
            raise ValueError(f"{what} ({_reason(error)})") from error

    def hide(self, text: str) -> str:
        """Remove the password."""
        return brief(text.replace(self._password, "***"))


def _check_iterations(server_first: bytes) -> None:
    """Check the count before hashing, and before parsing a number of any length. Raises ValueError."""
    found = _ITERATIONS.search(server_first)
    if found is None:
        return  # the library reports any other problem
    digits = found[1].decode()
    if len(digits) > _LONGEST_COUNT or int(digits) > MAX_ITERATIONS:
        shown = digits if len(digits) <= _LONGEST_COUNT else f"1{'0' * _LONGEST_COUNT} or more"
        raise ValueError(f"the broker asks for {shown} SCRAM iterations, more than {MAX_ITERATIONS}")
    if int(digits) < MIN_ITERATIONS:
        raise ValueError(f"the broker asks for {digits} SCRAM iterations, fewer than {MIN_ITERATIONS} (RFC 7677)")


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
