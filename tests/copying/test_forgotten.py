"""Progress that the target deleted (offsets.retention.minutes): the copy resumes exactly, or fails: ``progress-lost``.

In the suite, a test deletes the groups that hold the progress, which leaves what retention leaves. In ``make cluster``
all cases share one wait of a little more than a minute, the shortest retention possible.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.relay.model.way import Way
from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.copying.forgetful import FORGETFUL, Copying
from tests.e2e.broker_side import Side
from tests.polling import eventually

pytestmark = pytest.mark.brokers

_FORGOTTEN_WITHIN_S: Final = 80.0
_HALF_OF_RETENTION_S: Final = 30.0
_SOON_MS: Final = 1_000
"""The retention of a target topic whose records, which are old already, are deleted soon."""


@dataclass(frozen=True, slots=True)
class Case:
    """The steps before the target forgets; ``idle``: nothing is written to the source afterwards."""

    steps: tuple[Callable[[Copying], None], ...]
    idle: bool = False
    exactly_once: bool = True
    by: str = Way.TRANSACTIONS
    retention_ms: int = -1

    def prepared(self, source: Side, target: Side) -> Copying:
        copying = Copying(source, target, exactly_once=self.exactly_once, by=self.by, retention_ms=self.retention_ms)
        for step in self.steps:
            step(copying)
        assert copying.committed() >= 0
        return copying


def _case(*steps: Callable[[Copying], None], **options: Any) -> Case:
    return Case(steps, **options)


def _once(copying: Copying) -> None:
    copying.write()
    copying.copied()


def _without_record(copying: Copying) -> None:
    """The progress is committed, and the attempt is killed before it writes the progress record."""
    copying.write()
    copying.killed_at("dropped")


def _from_the_end(copying: Copying) -> None:
    """A flow that begins at "latest", with nothing to copy yet."""
    copying.write()
    copying.copied(start=len(copying.values))
    copying.values.clear()


def _killed_after_append(copying: Copying) -> None:
    """The first batch is in the target's log. A commit may precede it: how far that log was searched."""
    copying.write()
    copying.killed_at("acked")


def _foreign_write(copying: Copying) -> None:
    copying.target.fill(copying.target_topic, [b"foreign"])


