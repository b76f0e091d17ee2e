"""What is wrong, surprising or dangerous in a file of a dedicated MirrorMaker 2."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from mirror.migration import known_keys
from mirror.migration.findings import Finding, Kind, about, ordered
from mirror.migration.java_patterns import ILLEGAL_REPETITION, why_java_refuses
from mirror.migration.parsing.entries import HIDDEN, Setting, default, shown
from mirror.migration.parsing.properties import Property
from mirror.migration.parsing.reading import PropertiesFile
from mirror.migration.parsing.templates import template
from mirror.migration.precedence import MirrorMakerFile, Pair, items, java_boolean
from mirror.migration.references import REFERENCE
from mirror.migration.replications import Replication, is_identity_policy, of_file
from mirror.migration.unused import UnusedSettings

_BOM: Final = "\xef\xbb\xbf"
_LOST_ESCAPE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\([^\\tnrfu=: #!\s])")
_KEY: Final = re.compile(r"([\w.>-]+)\s*[=:]")
_PATTERNS: Final = ("topics", "topics.exclude", "groups", "groups.exclude")
_LISTS: Final = (*_PATTERNS, "clusters", "config.properties.exclude")
_BOOLEANS: Final = {key for key, value in known_keys.DEFAULTS.items() if value in {"true", "false"}}
_NUMBERS: Final = {key for key, value in known_keys.DEFAULTS.items() if re.fullmatch("[0-9]+", value)}
_LATIN_AND_MORE: Final = re.compile("[\x80-\xff]{2,}")
_COMMENT: Final = re.compile(r"\s(#.*)")


def lint_properties(file: PropertiesFile) -> list[Finding]:
    """Return the findings about a file, by kind and line."""
    settings = MirrorMakerFile(file.settings)
    findings = [*_spelling(file), *_clusters(settings), *_values(settings)]
    said = {finding.line for finding in findings}
    findings += [finding for finding in UnusedSettings(settings).find() if finding.line not in said]
    findings += _levels(settings)
    for replication in of_file(settings):
        findings += dangers(replication)
    return ordered(findings)


def _spelling(file: PropertiesFile) -> Iterator[Finding]:
    """Yield what the file's syntax makes of lines that were meant otherwise."""
    last = {entry.key: entry for entry in file.lines}
    for entry in file.lines:
        setting = Setting(entry.value, entry.line, entry.key)
        if last[entry.key] is not entry:
            yield about(Kind.IGNORED, setting, f"line {last[entry.key].line} has the same key, and the last one counts")
        yield from _continuation(entry, setting)
        yield from _characters(entry, setting)
        yield from lint_text(entry.key, setting, entry.raw)
        if comment := _COMMENT.search(entry.value):
            text = comment[1] if setting.shown() != HIDDEN else "#"
            meaning = f"no comment begins behind a value: {shown('', text)} is part of it"
            yield about(Kind.OTHER_EFFECT, setting, meaning, "write the comment on a line of its own")


def lint_text(key: str, setting: Setting, line: str = "") -> Iterator[Finding]:
    """Yield whether a value, or its whole ``line``, has a placeholder that a template's tool should have filled in."""
    mark = None if "transforms." in key else template(setting.value) or template(line)
    if mark is None:
        return
    named = mark if setting.shown() != HIDDEN else "a placeholder"
    meaning = f"{shown('', named)} of a template is not filled in: MirrorMaker 2 takes it as it is"
    yield about(
        Kind.OTHER_EFFECT, setting, meaning, "fill the template in (envsubst, helm template), and import the result"
    )


def _continuation(entry: Property, setting: Setting) -> Iterator[Finding]:
    for line in entry.continued_into:
        key = _KEY.match(line)
        if (key and ("." in key[1] or key[1] in known_keys.CONNECTORS)) or line.startswith(("#", "!")):
            text = shown("", line.partition("=")[0].strip())
            meaning = f"the line before ends with a backslash, so that {text} is part of this value"
            yield about(Kind.OTHER_EFFECT, setting, meaning, "remove the backslash")


