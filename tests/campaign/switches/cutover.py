"""One cut-over: the command is repeated until it is done, while processes are killed; then everything is judged."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mirror.exit_status import ATTENTION, DONE, FAILED, INCOMPLETE, ROLLED_BACK, STOPPED_FENCED
from tests.alignment.permissions.guarded import Acl
from tests.campaign.switches.clients import CONSUMERS, Clients
from tests.campaign.switches.command import ASKS, OperatorProcess
from tests.campaign.switches.schedule import BEGUN, Kill, Plan, Victim
from tests.campaign.switches.site import SwitchSite, ends_of, flow_name, switch_name
from tests.campaign.switches.verification import (
    Logs,
    of_acls,
    of_group,
    of_records,
    pauses_ms,
    unread,
)
from tests.e2e.site import Site
from tests.polling import eventually

WITHIN_S: Final = 900.0
_REPEATED: Final = {ATTENTION, FAILED, STOPPED_FENCED, ROLLED_BACK, INCOMPLETE, -9}
_ARRIVE_S: Final = 90.0
_READ_S: Final = 40.0
_REST_S: Final = 3.0
_DETAILS: Final = ("flow ", "topic ", "group ")
"""The beginnings of lines that say why a switch is refused, and which clients have arrived."""


@dataclass(slots=True)
class CutoverResult:
    """What has come of one cut-over."""

    number: int
    seed: int
    plan: Plan
    hits: list[str] = field(default_factory=list)
    """The victims that were killed at their moments."""
    statuses: list[int] = field(default_factory=list)
    """The exit statuses of its commands, in order; -9: killed."""
    seconds: float = 0.0
    pauses_s: dict[str, float] = field(default_factory=dict)
    steps_s: dict[str, float] = field(default_factory=dict)
    """How long each step of the last attempt has taken."""
    acknowledged: int = 0
    records: int = 0
    findings: list[str] = field(default_factory=list)


class CutoverRound:
    """Carries out one cut-over. Use it once, in one thread."""

    def __init__(
        self,
        site: SwitchSite,
        clients: Clients,
        folder: Path,
        result: CutoverResult,
        say: Callable[[str], None],
        program: Sequence[str] = ("-m", "mirror.cli"),
        within_s: float = WITHIN_S,
    ) -> None:
        """``folder`` keeps the proofs and the lines of its commands; the switch is to be done ``within_s``."""
        self._within_s: Final = within_s
        self._site: Final = site
        self._clients: Final = clients
        self._result: Final = result
        self._say: Final = say
        self._program: Final = program
        self._name: Final = switch_name(result.number)
        self._source, self._target = ends_of(result.number)
        self._commands: Final = Site(folder / self._name)
        self._commands.folder.mkdir(parents=True)
        self._commands.config.symlink_to(site.config)
        self._rng: Final = random.Random(f"{result.seed} {result.number} victims")
        self._waiting: Final = list(result.plan.kills)
        self._since_ms = 0
        self._last = ""
        """The last line of its commands."""

    def play(self) -> None:
        """Cut over, and judge; the result has the findings."""
        before = self._site.acls()
        began_s, self._since_ms = time.monotonic(), _now_ms()
        record: dict[str, Any] = {}
        try:
            while not record and time.monotonic() - began_s < self._within_s:
                record = self._command(before)
        finally:
            self._commands.kill()
        self._site.await_brokers()
        self._result.seconds = round(time.monotonic() - began_s, 1)
        if not record:
            why = f"{self._result.statuses}: {self._last}"
            self._result.findings.append(f"not done within {self._within_s:.0f} s: {why}")
            return
        self._result.steps_s = steps_s(record)
        self._judge(before)

    def _command(self, before: dict[str, set[Acl]]) -> dict[str, Any]:
        """Run the command once; return the record if the switch is done."""
        rollback = self._attend(self._start())
        if rollback:
            self._say("--rollback")
            self._attend(self._start("--rollback"), kills=False)
        status = self._result.statuses[-1]
        if status == ROLLED_BACK:
            self._rolled_back(before)
        elif status not in _REPEATED and status != DONE:
            self._result.findings.append(f"unexpected exit status {status}")
        return self._record if status == DONE else {}

    def _start(self, *more: str) -> OperatorProcess:
        folder = self._commands.folder
        return OperatorProcess(
            self._commands, self._program, self._name, folder / "proofs", folder / "lines.txt", *more
        )

    def _attend(self, operator: OperatorProcess, *, kills: bool = True) -> bool:
        """Follow the command to its end, and kill what is due; return whether it is to be rolled back now."""
        due = [(time.monotonic() + one.delay_s, one) for one in self._waiting if one.moment == BEGUN] if kills else []
        rollback = False
        while True:
            next_s = min((at_s for at_s, _ in due), default=time.monotonic() + 1) - time.monotonic()
            line = operator.line(min(next_s, 1.0))
            if line is None:
                break
            if line:
                self._last = line
                if not line.startswith(_DETAILS):
                    self._say(line)
                if (line == "fenced" and self._result.plan.early_stop) or ASKS in line:
                    self._clients.point(CONSUMERS, "")
                if kills:
                    due += [(time.monotonic() + one.delay_s, one) for one in self._waiting if one.moment == line]
            for at_s, one in [*due]:
                if at_s <= time.monotonic():
                    due.remove((at_s, one))
                    rollback |= self._kill(one, operator)
            self._clients.read()
        status = operator.end()
        self._result.statuses.append(status)
        self._say(f"exit status {status}")
        self._record = operator.record() if status == DONE else {}
        return rollback

    def _kill(self, kill: Kill, operator: OperatorProcess) -> bool:
        self._waiting.remove(kill)
        hit = True
        match kill.victim:
            case Victim.OPERATOR | Victim.ROLLED_BACK:
                hit = operator.kill(self._commands, with_children=self._result.plan.with_children)
            case Victim.SOURCE_BROKER:
                hit = self._site.kill_broker(self._source, self._rng)
            case Victim.TARGET_BROKER:
                hit = self._site.kill_broker(self._target, self._rng)
            case Victim.WORKER:
                hit = self._site.stream.kill_worker(self._rng)
            case Victim.DRIVER:
                self._site.kill_driver()
        self._say(f"{'killed' if hit else 'did not find'}: {kill.victim}, {kill.delay_s} s after {kill.moment}")
        if hit:
            self._result.hits.append(kill.victim)
        return kill.victim is Victim.ROLLED_BACK and hit

    def _rolled_back(self, before: dict[str, set[Acl]]) -> None:
        """Verify that all is as before: the ACLs, and that each producer goes on on the source."""
        since_ms = _now_ms()
        self._clients.point(CONSUMERS, self._source)
        for name, acls in self._site.acls().items():
            self._result.findings += of_acls(before[name], acls, f"cluster {name} after a rollback")
        try:
            eventually(
                lambda: self._clients.all_acknowledged_on(self._source, since_ms),
                within_s=_ARRIVE_S,
                every_s=0.5,
                what="records of all producers on the source after a rollback",
            )
        except AssertionError as error:
            self._result.findings.append(str(error))

    # --- the judgement

    def _judge(self, before: dict[str, set[Acl]]) -> None:
        found = self._result.findings
        try:
            eventually(
                lambda: self._clients.all_acknowledged_on(self._target, self._since_ms),
                within_s=_ARRIVE_S,
                every_s=0.5,
                what="records of all producers on the target",
            )
        except AssertionError as error:
            found.append(str(error))
        time.sleep(_REST_S)  # Clients work on the target for a while.
        self._clients.read()
        pauses = pauses_ms(self._clients.producers, self._source, self._target, self._since_ms)
        self._result.pauses_s = {name: ms / 1000 for name, ms in pauses.items()}
        acknowledged = self._clients.acknowledged()
        logs = self._logs(acknowledged)
        self._result.acknowledged = len(acknowledged)
        self._result.records = sum(map(len, logs.values()))
        found += of_records(acknowledged, logs)
        found += self._of_groups(logs)
        there = self._site.acls()
        denials = {("TOPIC", "LITERAL", topic, "User:*", "WRITE", "DENY") for topic in self._site.topics}
        found += of_acls(before[self._source] | denials, there[self._source], "source of a switch that is done")
        found += of_acls(before[self._target] - denials, there[self._target], "target of a switch that is done")

    def _logs(self, acknowledged: set[str]) -> Logs:
        """Read the target's logs until they have all that was acknowledged: open transactions hide what is behind."""
        until_s = time.monotonic() + _READ_S
        while True:
            logs = self._site.logs(self._target)
            if acknowledged <= {value for values in logs.values() for value in values} or time.monotonic() > until_s:
                return logs
            time.sleep(1)

    def _of_groups(self, logs: Logs) -> list[str]:
        groups = self._clients.layout.groups
        until_s = time.monotonic() + _READ_S
        while time.monotonic() < until_s:
            self._clients.read()
            if not any(unread(topics, self._clients.of_group(group), logs) for group, topics in groups.items()):
                break
            time.sleep(1)
        return [
            line
            for group, topics in groups.items()
            for line in of_group(group, topics, self._clients.of_group(group), logs)
        ]

    def release_back(self) -> None:
        """Release the flow that the switch has held, so that another switch can lead back."""
        flow = flow_name(self._source, self._target)
        until_s = time.monotonic() + _ARRIVE_S
        while status := self._commands.finish(self._commands.launch([*self._commands.command("release"), flow])).status:
            assert time.monotonic() < until_s, f"{flow} cannot be released: {status}"


def steps_s(record: dict[str, Any]) -> dict[str, float]:
    """Return how long each step of the last attempt has taken, by its record: until the state of that name.

    ``fence`` is the time until the brokers show it, ``hook`` that until clients are pointed at the target.
    """
    steps = record["steps"]
    began = max((n for n, step in enumerate(steps) if step["state"] == "planned"), default=0)
    times = {step["state"]: step["at_ms"] for step in steps[began:]}
    found = {"check": times["ready"] - times["planned"], "fence": times["fenced"] - record["fence_ms"]}
    order = ("fenced", "drained", "proved", "moved", "OPEN", "reversed", "done")
    for before, after in itertools.pairwise(order):
        found[after] = times[after] - times[before]
    found["hook"] = record["switched_ms"] - times["OPEN"]
    return {name: round(ms / 1000, 2) for name, ms in found.items()}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
