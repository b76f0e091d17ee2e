"""The same as java/GroupConsumer.java, with confluent-kafka.

python group_consumer.py SERVERS GROUP TOPIC GROUP_PROTOCOL AUTO_OFFSET_RESET EVERY
"""

from __future__ import annotations

import random
import sys
from typing import Any

from confluent_kafka import Consumer


def read(servers: str, group: str, topic: str, protocol: str, reset: str, often: str) -> None:
    options = {"bootstrap.servers": servers, "group.id": group, "group.protocol": protocol, "enable.auto.commit": False}
    consumer = Consumer({**options, "auto.offset.reset": {"none": "error"}.get(reset, reset)})
    consumer.subscribe([topic])
    every = int(often)
    committed = False
    while True:
        messages: list[Any] = consumer.consume(7, timeout=0.2)
        for message in messages:
            assert message.error() is None, message.error()
            sys.stdout.buffer.write(message.value() + b"\n")
            sys.stdout.buffer.flush()
            if every and (not committed or not random.randrange(every)):
                consumer.commit(message=message, asynchronous=False)
                committed = True


if __name__ == "__main__":
    read(*sys.argv[1:])