def _characters(entry: Property, setting: Setting) -> Iterator[Finding]:
    name = entry.key.rpartition(".")[2] if entry.key not in _PATTERNS else entry.key
    of_patterns = entry.key.endswith(_PATTERNS) and name in {"topics", "exclude", "groups", *_PATTERNS}
    if of_patterns and (lost := _LOST_ESCAPE.search(entry.raw)):
        meaning = f"the file's format removes the backslash before {lost[1]}"
        yield about(Kind.OTHER_EFFECT, setting, meaning, f"write \\\\{lost[1]}")
    if entry.value.startswith("->"):
        meaning = f"a blank ends a key: this one is {shown('', entry.key)}"
        yield about(Kind.OTHER_EFFECT, setting, meaning, "write A->B without blanks")
    if entry.key.startswith(_BOM):
        meaning = "the file begins with a byte order mark, which is part of this key"
        yield about(Kind.OTHER_EFFECT, setting, meaning, "save the file without it")
    elif _is_utf8(entry.key + entry.value):
        meaning = "MirrorMaker 2 reads the file as ISO-8859-1, so that characters of UTF-8 become others"
        yield about(Kind.OTHER_EFFECT, setting, meaning, "write them as \\uXXXX")
    elif entry.value != entry.value.rstrip():
        if entry.key.endswith("enabled"):
            meaning = "there is a blank behind the value, with which MirrorMaker 2 reads it as false where it counts"
            yield about(Kind.OTHER_EFFECT, setting, meaning, "remove the blank")
        elif entry.key.endswith(("password", "jaas.config", "secret")):
            yield about(Kind.OTHER_EFFECT, setting, "there is a blank behind the value", "remove the blank")


def _is_utf8(text: str) -> bool:
    if not _LATIN_AND_MORE.search(text):
        return False
    try:
        text.encode("iso-8859-1").decode()
    except UnicodeError:
        return False
    return True


def _clusters(file: MirrorMakerFile) -> Iterator[Finding]:
    names = file.clusters()
    setting = file.properties.get("clusters")
    if setting is None or not names:
        action = "write it"
        yield about(
            Kind.REFUSED, setting or default("clusters", ""), "MirrorMaker 2 needs the names of clusters", action
        )
        return
    for name in names:
        if f"{name}.bootstrap.servers" not in file.properties and "bootstrap.servers" not in file.properties:
            meaning = f"cluster {name} has no bootstrap.servers, so that its clients cannot start"
            yield about(Kind.REFUSED, setting, meaning, f"write {name}.bootstrap.servers")
        if "." in name:
            meaning = (
                f"the name {name} has a dot: MirrorMaker 2 takes what is before the first dot of a topic's name for its"
                " cluster, so that cycles and hops are not recognized"
            )
            yield about(Kind.DANGEROUS, setting, meaning, "use a name without dots, before topics have it")
    lower = [name.lower() for name in names]
    for name in names:
        if lower.count(name.lower()) > 1:
            yield about(Kind.DANGEROUS, setting, f"the name {name} differs from another in case only", "rename one")
    if not file.pairs():
        yield about(Kind.REFUSED, setting, "no pair of clusters is enabled, so that nothing runs", "enable a pair")
    elif not of_file(file):
        yield about(Kind.OTHER_EFFECT, setting, "no pair of clusters is enabled, so that only heartbeats are written")


def _values(file: MirrorMakerFile) -> Iterator[Finding]:
    """Yield values that MirrorMaker 2 refuses, or does not read as their writer means."""
    named = file.properties.get("config.providers")
    providers = [] if named is None else items(named)
    for key, setting in file.properties.items():
        found = [match for match in REFERENCE.finditer(setting.value) if match[1] not in providers]
        for match in found:
            meaning = f"{match[0]} stays as it is: config.providers has no {match[1]}"
            yield about(Kind.OTHER_EFFECT, setting, meaning, "add the provider")
        if REFERENCE.search(setting.value) is None:
            yield from lint_value(_known(file, key), setting)


def lint_value(key: str, setting: Setting) -> Iterator[Finding]:
    """Yield what is wrong with the value of a connector's key."""
    text = setting.value.strip()
    if key == "enabled" and text.lower() not in {"true", "false"}:
        meaning = "neither true nor false: it is read as false, and refused where the pair has heartbeats"
        yield about(Kind.OTHER_EFFECT, setting, meaning, "correct it")
    elif key in _BOOLEANS and text.lower() not in {"true", "false"}:
        yield about(Kind.REFUSED, setting, "neither true nor false", "correct it")
    elif key in _NUMBERS and not re.fullmatch("[+-]?[0-9]{1,19}", text):
        yield about(Kind.REFUSED, setting, "not a whole number", "correct it")
    elif key in _LISTS and "" in items(setting):
        yield about(Kind.REFUSED, setting, "the list has an empty item, which Kafka 4.3 refuses", "remove a comma")
    elif key in {"topics", "groups"} and not text:
        yield about(Kind.OTHER_EFFECT, setting, "an empty list matches nothing", "write .* for all")
    elif key in _PATTERNS:
        globs = [shown("", item) for item in items(setting) if item.startswith("*")]
        if globs:
            yield about(Kind.REFUSED, setting, f"{globs[0]} is no regular expression", f"write .{globs[0]}")
        elif re.search(r"\{[0-9]+\s*,", setting.value):
            yield about(Kind.REFUSED, setting, "a list is split at its commas, also in {n,m}", "write it without")
        elif reason := why_java_refuses(items(setting)):
            action = "write \\\\{ for the character" if reason == ILLEGAL_REPETITION else "correct it"
            yield about(Kind.REFUSED, setting, reason, action)


