"""Follows a topic with one task in this process, without Spark, until it is stopped.

   python -m tests.benchmarks.one_task '{"source": ..., "target": ..., "topic": ..., "copy": ..., "partitions": ...,
       "way": "sequences", "transactions" or "" (at least once), "requests": FILE,
       "profile": FILE or ""}'

Each second it writes how many requests it has made into the file ``requests``, by cluster and API. SIGTERM ends it.
"""

from __future__ import annotations

import cProfile
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mirror.client import Admin, NewTopic
from mirror.relay.model.observer import NullObserver, TaskSnapshot
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import OPEN_END, Range
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from mirror.relay.task.copy_ranges import copy_ranges


class Requests(NullObserver):
    """Writes the requests so far, each second."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._snapshot: Callable[[], TaskSnapshot] | None = None

    def task_started(self, snapshot: Callable[[], TaskSnapshot]) -> None:
        first, self._snapshot = self._snapshot is None, snapshot
        if first:
            threading.Thread(target=self._write, daemon=True).start()

    def _write(self) -> None:
        while self._snapshot is not None:
            time.sleep(1)
            found: dict[str, float] = {}
            for cluster, network in self._snapshot().networks.items():
                found |= {f"{cluster} {api}": meter.took.count for api, meter in network.requests.items()}
                found[f"{cluster} network_ms"] = network.busy_ms
            written = self.path.with_suffix(".new")
            written.write_text(json.dumps(found), encoding="utf-8")
            written.replace(self.path)


def ranges(asked: dict[str, Any]) -> list[Range]:
    with Admin({"bootstrap.servers": asked["source"]}) as admin:
        topic_id = str(admin.describe_topics([asked["topic"]])[asked["topic"]].topic_id)
        cluster_id = admin.describe_cluster().cluster_id
    return [
        Range(
            flow="f",
            topic=asked["topic"],
            target_topic=asked["copy"],
            partition=number,
            start=0,
            end=OPEN_END,
            source_cluster_id=cluster_id,
            topic_id=topic_id,
        )
        for number in range(asked["partitions"])
    ]


def copy(asked: dict[str, Any]) -> None:
    """Copy until the process ends."""
    planned, requests = ranges(asked), Requests(Path(asked["requests"]))
    with Admin({"bootstrap.servers": asked["target"]}) as admin:
        own = topic_of("f"), offset_topic_of("f")
        admin.create_topics([NewTopic(name, 1, 1, {"cleanup.policy": "compact"}) for name in own])
    copy_ranges(
        planned,
        source_options={"bootstrap.servers": asked["source"]},
        target_options={"bootstrap.servers": asked["target"]},
        policy=CopyPolicy(exactly_once=bool(asked["way"]), exactly_once_by=asked["way"] or "transactions"),
        watcher=requests,
    )


def main(asked: dict[str, Any]) -> None:
    profiles: list[cProfile.Profile] = []
    if asked["profile"]:
        run = threading.Thread.run

        def profiled(thread: threading.Thread) -> None:
            profile = cProfile.Profile(time.thread_time)
            profiles.append(profile)
            profile.runcall(run, thread)

        threading.Thread.run = profiled  # type: ignore[method-assign, assignment]

    def end(*_: object) -> None:
        for number, profile in enumerate(profiles):
            profile.disable()
            profile.dump_stats(f"{asked['profile']}.{number}")
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    copying = threading.Thread(target=copy, args=(asked,), daemon=True)
    copying.start()
    while copying.is_alive():
        copying.join(0.2)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
