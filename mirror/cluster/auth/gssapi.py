"""SASL's mechanism GSSAPI (RFC 4752), without the library of Kerberos. No I/O."""

from __future__ import annotations

from typing import Final, Protocol

from mirror.errors import brief

_NO_LAYER: Final = 1
"""The bit of the security layer "none": Kafka's messages after the authentication are as with any other mechanism."""
_LAYERS_BYTES: Final = 4
"""The bits of the layers, and three bytes for the largest message, which is 0 without a layer."""


class SecurityContext(Protocol):
    """The client's side of a context of GSS-API, with its first message made. Its methods raise ValueError."""

    first: bytes
    """The first message: the ticket for the broker."""

    @property
    def established(self) -> bool:
        """Whether the broker has proved that it knows the service's key."""
        ...

    def step(self, message: bytes) -> bytes:
        """Return the answer to a message of the broker; empty if there is nothing to say."""
        ...

    def unwrap(self, message: bytes) -> bytes:
        """Return the content of a message whose integrity is protected."""
        ...

    def wrap(self, content: bytes) -> bytes:
        """Return a message with this content and a protection of its integrity."""
        ...


class Gssapi:
    """A ticket of Kerberos for the broker, then the agreement that messages have no security layer."""

    name = "GSSAPI"

    def __init__(self, principal: str, context: SecurityContext) -> None:
        self.who = f"principal {principal!r}"
        self._context = context
        self._agreed = False

    def first(self) -> bytes:
        """Return the ticket."""
        return self._context.first

    def respond(self, challenge: bytes) -> bytes | None:
        """Establish the context; then choose no layer, with the ticket's principal as the user."""
        if self._agreed:
            return None
        if not self._context.established:
            return self._context.step(challenge)
        layers = self._context.unwrap(challenge)
        if len(layers) != _LAYERS_BYTES or not layers[0] & _NO_LAYER:
            raise ValueError(
                "the broker wants a security layer, which Kafka's protocol does not have: set its qop to auth"
            )
        self._agreed = True
        return self._context.wrap(bytes([_NO_LAYER, 0, 0, 0]))

    def hide(self, text: str) -> str:
        """Return the text on one line: no secret of this client is in any message."""
        return brief(text)
