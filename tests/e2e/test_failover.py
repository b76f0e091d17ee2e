"""After a failover the old cluster is back, and so is all that copied from it: real brokers, schedules and a stream."""

from __future__ import annotations

import contextlib
import json
import signal

import pytest

from mirror.exit_status import HELD
from tests.e2e.broker_side import Side
from tests.e2e.site import Site, flow
from tests.polling import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(600)]


def test_the_lost_tail_is_not_appended_behind_newer_writes(site: Site, source: Side, target: Side) -> None:
    topic = "failover-balances"
    source.create(topic)
    site.write({"a": source.address, "b": target.address}, {"f": flow("a", "b", [topic]) + "\nrefresh-ms = 1000"})
    source.fill(topic, [b"balance=1"])
    copied = f"a.{topic}"
    stream = site.start(command="stream")
    with contextlib.ExitStack() as stack:
        stack.callback(site.kill)
        eventually(lambda: target.end(copied) > 0 and target.read(copied) == [b"balance=1"], within_s=120)
        held = site.ask("hold", "f", "--why", "a is lost", "--timeout", "60")
        assert held.startswith("f: held since ")
        source.fill(topic, [b"balance=2 (only on A)"])
        target.fill(copied, [b"balance=3 (written on B)"])
        run = site.run("--report-dir", str(site.folder / "cron"))
        assert run.status == HELD, run.err
        assert "f is held since " in run.err
        assert "a is lost; mirror release f lets it copy again" in run.err
        assert stream.poll() is None, "the stream waits"
        status = json.loads(site.ask("status", "--json"))["flows"][0]
        assert (status["latch"]["role"], status["state"]["state"]) == ("held", "held")
        assert target.read(copied) == [b"balance=1", b"balance=3 (written on B)"]
        site.ask("release", "f", "--timeout", "60")
        eventually(lambda: len(target.read(copied)) == 3, within_s=60, what="the stream begins the flow again")
        stream.send_signal(signal.SIGTERM)
        ended = site.finish(stream)
        assert ended.status == 0, ended.err
