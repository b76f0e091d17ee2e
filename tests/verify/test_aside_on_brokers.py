"""``mirror aside`` on real brokers: what went aside is listed, explained by the verification, and copied again once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.config.load import load
from mirror.rehearsal.values import Kind
from mirror.sandbox.cluster import Cluster
from mirror.spark.clusters import open_sides
from mirror.spark.rehearsing.rehearse import Request, rehearse
from mirror.verify.partition_results import exit_status
from mirror.verify.values import Named
from tests.copying.pair import MAX_BYTES, Seen
from tests.copying.writers import Made, batch_of, made, write_batches
from tests.verify.verified_pair import FLOW, VerifiedPair

pytestmark = pytest.mark.brokers

HOUR_MS: Final = 3_600_000
HUGE: Final = Made(b"huge", os.urandom(200_000), (("own", b"1"),))


@pytest.fixture
def pair(
    source_cluster: Cluster, target_cluster: Cluster, unique: Callable[[str], str], tmp_path: Path
) -> VerifiedPair:
    return VerifiedPair(source_cluster, target_cluster, unique("t"), tmp_path)


class Filled:
    """A copy of which the records at the offsets 40, too large, and 41, too far in the future, are aside."""

    def __init__(self, pair: VerifiedPair, folder: Path) -> None:
        self.pair = pair
        self.topic = pair.topics(
            source={"max_message_bytes": MAX_BYTES, "message_timestamp_after_max_ms": str(2**62)},
            target={"max_message_bytes": 50_000},
        )
        self.aside = f"aside-{self.topic}"
        pair.target.create(self.aside, retention_ms=-1, max_message_bytes=MAX_BYTES)
        late = Made(b"late", b"1", (), int(time.time() * 1000) + 10 * HOUR_MS)
        batches = [batch_of(made(40)), batch_of([HUGE]), batch_of([late]), batch_of(made(40, first=50))]
        write_batches(pair.source.address, self.topic, batches)
        pair.configure_flow(
            self.topic, f'aside = "{self.aside}"', 'on-too-large = "aside"', 'on-bad-timestamp = "aside"'
        )
        self.file = folder / "mirror.toml"
        (result,) = self.copy()
        assert result.aside == {"too large": 1, "bad timestamp": 1}

    def copy(self) -> list[Any]:
        return self.pair.complete(self.topic, on_too_large="aside", on_bad_timestamp="aside", aside=self.aside)

    def run(self, *arguments: str) -> tuple[int, dict[int, dict[str, Any]]]:
        """Return the exit status, and the list by source offset."""
        result = CliRunner().invoke(app, ["aside", "--config", str(self.file), "--json", *arguments])
        assert result.stdout, result.output
        return result.exit_code, {one["offset"]: one for one in json.loads(result.stdout)}

    def verified(self) -> tuple[dict[Named, int], int]:
        """Return what is named, and the exit status with --strict; nothing differs."""
        results = self.pair.verify()
        (result,) = results
        assert result.verdict is not None
        assert (result.outcome, result.verdict.differences) == ("equal", [])
        in_any_log = {Named.MARKERS, Named.ABORTED}
        named = {name: count for name, count in result.verdict.named.items() if name not in in_any_log}
        return named, exit_status(results, strict=True)

    def blockers(self) -> list[tuple[Kind, str]]:
        """Return what a rehearsal says about the aside topic."""
        config = load(self.file)
        (flow,) = config.select(FLOW)
        with open_sides(config, flow) as sides:
            found = rehearse(Request(config=config, flow=flow), sides)
        return [(one.kind, one.reason) for one in found.blockers if one.name == self.aside]

    def records(self) -> list[Seen]:
        return self.pair.target.records(self.topic)


def test_records_are_copied_again_once(pair: VerifiedPair, tmp_path: Path) -> None:
    filled = Filled(pair, tmp_path)
    before = filled.records()
    status, found = filled.run()
    assert (status, {offset: (one["reason"], one["state"]) for offset, one in found.items()}) == (
        3,
        {40: ("too large", "aside"), 41: ("bad timestamp", "aside")},
    )
    assert filled.verified() == ({Named.ASIDE: 2}, 3)
    assert filled.blockers() == [(Kind.TOPIC, "2 records that b did not take went there")]

    status, found = filled.run("--copy", "--all")
    assert status == 3, "the target still refuses both"
    assert [("larger" in found[40]["refused"]), found[40]["state"], found[41]["state"]] == [True, "aside", "aside"]
    assert filled.records() == before

    pair.target.configure(filled.topic, max_message_bytes=MAX_BYTES)
    place = f"{filled.topic}-0@40"
    for _ in range(2):
        status, found = filled.run("--copy", place)
        assert (status, found[40]["state"], found[41]["state"]) == (0, "copied", "aside")
    *kept, last = filled.records()
    assert kept == before
    assert (last.key, last.value, last.headers, last.time_ms) == (
        HUGE.key,
        HUGE.value,
        tuple(HUGE.headers),
        HUGE.time_ms,
    )
    assert dict(pair.target.seen(filled.topic))[found[40]["target_offset"]] == last
    assert filled.verified() == ({Named.ASIDE: 1, Named.SETTLED: 1, Named.COPIED_AGAIN: 1}, 3)

    write_batches(pair.source.address, filled.topic, [batch_of(made(40, first=100))])
    (result,) = filled.copy()
    assert (result.records, result.aside) == (40, {})
    status, found = filled.run("--dismiss", "--all")
    assert (status, found[41]["state"]) == (0, "dismissed")
    assert filled.verified() == ({Named.SETTLED: 2, Named.COPIED_AGAIN: 1}, 0)
    assert filled.blockers() == []


KILLED: Final = """
import os, signal, sys
from mirror.client import Producer
from mirror.cli.app import main

begin = Producer.commit_transaction
moment = sys.argv.pop(1)

def commit(self, *arguments):
    if moment == "after":
        begin(self, *arguments)
    os.kill(os.getpid(), signal.SIGKILL)

Producer.commit_transaction = commit
sys.argv[0] = "mirror"
main()
"""


@pytest.mark.cluster
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_command_copies_no_record_twice(pair: VerifiedPair, tmp_path: Path, moment: str) -> None:
    filled = Filled(pair, tmp_path)
    before = filled.records()
    pair.target.configure(filled.topic, max_message_bytes=MAX_BYTES)
    arguments = ["aside", "--config", str(filled.file), "--copy", f"{filled.topic}-0@40"]
    killed = subprocess.run([sys.executable, "-c", KILLED, moment, *arguments], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    status, found = filled.run("--copy", f"{filled.topic}-0@40")
    assert (status, found[40]["state"]) == (0, "copied")
    assert [one.key for one in filled.records()[len(before) :]] == [b"huge"]
