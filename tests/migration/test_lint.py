"""What ``mirror lint`` finds in properties files."""

from __future__ import annotations

import pytest

from mirror.migration.findings import Finding, Kind
from mirror.migration.lint import lint_properties
from mirror.migration.parsing.reading import read_properties

HEAD = (
    "clusters = a, b\na.bootstrap.servers = a:9092\nb.bootstrap.servers = b:9092\na->b.enabled = true\n"
    "dedicated.mode.enable.internal.rest = true\nb.exactly.once.source.support = enabled\n"
    "a.consumer.isolation.level = read_committed\nsync.topic.configs.enabled = false\nreplication.factor = 3\n"
)
"""Without a finding."""
LINE = HEAD.count("\n") + 1


def lint(text: str) -> list[Finding]:
    return lint_properties(read_properties(text.encode("utf-8"), "mm2.properties"))


def test_a_file_without_a_fault_has_no_findings() -> None:
    assert lint(HEAD) == []


@pytest.mark.parametrize(
    ("line", "kind", "words"),
    [
        ("producer.linger.ms = 5", Kind.IGNORED, "write b.producer.linger.ms"),
        ("consumer.fetch.min.bytes = 5", Kind.IGNORED, "write a.consumer.fetch.min.bytes"),
        ("offset.flush.interval.ms = 5", Kind.IGNORED, "write b.offset.flush.interval.ms"),
        ("a->b.offset.flush.interval.ms = 5", Kind.IGNORED, "write b.offset.flush.interval.ms"),
        ("a->b.exactly.once.source.support = enabled", Kind.IGNORED, "write b.exactly.once.source.support"),
        ("use.defaults.from = source", Kind.IGNORED, "write a->b.use.defaults.from"),
        ("transforms.x.type = y", Kind.IGNORED, "write a->b.transforms.x.type"),
        ("a->b.consumer.isolation.level = read_uncommitted", Kind.IGNORED, "takes precedence"),
        ("b.consumer.fetch.min.bytes = 5", Kind.IGNORED, "nothing is copied from b"),
        ("a.topics = x", Kind.IGNORED, "write a->b.topics"),
        ("a->c.topics = x", Kind.IGNORED, "a->c is no pair"),
        ("b->a.topics = x", Kind.IGNORED, "b->a is not enabled"),
        ("c.bootstrap.servers = c:9092", Kind.IGNORED, "c is not in clusters"),
        ("topics.blacklist = x", Kind.IGNORED, "write topics.exclude"),
        ("cluster = A, B", Kind.IGNORED, "did you mean clusters?"),
        ("replication.facter = 3", Kind.IGNORED, "did you mean replication.factor?"),
        ("refresh.topics.interval.second = 3", Kind.IGNORED, "did you mean"),
        ("a->b.producer.linger.ms = 5", Kind.OTHER_EFFECT, "offset syncs"),
        ("a.consumer.poll.timeout.ms = 5", Kind.OTHER_EFFECT, "poll.timeout.ms"),
        (r"topics = mm2.*\.internal", Kind.OTHER_EFFECT, "removes the backslash before ."),
        ("groups =", Kind.OTHER_EFFECT, "matches nothing"),
        ("topics = caf\u00e9", Kind.OTHER_EFFECT, "ISO-8859-1"),
        ("topics = x, \\\ngroups = y", Kind.OTHER_EFFECT, "ends with a backslash"),
        ("topics = ${file:/x:y}", Kind.OTHER_EFFECT, "config.providers has no file"),
        ("a -> b.topics = x", Kind.OTHER_EFFECT, "a blank ends a key"),
        ("b->a.enabled = yes", Kind.OTHER_EFFECT, "neither true nor false"),
        ("topics = *", Kind.REFUSED, "no regular expression"),
        ("topics = a{1,2}", Kind.REFUSED, "also in {n,m}"),
        ("topics = ${one}", Kind.REFUSED, "Illegal repetition"),
        ("topics = (?<x>a), (?<x>b)", Kind.REFUSED, "a second group"),
        ("topics = a,,b", Kind.REFUSED, "empty item"),
        ("tasks.max = many", Kind.REFUSED, "not a whole number"),
        ("sync.topic.acls.enabled = on", Kind.REFUSED, "neither true nor false"),
        ("replication.factor = 1", Kind.DANGEROUS, "1 replicas"),
        ("a->b.sync.topic.configs.enabled = true", Kind.DANGEROUS, "deleted every 10 minutes"),
        ("replication.policy.class = IdentityReplicationPolicy", Kind.DANGEROUS, "cycles are not recognized"),
    ],
)
def test_a_line_that_does_not_do_what_it_says_is_found(line: str, kind: Kind, words: str) -> None:
    found = [finding for finding in lint(f"{HEAD}{line}\n") if finding.line >= LINE]
    assert any(finding.kind is kind and words in str(finding) for finding in found), lint(f"{HEAD}{line}\n")


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("", Kind.REFUSED, "needs the names of clusters"),
        ("\ufeff" + HEAD, Kind.OTHER_EFFECT, "byte order mark"),
        (HEAD.replace("enabled = true\n", "enabled = true \n", 1), Kind.OTHER_EFFECT, "blank behind the value"),
        (HEAD.replace("b.boot", "c.boot"), Kind.REFUSED, "cluster b has no bootstrap.servers"),
        (HEAD.replace("rest = true", "rest = false"), Kind.REFUSED, "internal REST server"),
        (HEAD.replace("a.consumer.isolation.level = read_committed", ""), Kind.DANGEROUS, "aborted transactions"),
        (HEAD.replace("b.exactly", "#"), Kind.DANGEROUS, "copied again after each failure"),
        (HEAD + "a.bootstrap.servers = other:9092\n", Kind.IGNORED, "the last one counts"),
        (HEAD.replace("a, b", "a, b, A"), Kind.DANGEROUS, "differs from another in case only"),
        (HEAD.replace("a, b", "a, b, c.d"), Kind.DANGEROUS, "has a dot"),
        (HEAD.replace("a->b.enabled = true", ""), Kind.OTHER_EFFECT, "only heartbeats are written"),
    ],
)
def test_a_file_that_does_not_do_what_it_says_is_found(text: str, kind: Kind, words: str) -> None:
    assert any(finding.kind is kind and words in str(finding) for finding in lint(text)), lint(text)


def test_passwords_are_not_shown() -> None:
    found = lint(HEAD + "a.sasl.jaas.config = 4711\na.sasl.jaas.config = 4711 \nc.ssl.key.password = 4711\n")
    assert len(found) >= 3
    assert "4711" not in "".join(map(repr, found))


def test_settings_that_have_an_effect_are_not_called_ignored() -> None:
    lines = [
        "b.producer.linger.ms = 5",
        "b.offset.flush.interval.ms = 9",
        "a->b.transforms.x.type = y",
        "a->b.use.defaults.from = source",
        "tasks.max = 2",
        "ssl.truststore.location = /x",
        "offset.storage.replication.factor = 1",
    ]
    assert [finding for finding in lint(HEAD + "\n".join(lines)) if finding.kind is Kind.IGNORED] == []
