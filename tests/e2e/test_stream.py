"""`mirror stream` as a user runs it: it follows, finds what is new, takes edits, drains, and ends in order.

What is killed, what takes over, and `mirror stop`: see test_on_a_cluster.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from mirror.spark.ledger.status_table import read_status
from tests.e2e.broker_side import Side
from tests.e2e.site import Run, Site, flow
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

SHORT = """period-ms = 4000
refresh-ms = 1000
"""


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


class Stream:
    """A stream under way; it must not outlive its test."""

    def __init__(self, site: Site, *arguments: str) -> None:
        self.site = site
        self.child: subprocess.Popen[str] = site.start(*arguments, command="stream")

    def await_copy(
        self, target: Side, topic: str, values: list[bytes], partition: int = 0, *, within_s: float = 200
    ) -> None:
        """All of it is there, once, in order."""

        def there() -> bool:
            assert self.child.poll() is None, self.child.communicate()
            if topic not in target.topics() or target.partitions(topic) <= partition:
                return False
            # The end first: it waits for the leader of a topic that was created a moment ago.
            return target.end(topic, partition) >= len(values) and len(read()) >= len(values)

        def read() -> list[bytes | None]:
            return target.read(topic, partition)

        try:
            eventually(there, within_s=within_s, what=f"{len(values)} records in {topic}-{partition}")
        except BaseException:
            with contextlib.suppress(subprocess.TimeoutExpired, ValueError):  # it has ended, and was heard already
                self.child.terminate()
                sys.stderr.write("".join(self.child.communicate(timeout=30)))
            self.site.kill()
            raise
        assert read() == values

    def end(self) -> Run:
        self.child.send_signal(signal.SIGTERM)
        run = self.site.finish(self.child)
        self.site.await_end()
        return run


def test_a_stream_follows_what_comes_finds_what_is_new_and_ends_in_order(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    """Records, a new partition, a new topic, a bad edit and a good one; then SIGTERM."""
    topic = unique("followed")
    source.create(topic)
    source.fill(topic, numbered(0, 100))
    site.write({"a": source.address, "b": target.address}, {"f": flow("a", "b", [f"{topic}.*"], SHORT)})
    stream = Stream(site)
    stream.await_copy(target, f"a.{topic}", numbered(0, 100))

    good = site.config.read_text()
    site.config.write_text(f"{good}nonsense = 1\n")
    source.fill(topic, numbered(100, 50))
    source.grow(topic, 2)
    source.create(f"{topic}-2")
    source.fill(topic, numbered(0, 30), 1)
    source.fill(f"{topic}-2", numbered(0, 20))
    stream.await_copy(target, f"a.{topic}", numbered(0, 150))
    stream.await_copy(target, f"a.{topic}", numbered(0, 30), 1)
    stream.await_copy(target, f"a.{topic}-2", numbered(0, 20))

    def lags_by_partition() -> dict[tuple[str, int], int]:
        (one,) = json.loads(site.ask("status", "--json"))["flows"]
        assert one["run"] is not None
        return {(each["topic"], each["partition"]): each["lag"] for each in one["partitions"]}

    # The edit is bad for others, too; the stream alone has an older one to go on with.
    eventually(lambda: "nonsense" in _said(site, target), within_s=60, what="the word about the bad edit", every_s=0.5)
    site.config.write_text(good)
    lags = lags_by_partition()
    assert lags == {(topic, 0): 0, (topic, 1): 0, (f"{topic}-2", 0): 0}
    run = stream.end()
    assert (run.status, run.errors) == (0, [])
    assert "nonsense" in run.err
    assert "flow f: period 1: " in run.out
    summary = site.flows()["f"]
    wrong = [each for each in summary["partitions"] if each["outcome"] != "complete"]
    assert (summary["outcome"], summary["error"], wrong) == ("complete", None, [])
    records = {(each["topic"], each["partition"]): each["records"] for each in summary["partitions"]}
    assert records == {(topic, 0): 150, (topic, 1): 30, (f"{topic}-2", 0): 20}
    assert target.read(f"a.{topic}") == numbered(0, 150)
    assert json.loads(site.ask("status", "--json"))["flows"][0]["run"] is None


def _said(site: Site, target: Side) -> str:
    run = read_status({"bootstrap.servers": target.address}, "f", 10_000).run
    lines = (path.read_text() for path in site.report.glob("ledger/f/*/messages.jsonl"))
    return "".join([*lines, "" if run is None else run.reason])
