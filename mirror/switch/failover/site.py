"""The clusters of a failover: what is stored, read and done, on the target alone where the source is dead."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from mirror.errors import KafkaError, named
from mirror.switch.acting import ClusterSite, Files
from mirror.switch.failover.deciding import takes_over
from mirror.switch.failover.standby import StandbyReader
from mirror.switch.machine import Act, StepResult, Terms
from mirror.switch.record_store import NoTopic, RecordStore
from mirror.takeover.fencing import fence_flow

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.client import TopicPartition
    from mirror.config.models import MirrorConfig
    from mirror.config.switch_settings import SwitchConfig
    from mirror.switch.facts import Facts, FlowLatch
    from mirror.switch.record import SwitchRecord

_FENCE_MS: Final = 20_000
_AT_ONCE: Final = 8
"""So many threads end the ids of copies: each waits for coordinators, and a flow may have thousands."""


class FailoverSite(ClusterSite):
    """The clusters of one failover, as :class:`mirror.switch.operator.Site` has them. Use it in one thread."""

    _holds_for = "fail over"

    def __init__(
        self,
        config: MirrorConfig,
        switch: SwitchConfig,
        terms: Terms,
        files: Files,
        on_progress: Callable[[str], None],
    ) -> None:
        """As :class:`.ClusterSite`. Raises ConfigError."""
        super().__init__(config, switch, terms, files, on_progress)
        self._on_target: Final = RecordStore(self._topics[1], NoTopic())
        self.standby: Final = StandbyReader(config, switch, self.source, self.target)

    def close(self) -> None:
        """Close the clients, and end the probes of the source."""
        self.standby.close()
        super().close()

    def prepare(self) -> None:
        """Create the topic of the record on the target, if it is missing. Raises FlowError, KafkaError."""
        self._prepare(self._names[1], self.target)

    def read_record(self) -> SwitchRecord | None:
        return self._on_target.read()

    def store(self, record: SwitchRecord) -> None:
        self._on_target.store(record)

    def facts(self, record: SwitchRecord) -> Facts:
        return self.standby.read(record)

    def act(self, act: Act, record: SwitchRecord, facts: Facts) -> StepResult:
        if act is Act.HOLD:
            flows = named("flow", record.flows)
            self._on_progress(f"holding {flows}: what was stored before may be sent for some seconds")
        if act is Act.END_COPIES:
            return self._end_copies(record)
        return super().act(act, record, facts)

    def _takes_over(self, seen: FlowLatch) -> bool:
        return takes_over(seen, self._terms)

    # Invariant: No copy of the flows appends anything once their ids are ended, and none of its transactions stays
    #   open.
    # Test: tests/switch_failover/test_standby_on_fakes.py::test_the_ids_of_all_copies_are_ended
    def _end_copies(self, record: SwitchRecord) -> StepResult:
        """Have the target refuse what copies send late, and abort the transactions that they have left open."""
        failed: dict[TopicPartition, KafkaError] = {}
        for name in record.flows:
            tps = sorted(self.standby.targets_of(self._config.flows[name]))
            portions = [tps[first::_AT_ONCE] for first in range(min(_AT_ONCE, len(tps)))]

            def end(portion: list[TopicPartition], flow: str = name) -> dict[TopicPartition, KafkaError]:
                return fence_flow(self.target, self._options[1], flow, portion, _FENCE_MS)

            with ThreadPoolExecutor(_AT_ONCE, "end-copies") as pool:
                for found in pool.map(end, portions):
                    failed |= found
        if not failed:
            return StepResult(ok=True)
        first = next(iter(failed.values()))
        why = f"the copies of {named('partition', sorted(map(str, failed)))} cannot be ended: {first}"
        return StepResult(ok=False, why=why, retry=True)
