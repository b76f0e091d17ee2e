"""The tables of a flow, from the settings of MirrorMaker 2's connectors."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from mirror.cluster.keys import Key
from mirror.config.key_names import KeyPath
from mirror.config.notices import WITHOUT_EFFECT
from mirror.config.schema import CLIENT_KEYS
from mirror.errors import printable
from mirror.migration import known_keys, precedence
from mirror.migration.findings import Finding, Kind, about
from mirror.migration.java_patterns import convert
from mirror.migration.parsing.entries import Setting, Settings, default
from mirror.migration.precedence import is_true
from mirror.migration.references import how_to_set, references
from mirror.migration.replications import Replication, is_identity_policy, with_default
from mirror.migration.tables import equivalents
from mirror.migration.tables.document import Table, Value
from mirror.wire.integers import INT32_MAX

_DEFAULT_POLICY: Final = "DefaultReplicationPolicy"
_DEFAULT_CONFIG_FILTER: Final = "DefaultConfigPropertyFilter"
_DEFAULT_FILTERS: Final = {"topic.filter.class": "DefaultTopicFilter", "group.filter.class": "DefaultGroupFilter"}
_INTERNAL: Final = (
    ("__.*", "MirrorMaker 2 never copies internal topics"),
    (r"\..*", "MirrorMaker 2 never copies internal topics"),
    (r"mm2.*\.internal", "MirrorMaker 2 never copies internal topics"),
)
_RARELY_MS: Final = INT32_MAX
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_SET_BY_COPY: Final = frozenset(
    {"auto.offset.reset", "isolation.level", "compression.type", "transactional.id", "transaction.timeout.ms"}
)
_FIXED: Final = {"acks": {"all", "-1"}, "enable.idempotence": {"true"}}


@dataclass(slots=True)
class ImportedFlow:
    """A mapped flow."""

    name: str
    tables: list[Table]
    findings: list[Finding] = field(default_factory=list)
    placeholders: dict[KeyPath, str] = field(default_factory=dict)
    """Values for the keys that are references, by which the configuration can be checked."""
    obstacles: list[Finding] = field(default_factory=list)
    """Why the flow is not written."""


# Invariant: A flow copies the topics that MirrorMaker 2 copies, or it is left out.
# Test: tests/migration/test_importing.py::test_a_flow_copies_the_topics_that_mirrormaker_copies
class FlowMapping:
    """Maps one replication to the flow ``name``."""

    def __init__(self, name: str, replication: Replication) -> None:
        self._replication = replication
        self._table = Table(("flows", name))
        self._flow = ImportedFlow(name, [self._table])

    def map(self) -> ImportedFlow:
        """Return the flow with what is to be said of it."""
        replication = self._replication
        self._ends()
        self._topics()
        self._naming()
        self._delivery()
        self._times()
        self._client("consumer", precedence.source_consumer(replication.source))
        self._client("producer", replication.data_producer)
        self._groups()
        self._refuse_transforms()
        self._kept_in_step()
        return self._flow

    def _ends(self) -> None:
        for end, alias in zip(("source", "target"), self._replication.pair, strict=True):
            key = f"{end}.cluster.alias"
            self._table.add(end, alias, self._replication.source.get(key, default(key, alias)))

    def _topics(self) -> None:
        replication = self._replication
        self._patterns(self._table, "topics", self._included(replication.source, "topics"), blocking=True)
        excluded = replication.of_source("topics.exclude")
        former = self._former(replication.source, "topics.exclude")
        self._patterns(self._table, "topics-exclude", excluded, blocking=True, more=(*former, *_INTERNAL))
        for key, name in _DEFAULT_FILTERS.items():
            filter_class = replication.of_source(key) if key.startswith("topic") else replication.of_checkpoint(key)
            if not filter_class.value.strip().endswith(name) and key.startswith("topic"):
                self._block(filter_class, "a filter of one's own chooses the topics", "write its topics as topics")

    def _included(self, settings: Settings, key: str) -> Setting:
        """Return what a list includes: if it is not given, what a former name of it, which has no effect, means."""
        setting = with_default(settings, key)
        former = settings.get(f"{key}.whitelist")
        if former is None:
            return setting
        if setting.line:
            self._say(Kind.TO_DO, former, f"MirrorMaker 2 does not read it, and {setting.key} counts", "remove one")
            return setting
        meaning = f"MirrorMaker 2 does not read it, and copies {setting.value} all the same; here it counts"
        self._say(Kind.TO_DO, former, meaning, f"write it as {key}, or remove it")
        return former

    def _former(self, settings: Settings, key: str) -> tuple[tuple[str, str], ...]:
        """Return the patterns by a former name of a list of exclusions, which some releases read and some do not."""
        found: list[tuple[str, str]] = []
        for setting in (settings[old] for old, name in known_keys.FORMER.items() if name == key and old in settings):
            patterns = convert(setting)
            if problem := patterns.problem or ("a reference" if references(setting) else ""):
                self._block(setting, f"{problem}, in what some releases exclude", f"write it as {key}")
                continue
            meaning = "MirrorMaker 2 before Kafka 4.0 excludes what it names, later ones do not; here it is excluded"
            self._say(Kind.TO_DO, setting, meaning, f"write it as {key}, or remove it there and here")
            found += ((pattern, printable(setting.origin)) for pattern in patterns.patterns)
        return tuple(found)

    def _patterns(
        self, table: Table, key: str, setting: Setting, *, blocking: bool, more: tuple[tuple[str, str], ...] = ()
    ) -> bool:
        """Add a list of patterns; return whether that was possible."""
        path = (*table.path, key)
        if references(setting):
            self._reference(table, key, setting, path, '["placeholder"]')
            return True
        found = convert(setting)
        if found.problem:
            action = "write it without this; topics-exclude and exclude replace look-ahead"
            if blocking:
                self._block(setting, found.problem, action)
            else:
                self._say(Kind.LEFT_OUT, setting, found.problem, action)
            return False
        if not found.patterns and key in {"topics", "include"}:
            self._block(setting, "an empty list matches nothing, so that nothing is copied", "write topics")
            return False
        own = tuple((pattern, "") for pattern in found.patterns)
        names = {pattern for pattern, _ in own}
        table.add(key, (*own, *(item for item in more if item[0] not in names)), setting)
        return True

    def _naming(self) -> None:
        policy = self._replication.of_source("replication.policy.class")
        separator = self._replication.of_source("replication.policy.separator")
        name = policy.value.strip().rpartition(".")[2]
        keeps_names = is_identity_policy(policy)
        if name != _DEFAULT_POLICY and not keeps_names:
            self._block(policy, "a policy of one's own names the topics", 'choose naming = "prefix" or "identity"')
        elif name == _DEFAULT_POLICY and separator.value.strip() != ".":
            alias = self._replication.pair.source
            names = f"{alias}{separator.value.strip()}orders, and here {alias}.orders"
            self._block(separator, f"the topics have names such as {names}", "copy into new topics, and write the flow")
        self._table.add("naming", "identity" if keeps_names else "prefix", policy)

    def _delivery(self) -> None:
        worker = self._replication.worker or {}
        support = worker.get("exactly.once.source.support", default("exactly.once.source.support", "disabled"))
        self._table.add("delivery", "exactly-once", support)
        if support.value.strip().lower() != "enabled":
            meaning = "MirrorMaker 2 repeats records after a failure, and this flow does not"
            action = (
                "consumers of the target need isolation.level=read_committed for what goes in transactions; "
                '"at-least-once" does without'
            )
            self._say(Kind.CHANGED, support, meaning, action)
        consumer = precedence.source_consumer(self._replication.source)
        reset = consumer["auto.offset.reset"]
        if reset.value.strip() in {"earliest", "latest"}:
            self._table.add("start", reset.value.strip(), reset)
        else:
            self._block(reset, "without a position, MirrorMaker 2 does not begin", "choose a start")
        isolation = consumer.get("isolation.level", default("isolation.level", "read_uncommitted"))
        if isolation.value.strip() != "read_committed":
            meaning = "MirrorMaker 2 also copies records of open and aborted transactions, and this flow never does"
            self._say(Kind.CHANGED, isolation, meaning)
        elif isolation.line:
            self._say(Kind.NOT_NEEDED, isolation, "a flow always copies committed records only")
        codec = self._replication.data_producer.get("compression.type", default("compression.type", "none"))
        if codec.line and codec.value.strip() in _CODECS:
            self._table.add("compression", codec.value.strip(), codec)
            meaning = "every batch is decompressed and compressed again, which costs many times the CPU"
            self._say(Kind.CHANGED, codec, meaning, "remove compression, and batches keep the source's")
        elif not codec.line:
            meaning = "MirrorMaker 2 writes uncompressed batches, and here batches keep the source's compression"
            self._say(Kind.CHANGED, codec, meaning)

    def _times(self) -> None:
        replication = self._replication
        factor = replication.of_source("replication.factor")
        self._number(self._table, "replication-factor", factor, 1)
        refresh, enabled = (replication.of_source(f"refresh.topics.{part}") for part in ("interval.seconds", "enabled"))
        if is_true(enabled, otherwise=True):
            self._number(self._table, "refresh-ms", refresh, 1000)
        else:
            self._table.add("refresh-ms", _RARELY_MS, enabled)
            self._table.add("discovery-interval-ms", _RARELY_MS, enabled)
            self._say(Kind.CHANGED, enabled, "new topics are searched for every 24 days, and at the start of each run")

    def _number(self, table: Table, key: str, setting: Setting, factor: int) -> None:
        if references(setting):
            self._reference(table, key, setting, (*table.path, key), "1000")
            return
        text = setting.value.strip()
        if not re.fullmatch(r"[+-]?[0-9]{1,10}", text):
            self._block(setting, "not a whole number, so that MirrorMaker 2 does not start", "correct it")
            return
        number = min(_RARELY_MS, int(text) * factor)
        if factor > 1 and number < factor:
            number = factor
        table.add(key, number, setting)

    def _client(self, client: str, settings: Settings) -> None:
        keys, without = CLIENT_KEYS[client], WITHOUT_EFFECT[client]
        table = Table(("flows", self._flow.name, client))
        for key, setting in sorted(settings.items(), key=lambda item: item[1].line):
            if not setting.line or key in known_keys.CLIENT or key in _SET_BY_COPY:
                continue
            if key in without:
                self._say(Kind.NOT_NEEDED, setting, without[key])
            elif key in _FIXED and setting.value.strip().lower() not in _FIXED[key]:
                self._say(Kind.CHANGED, setting, "records are always acknowledged by all replicas in sync, once")
            elif key in keys:
                self._option(table, key, keys[key], setting)
            else:
                found = equivalents.of_client(key)
                self._say(found.kind, setting, found.meaning, found.action)
        if table.lines:
            self._flow.tables.append(table)

    def _option(self, table: Table, key: str, known: Key, setting: Setting) -> None:
        path = (*table.path, key)
        text = setting.value.strip()
        if references(setting):
            self._reference(table, key, setting, path, "1000" if known.kind == "int" else "x")
            return
        try:
            value: Value = text if known.kind in {"str", "list"} else known.read(text)
            known.read(value)
        except ValueError as error:
            self._say(Kind.NO_EQUIVALENT, setting, str(error), equivalents.of_client(key).meaning)
        else:
            table.add(key, value, setting)

    def _groups(self) -> None:
        replication = self._replication
        table = Table(("flows", self._flow.name, "groups"))
        tools = Table(("flows", self._flow.name, "mirrormaker"))
        if replication.checkpoints:
            filter_class = replication.of_checkpoint("group.filter.class")
            usable = filter_class.value.strip().endswith(_DEFAULT_FILTERS["group.filter.class"])
            if not usable:
                self._say(Kind.LEFT_OUT, filter_class, "a filter of one's own chooses the groups", "add a table groups")
            settings = replication.checkpoint or {}
            included = usable and self._patterns(table, "include", self._included(settings, "groups"), blocking=False)
            former = self._former(settings, "groups.exclude")
            excluded = replication.of_checkpoint("groups.exclude")
            if included and self._patterns(table, "exclude", excluded, blocking=False, more=former):
                sync = replication.of_checkpoint("sync.group.offsets.enabled")
                synced = is_true(sync, otherwise=False)
                table.add("sync", synced, sync)
                intervals = ["emit.checkpoints", *(["sync.group.offsets"] if synced else [])]
                seconds = [replication.of_checkpoint(f"{one}.interval.seconds") for one in intervals]
                self._number(table, "interval-ms", min(seconds, key=_number_or_less), 1000)
                self._flow.tables.append(table)
                emit = replication.of_checkpoint("emit.checkpoints.enabled")
                tools.add("checkpoints", value=True, origin=emit)
        if replication.heartbeats:
            heartbeat = with_default(replication.heartbeat or {}, "emit.heartbeats.enabled")
            tools.add("heartbeats", value=True, origin=heartbeat)
        if tools.lines:
            self._flow.tables.append(tools)

        lone = self._replication.lone_heartbeat
        emitted = None if lone is None else with_default(lone, "emit.heartbeats.enabled")
        if emitted is not None and is_true(emitted, otherwise=True):
            meaning = f"heartbeats are not written to {replication.pair.target}, from where no flow copies them"
            self._say(Kind.NO_EQUIVALENT, emitted, meaning)

    def _refuse_transforms(self) -> None:
        transforms = self._replication.of_source("transforms")
        if transforms.value.strip():
            self._block(transforms, "records are changed on their way", "write headers, or a transform in Python")

    def _kept_in_step(self) -> None:
        """Add what keeps the configurations and ACLs of topics in step."""
        replication = self._replication
        configs, acls = (replication.of_source(f"sync.topic.{what}.enabled") for what in ("configs", "acls"))
        filter_class = replication.of_source("config.property.filter.class")
        synced = is_true(configs, otherwise=True)
        if synced and not filter_class.value.strip().endswith(_DEFAULT_CONFIG_FILTER):
            meaning = "a filter of one's own chooses the configurations, which are not kept in step"
            self._say(Kind.LEFT_OUT, filter_class, meaning, 'write configs-exclude, and configs = "sync"')
            synced = False
        self._table.add("configs", "sync" if synced else "create", configs)
        excluded = replication.of_source("config.properties.exclude")
        former = self._former(replication.source, "config.properties.exclude")
        if excluded.line or former:
            self._patterns(self._table, "configs-exclude", excluded, blocking=False, more=former)
        controlled = is_true(acls, otherwise=True)
        if synced or controlled:
            interval = replication.of_source(f"sync.topic.{'configs' if synced else 'acls'}.interval.seconds")
            self._number(self._table, "sync-interval-ms", interval, 1000)
        if controlled:
            meaning = "what allows to change topics is left out, and an ACL of all topics is limited to the copied ones"
            self._say(Kind.CHANGED, acls, meaning, "write = true in the table acls brings the former, too")
        table = Table(("flows", self._flow.name, "acls"))
        table.add("sync", controlled, acls)
        self._flow.tables.append(table)

    def _reference(self, table: Table, key: str, setting: Setting, path: KeyPath, placeholder: str) -> None:
        how = how_to_set(path, setting, as_list=placeholder.startswith("["))
        table.add(key, None, setting, f"is not in this file: {how}")
        self._flow.placeholders[path] = placeholder
        self._say(Kind.TO_DO, setting, "the reference is not resolved", how)

    def _say(self, kind: Kind, setting: Setting, meaning: str, action: str = "") -> None:
        self._flow.findings.append(about(kind, setting, meaning, action))

    def _block(self, setting: Setting, meaning: str, action: str) -> None:
        meaning = f"the flow {self._flow.name} is not written: {meaning}"
        self._flow.obstacles.append(about(Kind.LEFT_OUT, setting, meaning, action))


def _number_or_less(setting: Setting) -> int:
    """Return the value; what is no number is less than any, so that it is the one that is named."""
    text = setting.value.strip()
    return int(text) if text.isascii() and text.isdecimal() else -1
