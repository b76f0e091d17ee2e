"""The settings of a flow: each with its default, its valid values and its document. Properties say what they mean."""

from __future__ import annotations

import functools
from collections.abc import Set as AbstractSet
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    SecretStr,
    field_serializer,
)

from mirror.config import positions, topic_configs
from mirror.config.masking import MaskingConfig
from mirror.config.own_tables import FLOW_NAME, PERIOD, AclsConfig, GroupsConfig, MirrorMakerConfig, OwnTable, Plain
from mirror.config.patterns import Pattern, matches
from mirror.config.positions import Position
from mirror.config.problems import HIDDEN
from mirror.config.topic_configs import CONFIGS_EXCLUDE, CONFIGS_INCLUDE
from mirror.config.value_checks import (
    SLOWEST_BYTES_PER_SECOND,
    SMALLEST_SHARE_BYTES,
    function_name,
    no_limit_or_a_batch,
    no_limit_or_enough,
    not_zero,
    record_headers,
    topic_names,
)
from mirror.relay.model.policy import DEFAULT_EXACTLY_ONCE_BY
from mirror.wire.integers import INT16_MAX, INT32_MAX, INT64_MAX

_INTERVAL: Final = "whole milliseconds from 20 to 2147483647"
_DAY_MS: Final = 24 * 60 * 60 * 1000
_LIMIT: Final = "a whole number from 1 to 2147483647"


