"""What becomes of a file of MirrorMaker 2: each line of it is used, or named in a finding."""

from __future__ import annotations

from typing import Final

from mirror.migration import connectors, known_keys
from mirror.migration.configuration import Imported, Importer
from mirror.migration.findings import OF_LINT, Finding, Kind, about, ordered
from mirror.migration.lint import dangers, lint_properties, lint_text, lint_value
from mirror.migration.parsing.entries import Setting, shown
from mirror.migration.precedence import MirrorMakerFile
from mirror.migration.references import REFERENCE
from mirror.migration.replications import of_file
from mirror.migration.sources import Source
from mirror.migration.tables import equivalents

_SAID_BY_NAMES: Final = {
    "clusters": "the clusters of flows have tables",
    "source.cluster.alias": "the cluster's table has its name",
    "target.cluster.alias": "the cluster's table has its name",
}


def lint(source: Source) -> list[Finding]:
    """Return what is wrong, surprising or dangerous in a file."""
    findings = [finding for finding in source.findings if finding.kind in OF_LINT]
    for file in source.files:
        findings += lint_properties(file)
    findings += connectors.lint(source.connectors)
    for connector in source.connectors:
        for key, setting in connector.config.items():
            findings += lint_text(key, setting)
            findings += lint_value(key, setting) if REFERENCE.search(setting.value) is None else ()
    for replication in connectors.replications(source.connectors):
        findings += dangers(replication)
    return ordered(findings)


def import_source(source: Source, *, name: str) -> Imported:
    """Return what becomes of a file of this ``name``."""
    files = [MirrorMakerFile(file.settings) for file in source.files]
    replications = [*connectors.replications(source.connectors), *(one for file in files for one in of_file(file))]
    imported = Importer(replications, source=name).run()
    findings = [*imported.findings, *source.findings, *lint(source)]
    said = {(finding.line, finding.key) for finding in findings} | imported.used
    settings = [(setting, *_place(file, setting.key)) for file in files for setting in file.properties.values()]
    settings += [(setting, key, True) for of in source.connectors for key, setting in of.config.items()]
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
