"""Imports a file of MirrorMaker 2: what it says, each line of it accounted for."""

from __future__ import annotations

from mirror.migration import equivalents, known_keys
from mirror.migration.configuration import Imported, Importer
from mirror.migration.entries import Setting
from mirror.migration.findings import Finding, Kind, about, ordered
from mirror.migration.lint import lint_properties
from mirror.migration.precedence import MirrorMakerFile
from mirror.migration.reading import PropertiesFile
from mirror.migration.replications import of_file


def import_properties(file: PropertiesFile, *, source: str, certificates_folder: str) -> Imported:
    """Return what becomes of a dedicated MirrorMaker 2's file; ``source`` is its name."""
    settings = MirrorMakerFile(file.settings)
    imported = Importer(of_file(settings), source=source, certificates_folder=certificates_folder).run()
    findings = [*imported.findings, *lint_properties(file)]
    said = {finding.line for finding in findings} | imported.lines
    findings += [_rest(settings, setting) for setting in file.settings.values() if setting.line not in said]
    imported.findings = ordered(findings)
    return imported


def _rest(file: MirrorMakerFile, setting: Setting) -> Finding:
    """Return the finding about a setting that has an effect in MirrorMaker 2, and of which nothing is said yet."""
    key = setting.key
    if key == "clusters":
        return about(Kind.NOT_NEEDED, setting, "the clusters of flows have tables")
    for pair in file.possible_pairs() if "->" in key else ():
        if key.startswith(f"{pair}."):
            return _remark(setting, key.removeprefix(f"{pair}."), of_pair=True)
    for alias in sorted(file.clusters(), key=len, reverse=True):
        if key.startswith(f"{alias}."):
            return _remark(setting, key.removeprefix(f"{alias}."), of_pair=False)
    return _remark(setting, key, of_pair=key in known_keys.CONNECTORS)


def _remark(setting: Setting, key: str, *, of_pair: bool) -> Finding:
    if key.endswith("enabled") and setting.value.strip().lower() == "false":
        return about(Kind.NOT_NEEDED, setting, "it is switched off, as it is here without a key")
    if key in {"enabled", "emit.heartbeats.enabled", "emit.checkpoints.enabled", "heartbeats.replication.enabled"}:
        return about(Kind.NOT_NEEDED, setting, "what it switches on is written, or said to be left out")
    tables = (equivalents.CONNECTOR, equivalents.WORKER) if of_pair else (equivalents.WORKER, equivalents.CONNECTOR)
    for table in tables:
        if found := equivalents.remark(table, key):
            return about(found.kind, setting, found.meaning, found.action)
    if key in known_keys.CLIENT:
        return about(Kind.NOT_NEEDED, setting, "no flow that is written uses it")
    return about(Kind.NO_EQUIVALENT, setting, "nothing here has its effect")
