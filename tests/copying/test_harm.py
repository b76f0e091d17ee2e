"""Logs that no client can produce: truncated by an unclean election, or with messages of the old formats."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from mirror.relay.batches.reencode import ReencodeReason
from mirror.relay.progress.gaps import GapKind
from mirror.sandbox.cluster import Cluster
from mirror.sandbox.probe import alive_brokers
from tests.copying.gaps import keys, numbered, put, refused
from tests.copying.pair import TwoClusters
from tests.copying.site import name
from tests.copying.writers import batch_of, made, write_batches
from tests.polling import eventually
from tests.wire.legacy_sets import whole_set

pytestmark = pytest.mark.brokers

TIME = 1_500_000_000_000
FORMATS = [(magic, codec) for magic in (0, 1) for codec in ("none", "gzip", "snappy", "lz4")]


@dataclass
class Harm:
    """``cut`` had offsets 0 to 99, all copied, and has lost 50 to 99; ``old`` holds message sets."""

    cut: str
    old: str
    keys: list[bytes | None] = field(default_factory=list)


@pytest.fixture(scope="module")
def harm(pair: TwoClusters, uneasy_cluster: Cluster) -> Harm:
    """Prepare both topics together: a broker takes seconds to restart."""
    harm = Harm(cut=name("cut"), old=name("old"))
    pair.source.create_at(harm.cut, [1, 2], unclean_leader_election_enable="true", min_insync_replicas=1)
    pair.source.create_at(harm.old, [2])
    pair.target_topic(harm.cut)
    pair.target_topic(harm.old, retention_ms=-1)
    put(pair, harm.cut, 0, 50)
    log = uneasy_cluster.directory / "broker-2" / "data" / f"{harm.old}-0"
    eventually(lambda: pair.source.in_sync(harm.cut) == {1, 2}, what="both replicas are in sync")
    eventually(lambda: list(log.glob("*.log")), what="the partition's first segment")
    try:
        uneasy_cluster.kill(2)
        eventually(lambda: pair.source.in_sync(harm.cut) == {1}, what="broker 1 is the only replica in sync")
        put(pair, harm.cut, 50, 50)
        pair.complete(harm.cut)
        data = bytearray()
        for magic, codec in FORMATS:
            records = [(TIME, b"%d %s" % (magic, codec.encode()), b"v" * 50), (TIME + 1, None, b""), (TIME, b"", None)]
            data += whole_set(magic, records, codec, len(harm.keys))
            harm.keys += [key for _, key, _ in records]
        (segment,) = log.glob("*.log")
        segment.write_bytes(data)
        for suffix in ("index", "timeindex"):
            segment.with_suffix(f".{suffix}").unlink()
        uneasy_cluster.kill(1)
        uneasy_cluster.restart(2)
        eventually(lambda: pair.source.leader(harm.cut) == 2, what="broker 2 is elected uncleanly")
    finally:
        for broker in (1, 2):
            if broker not in uneasy_cluster.pids:
                uneasy_cluster.restart(broker)
    ports = [int(server.rpartition(":")[2]) for server in uneasy_cluster.bootstrap_servers.split(",")]
    eventually(lambda: all(alive_brokers(port) == {1, 2} for port in ports), within_s=30, what="both brokers are alive")
    return harm


def test_source_truncated_by_an_unclean_election_is_a_gap(pair: TwoClusters, harm: Harm) -> None:
    """The log is longer than what was copied by now: only leader epochs show the truncation (KIP-320)."""
    write_batches(pair.source.address, harm.cut, [batch_of(made(10, first=first)) for first in range(2000, 2080, 10)])
    result = refused(pair, harm.cut, GapKind.TRUNCATED)
    assert "cut back to 50" in str(result.error)
    (result,) = pair.complete(harm.cut, on_gap="skip")
    assert (result.records, result.end, result.gaps) == (80, 130, {GapKind.TRUNCATED: 50})
    assert keys(pair, harm.cut) == numbered(range(100), range(2000, 2080))


def test_messages_of_the_old_formats_are_converted(pair: TwoClusters, harm: Harm) -> None:
    (result,) = pair.complete(harm.old)
    assert set(result.deep) == {ReencodeReason.OLD_FORMAT}
    assert [seen.key for seen in pair.source.records(harm.old)] == harm.keys
    assert len(harm.keys) == 3 * len(FORMATS)
    pair.equal(harm.old)
