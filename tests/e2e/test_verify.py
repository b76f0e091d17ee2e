"""`mirror verify` on real clusters and Spark: what is equal is proved, and what another client damages is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mirror.exit_status import FAILED
from tests.e2e.broker_side import FIRST_MS, Side
from tests.e2e.site import Run, Site, flow

pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]

STARTED = "starting the Spark session\n"
"""A line of the job itself: the command has started a process that may need no session."""


def _partitions(run: Run) -> list[dict[str, Any]]:
    (found,) = json.loads(run.out)["flows"]
    partitions: list[dict[str, Any]] = found["partitions"]
    return partitions


def test_copy_is_proved_and_damage_is_found(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    topic, name, proof = unique("audited"), unique("audit"), site.folder / "proof.json"
    source.create(topic, 3)
    for partition in range(3):
        source.fill(topic, [b"%d" % number for number in range(500)], partition, compression_type="lz4")
    copied = flow("a", "b", [topic], 'naming = "identity"')
    site.write({"a": source.address, "b": target.address}, {name: copied})

    nothing = site.run("--json", command="verify")
    assert nothing.status == FAILED, nothing.err
    assert [one["incomplete"] for one in _partitions(nothing)] == [
        ["source 0 to 499 not compared: nothing is copied yet"]
    ] * 3
    assert site.run().status == 0

    proved = site.run("--proof", str(proof), command="verify")
    assert (proved.status, proved.errors) == (0, [])
    assert ("3 of 3 equal" in proved.out, STARTED in proved.err) == (True, True)
    assert json.loads(proof.read_text())["last"] in proved.out
    ranges = [one for link in json.loads(proof.read_text())["links"] for one in link["ranges"]]
    assert [(one["source_start"], one["source_end"], one["records"]) for one in ranges] == [(0, 500, 500)] * 3

    # The next one begins behind it; without anything to compare it does not start Spark.
    again = site.run("--proof", str(proof), "--json", command="verify")
    assert again.status == 0, again.err
    assert STARTED not in again.err
    assert {one["records"] for one in _partitions(again)} == {0}

    # Another client writes a record twice, and one that the source does not have.
    producer = target.producer()
    producer.produce(topic, b"499", b"k%d" % (499 % 7), 0, timestamp=FIRST_MS + 499)
    producer.produce(topic, b"not of the source", None, 1)
    assert producer.flush(60) == 0
    damaged = site.run("--hex", "--json", command="verify")
    assert damaged.status == 3, damaged.err
    found = [
        [(one["kind"], one["source_offset"], one["records"]) for one in partition["differences"]]
        for partition in _partitions(damaged)
    ]
    assert found == [[("doubled", 499, 1)], [("foreign", 500, 1)], []]
    assert b"not of the source".hex() in _partitions(damaged)[1]["differences"][0]["excerpts"]["target"]
    permitted = site.run("--allow-foreign", "--json", command="verify")
    assert [one["outcome"] for one in _partitions(permitted)] == ["different", "equal", "equal"]
    assert site.run("--proof", str(proof), command="verify").status == 3

    # What was proved is still there, and the file says what it said.
    checked = site.run("--check", str(proof), "--json", command="verify")
    assert checked.status == 0, checked.err
    assert sum(one["records"] for one in _partitions(checked)) == 1_500
    proof.write_text(proof.read_text().replace('"records": 500', '"records": 501', 1))
    forged = site.run("--check", str(proof), command="verify")
    assert forged.status == 1
    assert "was changed: its hash is not that of its content" in forged.err

    # A cluster that does not answer is no difference, and the command ends before it verifies anything.
    brief = {"default.api.timeout.ms": 5000, "request.timeout.ms": 2000}
    site.write({"a": source.address, "b": "127.0.0.1:1"}, {name: copied}, b=brief)
    silent = site.run(command="verify")
    assert silent.status == 1, silent.err

    # The report of the next run has the last verification, that of the proof, and when everything was equal.
    site.write({"a": source.address, "b": target.address}, {name: copied})
    assert site.run().status == 0
    page = (site.report / "report.html").read_text()
    assert "Proofs and rehearsals" in page
    section = page.partition("Proofs and rehearsals")[2].partition("</article>")[0]
    assert "3 of 3 partitions equal" in section
    assert "last found equal: 20" in section
