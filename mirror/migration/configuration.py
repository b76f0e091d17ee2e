"""A configuration of our own from what MirrorMaker 2 does: it loads, and what is left out is said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mirror.cluster.settings import Address
from mirror.config import cycles
from mirror.config.clients import addresses
from mirror.config.key_names import PREFIX, level_name, variable
from mirror.config.load import load
from mirror.config.models import FlowConfig, MirrorConfig
from mirror.errors import ConfigError
from mirror.migration.findings import Finding, Kind
from mirror.migration.parsing.entries import Settings, shown
from mirror.migration.replications import Replication
from mirror.migration.tables.clusters import Cluster, map_cluster
from mirror.migration.tables.document import render
from mirror.migration.tables.flow_tables import FlowMapping, ImportedFlow
from mirror.migration.takeover_options import takeover_options

_ALIAS: Final = re.compile(r"[A-Za-z0-9._-]+")
_NOT_IN_FLOW_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
_ANY_FILE: Final = Path("mirror.toml")


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """The text of a configuration."""

    text: str
    flows: tuple[str, ...]
    secrets: Mapping[str, str] = field(repr=False)
    """The contents of the files in its secrets folder, by name."""
    stand_ins: Mapping[str, str] = field(repr=False)
    """Environment variables by which the file loads without its secrets and references: to check it, not to run it."""

    def check(self) -> MirrorConfig:
        """Load the file. Raises ConfigError."""
        return load(_ANY_FILE, environ=self.stand_ins, text=self.text.encode())


@dataclass(slots=True)
class Imported:
    """What is to be written, and what is to be said."""

    file: ConfigurationFile | None = None
    """None if no flow can be written."""
    findings: list[Finding] = field(default_factory=list)
    used: set[tuple[int, str]] = field(default_factory=set)
    """The lines and keys of the source from which something is written."""


def flow_names(replications: Sequence[Replication]) -> list[str]:
    """Return a name for each replication: ``A-B`` for ``A->B``, made of what a flow's name may have, and unique."""
    names: list[str] = []
    for replication in replications:
        name = _NOT_IN_FLOW_NAMES.sub("-", "-".join(replication.pair))
        taken = {level_name(other) for other in names}
        number = 1
        unique = name
        while level_name(unique) in taken:
            number += 1
            unique = f"{name}-{number}"
        names.append(unique)
    return names


