"""Which versions a broker speaks: the first exchange of a connection (KIP-35, KIP-511). No I/O."""

from __future__ import annotations

import enum
from typing import Final

from mirror.errors import ProtocolError
from mirror.wire import codec
from mirror.wire.api import Api
from mirror.wire.error_codes import UNSUPPORTED_VERSION
from mirror.wire.frames import Buffer
from mirror.wire.messages.session import ApiVersionsResponse
from mirror.wire.versions import BrokerVersions

SOFTWARE_NAME: Final = "kafka-spark-mirror"
FIRST_VERSION: Final = 3
"""The version of the first ApiVersions request, which brokers know from Apache Kafka 2.4 on."""


class Suspicion(enum.Enum):
    """Why the last connection may have been closed without an error; the next one is used to find out.

    A broker closes the connection of a client with the wrong protocol, exactly as it does while it restarts.
    """

    NO_TLS = "closed in the TLS handshake: does it answer without TLS?"
    WANTS_SASL = "closed at the first request: does it know SaslHandshake?"


def read_response(version: int, frame: Buffer) -> ApiVersionsResponse:
    """Return the response to a request of ``version``. One that is not supported is answered in version 0 (KIP-511).

    Some implementations of the protocol refuse it in another version, whose fields are not needed: version 0 is tried
    then. Raises ProtocolError if the frame of another response is malformed.
    """
    refused = codec.peek_int16(frame, 4) == UNSUPPORTED_VERSION
    try:
        response: ApiVersionsResponse = codec.decode_response(Api.API_VERSIONS, 0 if refused else version, frame)
    except ProtocolError:
        if not refused or version == 0:
            raise
        return ApiVersionsResponse(UNSUPPORTED_VERSION, ())
    return response


def next_version(version: int, response: ApiVersionsResponse) -> int | None:
    """Return the version to ask again with, if that of the request was refused; None if there is none.

    A refusal has the versions of ApiVersions itself from Apache Kafka 2.4 on, and none before.
    """
    if response.error_code != UNSUPPORTED_VERSION or version == 0:
        return None
    offered = BrokerVersions.of(response).ranges.get(Api.API_VERSIONS.spec.key, (0, 0))
    return max(0, min(version - 1, offered[1]))
