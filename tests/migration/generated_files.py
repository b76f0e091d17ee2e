"""Random MirrorMaker 2 files: keys at every level, right and wrong prefixes, in any spelling that Java reads."""

from __future__ import annotations

import random
from typing import Final

from mirror.migration import known_keys

_ALIASES: Final = ["a", "b", "A", "eu", "eu.west", "dc-1", "us_2", "consumer", "admin1"]
_TEXTS: Final = {
    "replication.policy.class": ["DefaultReplicationPolicy", "IdentityReplicationPolicy"],
    "replication.policy.separator": [".", "_", "-"],
    "topics": [".*", "orders", "a,b", "orders, click.*", " x , y ", ""],
    "topics.exclude": ["x", r"mm2.*\\.internal, __.*", r".*\.secret"],
    "groups": [".*", "billing", "g1,g2"],
    "groups.exclude": ["x", "connect-.*, __.*"],
    "offset-syncs.topic.location": ["source", "target"],
    "security.protocol": ["PLAINTEXT", "SSL", "SASL_SSL"],
    "bootstrap.servers": ["h1:9092", "h1:9092, h2:9092", "x:1"],
    "sasl.jaas.config": ['Module required username="u" password="p";'],
    "sasl.mechanism": ["PLAIN", "SCRAM-SHA-512"],
    "ssl.truststore.location": ["/etc/t.jks", "/etc/é.pem"],
    "name": ["other", "MirrorSourceConnector"],
}
_NUMBERS: Final = (
    "replication.factor",
    "refresh.topics.interval.seconds",
    "refresh.groups.interval.seconds",
    "emit.checkpoints.interval.seconds",
    "emit.heartbeats.interval.seconds",
    "sync.group.offsets.interval.seconds",
    "offset.lag.max",
    "tasks.max",
    "admin.timeout.ms",
    "consumer.poll.timeout.ms",
    "offset-syncs.topic.replication.factor",
)
_SWITCHES: Final = (
    "enabled",
    "emit.heartbeats.enabled",
    "emit.checkpoints.enabled",
    "sync.group.offsets.enabled",
    "sync.topic.configs.enabled",
    "sync.topic.acls.enabled",
    "heartbeats.replication.enabled",
    "refresh.topics.enabled",
)
_OTHERS: Final = (
    "offset.flush.interval.ms",
    "use.defaults.from",
    "producer.linger.ms",
    "producer.override.linger.ms",
    "producer.client.id",
    "consumer.fetch.min.bytes",
    "consumer.isolation.level",
    "consumer.auto.offset.reset",
    "admin.request.timeout.ms",
    "source.consumer.fetch.min.bytes",
    "source.producer.linger.ms",
    "target.producer.linger.ms",
    "source.admin.retries",
    "target.admin.retries",
    "source.cluster.bootstrap.servers",
    "target.cluster.security.protocol",
    "offset.storage.topic",
    "config.storage.replication.factor",
    "status.storage.partitions",
    "key.converter.schemas.enable",
    "task.shutdown.graceful.timeout.ms",
    "worker.id",
    "task",
    "worker",
    "group.id",
    "client.id",
    "exactly.once.source.support",
    "transforms.x.type",
    "config.providers.file.param.x",
    "replication.policy.class.x",
    "consumer",
    "producers.x",
    "heartbeats.topic.replication.factor",
)
_CLIENT_TEXTS: Final = sorted(
    key for key in known_keys.CLIENT if key.endswith((".location", ".provider", ".aud", ".iss", ".sub", ".scope"))
)


def properties(rng: random.Random) -> str:
    """Return the text of a file that MirrorMaker 2 starts with."""
    clusters = rng.sample(_ALIASES, rng.randrange(2, 4))
    lines = [_line(rng, "clusters", rng.choice([",", ", ", " ,"]).join(clusters))]
    lines += [_line(rng, f"{alias}.bootstrap.servers", f"{alias}:9092") for alias in clusters]
    levels = ["", *(f"{alias}." for alias in [*clusters, rng.choice(_ALIASES)])]
    pairs = [f"{one}->{other}." for one in clusters for other in clusters]
    lines += [_line(rng, f"{pair}enabled", "true") for pair in pairs if rng.random() < 0.4]
    levels += pairs
    for _ in range(rng.randrange(40)):
        if rng.random() < 0.2:
            lines.append("")
        key, value = _setting(rng)
        lines.append(_line(rng, rng.choice(levels) + key, value))
    rng.shuffle(lines)
    filler = ["", "# comment", "  ! another \\"]
    return rng.choice(["\n", "\r\n"]).join(line or rng.choice(filler) for line in [*lines, ""])


def _setting(rng: random.Random) -> tuple[str, str]:
    match rng.randrange(5):
        case 0:
            key = rng.choice(sorted(_TEXTS))
            value = rng.choice(_TEXTS[key])
            return key, f"org.apache.kafka.connect.mirror.{value}" if key == "replication.policy.class" else value
        case 1:
            return rng.choice(_NUMBERS), str(rng.randrange(1, 1000))
        case 2:
            return rng.choice(_SWITCHES), rng.choice(["true", "false", "TRUE", "false "])
        case 3:
            return rng.choice(_CLIENT_TEXTS), rng.choice(["x", "ü", "a b"])
        case _:
            return rng.choice(_OTHERS), str(rng.randrange(1, 1000))


def _line(rng: random.Random, key: str, value: str) -> str:
    """Spell a property in one of the ways that Java reads."""
    spelled = "".join(f"\\{char}" if char in ":= " or (char == "-" and rng.random() < 0.2) else char for char in key)
    text = "".join(f"\\u{ord(char):04x}" if ord(char) > 127 and rng.random() < 0.5 else char for char in value)
    if "\\" not in text and len(text) > 3 and rng.random() < 0.2:
        at = rng.randrange(1, len(text))
        text = text[:at] + "\\\n   " + text[at:] if text[at] not in " \\" else text
    return rng.choice(["", "", "  "]) + spelled + rng.choice(["=", " = ", ":", " ", "\t"]) + text
