"""The clients of a campaign: two programs, confluent-kafka's and Java's, and what they have noted."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mirror.sandbox import process
from mirror.sandbox.fetch import class_path, fetch
from mirror.sandbox.java import find_java
from tests import jvm
from tests.campaign.switches.verification import MemberNotes, ProducerNotes

PRODUCERS: Final = "producers"
CONSUMERS: Final = "consumers"
HOOK: Final = """#!/bin/sh
# Points clients at the target of a switch: writes its name where they see it.
target=$(sed -n 's/.*"target": "\\([^"]*\\)".*/\\1/p')
test -n "$target" || exit 1
for kind in producers consumers; do
    echo "$target" > "{folder}/$kind.hook" && mv "{folder}/$kind.hook" "{folder}/$kind" || exit 1
done
"""
_PROGRAM: Final = Path(__file__).parent / "java" / "SwitchClients.java"
_CHECKOUT: Final = Path(__file__).parents[3]
_QUIET: Final = ("-Dorg.apache.logging.log4j.level=OFF", "-Dlog4j2.level=OFF", "-Xmx192m")
_READERS_OF_A_TOPIC: Final = 2
_SHARED_EVERY: Final = 5
"""Each so manieth group has two members, one of each program."""
_TRANSACTIONAL_TOPICS: Final = 3
_STOP_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Layout:
    """Which producers write to which topics, and which groups read them; even numbers are confluent-kafka's clients."""

    topics: tuple[str, ...]
    producers: Mapping[str, tuple[str, Sequence[str]]]
    """Their kinds and topics."""
    groups: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, topics: int, groups: int, producers: int) -> Layout:
        """Each topic has an idempotent producer and is read by two groups; two more producers are transactional."""
        names = tuple(f"topic-{number:03}" for number in range(topics))
        writing = {f"p{n:02}": ("idempotent", names[n::producers]) for n in range(min(producers, topics))}
        writing |= {f"t{n:02}": ("transactional", names[n::2][:_TRANSACTIONAL_TOPICS]) for n in range(2)}
        reading: dict[str, list[str]] = {f"group-{number:03}": [] for number in range(groups)}
        for number, name in enumerate(names):
            for reader in range(min(groups, _READERS_OF_A_TOPIC)):
                reading[f"group-{(number + reader * (groups // 2 or 1)) % groups:03}"].append(name)
        return cls(names, writing, {group: its for group, its in reading.items() if its})

    def members(self) -> Iterator[tuple[str, str, int]]:
        """Yield each consumer's name, its group, and the program that it belongs to."""
        for number, group in enumerate(self.groups):
            yield f"{group}.0", group, number % 2
            if number % _SHARED_EVERY == 0:
                yield f"{group}.1", group, 1 - number % 2


class Clients:
    """Both programs, their notes, and where they are pointed. Use it in one thread."""

    def __init__(self, folder: Path, layout: Layout, bootstraps: Mapping[str, str], per_second: float) -> None:
        """``bootstraps`` are the addresses of the clusters for clients that log in."""
        self.layout: Final = layout
        self.hook: Final = folder / "switch.sh"
        self.producers: Final = {name: ProducerNotes() for name in layout.producers}
        self.members: Final = {name: MemberNotes() for name, _, _ in layout.members()}
        self._folder: Final = folder
        self._programs: list[process.Process] = []
        self._read_to: Final = dict.fromkeys((*self.producers, *self.members), 0)
        (folder / "notes").mkdir(parents=True)
        self.hook.write_text(HOOK.format(folder=folder), encoding="utf-8")
        self.hook.chmod(0o755)
        common = [f"folder={folder}", f"per.second={per_second}"]
        common += [f"bootstrap.{cluster}={address}" for cluster, address in bootstraps.items()]
        for program in range(2):
            (folder / f"settings-{program}").write_text("\n".join([*common, *self._of(program)]) + "\n", "utf-8")

    def _of(self, program: int) -> Iterator[str]:
        for number, (name, (kind, topics)) in enumerate(self.layout.producers.items()):
            if number % 2 == program:
                yield f"producer.{name}={kind} {','.join(topics)}"
        for name, group, of in self.layout.members():
            if of == program:
                yield f"consumer.{name}={group} {','.join(self.layout.groups[group])}"

    def point(self, kind: str, cluster: str) -> None:
        """Point ``kind`` (PRODUCERS, CONSUMERS) at a cluster; consumers at none ("") stop in order."""
        fresh = self._folder / f"{kind}.new"
        fresh.write_text(cluster, encoding="utf-8")
        fresh.replace(self._folder / kind)

    def start(self, cluster: str) -> None:
        """Start both programs, on that cluster."""
        self.point(PRODUCERS, cluster)
        self.point(CONSUMERS, cluster)
        jars = class_path(fetch())
        classes = jvm.compiled(_PROGRAM, self._folder, jars)
        environment = ["/usr/bin/env", f"PYTHONPATH={_CHECKOUT}", f"PATH={os.environ['PATH']}"]
        python = [*environment, sys.executable, "-m", "tests.campaign.switches.client_program"]
        java = [str(find_java().path), *jvm.PLAIN, *_QUIET, "-cp", f"{classes}:{jars}", _PROGRAM.stem]
        for program, command in enumerate((python, java)):
            whole: list[str | Path] = [*command, self._folder / f"settings-{program}"]
            self._programs.append(process.launch(whole, output=self._log(program), outlives_owner=False))

    def _log(self, program: int) -> Path:
        return self._folder / f"clients-{program}.log"

    def read(self) -> None:
        """Take in what was noted since the last call. AssertionError if a program has ended."""
        for program, one in enumerate(self._programs):
            assert one.alive(), f"clients have ended: {self._log(program).read_text(encoding='utf-8')[-2000:]}"
        notes: Mapping[str, ProducerNotes | MemberNotes] = {**self.producers, **self.members}
        for name, of_client in notes.items():
            path = self._folder / "notes" / name
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(self._read_to[name])
                whole, _, _ = file.read().rpartition(b"\n")
            if whole:
                self._read_to[name] += len(whole) + 1
                for line in whole.decode().split("\n"):
                    of_client.see(line)

    def of_group(self, group: str) -> list[MemberNotes]:
        """Return the notes of the members of a group."""
        return [self.members[name] for name, its, _ in self.layout.members() if its == group]

    def acknowledged(self) -> set[str]:
        """Return the values of all acknowledged records."""
        return {one.value for notes in self.producers.values() for one in notes.acknowledged}

    def all_acknowledged_on(self, cluster: str, since_ms: int) -> bool:
        """Return whether each producer has had a record acknowledged there since then, of what is noted by now."""
        self.read()
        return all(
            any(one.cluster == cluster and one.at_ms >= since_ms for one in reversed(notes.acknowledged))
            for notes in self.producers.values()
        )

    def stop(self) -> None:
        """End both programs, without order."""
        process.stop(self._programs, _STOP_S)