class Importer:
    """Makes a configuration of replications; ``source`` names the file that they come from."""

    def __init__(self, replications: Sequence[Replication], *, source: str) -> None:
        self._replications = replications
        self._source = source
        self._found = Imported()
        self._clusters: dict[str, Cluster] = {}
        self._settings: dict[str, dict[str, tuple[str, int]]] = {}

    def run(self) -> Imported:
        """Return the configuration, with the secrets and findings that belong to it."""
        flows: list[tuple[ImportedFlow, FlowConfig]] = []
        for name, replication in zip(flow_names(self._replications), self._replications, strict=True):
            flow = FlowMapping(name, replication).map()
            self._found.findings += flow.findings
            obstacles = [*flow.obstacles, *self._add_clusters(name, replication)]
            checked = obstacles or self._checked(flow, replication)
            if isinstance(checked, FlowConfig):
                flows.append((flow, checked))
                self._found.findings += takeover_options(name, replication)
            else:
                self._found.findings += checked
        flows = self._without_circles(flows)
        if flows:
            self._found.file = self._file(flows)
        return self._found

    def _add_clusters(self, name: str, replication: Replication) -> list[Finding]:
        """Map the clusters of a replication if that is not done; return why they cannot be used."""
        reasons = []
        for end, alias in zip(("source", "target"), replication.pair, strict=True):
            settings = replication.cluster(end)
            values = {key: (setting.value, setting.line) for key, setting in settings.items()}
            same = [other for other in self._clusters if level_name(other) == level_name(alias) and other != alias]
            if not _ALIAS.fullmatch(alias):
                reasons.append(
                    f"a cluster's name is made of letters, digits, '.', '_' and '-', and not {shown('', alias)}"
                )
            elif same:
                reasons.append(f"the clusters {same[0]} and {alias} cannot be distinguished in environment variables")
            elif alias not in self._clusters:
                self._settings[alias] = values
                self._map(alias, settings)
            elif {key: value for key, (value, _) in self._settings[alias].items()} != {
                key: value for key, (value, _) in values.items()
            }:
                reasons.append(f"it connects to cluster {alias} with other settings than the flows before it")
            if alias in self._clusters:
                reasons += self._clusters[alias].obstacles
        pair = str(replication.pair)
        return [
            Finding(Kind.LEFT_OUT, 0, shown("", pair), "", f"the flow {name} is not written: {reason}", "")
            for reason in dict.fromkeys(reasons)
        ]

    def _map(self, alias: str, settings: Settings) -> None:
        cluster = self._clusters[alias] = map_cluster(alias, settings)
        self._found.findings += cluster.findings

    def _checked(self, flow: ImportedFlow, replication: Replication) -> FlowConfig | list[Finding]:
        """Return the flow as our own loader reads it, or why it does not."""
        try:
            return self._text([flow], replication.pair).check().flows[flow.name]
        except ConfigError as error:
            pair = str(replication.pair)
            return [
                Finding(
                    Kind.LEFT_OUT,
                    0,
                    shown("", pair),
                    "",
                    f"the flow {flow.name} is not written: {problem.key}: {problem.allowed}",
                    "correct what it comes from",
                )
                for problem in error.problems
            ]

    def _without_circles(self, flows: list[tuple[ImportedFlow, FlowConfig]]) -> list[tuple[ImportedFlow, FlowConfig]]:
        """Return the flows but those that would feed the ones before them; one file refuses these."""
        identity = cycles.cluster_identities({alias: _addresses(cluster) for alias, cluster in self._clusters.items()})
        if not any(cycles.feedback_groups([config for _, config in flows], identity)):
            return flows
        kept: list[tuple[ImportedFlow, FlowConfig]] = []
        for flow, config in flows:
            found = next(cycles.feedback_groups([other for _, other in (*kept, (flow, config))], identity), None)
            if found is None:
                kept.append((flow, config))
                continue
            meaning = f"the flow {flow.name} is not written: {found[1]}"
            pair = f"{config.source}->{config.target}"
            self._found.findings.append(Finding(Kind.LEFT_OUT, 0, shown("", pair), "", meaning, ""))
        return kept

    def _file(self, flows: Sequence[tuple[ImportedFlow, FlowConfig]]) -> ConfigurationFile:
        names = {alias for _, config in flows for alias in (config.source, config.target)}
        file = self._text([flow for flow, _ in flows], names)
        file.check()
        tables = [cluster.table for alias, cluster in self._clusters.items() if alias in names]
        tables += [table for flow, _ in flows for table in flow.tables]
        self._found.used |= {(line.origin.line, shown("", line.origin.key)) for table in tables for line in table.lines}
        return file

    def _text(self, flows: Sequence[ImportedFlow], aliases: Iterable[str]) -> ConfigurationFile:
        clusters = [self._clusters[alias] for alias in self._clusters if alias in set(aliases)]
        head = [
            f"Made by mirror import from {shown('', self._source)}.",
            "Each line names its origin: a line and key of that file, or a default of MirrorMaker 2.",
        ]
        tables = [cluster.table for cluster in clusters] + [table for flow in flows for table in flow.tables]
        secrets = {name: text for cluster in clusters for name, text in cluster.secrets.items()}
        stand_ins = {PREFIX + name.upper(): text for name, text in secrets.items()}
        for cluster in clusters:
            stand_ins |= {
                variable(("clusters", cluster.name, key)): value for key, value in cluster.placeholders.items()
            }
        for flow in flows:
            stand_ins |= {variable(path): value for path, value in flow.placeholders.items()}
        return ConfigurationFile(render(head, tables), tuple(flow.name for flow in flows), secrets, stand_ins)


def _addresses(cluster: Cluster) -> frozenset[Address]:
    servers = next((line.value for line in cluster.table.lines if line.key == "bootstrap.servers"), None)
    return addresses({"bootstrap.servers": servers}) if isinstance(servers, str) else frozenset()
