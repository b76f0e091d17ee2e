"""Imports a file of MirrorMaker 2: what it says, each line of it accounted for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mirror.migration import connectors, known_keys, strimzi
from mirror.migration.configuration import Imported, Importer
from mirror.migration.connectors import Connector
from mirror.migration.findings import Finding, Kind, about, ordered
from mirror.migration.lint import dangers, lint_properties, lint_value
from mirror.migration.parsing.entries import Setting, shown
from mirror.migration.parsing.nodes import read_documents
from mirror.migration.parsing.reading import PropertiesFile, read_properties, refuse
from mirror.migration.precedence import MirrorMakerFile
from mirror.migration.references import REFERENCE
from mirror.migration.replications import of_file
from mirror.migration.tables import equivalents

_STRUCTURED: Final = re.compile(
    rb"(\xef\xbb\xbf)?(\s|#[^\n]*\n|---[^\n]*\n)*([{\[]|(apiVersion|kind|metadata|spec)\s*:[ \r\n])"
)
"""The beginning of JSON, or of a Kubernetes resource in YAML."""
_SAID_BY_NAMES: Final = {
    "clusters": "the clusters of flows have tables",
    "source.cluster.alias": "the cluster's table has its name",
    "target.cluster.alias": "the cluster's table has its name",
}


@dataclass(frozen=True, slots=True)
class Source:
    """What a file contains: the properties of a dedicated MirrorMaker 2, or connectors."""

    file: PropertiesFile | None = None
    connectors: tuple[Connector, ...] = ()


def read(data: bytes, where: str) -> Source:
    """Return what a file contains: by its beginning, JSON, YAML or properties. Raises ConfigError."""
    if not _STRUCTURED.match(data):
        file = read_properties(data, where)
        if "clusters" in file.settings or "connector.class" not in file.settings:
            return Source(file=file)
        return Source(connectors=tuple(connectors.of_settings(file.settings)))
    documents = read_documents(data, where)
    found = connectors.of_documents(documents)
    for document in documents:
        if document.get("kind").text == strimzi.KIND:
            found += strimzi.connectors(document)
    if not found:
        raise refuse(where, "it has no connector of MirrorMaker 2, and no KafkaMirrorMaker2")
    return Source(connectors=tuple(found))


def lint(source: Source) -> list[Finding]:
    """Return what is wrong, surprising or dangerous in a file."""
    if source.file is not None:
        return lint_properties(source.file)
    findings = [*connectors.lint(source.connectors)]
    for connector in source.connectors:
        for key, setting in connector.config.items():
            findings += lint_value(key, setting) if REFERENCE.search(setting.value) is None else ()
    for replication in connectors.replications(source.connectors):
        findings += dangers(replication)
    return ordered(findings)


def import_source(source: Source, *, name: str, certificates_folder: str) -> Imported:
    """Return what becomes of a file of this ``name``."""
    file = None if source.file is None else MirrorMakerFile(source.file.settings)
    replications = connectors.replications(source.connectors) if file is None else of_file(file)
    imported = Importer(replications, source=name, certificates_folder=certificates_folder).run()
    findings = [*imported.findings, *lint(source)]
    said = {(finding.line, finding.key) for finding in findings} | imported.used
    if file is not None:
        settings = [(setting, *_place(file, setting.key)) for setting in file.properties.values()]
    else:
        settings = [(setting, key, True) for of in source.connectors for key, setting in of.config.items()]
        settings += [(setting, key, False) for of in source.connectors for key, setting in (of.worker or {}).items()]
    rest = [item for item in settings if item[0].line and (item[0].line, shown("", item[0].key)) not in said]
    imported.findings = ordered(
        [*findings, *(_remark(setting, key, of_pair=of_pair) for setting, key, of_pair in rest)]
    )
    return imported


def _place(file: MirrorMakerFile, key: str) -> tuple[str, bool]:
    """Return a key without its pair or cluster, and whether it is one of a connector."""
    for pair in file.possible_pairs() if "->" in key else ():
        if key.startswith(f"{pair}."):
            return key.removeprefix(f"{pair}."), True
    for alias in sorted(file.clusters(), key=len, reverse=True):
        if key.startswith(f"{alias}."):
            return key.removeprefix(f"{alias}."), False
    return key, key in known_keys.CONNECTORS


def _remark(setting: Setting, key: str, *, of_pair: bool) -> Finding:
    if key in _SAID_BY_NAMES:
        return about(Kind.NOT_NEEDED, setting, _SAID_BY_NAMES[key])
    if key.endswith("enabled") and setting.value.strip().lower() == "false":
        return about(Kind.NOT_NEEDED, setting, "it is switched off, as it is here without a key")
    if key in {"enabled", "emit.heartbeats.enabled", "emit.checkpoints.enabled", "heartbeats.replication.enabled"}:
        return about(Kind.NOT_NEEDED, setting, "what it switches on is written, or said to be left out")
    of_cluster = key.startswith(("source.cluster.", "target.cluster."))
    return (
        _of_cluster(setting, key.partition(".cluster.")[2]) if of_cluster else _by_table(setting, key, of_pair=of_pair)
    )


def _by_table(setting: Setting, key: str, *, of_pair: bool) -> Finding:
    tables = (equivalents.CONNECTOR, equivalents.WORKER) if of_pair else (equivalents.WORKER, equivalents.CONNECTOR)
    for table in tables:
        if found := equivalents.remark(table, key):
            return about(found.kind, setting, found.meaning, found.action)
    if key in known_keys.CLIENT:
        return about(Kind.NOT_NEEDED, setting, "no flow that is written uses it")
    return about(Kind.NO_EQUIVALENT, setting, "nothing here has its effect")


def _of_cluster(setting: Setting, key: str) -> Finding:
    if key in known_keys.CLIENT:
        return about(Kind.NOT_NEEDED, setting, "the cluster's table has it, or no flow that is written uses it")
    found = equivalents.remark(equivalents.WORKER, key) or equivalents.CLIENT[""]
    return about(found.kind, setting, found.meaning, found.action)
