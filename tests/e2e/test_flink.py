"""A job of Flink that is stopped on the source continues on the target, with its state."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from tests.e2e.broker_side import Side
from tests.e2e.engines import flink_counts, flink_offsets
from tests.e2e.site import Site, flow
from tests.polling import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS: Final = 3
"""Nothing is written to the last one."""
_STARTS_S: Final = 120.0


@contextmanager
def _writing(side: Side, topic: str, numbers: Iterator[int]) -> Iterator[list[int]]:
    """Write numbers in transactions during the block, and abort each third; yields those that are committed."""
    committed, over = list[int](), threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": side.address, "transactional.id": topic})
        producer.init_transactions()
        for number in count():
            producer.begin_transaction()
            some = [next(numbers) for _ in range(20)]
            for one in some:
                producer.produce(topic, b"%d" % one, partition=one % (PARTITIONS - 1))
            producer.flush()  # otherwise what is aborted may not be sent
            if number % 3 == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                committed.extend(some)
            if over.wait(0.02):
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield committed
    finally:
        over.set()
        writer.join()


def _counted(folder: Path) -> list[tuple[int, int]]:
    """Numbers, each with how many of its last digit there were, as the job has counted them."""
    path = folder / "counts"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [(int(number), int(so_many)) for number, so_many in map(str.split, lines)]


def _start(printed: str) -> str:
    """The Java of a job that starts as was printed."""
    call = re.search(r"^// \.setStartingOffsets\((.*)\)$", printed, re.MULTILINE)
    assert call is not None, printed
    return f"{printed}return {call[1]};"


def test_a_job_continues_on_the_target_with_its_state(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    topic, group, name, numbers = unique("orders"), unique("job"), unique("f"), count()
    site.write({"a": source.address, "b": target.address}, {name: flow("a", "b", [topic])})
    source.create(topic, PARTITIONS)
    with (
        _writing(source, topic, numbers) as before,
        flink_counts(site.folder, source.address, group, topic, str(site.folder), "source-a", ""),
    ):
        eventually(lambda: len(_counted(site.folder)) > 500, within_s=_STARTS_S, what="500 records are counted")
    # It has stopped while records came: what it has committed is older than its savepoint.
    on_source = _counted(site.folder)
    savepoint = (site.folder / "savepoint").read_text(encoding="utf-8")
    offsets = site.folder / "offsets.csv"
    offsets.write_text(flink_offsets(savepoint, "source-a"), encoding="utf-8")
    assert site.run().status == 0
    command = [site.python, "-P", "-m", "mirror.cli", "positions", "translate", str(offsets), "--as", "flink"]
    printed = site.finish(site.launch([*command, "--config", str(site.config)]))
    assert printed.status == 0, printed.err
    with _writing(source, topic, numbers) as after:
        eventually(lambda: len(after) > 200, what="200 more records")
    assert site.run().status == 0
    job = (target.address, group, f"a.{topic}", str(site.folder), "source-b", savepoint)
    written = sorted(before + after)
    with flink_counts(site.folder, *job, start=_start(printed.out)):
        eventually(lambda: len(_counted(site.folder)) >= len(written), within_s=_STARTS_S, what="all are counted")
    found = _counted(site.folder)
    assert len(on_source) < len(written), "some is read on the target"
    assert sorted(number for number, _ in found) == written, "none is missing, none is there twice"
    last = {number % 10: so_many for number, so_many in found}
    assert last == Counter(number % 10 for number in written), "its state has gone on"
