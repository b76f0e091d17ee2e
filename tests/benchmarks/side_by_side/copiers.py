"""Starts each copier as a user would: one process (and what that starts) that copies one topic."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from mirror.sandbox.node import render
from tests.benchmarks.mirrormaker import mirrormaker_command
from tests.benchmarks.plain_spark.command import AVAILABLE_NOW, PlainSpark, command
from tests.benchmarks.side_by_side import mirrormaker_settings
from tests.benchmarks.side_by_side.workloads import COPIERS, PLAIN, PLAIN_SPARK, TRANSACTIONAL, Workload

Command = list[str | Path]

_PACKAGE: Final = "tests.benchmarks.side_by_side"
_TENTH_FROM: Final = 500_000
_LOOPS: Final = {"confluent-loop": "confluent_loop", "kafka-python": "kafka_python_loop"}


@dataclass(frozen=True, slots=True)
class Job:
    """One run: from ``source``'s topic to ``target`` (addresses). ``alias`` is the source's name, its own each run."""

    workload: Workload
    source: str
    target: str
    alias: str
    folder: Path

    @property
    def copy(self) -> str:
        """The topic at the target."""
        return f"{self.alias}.{self.workload.topic}"

    @property
    def report(self) -> Path:
        """Where ``mirror run`` puts its summary."""
        return self.folder / "report"


@dataclass(frozen=True, slots=True)
class Copier:
    """``command`` writes what it needs into the job's folder. ``ends``: by itself, once all is copied.

    ``several``: its processes have different roles. ``copies``: something arrives at the target. ``times``: with the
    timestamps of the source; otherwise they are left out of the comparison.
    """

    name: str
    command: Callable[[Job], Command]
    ends: bool = True
    several: bool = False
    copies: bool = True
    times: bool = True

    def share(self, workload: Workload) -> float:
        """The part of each partition's records that it copies: kafka-python takes minutes for a million."""
        slow = self.name == "kafka-python" and workload.kind == PLAIN and workload.records >= _TENTH_FROM
        return 0.1 if slow else 1.0


def _mirror(delivery: str, job: Job) -> Command:
    config, flow = job.folder / "mirror.toml", job.alias
    addresses = {job.alias: job.source, "target": job.target}
    lines = [f'[clusters.{name}]\n"bootstrap.servers" = "{address}"' for name, address in addresses.items()]
    lines += [f'[flows.{flow}]\nsource = "{job.alias}"\ntarget = "target"\ntopics = ["{job.workload.topic}"]']
    lines += [f'delivery = "{delivery}"\n']
    config.write_text("\n".join(lines), encoding="utf-8")
    return [sys.executable, "-m", "mirror.cli", "run", "--config", config, "--report-dir", job.report]


def _mirrormaker(name: str, job: Job) -> Command:
    workload, file = job.workload, job.folder / "mm2.properties"
    found = mirrormaker_settings.settings(
        name,
        job.source,
        job.target,
        alias=job.alias,
        topic=workload.topic,
        codec=workload.codec,
        partitions=workload.partitions,
        replicas=workload.replicas,
        transactional=workload.kind == TRANSACTIONAL,
    )
    file.write_text(render(found), encoding="ascii")
    return mirrormaker_command(file, mirrormaker_settings.java(workload.partitions))


def _plain_spark(job: Job) -> Command:
    checkpoint = str(job.folder / "checkpoint")
    topic, codec = job.workload.topic, job.workload.codec
    return [*command(PlainSpark(job.source, job.target, topic, job.copy, checkpoint, AVAILABLE_NOW, codec=codec))]


def _loop(name: str, job: Job) -> Command:
    words = {
        "source": job.source,
        "topic": job.workload.topic,
        "target": job.target,
        "copy": job.copy,
        "codec": job.workload.codec,
        "share": COPIER[name].share(job.workload),
    }
    module = f"{_PACKAGE}.{_LOOPS[name]}"
    return [sys.executable, "-m", module, json.dumps(words)]


def _ceiling(name: str, job: Job) -> Command:
    words = [name, job.source, job.workload.topic, job.target, job.copy]
    return [sys.executable, "-m", f"{_PACKAGE}.ceilings", *words]


def _all() -> dict[str, Copier]:
    found = [
        Copier(f"mirror-{delivery}", partial(_mirror, delivery), several=True)
        for delivery in ("exactly-once", "at-least-once")
    ]
    makers = (mirrormaker_settings.DEFAULT, mirrormaker_settings.TUNED, mirrormaker_settings.EXACTLY_ONCE)
    found += [Copier(name, partial(_mirrormaker, name), ends=False) for name in makers]
    found += [Copier(PLAIN_SPARK, _plain_spark, times=False)]
    found += [Copier(name, partial(_loop, name)) for name in _LOOPS]
    ceilings = ("null-copier", "produce-alone", "fetch-alone")
    found += [Copier(name, partial(_ceiling, name), copies=name != "fetch-alone") for name in ceilings]
    return {copier.name: copier for copier in found}


COPIER: Final = _all()
assert set(COPIER) == set(COPIERS)
