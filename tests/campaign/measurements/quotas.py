"""Sets a cluster's quotas by a raw request (KIP-546), which the available clients do not support."""

from __future__ import annotations

import io
import socket
import struct
from typing import Final

from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntityData, EntryData, OpData
from kio.serial import entity_writer
from kio.static.primitive import f64

from tests.faults.frames import Seen, read_answer

_KEY: Final = 49
_VERSION: Final = 1
_HEADER: Final = struct.Struct(">hhihB")
"""Key, version, correlation id, no client id, no tagged fields: a request header of version 2."""


def limit_producer(address: str, client_id: str, bytes_per_second: int) -> None:
    """Let ``client_id`` write that many bytes per second to each broker."""
    limit = OpData(key="producer_byte_rate", value=f64(float(bytes_per_second)), remove=False)
    who = EntityData(entity_type="client-id", entity_name=client_id)
    body = AlterClientQuotasRequest(entries=(EntryData(entity=(who,), ops=(limit,)),), validate_only=False)
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection, connection.makefile("rwb") as stream:
        frame = io.BytesIO()
        frame.write(_HEADER.pack(_KEY, _VERSION, 1, -1, 0))
        entity_writer(AlterClientQuotasRequest)(frame, body)
        stream.write(struct.pack(">i", len(frame.getvalue())) + frame.getvalue())
        stream.flush()
        (size,) = struct.unpack(">i", stream.read(4))
        answer = read_answer(Seen(0, 0, 0, _KEY, _VERSION, 1, b""), stream.read(size))
    for entry in answer.entries:
        assert int(entry.error_code) == 0, entry.error_message
