"""A copy cut short in any way: no process is left, and the next run goes on from the progress kept on the target."""

from __future__ import annotations

import operator
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.e2e.broker_side import Side
from tests.e2e.site import Run, Site, flow
from tests.polling import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS = 2
RECORDS = 12_000
"""In each partition, each one a batch of its own."""
AT_LEAST = 300
"""Records that each run copies of each partition before it is cut short."""
OFTEN = "commit-interval-ms = 200"
SLOWLY = f"""{OFTEN}
max-bytes-per-second = 60000"""


@dataclass
class Copy:
    """A topic's copy under way, run by run. ``expected`` is what the target has to hold, by partition."""

    site: Site
    target: Side
    topic: str
    values: list[list[bytes]]
    expected: list[list[bytes]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])

    def progress(self) -> list[int]:
        return [self.target.progress("f", f"a.{self.topic}", partition) for partition in range(PARTITIONS)]

    def run_until_cut(self, cut: Callable[[subprocess.Popen[str]], None] | None) -> Run:
        """Run; ``cut`` it short in the middle; check that it wrote what it should have, from where it should."""
        starts = self.progress()
        before = [len(written) for written in self.expected]
        child = self.site.start()
        if cut is not None:
            try:
                eventually(lambda: self._grown(starts), within_s=400, what="the middle of the copy")
            except BaseException:
                self.site.kill()
                self.site.finish(child)
                raise
            cut(child)
        run = self.site.finish(child)
        self.site.await_end()
        for partition, start in enumerate(starts):
            written = self.target.read(f"a.{self.topic}", partition)
            new = written[before[partition] :]
            # Nothing left out, nothing twice, nothing out of order; and the progress is just that of what is there.
            assert written[: before[partition]] == self.expected[partition]
            assert new == self.values[partition][start : start + len(new)], (partition, start)
            assert self.progress()[partition] == start + len(new)
            self.expected[partition] = [value for value in written if value is not None]
        return run

    def _grown(self, before: list[int]) -> bool:
        return all(at >= max(0, had) + AT_LEAST for at, had in zip(self.progress(), before, strict=True))


def test_the_next_run_goes_on(site: Site, source: Side, target: Side, unique: Callable[[str], str]) -> None:
    """SIGTERM, Ctrl-C, SIGKILL; then a run to the end."""
    topic = unique("long")
    source.create(topic, PARTITIONS)
    values = [[b"%d-%d" % (partition, n) for n in range(RECORDS)] for partition in range(PARTITIONS)]
    for partition in range(PARTITIONS):
        source.fill(topic, values[partition], partition, batch_num_messages=1, linger_ms=0)
    site.write({"a": source.address, "b": target.address}, {"f": flow("a", "b", [topic], SLOWLY)})
    copy = Copy(site, target, topic, values)

    for signum, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        run = copy.run_until_cut(operator.methodcaller("send_signal", signum))
        assert run.status == status
        assert run.errors == [f"mirror: interrupted by {signum.name}; the next run resumes from the committed progress"]
        assert "Traceback" not in run.out + run.err
        assert site.flows()["f"]["outcome"] == "unfinished"
        outcome = {partition: each["end"] for (_, partition), each in site.partitions("f").items()}
        assert [outcome[partition] for partition in range(PARTITIONS)] == copy.progress()
        assert all(each["records"] == each["end"] - each["start"] for each in site.partitions("f").values())
    graceful = copy.progress()
    assert all(0 < offset < RECORDS for offset in graceful)

    # No process is left that could end Spark in order.
    assert copy.run_until_cut(operator.methodcaller("kill")).status == -signal.SIGKILL
    killed = copy.progress()
    assert site.flows()["f"]["outcome"] == "unfinished"
    assert all(before < after < RECORDS for before, after in zip(graceful, killed, strict=True))

    site.write({"a": source.address, "b": target.address}, {"f": flow("a", "b", [topic], OFTEN)})
    last = copy.run_until_cut(None)
    assert (last.status, last.errors) == (0, [])
    results = site.partitions("f")
    for partition in range(PARTITIONS):
        result = results[topic, partition]
        assert (result["start"], result["end"]) == (killed[partition], RECORDS)
        assert result["records"] == RECORDS - killed[partition]
        assert copy.expected[partition] == values[partition]
