"""The main path: whatever records there are, copied by `mirror run`, and compared by another client."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from mirror.sandbox import copy_verifier
from tests.e2e.broker_side import CODECS, FIRST_MS, Side, failed_into
from tests.e2e.site import Site, flow
from tests.e2e.test_groups import next_of

pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

RESULT = {
    "flow": str,
    "topic": str,
    "target_topic": str,
    "partition": int,
    "start": int,
    "end": int,
    "records": int,
    "batches": int,
    "bytes": int,
    "seconds": float,
    "outcome": str,
    "error": type(None),
    "skipped": dict,
    "deep": dict,
    "aside": dict,
    "gaps": dict,
    "expiries": list,
    "target_losses": list,
    "retries": int,
    "failures": dict,
    "stuck_since_ms": type(None),
    "withheld": type(None),
    "counted": str,
    "way": str,
    "way_reason": str,
}


def test_the_first_run_copies_all_and_the_second_only_what_is_new(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    records, transactions, empty, other, timed = (
        unique(name) for name in ("records", "transactions", "empty", "other", "timed")
    )
    source.create(records, 3, max_message_bytes=2_000_000)
    source.create(transactions, 2)
    source.create(empty)
    source.create(other)
    source.fill(other, [b"not asked for"])
    # Two batches of ten records; the time is that of the first one's sixth.
    source.create(timed)
    for begin in (0, 10):
        values = [b"%d" % number for number in range(begin, begin + 10)]
        source.fill(timed, values, first_ms=FIRST_MS + begin, linger_ms=1000)
    _all_kinds(source, records)
    committed = _transactions(source, transactions)
    names = [records, transactions, empty]
    # A flow by patterns with new names, one of the same topic under its own name, one that begins inside a batch.
    flows = {
        "p": flow("a", "b", [f"{records[:-3]}...", transactions, empty]),
        "i": flow("a", "b", [records], 'naming = "identity"'),
        "s": flow("a", "b", [timed], f'start = "{datetime.fromtimestamp(FIRST_MS / 1000 + 0.005, UTC).isoformat()}"'),
    }
    site.write({"a": source.address, "b": target.address}, flows)

    first = site.run()
    assert (first.status, first.errors) == (0, [])
    _shape(site)
    sent = _ends(site, names)
    for topic in names:
        _equal(source, topic, target, f"a.{topic}")
    _equal(source, records, target, records)
    for partition in range(2):
        assert target.read(f"a.{transactions}", partition) == committed
        skipped = site.partitions("p")[transactions, partition]["skipped"]
        assert skipped == {"aborted": 1, "control": 4}
    assert f"a.{other}" not in target.topics()
    result = site.partitions("s")[timed, 0]
    assert (result["start"], result["end"], result["records"], result["batches"]) == (5, 20, 15, 2)
    assert (result["deep"], result["skipped"]) == ({"trimmed": 1}, {})
    assert target.read(f"a.{timed}") == [b"%d" % number for number in range(5, 20)]
    config = target.config(f"a.{records}")
    assert config["max.message.bytes"] == "2000000"

    source.fill(records, [b"new"], 0)
    source.grow(records, 4)
    source.fill(records, [b"in a new partition"] * 2, 3)
    _commit(source, group := unique("billing"), records, 70)
    groups = f'[flows.p.groups]\ninclude = ["{group}"]'
    site.write({"a": source.address, "b": target.address}, {**flows, "p": f"{flows['p']}\n{groups}"})
    second = site.run("--flow", "p", "--json")
    assert (second.status, second.errors) == (0, [])
    assert second.out == (site.report / "summary.json").read_text()
    assert list(site.flows()) == ["p"]
    _continues(site, (source, records), (target, f"a.{records}"), group)
    # Nothing of what was copied before.
    starts = {**sent, (records, 3): 0}
    new = {(records, 0): 1, (records, 3): 2}
    assert {key: (each["start"], each["end"], each["records"]) for key, each in site.partitions("p").items()} == {
        key: (start, start + new.get(key, 0), new.get(key, 0)) for key, start in starts.items()
    }
    assert {key for key, each in site.partitions("p").items() if each["batches"]} == set(new)
    for topic in names:
        _equal(source, topic, target, f"a.{topic}")
    assert target.partitions(f"a.{records}") == 4


def _commit(side: Side, group: str, topic: str, offset: int) -> None:
    with contextlib.closing(Consumer({"bootstrap.servers": side.address, "group.id": group})) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)


def _continues(site: Site, source: tuple[Side, str], target: tuple[Side, str], group: str) -> None:
    """The group's next record is the same on both sides: one of those that have a value of their own."""
    found = site.flows()["p"]["groups"]
    assert (found["total"], found["in_step"], found["problems"]) == (1, 1, [])
    (there, topic), (here, copied) = source, target
    following = next_of(there, group, topic)
    assert (following or b"").startswith(b"value ")
    assert next_of(here, group, copied) == following


