"""The counts of a commit that failed go back in front of what was counted since."""

from __future__ import annotations

from mirror.relay.partition.attempts.outbox import CommitCounts
from tests.relay.readback.committed_log import batches_of, committed


def test_batches_of_a_failed_commit_are_in_front_of_those_that_were_acknowledged_since() -> None:
    written = committed(batches_of((b"a",), (b"b",), (b"c",)))
    failed, since = CommitCounts(written=written[:2]), CommitCounts(written=written[2:])
    since.add_all(failed)
    assert since.written == written