AUTO: Final = "auto"
RESUMED: Final = {
    "busy": _case(_once),
    "idle": _case(_once, idle=True),
    "at least once": _case(_once, exactly_once=False),
    "by sequences": _case(_once, by=Way.SEQUENCES),
    "killed in a transaction behind the note, next by auto": _case(_once, _killed_after_append, by=AUTO),
    "two notes": _case(_once, _once),
    "begun at the end": _case(_from_the_end),
    "an aborted transaction behind the note": _case(_once, Copying.aborted_write),
    "killed in a transaction behind the note": _case(_once, _killed_after_append),
    "all records deleted by retention": _case(_once, Copying.await_emptied, retention_ms=_SOON_MS),
    "idle, all records deleted by retention": _case(_once, Copying.await_emptied, retention_ms=_SOON_MS, idle=True),
}
LOST: Final = {
    "the note is stale": _case(_once, _without_record),
    "there never was a note": _case(_without_record),
    "by sequences, there never was a note": _case(_without_record, by=Way.SEQUENCES),
    "by sequences, killed behind the note": _case(_once, _killed_after_append, by=Way.SEQUENCES),
    "the note was erased": _case(_once, Copying.erase_note),
    "the notes were deleted": _case(_once, Copying.delete_notes),
    "others write there": _case(_once, _foreign_write),
    "no note, all records deleted by retention": _case(_without_record, Copying.await_emptied, retention_ms=_SOON_MS),
    "a stale note, all records deleted by retention": _case(
        _once, _without_record, Copying.await_emptied, retention_ms=_SOON_MS
    ),
}
_KINDS: Final = ("exactly once", "at least once")
_ONLY_ON_CLUSTER: Final = {
    "busy",
    "two notes",
    "killed in a transaction behind the note",
    "idle, all records deleted by retention",
    "there never was a note",
    "by sequences, there never was a note",
    "the notes were deleted",
    "no note, all records deleted by retention",
}
"""Each of their steps, and each way, is in another case, too."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """All cases after the wait, and those that were renewed, with the progress that they had then."""

    copies: Mapping[str, Copying]
    remembered: Mapping[str, tuple[Copying, int]]


@pytest.fixture(scope="module")
def forgetful_cluster() -> Iterator[Cluster]:
    with Cluster(properties=FORGETFUL, heap=jvm.BROKER) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def forgotten(source_cluster: Cluster, forgetful_cluster: Cluster) -> Forgotten:
    """Copy all cases, and wait until the target has forgotten them; two others are renewed in the meantime."""
    source, target = Side(source_cluster.bootstrap_servers), Side(forgetful_cluster.bootstrap_servers)
    refreshed = {kind: Copying(source, target, exactly_once=kind == "exactly once") for kind in _KINDS}
    for copying in refreshed.values():
        _once(copying)
    half_way = time.monotonic() + _HALF_OF_RETENTION_S
    cases = RESUMED | LOST
    with ThreadPoolExecutor(4) as preparing:
        copies = dict(
            zip(cases, preparing.map(lambda case: case.prepared(source, target), cases.values()), strict=True)
        )
    eventually(lambda: time.monotonic() > half_way, within_s=_HALF_OF_RETENTION_S, what="half of the retention")
    for copying in refreshed.values():
        copying.copied(start=len(copying.values))  # as planned for an idle partition: an empty range
    for name, copying in copies.items():
        eventually(
            lambda it=copying: it.committed() < 0,  # type: ignore[misc]
            within_s=_FORGOTTEN_WITHIN_S,
            what=f"{name}: forgotten",
            every_s=0.5,
        )
    return Forgotten(copies, {kind: (copying, copying.committed()) for kind, copying in refreshed.items()})


def _resumes(copying: Copying, case: Case) -> None:
    end = copying.source.end(copying.topic)
    if not case.idle:
        copying.write()
    result = copying.copy()
    assert result.outcome is Outcome.COMPLETE, result.error
    assert result.end == copying.committed() == copying.source.end(copying.topic)
    if case.idle:
        assert (result.start, result.records) == (end, 0)
    # The next copy resumes at the committed progress.
    copying.write()
    result = copying.copy()
    assert (result.outcome, result.records) == (Outcome.COMPLETE, 50)
    if case.retention_ms < 0:
        assert copying.found() == copying.values


def _fails(copying: Copying, case: Case) -> None:
    before = copying.found()
    copying.write()
    result = copying.copy()
    assert result.outcome is Outcome.FAILED
    assert result.records == 0
    assert str(result.error).startswith("progress-lost: ")
    assert "start-over = true" in str(result.error)
    assert copying.committed() < 0
    assert copying.found() == before
    copying.make_notes()
    # It starts over only with start-over, and resumes from there.
    result = copying.copy(start_over=True)
    assert (result.outcome, result.start, result.records) == (Outcome.COMPLETE, 0, len(copying.values))
    copied_again = list(copying.values)
    copying.write()
    copying.copied()
    if case.retention_ms < 0:
        assert copying.found() == before + copied_again + copying.values[len(copied_again) :]


@pytest.fixture
def sides(target_cluster: Cluster, uneasy_cluster: Cluster) -> tuple[Side, Side]:
    """The source and the target, whose records are deleted by retention within a test's time."""
    return Side(target_cluster.bootstrap_servers), Side(uneasy_cluster.bootstrap_servers)


@pytest.mark.parametrize("name", [name for name in RESUMED if name not in _ONLY_ON_CLUSTER])
def test_copy_whose_progress_was_deleted_resumes_at_its_progress_record(sides: tuple[Side, Side], name: str) -> None:
    copying = RESUMED[name].prepared(*sides)
    copying.delete_progress()
    _resumes(copying, RESUMED[name])


@pytest.mark.parametrize("name", [name for name in LOST if name not in _ONLY_ON_CLUSTER])
def test_copy_whose_progress_was_deleted_fails_without_a_valid_record(sides: tuple[Side, Side], name: str) -> None:
    copying = LOST[name].prepared(*sides)
    copying.delete_progress()
    _fails(copying, LOST[name])


def test_run_without_records_commits_the_progress_again(sides: tuple[Side, Side]) -> None:
    """Retention begins with the last commit."""
    copying = Copying(*sides)
    _once(copying)
    commits = copying.commits()
    assert commits > 0
    copying.copied(start=len(copying.values))  # as planned for an idle partition: an empty range
    assert copying.commits() > commits


@pytest.mark.cluster
@pytest.mark.parametrize("name", RESUMED)
def test_forgotten_copy_resumes_at_its_progress_record(forgotten: Forgotten, name: str) -> None:
    _resumes(forgotten.copies[name], RESUMED[name])


@pytest.mark.cluster
@pytest.mark.parametrize("name", LOST)
def test_forgotten_copy_without_a_valid_record_fails_with_progress_lost(forgotten: Forgotten, name: str) -> None:
    _fails(forgotten.copies[name], LOST[name])


@pytest.mark.cluster
@pytest.mark.parametrize("kind", _KINDS)
def test_run_without_records_renews_the_progress(forgotten: Forgotten, kind: str) -> None:
    copying, progress = forgotten.remembered[kind]
    assert progress == len(copying.values)  # when the others, whose first commit came later, were forgotten
    copying.write()
    copying.copied()
    assert copying.found() == copying.values
