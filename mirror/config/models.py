"""The models of a configuration: frozen, complete, and already checked.

Only :mod:`mirror.config.load` builds them from a file. The models check each key by itself; keys are kebab-case in the
file and snake_case in Python.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    model_validator,
)

from mirror.config import flow_policy, topic_names, topic_selection
from mirror.config.flow_settings import FlowSettings
from mirror.config.key_names import suggestion
from mirror.config.own_tables import Plain
from mirror.config.problems import HIDDEN, shown
from mirror.config.switch_settings import SwitchConfig
from mirror.errors import ConfigError, Problem

Option: TypeAlias = Plain | SecretStr
"""The value of one of Kafka's dotted keys."""


class ClusterConfig(BaseModel):
    """One Kafka cluster: its name, and Kafka's dotted keys for connecting to it. Secrets are sealed."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str
    options: dict[str, Option] = Field(default_factory=dict)

    def client_options(self) -> dict[str, Plain]:
        """Return the dotted keys as a client takes them, with secrets. No other method reveals these."""
        return {
            key: value.get_secret_value() if isinstance(value, SecretStr) else value
            for key, value in self.options.items()
        }


class FlowConfig(FlowSettings):
    """One flow: its settings, and what they decide, which has files of its own."""

    _is_on_cycle: bool = PrivateAttr(default=False)  # whether flows of the same file lead back to its source

    includes: ClassVar = topic_selection.includes
    selects: ClassVar = topic_selection.selects
    concerns: ClassVar = topic_selection.concerns
    wants: ClassVar = topic_selection.wants
    left_out: ClassVar = topic_selection.left_out
    why_not_copied: ClassVar = topic_selection.why_not_copied
    why_no_name: ClassVar = topic_selection.why_no_name
    carries_heartbeats: ClassVar = topic_names.carries_heartbeats
    carries_only_heartbeats: ClassVar = topic_selection.carries_only_heartbeats
    target_topic: ClassVar = topic_selection.target_topic
    name_by_naming: ClassVar = topic_names.name_by_naming
    source_topic: ClassVar = topic_selection.source_topic
    copy_policy: ClassVar = flow_policy.copy_policy

    @property
    def may_wait_for_topics(self) -> bool:
        """Whether its source may have no topic for it yet: another flow may create the first one."""
        return self._is_on_cycle


class MirrorConfig(BaseModel):
    """One configuration file, with its overrides."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    clusters: dict[str, ClusterConfig]
    flows: dict[str, FlowConfig]
    switches: dict[str, SwitchConfig] = Field(default_factory=dict)
    secret_files: tuple[Path, ...] = ()
    """The files with secrets that it was loaded from, or that it names."""

    @model_validator(mode="after")
    def _find_cycles(self) -> Self:
        targets: dict[str, set[str]] = {}
        for flow in self.flows.values():
            if not flow.is_within_one_cluster:
                targets.setdefault(flow.source, set()).add(flow.target)
        for flow in self.flows.values():
            reached = targets.get(flow.target, set())
            while new := {target for name in reached for target in targets.get(name, ())} - reached:
                reached |= new
            flow._is_on_cycle = flow.source in reached  # noqa: SLF001 - of this module
        return self

    @model_validator(mode="after")
    def _find_aside_topics(self) -> Self:
        topics = frozenset((flow.aside, flow.target) for flow in self.flows.values() if flow.aside)
        for flow in self.flows.values():
            flow._aside_topics = topics  # noqa: SLF001 - of this module
        return self

    def select(self, flow: str | None = None) -> list[FlowConfig]:
        """Return the flow of that name, or all flows. Raises ConfigError that names the flows if there is none."""
        if flow is None:
            return list(self.flows.values())
        if flow in self.flows:
            return [self.flows[flow]]
        allowed = f"no such flow{suggestion(flow, self.flows)}; there are: {', '.join(self.flows)}"
        raise ConfigError([Problem("", "flow", shown(flow), allowed)])

    def switch(self, name: str) -> SwitchConfig:
        """Return the switch of that name. Raises ConfigError that names the switches if there is none."""
        if name in self.switches:
            return self.switches[name]
        there = ", ".join(self.switches) or "none; add a table [switches.NAME]"
        allowed = f"no such switch{suggestion(name, self.switches)}; there are: {there}"
        raise ConfigError([Problem("", "switch", shown(name), allowed)])

    def with_timeout(self, seconds: float | None) -> MirrorConfig:
        """Return a copy for a command that may take ``seconds``; None: as it is configured.

        Each call takes half of them at most: the rest is for what the clusters that answer say.
        """
        if seconds is None:
            return self
        timeout = {"default.api.timeout.ms": max(1, round(seconds * 500))}
        clusters = {
            name: one.model_copy(update={"options": one.options | timeout}) for name, one in self.clusters.items()
        }
        return self.model_copy(update={"clusters": clusters})

    def described(self) -> dict[str, dict[str, dict[str, Plain | dict[str, Plain]]]]:
        """Return all tables as in a file, with defaults, as JSON values, and every secret as ``***``."""
        return {
            "clusters": {
                name: {key: HIDDEN if isinstance(value, SecretStr) else value for key, value in cluster.options.items()}
                for name, cluster in self.clusters.items()
            },
            "flows": {
                name: flow.model_dump(mode="json", by_alias=True, exclude={"name"}) for name, flow in self.flows.items()
            },
            "switches": {
                name: one.model_dump(mode="json", by_alias=True, exclude={"name"})
                for name, one in self.switches.items()
            },
        }