def _all_kinds(side: Side, topic: str) -> None:
    """Every codec, null and empty keys and values, headers of all kinds, large records, in three partitions."""
    headers: list[tuple[str, str | bytes | None]] = [
        ("type", b"order"),
        ("type", b"again"),
        ("none", None),
        ("empty", b""),
        ("ü", bytes(range(256))),
    ]
    for codec in CODECS:
        failures = list[str]()
        producer = side.producer(compression_type=codec, message_max_bytes=2_000_000)
        for number in range(300):
            producer.produce(
                topic,
                [f"value {number} ".encode() * 20, None, b""][number % 3] if number else b"large" * 200_000,
                [f"key-{number}".encode(), None, b"", b"\x00\xff"][number % 4],
                number % 3,
                timestamp=FIRST_MS + number * 1001 - (number % 5) * 5000,
                headers=headers if number % 2 else None,
                on_delivery=failed_into(failures),
            )
        assert producer.flush(30) == 0
        assert not failures, failures[0]


def _transactions(side: Side, topic: str) -> list[bytes]:
    """Committed, aborted, committed, committed: to two partitions each. Returns what is committed to each of them."""
    producer = side.producer(transactional_id=topic)
    producer.init_transactions(30)
    committed = []
    for number, commit in enumerate([True, False, True, True]):
        values = [b"%d-%d" % (number, record) for record in range(5)]
        producer.begin_transaction()
        for partition in range(2):
            for value in values:
                producer.produce(topic, value, b"key", partition)
        if commit:
            committed += values
            producer.commit_transaction(30)
        else:
            # Written before it is taken back, so that there is something to leave out.
            producer.flush(30)
            producer.abort_transaction(30)
    return committed


def _equal(source: Side, topic: str, target: Side, target_topic: str) -> None:
    verdict = copy_verifier.compare(source.address, topic, target.address, target_topic)
    assert verdict.equal, verdict.difference


def _ends(site: Site, topics: list[str]) -> dict[tuple[str, int], int]:
    return {key: each["end"] for key, each in site.partitions("p").items() if key[0] in topics}


def _shape(site: Site) -> None:
    """summary.json as the design has it."""
    summary = json.loads((site.report / "summary.json").read_text())
    assert list(summary) == ["flows"]
    for each in summary["flows"]:
        assert set(each) == {
            "flow",
            "run",
            "outcome",
            "started",
            "ended",
            "error",
            "held",
            "behind",
            "partitions",
            "groups",
            "configs",
            "acls",
            "deletions",
            "sync",
            "index_bytes",
            "evidence",
        }
        assert each["index_bytes"] > 0
        assert (each["outcome"], each["error"], each["groups"]) == ("complete", None, None)
        assert each["configs"]["in_step"], each["configs"]
        started, ended = datetime.fromisoformat(each["started"]), datetime.fromisoformat(each["ended"])
        assert started.tzinfo is not None
        assert started < ended
        for result in each["partitions"]:
            # Where nothing was to be done nothing is reported of how it went.
            assert isinstance(result.pop("timeline"), dict | None)
            assert {key: type(value) for key, value in result.items()} == RESULT
            assert (result["outcome"], result["flow"]) == ("complete", each["flow"])
            assert result["records"] <= result["end"] - result["start"]
    _shown(site, summary)


def _shown(site: Site, summary: dict[str, Any]) -> None:
    """report.html has the curve of each partition that was copied."""
    page = (site.report / "report.html").read_text(encoding="utf-8")
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert [each["name"] for each in data["flows"]] == [each["flow"] for each in summary["flows"]]
    for drawn, outcome in zip(data["flows"], summary["flows"], strict=True):
        for part, result in zip(drawn["parts"], outcome["partitions"], strict=True):
            assert (part["topic"], part["number"]) == (result["topic"], result["partition"])
            assert not result["records"] or len(part["curve"]) >= 2 * len(("time", "left", "offset", "bytes"))