def _known(file: MirrorMakerFile, key: str) -> str:
    """Return the connector's key that ``key`` sets, at top level or for a pair; an empty text if it sets none."""
    if key in known_keys.CONNECTORS or key == "clusters":
        return key
    pairs = file.possible_pairs() if "->" in key else ()
    return next((key.removeprefix(f"{pair}.") for pair in pairs if key.startswith(f"{pair}.")), "")


def _levels(file: MirrorMakerFile) -> Iterator[Finding]:
    """Yield settings that have an effect, but another than their level suggests."""
    of_pairs = [(key, setting) for key, setting in file.properties.items() if "->" in key and ".producer." in key]
    for pair in file.possible_pairs() if of_pairs else ():
        for key, setting in of_pairs:
            rest = key.removeprefix(f"{pair}.")
            if rest != key and rest.startswith("producer.") and not rest.startswith("producer.override."):
                meaning = "it tunes the producer of offset syncs, not the one that writes the records"
                yield about(Kind.OTHER_EFFECT, setting, meaning, f"write {pair.target}.{rest}")
    for alias in file.clusters():
        timeout = file.properties.get(f"{alias}.consumer.poll.timeout.ms")
        if timeout is not None:
            meaning = "it becomes a property poll.timeout.ms of the consumer, which has none"
            yield about(Kind.OTHER_EFFECT, timeout, meaning, "write A->B.consumer.poll.timeout.ms")
        support = file.properties.get(f"{alias}.exactly.once.source.support")
        if support is not None and support.value.strip().lower() == "enabled":
            yield from _exactly_once(file, alias, support)
    running = set(file.pairs())
    for pair in file.possible_pairs():
        if pair not in running:
            yield from _switches(file, pair)


def _exactly_once(file: MirrorMakerFile, alias: str, support: Setting) -> Iterator[Finding]:
    rest = file.properties.get("dedicated.mode.enable.internal.rest")
    if not java_boolean(rest):
        meaning = "exactly-once support needs the internal REST server"
        yield about(Kind.REFUSED, support, meaning, "set dedicated.mode.enable.internal.rest = true")
    for replication in of_file(file):
        isolation = replication.source.get("source.consumer.isolation.level") or replication.source.get(
            "consumer.isolation.level"
        )
        if replication.pair.target == alias and (isolation is None or isolation.value.strip() != "read_committed"):
            key = f"{replication.pair.source}.consumer.isolation.level"
            meaning = "records of aborted transactions are copied all the same"
            yield about(
                Kind.DANGEROUS, isolation or default(key, "read_uncommitted"), meaning, f"set {key} = read_committed"
            )


def _switches(file: MirrorMakerFile, pair: Pair) -> Iterator[Finding]:
    """Yield the switch of a pair that does not run, if it seems to be on."""
    setting = file.properties.get(f"{pair}.enabled")
    if setting is not None and setting.value.strip().lower() == "true":
        yield about(Kind.OTHER_EFFECT, setting, f"{pair} does not run", "remove the blank behind true")


def dangers(replication: Replication) -> Iterator[Finding]:
    """Yield what may lose, repeat or change data or settings, also by default."""
    policy = replication.of_source("replication.policy.class")
    if is_identity_policy(policy):
        meaning = "topics keep their names, so that cycles are not recognized"
        action = "make sure that no two pairs copy the same topic in both directions"
        yield about(Kind.DANGEROUS, policy, meaning, action)
        acls = replication.of_source("sync.topic.acls.enabled")
        if acls.value.strip().lower() == "true":
            meaning = "ACLs of the literal topic * are copied, and are those of all topics of the target"
            yield about(Kind.DANGEROUS, acls, meaning, "set it to false if there are such")
    configs = replication.of_source("sync.topic.configs.enabled")
    if configs.value.strip().lower() == "true":
        meaning = "settings that only the target's topics have are deleted every 10 minutes"
        yield about(Kind.DANGEROUS, configs, meaning, "name them in config.properties.exclude")
    worker = replication.worker
    if worker is not None and worker.get("exactly.once.source.support", default("", "")).value.strip() != "enabled":
        key = f"{replication.pair.target}.exactly.once.source.support"
        meaning = "up to a minute of records is copied again after each failure"
        setting = worker.get("exactly.once.source.support", default(key, "disabled"))
        yield about(Kind.DANGEROUS, setting, meaning, f"set {key} = enabled")
    factor = replication.of_source("replication.factor")
    if factor.value.strip() in {"1", "2"} and (factor.line or factor.value == "2"):
        meaning = f"topics of the target are created with {factor.value.strip()} replicas"
        yield about(Kind.DANGEROUS, factor, meaning, "set it to 3, or -1 for the target's default")
