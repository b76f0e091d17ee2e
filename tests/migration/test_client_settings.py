"""The settings of clients that the importer writes are read as Kafka's own definitions (``ConfigDef``) read them."""

from __future__ import annotations

from typing import Final

import pytest

from mirror.cluster.keys import Key
from mirror.config.schema import CLIENT_KEYS
from mirror.migration.importing import import_source
from mirror.migration.sources import read
from tests.migration import client_keys
from tests.mirrormaker.kafkas_classes import KafkasClasses

pytestmark = pytest.mark.brokers

FILE: Final = "clusters = a, b\na.bootstrap.servers = a:9092\nb.bootstrap.servers = b:9092\na->b.enabled = true\n"
LINE: Final = FILE.count("\n") + 1
PLACES: Final = {"producer": "b.producer", "consumer": "a.consumer"}
KAFKAS: Final = {"producer": client_keys.PRODUCER, "consumer": client_keys.CONSUMER}
TYPES: Final = {"INT": "int", "LONG": "int", "SHORT": "int", "BOOLEAN": "bool", "STRING": "str", "LIST": "list"}
_NUMBERS: Final = "0 1 5 6 -1 -2 +7 100 65536 2147483647 2147483648 9223372036854775807 1.5 1k 0x10 1_000 0100 many"
TEXTS: Final = {
    "int": ["", *_NUMBERS.split()],
    "bool": ["", "true", "false", "TRUE", "False", "yes", "1"],
    "str": [
        "",
        *["all", "-1", "0", "1", "none", "zstd", "ZSTD", "lz4", "gzip", "brotli", "read_committed", "latest", "x"],
    ],
    "list": ["", "a", "a,b", "a , b"],
}
OTHER_DEFAULTS: Final = {
    "producer": {
        "client.id": "brokers' logs and quotas name the copy",
        "linger.ms": "batches are passed on as they are, and do not wait for records (KIP-1030: 5)",
        "max.in.flight.requests.per.connection": "counted for each partition (KIP-185)",
    },
    "consumer": {
        "client.id": "as that of the producer",
        "isolation.level": "records of open and aborted transactions are never copied; the importer says so",
    },
}
LARGER: Final = {"default.api.timeout.ms"}
"""May be 2^31 and more here, with which MirrorMaker 2 does not start."""


def shared(client: str) -> dict[str, Key]:
    """The keys of a flow's client that Kafka's client has, too."""
    return {name: key for name, key in CLIENT_KEYS[client].items() if name in KAFKAS[client]}


@pytest.mark.parametrize("client", PLACES)
def test_types_and_defaults_are_those_of_kafkas_clients(kafka: KafkasClasses, client: str) -> None:
    differences = dict[str, tuple[str | None, str]]()
    for name, key in shared(client).items():
        theirs = kafka.ask(about="values", client=client, key=name, texts=[])
        assert TYPES[theirs["type"]] == key.kind, name
        ours = "" if key.default is None else ",".join(key.default) if key.kind == "list" else str(key.default)
        if (theirs["default"] or "").lower() != ours.lower():
            differences[name] = theirs["default"], ours
    assert differences.keys() == OTHER_DEFAULTS[client].keys(), differences


@pytest.mark.parametrize("client", PLACES)
def test_value_that_is_written_is_read_as_kafkas_clients_read_it(kafka: KafkasClasses, client: str) -> None:
    written = 0
    for name, key in shared(client).items():
        texts = TEXTS[key.kind]
        theirs = kafka.ask(about="values", client=client, key=name, texts=texts)["values"]
        for text, value in zip(texts, theirs, strict=True):
            line = f"{PLACES[client]}.{name} = {text}\n"
            found = import_source(read((FILE + line).encode(), "mm2"), name="mm2")
            flow = None if found.file is None else found.file.check().flows["a-b"]
            ours = None if flow is None else getattr(flow, client).get(name)
            if ours is None:
                named = found.file is not None and f"line {LINE}: " in found.file.text  # by a key of the flow
                assert named or any(one.line == LINE for one in found.findings), line
                continue
            written += 1
            if value is not None or name not in LARGER:
                assert str(ours).lower() == ("refused" if value is None else value.lower()), line
    assert written > 30
