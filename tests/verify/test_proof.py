"""A proof says what was equal, is found out if it is changed, and is continued."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mirror.exit_status import ATTENTION, DONE, FAILED
from mirror.verify.partition_results import PartitionResult, exit_status, name_other_partitions
from mirror.verify.proof import Link, Proof, ProofError, against_digest, parse_proof, proved_ranges, unproved_lines
from mirror.verify.values import Bounds, Rules, Verdict
from tests.relay.batches.logs_by_hand import Made
from tests.verify.damages import source_records
from tests.verify.logs import RECORDS, TARGET_BASE, by_tens, copied, log_of, numbered, verdict_of


def _verdict(source: list[Made], target: list[Made], bounds: Bounds | None = None) -> Verdict:
    logs = log_of(by_tens(source)), copied(by_tens(target))
    return verdict_of(*logs, Rules(hashes=True), bounds=lambda whole: bounds or whole)


def _result(verdict: Verdict | None, partition: int = 0, error: str = "") -> PartitionResult:
    return PartitionResult(
        topic="orders",
        target_topic="orders",
        partition=partition,
        verdict=verdict,
        error=error,
        source_topic_id="s",
        target_topic_id="t",
    )


def _link(*results: PartitionResult) -> Link:
    return Link(
        time="2026-01-31T00:00:00+00:00",
        version="1",
        flow="f",
        source_cluster_id="a",
        target_cluster_id="b",
        settings={},
        ranges=proved_ranges(results),
        unproved=unproved_lines(results),
    )


def _proof() -> Proof:
    records, proof = source_records(), Proof()
    for start, end in ((0, 100), (100, RECORDS)):
        bounds = Bounds(
            source_start=start, source_end=end, target_start=TARGET_BASE + start, target_end=TARGET_BASE + end
        )
        proof = proof.extended(_link(_result(_verdict(records, records, bounds))))
    return proof


def test_proof_is_read_as_it_was_written() -> None:
    proof = _proof()
    again = parse_proof(proof.to_json())
    assert again == proof
    (last,) = again.ends().values()
    assert (last.source_end, last.target_end) == (RECORDS, TARGET_BASE + RECORDS)
    assert [(one.source_start, one.source_end, one.records) for one in again.ranges()] == [
        (0, 100, 100),
        (100, 200, 100),
    ]
    assert again.links[1].previous == again.links[0].hash
    assert len({one.sha256 for one in again.ranges()} - {""}) == 2


def _set(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        *folders, name = path.split(".")
        place: Any = document
        for folder in folders:
            place = place[int(folder)] if folder.isdigit() else place[folder]
        place[name] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("links.0.ranges.0.records", 99),
        _set("links.0.ranges.0.sha256", "00"),
        _set("links.1.ranges.0.source_end", 199),
        _set("links.1.unproved", ["orders-3: unknown"]),
        _set("links.0.time", "2026-02-01T00:00:00+00:00"),
        _set("links.0.hash", "00"),
        _set("last", "00"),
        _set("format", 2),
        lambda document: document["links"].pop(0),
        lambda document: document["links"].pop(),
        lambda document: document["links"].reverse(),
        lambda document: document["links"].append(document["links"][0]),
        lambda document: document["links"][0].pop("flow"),
        lambda document: document.pop("links"),
    ],
)
def test_changed_proof_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(_proof().to_json())
    change(document)
    with pytest.raises(ProofError):
        parse_proof(json.dumps(document))


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"format": 1}', "no JSON"])
def test_file_that_is_no_proof_is_refused(text: str) -> None:
    with pytest.raises(ProofError):
        parse_proof(text)


def test_link_whose_hash_was_made_again_does_not_fit_the_next_one() -> None:
    proof = _proof()
    forged = Proof((proof.links[0].sealed("00").sealed(""), proof.links[1]))
    assert parse_proof(forged.to_json()) == proof
    other = Proof((_link(_result(_verdict([], []))).sealed(""), proof.links[1]))
    with pytest.raises(ProofError, match="link 2 does not follow"):
        parse_proof(other.to_json())


def test_proof_of_other_clusters_is_not_continued() -> None:
    _proof().check_flow("f", "a", "b")
    for wrong in (("g", "a", "b"), ("f", "x", "b"), ("f", "a", "x")):
        with pytest.raises(ProofError, match="a file of its own"):
            _proof().check_flow(*wrong)


def test_only_what_is_equal_and_complete_is_proved() -> None:
    records = source_records()
    different = _verdict(records, records[1:])
    incomplete = _verdict(records, records)
    incomplete.complete = False
    empty = _verdict([], [])
    results = [_result(different, 1), _result(incomplete, 2), _result(empty, 3), _result(None, 4, "no leader")]
    assert proved_ranges(results) == ()
    assert unproved_lines(results) == ("orders-1: different", "orders-2: unknown", "orders-4: no leader")


def test_hash_is_of_the_source_s_bytes_and_offsets_and_not_of_its_leader_epochs() -> None:
    records = source_records()

    def digest(source: list[Made], **options: Any) -> str:
        logs = log_of(by_tens(source), **options), log_of(by_tens(source), TARGET_BASE)
        return verdict_of(*logs, Rules(hashes=True)).digest

    assert digest(records) == digest(records, epoch=5)
    changed = [one._replace(value=b"x") if n == 50 else one for n, one in enumerate(records)]
    assert len({digest(records), digest(changed), digest(records[:-1]), digest(records, codec="zstd"), ""}) == 5
    logs = log_of(by_tens(records)), log_of(by_tens(records), TARGET_BASE)
    assert verdict_of(*logs).digest == ""
    assert digest(records) != verdict_of(log_of(by_tens(records), 7), logs[1], Rules(hashes=True)).digest


def test_range_that_has_other_bytes_than_were_proved_is_not_proved_again() -> None:
    records = source_records()
    verdict = _verdict(records, records)
    assert against_digest(_result(verdict), verdict.digest).proved
    other = against_digest(_result(verdict), "00")
    assert other.outcome == "unknown"
    assert "not as it was when it was proved" in other.error


def test_exit_status_says_the_worst() -> None:
    records = source_records()
    equal, different = _result(_verdict(records, records)), _result(_verdict(records, records[1:]))
    unknown = _result(None, error="no leader")
    assert exit_status([equal]) == DONE == 0
    assert exit_status([equal, unknown]) == FAILED == 1
    assert exit_status([equal, unknown, different]) == ATTENTION == 3
    assert exit_status([]) == DONE


def test_record_in_another_partition_is_named() -> None:
    records, others = source_records(), [numbered(n) for n in range(300, 400)]
    lacking = _result(_verdict(records, [*records[:50], *records[51:]]), 0)
    having = _result(_verdict(others, [*others[:7], records[50], *others[7:]]), 4)
    name_other_partitions([lacking, having])
    assert lacking.notes == [
        "the record that is missing at the source offset 50 is in partition 4 of the target, at offset 1007"
    ]
    assert having.notes == []
    # A record that is at another time in the same partition is in no other one.
    same = _result(_verdict(records, [*records[:50], *records[51:], records[50]._replace(time_ms=9)]), 0)
    name_other_partitions([same])
    assert same.notes == []
    assert having.to_record()["differing_records"] == {"foreign": 1}
