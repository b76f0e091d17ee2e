"""Does what the machine has decided: ACLs, hooks, runs, verifications, groups, latches."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar

from mirror.client import Admin
from mirror.closing import Closing
from mirror.cluster.acls import read_denial, write_denial
from mirror.config.patterns import matches
from mirror.errors import FlowError, KafkaError, brief, named
from mirror.exit_status import ATTENTION, DONE, FAILED
from mirror.observation import Side
from mirror.relay.progress.flow_topic import switch_topic_of
from mirror.relay.progress.latch import read_latch
from mirror.runtime.clock import SystemClock
from mirror.spark.holding import hold, release
from mirror.spark.preflight import flow_topics
from mirror.spark.preflight.flow_groups import open_sync
from mirror.switch.acl_fence import denials, exactly
from mirror.switch.facts import Facts, FlowLatch
from mirror.switch.hooks import run_hook
from mirror.switch.machine import Act, StepResult, Terms
from mirror.switch.proving import flow_of, unproved
from mirror.switch.readiness import blockers, inexact
from mirror.switch.reading import FactReader, is_alive, writers_of
from mirror.switch.record import SwitchRecord
from mirror.switch.record_store import RecordStore
from mirror.switch.record_topic import CALL_MS, KafkaRecordTopic
from mirror.takeover.fencing import fence

if TYPE_CHECKING:
    from mirror.config.models import MirrorConfig
    from mirror.config.switch_settings import SwitchConfig

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

_HOLD_S: Final = 90.0
_SHOWN: Final = 5


class Files(NamedTuple):
    """Where a switch finds its configuration, and keeps the proofs of its flows, which may be lost."""

    config: Path
    secrets_dir: Path | None
    folder: Path


class ClusterSite(Closing):
    """The clusters of one switch, as :class:`mirror.switch.operator.Site` has them. Use it in one thread."""

    _holds_for: ClassVar[str] = "cut over"
    """Why flows are held, as their latches say."""

    def __init__(
        self,
        config: MirrorConfig,
        switch: SwitchConfig,
        terms: Terms,
        files: Files,
        on_progress: Callable[[str], None],
    ) -> None:
        """``on_progress`` is called with a line about what takes long. Raises ConfigError."""
        self._config: Final = config
        self._switch: Final = switch
        self._terms: Final = terms
        self._files: Final = files
        self._on_progress: Final = on_progress
        first = config.flows[switch.flows[0]]
        self._names: Final = first.source, first.target
        self._options: Final = [config.clusters[name].client_options() for name in self._names]
        self.source: Final = Admin(self._options[0])
        self.target: Final = Admin(self._options[1])
        self._topics: Final = [KafkaRecordTopic(options, switch.name) for options in self._options]
        self._store: Final = RecordStore(self._topics[1], self._topics[0])
        self.reader: Final = FactReader(config, switch, self.source, self.target)
        self._acts: Final[Mapping[Act, Callable[[SwitchRecord, Facts], StepResult]]] = {
            Act.CHECK: lambda record, _: self._check(record),
            Act.FENCE: lambda record, _: self._fence(record),
            Act.UNFENCE: lambda record, _: self._unfence(record),
            Act.ABORT_OPEN: lambda _, facts: self._abort(facts),
            Act.COPY: lambda record, _: self._copy(record),
            Act.PROVE: self._prove_and_hold,
            Act.MOVE: lambda _, facts: self._move(facts),
            Act.HOLD: lambda record, facts: self._hold(record, facts, threading.Event()),
            Act.RELEASE: self._release,
            Act.LIFT: lambda record, _: self._lift(record),
            Act.SWITCH: lambda record, _: self._hook(switch.hook_switch, "switch", record),
            Act.REVERSE: lambda _, __: self._reverse(),
            Act.CLIENTS: lambda record, _: self._clients(record),
        }

    def close(self) -> None:
        """Close the clients."""
        for topic in self._topics:
            topic.close()
        self.source.close()
        self.target.close()

    # --- the record

    def prepare(self) -> None:
        """Create the topics of the record, where they are missing. Raises FlowError, KafkaError.

        A switch that has begun has them, and may go on with one cluster: open with the target, back with the source.
        """
        if self.read_record() is None:
            self._prepare(self._names[1], self.target)
            self._prepare(self._names[0], self.source)

    def _prepare(self, cluster: str, admin: Admin) -> None:
        name = switch_topic_of(self._switch.name)
        topic = flow_topics.FlowTopic(name, "its record of the switch", "nothing is switched")
        _, warnings = flow_topics.prepare([topic], Side(cluster, admin))
        if name not in admin.describe_topics([name]):
            raise FlowError(f"cluster {cluster}: {'; '.join(warnings) or f'topic {name} is missing'}")

    def read_record(self) -> SwitchRecord | None:
        return self._store.read()

    def store(self, record: SwitchRecord) -> None:
        self._store.store(record)
        if self._store.away is not None:
            _log.warning("only one cluster has the switch's last record: %s", self._store.away)

    def facts(self, record: SwitchRecord) -> Facts:
        return self.reader.read(record)

    # --- what is done

    def act(self, act: Act, record: SwitchRecord, facts: Facts) -> StepResult:
        return self._acts[act](record, facts)

    def why_bypassed(self, partitions: Sequence[str]) -> str:
        """Return who writes to partitions behind the fence."""
        not_fenced = (
            "super users, whom no ACL denies" if self._switch.fence == "acl" else "those whom the hook leaves out"
        )
        return f"{writers_of(self.source, partitions)}; the fence does not stop {not_fenced}"

    def _check(self, record: SwitchRecord) -> StepResult:
        found = [*blockers(self._config, self._switch, self.reader)]
        if found:
            return StepResult(ok=False, why="\n".join(found))
        # What is copied and proved now, producers need not wait for.
        copied = self._copy(record)
        proved = self._prove(record) if copied.ok else copied
        # Once more: of what was not copied, it was not known where it is.
        late = [*inexact(self._config, self._switch)] if proved.ok else []
        return StepResult(ok=False, why="\n".join(late)) if late else proved

    def _fence(self, record: SwitchRecord) -> StepResult:
        if record.fence == "hook":
            return self._hook(self._switch.hook_fence, "fence", record)
        self.source.create_acls(denials(record), timeout_ms=CALL_MS)
        return StepResult(ok=True)

    def _unfence(self, record: SwitchRecord) -> StepResult:
        if record.fence == "hook":
            return self._hook(self._switch.hook_fence, "unfence", record)
        self.source.delete_acls([exactly(one) for one in denials(record)], timeout_ms=CALL_MS)
        return StepResult(ok=True)

    def _lift(self, record: SwitchRecord) -> StepResult:
        lifted = [*map(write_denial, record.topics), *map(read_denial, record.groups)]
        self.target.delete_acls([exactly(one) for one in lifted], timeout_ms=CALL_MS)
        return StepResult(ok=True)

    def _abort(self, facts: Facts) -> StepResult:
        fence(self._options[0], facts.open_transactions, CALL_MS)
        return StepResult(ok=True)

    def _hook(self, command: Sequence[str], step: str, record: SwitchRecord) -> StepResult:
        facts: dict[str, Any] = {
            "switch": self._switch.name,
            "step": step,
            "source": self._names[0],
            "target": self._names[1],
            "source_bootstrap": self._options[0].get("bootstrap.servers"),
            "target_bootstrap": self._options[1].get("bootstrap.servers"),
            "topics": record.topics,
        }
        return run_hook(command, facts, self._switch.hook_seconds)

    def _copy(self, record: SwitchRecord) -> StepResult:
        for flow in self._switch.flows:
            if is_alive(self.target, flow):
                continue
            self._on_progress(f"flow {flow}: copying what is left")
            status, _ = self._run(record, ["run", "--flow", flow, "--report-dir", str(self._files.folder / "report")])
            if status != DONE:
                return StepResult(ok=False, why=f"mirror run --flow {flow} ended with {status}", retry=True)
        return StepResult(ok=True)

    def _prove(self, record: SwitchRecord) -> StepResult:
        """Compare both clusters behind the last proof; the target has to have all up to the fenced ends."""
        hashes: dict[str, str] = {}
        for flow in self._switch.flows:
            self._on_progress(f"flow {flow}: comparing both clusters behind the last proof")
            proof = self._files.folder / f"{flow}.proof.json"
            report = self._files.folder / "verify"
            status, output = self._run(
                record, ["verify", "--flow", flow, "--proof", str(proof), "--report-dir", str(report), "--json"]
            )
            if (found := flow_of(output)) is None:
                return StepResult(ok=False, why=f"flow {flow}: mirror verify ended with exit status {status}")
            of_flow = {
                topic: of_topic for topic, of_topic in record.ends.items() if self._config.flows[flow].includes(topic)
            }
            lines = [found["error"]] if found["error"] else [*unproved(found["partitions"], of_flow)]
            if lines or status == ATTENTION:
                return StepResult(ok=False, why=f"flow {flow}: {'; '.join(lines[:_SHOWN]) or 'both clusters differ'}")
            hashes[flow] = str(found["proof"] or "")
        return StepResult(ok=True, evidence=hashes)

    def _prove_and_hold(self, record: SwitchRecord, facts: Facts) -> StepResult:
        """Compare both clusters while the runs of the flows end."""
        given_up = threading.Event()
        proved = StepResult(ok=False)
        with ThreadPoolExecutor(1, "hold") as pool:
            holding = pool.submit(self._hold, record, facts, given_up)
            try:
                proved = self._prove(record)
            finally:
                if not proved.ok:
                    given_up.set()  # producers wait for no hold, then
            return replace(proved, held=holding.result().ok) if proved.ok else proved

    def _run(self, record: SwitchRecord, arguments: Sequence[str]) -> tuple[int, str]:
        """Run a command of this program; return its exit status and its output. Its errors go to this one's.

        It is killed at the switch's deadline.
        """
        secrets = [] if self._files.secrets_dir is None else ["--secrets-dir", str(self._files.secrets_dir)]
        command = [sys.executable, "-m", "mirror.cli", *arguments, "--config", str(self._files.config), *secrets]
        left_ms = record.fence_ms + self._terms.deadline_ms - SystemClock().unix_ms()
        try:
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                text=True,
                check=False,
                errors="replace",
                timeout=max(1.0, left_ms / 1000) if record.fence_ms else None,
            )
        except subprocess.TimeoutExpired:
            return FAILED, ""
        return done.returncode, done.stdout

    def _move(self, facts: Facts) -> StepResult:
        late: list[str] = []
        for name in self._switch.flows:
            flow = self._config.flows[name]
            if not flow.groups.sync:
                continue
            with open_sync(self._config, flow, holder=self._terms.by) as sync:
                report = sync.round()
            late += [f"flow {name}: {problem}" for problem in report.problems]
            for group, state in report.groups.items():
                if not state.is_in_step and not matches(self._switch.waive, group):
                    late.append(f"group {group}: {brief(', '.join(sorted(state.reasons)) or 'pending')}")
        if late:
            return StepResult(ok=False, why="; ".join(late[:_SHOWN]), retry=True)
        return StepResult(ok=True, evidence=dict(facts.positions or {}))

    def _hold(self, record: SwitchRecord, facts: Facts, given_up: threading.Event) -> StepResult:
        """Hold the flows at the same time: each waits for its end, and all latches are set within the lease.

        Behind TAKEOVER_MS nothing of it happens any more: the next operator waits no longer.
        """
        latches, until_s = facts.latches or {}, time.monotonic() + _HOLD_S

        def pause(seconds: float) -> None:
            if given_up.wait(seconds):
                raise FlowError("the flows are not waited for any more")

        def one(name: str) -> str:
            seen = latches[name]
            return hold(
                self._config,
                self._config.flows[name],
                why=self._holds_for,
                by=self._terms.by,
                # Of another generation: a later operator has held it, and released it for a rollback.
                expected=seen.generation,
                takes_over=self._takes_over(seen),
                until_s=until_s,
                call_ms=CALL_MS,
                pause=pause,
            ).running

        found = _at_once(one, record.latches)
        running = [f"flow {name}: {why}" for name, why in found.items() if why]
        return StepResult(ok=not running, why="; ".join(running), retry=True)

    def _takes_over(self, seen: FlowLatch) -> bool:
        """Whether a flow is held although others hold it."""
        del seen
        return False

    def _release(self, record: SwitchRecord, facts: Facts) -> StepResult:
        seen = {name: latch for name, latch in (facts.latches or {}).items() if name in record.latches}

        def one(name: str) -> None:
            release(self._config, self._config.flows[name], by=self._terms.by, expected=seen[name].generation)

        ours = [name for name, latch in seen.items() if latch.is_held and latch.by == self._terms.by]
        _at_once(one, ours)
        return StepResult(ok=True)

    def _reverse(self) -> StepResult:
        """Release the flows of the way back that this switch holds."""

        def one(name: str) -> str:
            back = self._config.flows[name]
            latch = read_latch(self._config.clusters[back.target].client_options(), name, CALL_MS)
            if latch.is_held and latch.by == self._terms.by:
                release(self._config, back, by=self._terms.by, expected=latch.generation)
            elif latch.is_held:
                return f"flow {name} of the way back is {latch.held_line(name)}"
            return ""

        return StepResult(ok=True, why="; ".join(filter(None, _at_once(one, self._switch.back).values())))

    def _clients(self, record: SwitchRecord) -> StepResult:
        options: Mapping[str, object] = {**self._options[1], "bootstrap.servers": self._switch.clients}
        try:
            with Admin(options) as admin:
                found = admin.describe_cluster(timeout_ms=CALL_MS).cluster_id
        except KafkaError as error:
            return StepResult(ok=False, why=f"clients ({self._switch.clients}) cannot connect: {error}", retry=True)
        if found != record.clusters[1]:
            why = f"{self._switch.clients} leads to cluster {found}, not to {named('cluster', record.clusters[1:])}"
            return StepResult(ok=False, why=why, retry=True)
        return StepResult(ok=True)


def _at_once(do: Callable[[str], T], flows: Collection[str]) -> dict[str, T]:
    """Return what ``do`` returns for each flow: each waits for the end of its runs. Raises what it raises."""
    with ThreadPoolExecutor(max(1, len(flows)), "flow") as pool:
        return dict(zip(flows, pool.map(do, flows), strict=True))