class FlowSettings(OwnTable):
    """The settings of one flow: which topics are copied between which clusters, and how."""

    _aside_topics: AbstractSet[tuple[str, str]] = PrivateAttr(default=frozenset())
    """The topics of all flows of the same file, with their clusters."""

    name: str = Field(validation_alias=FLOW_NAME, description="the flow's name")
    source: str = Field(description="the name of a cluster")
    """name of the cluster to copy from"""
    target: str = Field(description="the name of a cluster")
    """name of the cluster to copy to"""
    topics: Annotated[tuple[Pattern, ...], Field(strict=False, min_length=1)] = Field(
        description='a list of at least one regular expression, such as ["orders", "clicks-.*"]'
    )
    """list of regular expressions (RE2: no look-around, no back-references); one of them must match a topic's whole
    name
    """
    topics_exclude: Annotated[tuple[Pattern, ...], Field(strict=False)] = Field(
        default=("__.*", ".*[.-](internal|replica)"), description="a list of regular expressions"
    )
    """topics that match one of these are not copied. `mirror plan` and the start of a run list those that match
    `topics`, with the rule. MirrorMaker 2 copies names such as `orders-internal` since Kafka 4.0; this default leaves
    them out
    """
    naming: Literal["prefix", "identity"] = Field(default="prefix", description='"prefix" or "identity"')
    """topic names on the target: `"prefix"` gives `paris.orders`, `"identity"` gives `orders`"""
    names: Annotated[dict[str, str], AfterValidator(topic_names)] = Field(
        default_factory=dict, description='a table such as { "orders" = "eu.orders", "clicks-(.*)" = "web.$1" }'
    )
    """topics that get other names than `naming` gives them; see [Names](#names)"""
    delivery: Literal["exactly-once", "at-least-once"] = Field(
        default="exactly-once", description='"exactly-once" or "at-least-once"'
    )
    """each record is copied once, whatever fails; `"at-least-once"`: without transactions and fences, a crash may
    repeat records, and so may a stream's partition that moves to another host
    """
    origin: Literal["any", "local"] = Field(default="any", description='"any" or "local"')
    """which of the source's records are copied: `"any"`, or `"local"`, those that no flow has written there; see [One
    topic name on all clusters](#one-topic-name-on-all-clusters)
    """
    origin_from: Literal["", "earliest", "registry"] = Field(default="", description='"earliest" or "registry"')
    """with `origin = "local"`: `"earliest"` also copies what was in the source's topics before its registry began,
    `"registry"` leaves it out; `""` refuses partitions that have such records
    """
    register_producers: bool = Field(default=False, description="true or false")
    """`true`: flows with `origin = "local"` leave out what this flow writes; implied by `origin = "local"`"""
    exactly_once_by: Literal["auto", "sequences", "transactions"] = Field(
        default=DEFAULT_EXACTLY_ONCE_BY, description='"auto", "sequences" or "transactions"'
    )
    """with exactly-once delivery: `"transactions"`, `"sequences"`, or `"auto"`, which chooses for each batch; see
    [Exactly once](#exactly-once)
    """
    start: Annotated[str, BeforeValidator(positions.date_time_as_text), AfterValidator(positions.check_start)] = Field(
        default="earliest", description='"earliest", "latest" or a timestamp such as "2026-01-31T00:00:00Z"'
    )
    """where a partition without progress begins: `"earliest"`, `"latest"` or a time such as `"2026-01-31T00:00:00Z"`.
    With `"latest"`, a partition that appears after the first start of a stream is copied from its beginning; the
    stream waits while it cannot read its status topic
    """
    from_: Annotated[str | int, BeforeValidator(positions.check_position)] = Field(
        default="", alias="from", description=positions.POSITION_HELP
    )
    """replaces `start`: a time, or an offset as a whole number; see [A part of a topic](#a-part-of-a-topic)"""
    until: Annotated[str | int, BeforeValidator(positions.check_position)] = Field(
        default="", description=positions.POSITION_HELP
    )
    """where the copy ends (exclusive): a time or an offset; of `mirror run` only, a stream refuses the flow"""
    start_over: bool = Field(default=False, description="true or false")
    """`true`: if a partition's progress is lost, or its target was made again or lost records that cannot be copied
    again in order, begin again at `start` instead of failing; this may copy records twice
    """
    on_target_loss: Literal["heal", "fail"] = Field(default="heal", description='"heal" or "fail"')
    """the target lost acknowledged records (an unclean leader election): `"heal"` copies them again behind those that
    it still has, in order, and reports it; `"fail"` fails the partition
    """
    on_target_recreated: Literal["fail", "start-over"] = Field(default="fail", description='"fail" or "start-over"')
    """the target topic was deleted and made again: `"fail"` fails its partitions, `"start-over"` copies them again
    from `start`
    """
    on_gap: Literal["fail", "skip"] = Field(default="fail", description='"fail" or "skip"')
    """the source lost records before they were copied (retention, truncation, a topic that was made again): `"fail"`
    fails the partition, `"skip"` continues behind the gap and counts it
    """
    on_too_large: Literal["fail", "skip", "aside"] = Field(default="fail", description='"fail", "skip" or "aside"')
    """a single record is larger than the target accepts: `"skip"` omits and counts it, `"aside"` writes it to the topic
    `aside`
    """
    on_bad_timestamp: Literal["fail", "clamp", "skip", "aside"] = Field(
        default="fail", description='"fail", "clamp", "skip" or "aside"'
    )
    """the target refuses a record's timestamp (`message.timestamp.*.max.ms`): `"clamp"` writes the nearest allowed
    timestamp, `"skip"` omits and counts the record, `"aside"` as above
    """
    on_no_key: Literal["fail", "skip", "aside"] = Field(default="fail", description='"fail", "skip" or "aside"')
    """a record without a key goes to a compacted topic: as `on-too-large`"""
    on_corrupt: Literal["fail", "aside"] = Field(default="fail", description='"fail" or "aside"')
    """a batch of the source cannot be decoded, although it was fetched again: `"aside"` writes its bytes to the topic
    `aside`
    """
    aside: str = Field(default="", description="the name of a topic on the target")
    """a topic on the target for records that do not fit; see [Records aside](#records-aside)"""
    commit_interval_ms: int = Field(default=1000, ge=20, le=INT32_MAX, description=_INTERVAL)
    """progress is committed as soon as a partition has caught up, and at the latest this long after its first
    uncommitted record; by sequences three times as long, up to 3 s, while that is less than 64 KiB
    """
    commit_min_interval_ms: int = Field(default=20, ge=20, le=INT32_MAX, description=_INTERVAL)
    """shortest time between two commits of a partition; at most `commit-interval-ms`"""
    period_ms: int = Field(default=180_000, ge=1_000, le=INT32_MAX, description=PERIOD)
    """how often a stream sums up what it has copied: a line, its traces, its ledger"""
    discovery_interval_ms: int = Field(default=1_000, ge=1_000, le=INT32_MAX, description=PERIOD)
    """how often a stream discovers new topics and partitions of its source, and has the running tasks copy them"""
    refresh_ms: int = Field(default=60_000, ge=1_000, le=INT32_MAX, description=PERIOD)
    """how often a stream compares all topics of both sides, and creates those whose creation had failed"""
    replication_factor: Annotated[int, Field(ge=-1, le=INT16_MAX), AfterValidator(not_zero)] = Field(
        default=-1, description="-1 (the target's default) or a whole number from 1 to 32767"
    )
    """of topics created on the target; -1 is the target's own default"""
    max_bytes_per_second: Annotated[int, Field(ge=0, le=INT64_MAX), AfterValidator(no_limit_or_enough)] = Field(
        default=0, description=f"0 (no limit) or a whole number of bytes from {SLOWEST_BYTES_PER_SECOND}"
    )
    """rate limit of the whole flow, shared by its tasks; 0 is no limit, the smallest limit is 1024"""
    max_bytes_per_run: Annotated[int, Field(ge=0, le=INT64_MAX), AfterValidator(no_limit_or_a_batch)] = Field(
        default=0, description=f"0 (no limit) or a whole number of bytes from {SMALLEST_SHARE_BYTES}"
    )
    """most bytes that one run copies, estimated; 0 is no limit, the smallest limit is 65536; of `mirror run` only,
    see [Limits](#limits)
    """
    max_partitions_in_parallel: int = Field(
        default=0, ge=0, le=INT32_MAX, description="0 (no limit) or a whole number from 1 to 2147483647"
    )
    """most partitions with a backlog that one run copies; 0 is no limit; of `mirror run` only, see [Limits](#limits)
    """
    compression: Literal["source", "none", "gzip", "snappy", "lz4", "zstd"] = Field(
        default="source", description='"source", "none", "gzip", "snappy", "lz4" or "zstd"'
    )
    """`"source"` keeps each batch's compression; `"none"`, `"gzip"`, `"snappy"`, `"lz4"` or `"zstd"` re-encodes every
    batch, which costs many times the CPU
    """
    headers: Annotated[dict[str, str | SecretStr], BeforeValidator(record_headers)] = Field(
        default_factory=dict, description="a table of texts, added to every record as its headers"
    )
    """table of names and texts; each is added to every record as a header, which re-encodes every batch"""
    transform: Annotated[str, AfterValidator(function_name)] = Field(
        default="", description='a function as "package.module:function", or "" for none'
    )
    """a Python function `"package.module:function"` that every record passes through, which re-encodes every batch;
    see [Transforms](#transforms)
    """
    test_copy: MaskingConfig = Field(default_factory=MaskingConfig, description="a table")
    """the table `[flows.NAME.test-copy]`, see [Test copies](#test-copies)"""
    configs: Literal["sync", "create", "off"] = Field(default="sync", description='"sync", "create" or "off"')
    """configurations of target topics: `"sync"` keeps them in step with the source's, `"create"` sets them when a
    topic is created and never again, `"off"` leaves all to the target's defaults; see [Topic
    configurations](#topic-configurations)
    """
    configs_include: Annotated[tuple[Pattern, ...], Field(strict=False)] = Field(
        default=CONFIGS_INCLUDE, description="a list of regular expressions"
    )
    """configurations that target topics get from the source at all; others are shown as `not-followed`"""
    configs_exclude: Annotated[tuple[Pattern, ...], Field(strict=False)] = Field(
        default=CONFIGS_EXCLUDE, description="a list of regular expressions"
    )
    """configurations that match one of these regular expressions are left as they are on the target"""
    configs_overrides: Annotated[dict[str, str], BeforeValidator(topic_configs.overrides)] = Field(
        default_factory=dict, description="a table of topic configurations, each a text, a number, true or false"
    )
    """the table `[flows.NAME.configs-overrides]` of configurations that all target topics of the flow have, whatever
    the source says
    """
    on_topic_deleted: Literal["keep", "delete"] = Field(default="keep", description='"keep" or "delete"')
    """the source deleted a topic: `"keep"` leaves its copy as it is, `"delete"` deletes it; see [Deleted
    topics](#deleted-topics)
    """
    max_deletions: int = Field(default=1, ge=1, le=INT32_MAX, description=_LIMIT)
    """how many topics are deleted, or keep less by a change of their configuration, at a time and within an hour; if
    there are more, none is until `mirror apply --max-deletions N`. Unless the key is set, it is 0 with
    `on-topic-deleted = "keep"`
    """
    min_retention_ms: int = Field(
        default=_DAY_MS, ge=0, le=INT64_MAX, description="whole milliseconds from 0 to 9223372036854775807"
    )
    """a shorter retention that keeps all records of this time is no deletion; see [What deletes
    records](#what-deletes-records)
    """
    max_new_topics: int = Field(default=10_000, ge=1, le=INT32_MAX, description=_LIMIT)
    """how many topics a run creates, a stream within an hour; the others are named and not copied"""
    max_partitions: int = Field(default=100_000, ge=1, le=INT32_MAX, description=_LIMIT)
    """how many partitions a run creates, a stream within an hour; the others are named and not copied"""
    max_acls: int = Field(default=10_000, ge=1, le=INT32_MAX, description=_LIMIT)
    """how many ACLs the flow has created on the target; the others are listed as `over-limit`. Denials count, and are
    created beyond it
    """
    max_groups: int = Field(default=10_000, ge=1, le=INT32_MAX, description=_LIMIT)
    """how many consumer groups with positions in copied topics are brought to the target; the others are named"""
    sync_interval_ms: int = Field(default=60_000, ge=1_000, le=INT32_MAX, description=PERIOD)
    """how often a stream brings configurations and ACLs in step, and deletes topics"""
    shutdown_timeout_ms: int = Field(default=20_000, ge=1_000, le=INT32_MAX, description=PERIOD)
    """time limit for a stream to end in order"""
    producer: dict[str, Plain] = Field(default_factory=dict, description="a table of the producer's dotted keys")
    """the table `[flows.NAME.producer]`, see below"""
    consumer: dict[str, Plain] = Field(default_factory=dict, description="a table of the consumer's dotted keys")
    """the table `[flows.NAME.consumer]`, see below"""
    mirrormaker: MirrorMakerConfig = Field(default_factory=MirrorMakerConfig, description="a table")
    """the table `[flows.NAME.mirrormaker]`, see [For MirrorMaker 2's tools](#for-mirrormaker-2s-tools)"""
    groups: GroupsConfig = Field(default_factory=lambda: GroupsConfig(sync=False), description="a table")
    """the table `[flows.NAME.groups]`, see [Consumer groups](#consumer-groups)"""
    acls: AclsConfig = Field(default_factory=lambda: AclsConfig(sync=False), description="a table")
    """the table `[flows.NAME.acls]`, see [ACLs](#acls)"""

    @classmethod
    @functools.cache
    def sections(cls) -> dict[str, type[OwnTable]]:
        """Return the tables of a flow that have this project's own keys, by name."""
        types = {str(field.alias): field.annotation for field in cls.model_fields.values()}
        return {key: kind for key, kind in types.items() if isinstance(kind, type) and issubclass(kind, OwnTable)}

    @field_serializer("headers", when_used="json")
    def _headers_to_show(self, headers: dict[str, str | SecretStr]) -> dict[str, str]:
        return {name: HIDDEN if isinstance(value, SecretStr) else value for name, value in headers.items()}

    @property
    def is_within_one_cluster(self) -> bool:
        """Whether the flow copies topics of a cluster under other names to the same cluster."""
        return self.source == self.target

    @property
    def exactly_once(self) -> bool:
        """Whether each record is copied exactly once, whatever fails."""
        return self.delivery == "exactly-once"

    @property
    def deletes_topics(self) -> bool:
        """Whether target topics are deleted whose source topics were."""
        return self.on_topic_deleted == "delete"

    @property
    def deletion_limit(self) -> int:
        """How many topics are deleted or reduced at a time, and within an hour; 0 unless the file asks for any."""
        return self.max_deletions if self.deletes_topics or "max_deletions" in self.model_fields_set else 0

    @property
    def limits(self) -> dict[str, int]:
        """How much the source can make the flow do on the target, by key."""
        return {
            "max-new-topics": self.max_new_topics,
            "max-partitions": self.max_partitions,
            "max-acls": self.max_acls,
            "max-groups": self.max_groups,
            "max-deletions": self.deletion_limit,
        }

    @property
    def aligns_topics(self) -> bool:
        """Whether target topics are kept in step: their configurations, or whether they are there."""
        return self.configs == "sync" or self.deletes_topics

    def is_aside(self, topic: str, cluster: str) -> bool:
        """Return whether records of this flow, or of others of the same file, go aside to that topic on ``cluster``."""
        return (topic, cluster) == (self.aside, self.target) or (topic, cluster) in self._aside_topics

    @property
    def keeps_inventory(self) -> bool:
        """Whether the flow keeps what it knows about the target in a topic there."""
        return self.aligns_topics or self.acls.sync

    @property
    def only_local(self) -> bool:
        """Whether records that flows have written to the source are left out."""
        return self.origin == "local"

    @property
    def registers_producers(self) -> bool:
        """Whether the target can distinguish what this flow writes from what is produced there."""
        return self.only_local or self.register_producers

    @property
    def follows_groups(self) -> bool:
        """Whether the positions of consumer groups are translated: to be committed, or for checkpoints, or both."""
        return self.groups.sync or self.mirrormaker.checkpoints

    @property
    def start_timestamp_ms(self) -> int | None:
        """``start`` in ms since 1970 if it is a timestamp, else None."""
        return None if self.start in {"earliest", "latest"} else positions.milliseconds(self.start)

    @property
    def start_position(self) -> Position | None:
        """``from``, where a partition without progress begins; None if only ``start`` sets it."""
        return Position.parse(self.from_)

    @property
    def begins_at_end(self) -> bool:
        """Whether it begins at the ends of the partitions that exist when it starts, and copies later ones whole."""
        return self.start == "latest" and self.start_position is None

    @property
    def end_position(self) -> Position | None:
        """``until``, exclusive; None if the flow has no end."""
        return Position.parse(self.until)

    def follows_config(self, key: str) -> bool:
        """Return whether topic configuration ``key`` is followed, unless it is excluded."""
        return matches(self.configs_include, key)

    def excludes_config(self, key: str) -> bool:
        """Return whether topic configuration ``key`` is left as it is on the target, unless it is overridden."""
        return matches(self.configs_exclude, key)
