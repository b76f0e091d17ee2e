"""Loading a whole file: its values, and every problem in it, reported at once."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from mirror.cli.commands.demo import DEMO_CONFIG
from mirror.config.load import load
from mirror.config.positions import Position
from mirror.errors import ConfigError
from mirror.relay.model.policy import CopyPolicy

from .conftest import CLUSTERS, FLOW, Load, Problems

NOBODY = 65534
CONFIGS = Path(__file__).parents[2] / "config"


def test_defaults(read: Load) -> None:
    config = read()
    flow = config.flows["paris-berlin"]
    assert (flow.name, flow.source, flow.target, flow.topics) == ("paris-berlin", "paris", "berlin", ("orders",))
    assert flow.topics_exclude == ("__.*", ".*[.-](internal|replica)")
    assert (flow.naming, flow.delivery, flow.start, flow.on_gap) == ("prefix", "exactly-once", "earliest", "fail")
    assert (flow.commit_interval_ms, flow.replication_factor) == (1000, -1)
    assert flow.copy_policy() == CopyPolicy()
    assert config.clusters["paris"].client_options() == {"bootstrap.servers": "paris-1:9092"}


@pytest.mark.parametrize("path", [CONFIGS / "example.toml", DEMO_CONFIG], ids=lambda path: path.name)
def test_the_shipped_configurations_are_valid(path: Path) -> None:
    assert load(path, environ={}).flows


def test_the_demo_takes_its_brokers_from_the_environment() -> None:
    environ = {
        f"MIRROR_CLUSTERS__{end}__BOOTSTRAP_SERVERS": f"127.0.0.1:{port}"
        for end, port in [("SOURCE", 1), ("TARGET", 2)]
    }
    clusters = load(DEMO_CONFIG, environ=environ).clusters
    assert [c.client_options()["bootstrap.servers"] for c in clusters.values()] == ["127.0.0.1:1", "127.0.0.1:2"]


def test_a_configuration_is_frozen_and_can_be_pickled(read: Load) -> None:
    config = read()
    with pytest.raises(ValidationError):
        config.flows["paris-berlin"].source = "berlin"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        config.flows = {}  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301 - bytes made here


def test_select(read: Load) -> None:
    config = read()
    assert [flow.name for flow in config.select(None)] == ["paris-berlin"]
    assert config.select("paris-berlin") == config.select()
    with pytest.raises(ConfigError, match=r'flow = "paris-berlim": no such flow; did you mean "paris-berlin"\?'):
        config.select("paris-berlim")


@pytest.mark.parametrize(
    ("start", "milliseconds"),
    [
        ('"earliest"', None),
        ('"latest"', None),
        ('"2026-01-31T00:00:00Z"', 1_769_817_600_000),
        ("2026-01-31T00:00:00Z", 1_769_817_600_000),
        ('"2026-01-31T01:00:00.001+01:00"', 1_769_817_600_001),
    ],
)
def test_start(read: Load, start: str, milliseconds: int | None) -> None:
    assert read(f"{CLUSTERS}{FLOW}start = {start}").flows["paris-berlin"].start_timestamp_ms == milliseconds


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('""', None),
        ("0", Position(offset=0)),
        ("17", Position(offset=17)),
        ("2026-01-31T00:00:00Z", Position(timestamp_ms=1_769_817_600_000)),
        ('"2026-01-31T01:00:00.001+01:00"', Position(timestamp_ms=1_769_817_600_001)),
    ],
)
def test_from_and_until(read: Load, value: str, expected: Position | None) -> None:
    assert read(f"{CLUSTERS}{FLOW}from = {value}").flows["paris-berlin"].start_position == expected
    config = read(f"{CLUSTERS}{FLOW}until = {value}")
    assert config.flows["paris-berlin"].end_position == expected
    assert "from" in config.described()["flows"]["paris-berlin"]


def test_an_offset_from_the_environment_is_a_number(read: Load) -> None:
    prefix = "MIRROR_FLOWS__PARIS_BERLIN__"
    environ = {prefix + "FROM": "17", prefix + "UNTIL": "2026-01-31T00:00:00Z"}
    flow = read(CLUSTERS + FLOW, environ).flows["paris-berlin"]
    assert (flow.start_position, flow.end_position) == (Position(offset=17), Position(timestamp_ms=1_769_817_600_000))


def test_patterns_match_whole_names_and_targets_are_named(read: Load) -> None:
    flow = read(CLUSTERS + FLOW.replace('["orders"]', '["orders", "click.*"]')).flows["paris-berlin"]
    wanted = [
        "orders",
        "orders2",
        "clicks",
        "click-internal",
        "click.replica",
        "click_internal",
        "__click",
        "my-orders",
    ]
    assert [topic for topic in wanted if flow.includes(topic)] == ["orders", "clicks", "click_internal"]
    assert flow.target_topic("orders") == "paris.orders"
    same = read(CLUSTERS + FLOW + 'naming = "identity"').flows["paris-berlin"]
    assert same.target_topic("orders") == "orders"


def test_heartbeats_are_copied_whatever_topics_says_and_have_a_prefix(read: Load) -> None:
    with_heartbeats = "[flows.paris-berlin.mirrormaker]\nheartbeats = true"
    for naming in ("prefix", "identity"):
        flow = read(f'{CLUSTERS}{FLOW}naming = "{naming}"\n{with_heartbeats}').flows["paris-berlin"]
        copied = [topic for topic in ("heartbeats", "oslo.heartbeats", "berlin.heartbeats") if flow.includes(topic)]
        assert copied == ["heartbeats", "oslo.heartbeats"], "the last one comes from the target"
        assert [flow.target_topic(topic) for topic in copied] == ["paris.heartbeats", "paris.oslo.heartbeats"]
        assert not flow.selects("heartbeats")
    same = read(f'{CLUSTERS}{FLOW}naming = "identity"').flows["paris-berlin"]
    assert not same.includes("heartbeats")
    assert same.target_topic("heartbeats") == "heartbeats", "as before, where no heartbeats are written"


def test_groups_are_brought_along_if_there_is_a_table_for_them(read: Load) -> None:
    without = read(CLUSTERS + FLOW).flows["paris-berlin"].groups
    assert (without.sync, without.interval_ms) == (False, 10_000)
    flow = read(f"{CLUSTERS}{FLOW}[flows.paris-berlin.groups]").flows["paris-berlin"]
    assert flow.groups.sync
    names = ["billing", "console-consumer-17", "connect-sink", "__internal", "my-connect-sink"]
    assert [name for name in names if flow.groups.includes(name)] == ["billing", "my-connect-sink"]
    own = 'include = ["b.*", "a"]\nexclude = ["bad"]\non-group-deleted = "delete"\nsync = false\ninterval-ms = 1000'
    groups = read(f"{CLUSTERS}{FLOW}[flows.paris-berlin.groups]\n{own}").flows["paris-berlin"].groups
    assert [name for name in ["a", "aa", "b", "bad"] if groups.includes(name)] == ["a", "b"]
    assert (groups.sync, groups.interval_ms, groups.on_group_deleted) == (False, 1_000, "delete")


def test_only_one_flow_between_two_clusters_copies_heartbeats(problems: Problems, read: Load) -> None:
    other, more = FLOW.replace("paris-berlin", "second"), "[flows.{}.mirrormaker]\nheartbeats = true\n"
    toml = CLUSTERS + FLOW + more.format("paris-berlin") + other + more.format("second")
    (problem,) = problems(toml)
    assert problem.startswith("mirror.toml: flows.second.mirrormaker.heartbeats = true: flow paris-berlin copies")
    back = FLOW.replace("paris-berlin", "back").replace('"paris"', '"x"').replace('"berlin"', '"paris"')
    opposite = toml.replace(other, back.replace('"x"', '"berlin"')).replace("flows.second.", "flows.back.")
    assert all(flow.mirrormaker.heartbeats for flow in read(opposite).flows.values())
    oslo = CLUSTERS.replace("paris", "oslo").partition("[clusters.berlin]")[0]
    elsewhere = read(toml.replace(other, other.replace('"berlin"', '"oslo"')) + oslo)
    assert all(flow.mirrormaker.heartbeats for flow in elsewhere.flows.values())


def test_checkpoints_need_a_table_that_selects_groups(problems: Problems, read: Load) -> None:
    toml = f"{CLUSTERS}{FLOW}mirrormaker.checkpoints = true\n"
    (problem,) = problems(toml)
    assert "flows.paris-berlin.mirrormaker.checkpoints = true: needs the table [flows.paris-berlin.groups]" in problem
    flow = read(f"{toml}[flows.paris-berlin.groups]\nsync = false").flows["paris-berlin"]
    assert (flow.follows_groups, flow.groups.sync) == (True, False)
    assert not read(CLUSTERS + FLOW).flows["paris-berlin"].follows_groups


FLOW_PROBLEMS = [
    ("mirrormaker = 3", "flows.paris-berlin.mirrormaker = 3: must be a table"),
    (
        "[flows.paris-berlin.mirrormaker]\nheartbeat = true",
        'flows.paris-berlin.mirrormaker.heartbeat = true: unknown key; did you mean "heartbeats"?',
    ),
    (
        '[flows.paris-berlin.mirrormaker]\nheartbeats = "yes"',
        'flows.paris-berlin.mirrormaker.heartbeats = "yes": must be true or false',
    ),
    (
        "[flows.paris-berlin.groups]\ninterval-ms = 10",
        "groups.interval-ms = 10: must be whole milliseconds from 1000 to 2147483647",
    ),
    ('[flows.paris-berlin.groups]\ninclude = ["("]', 'groups.include = "(": not a regular expression'),
    ('[flows.paris-berlin.groups]\non-group-deleted = "drop"', 'on-group-deleted = "drop": must be "keep" or "delete"'),
    (
        'verify = "all"',
        (
            'flows.paris-berlin.verify = "all": refused: nothing is read back while it is copied; `mirror verify`'
            " compares a copy with its source"
        ),
    ),
    ('naem = "x"', 'flows.paris-berlin.naem = ***: unknown key; did you mean "names"?'),
    ("commit_interval_ms = 50", 'commit_interval_ms = 50: unknown key; did you mean "commit-interval-ms"?'),
    ('name = "x"', 'flows.paris-berlin.name = ***: unknown key; did you mean "names"?'),
    ('"<name>" = "x"', 'flows.paris-berlin."<name>" = ***: unknown key'),
    ('naming = "suffix"', 'naming = "suffix": must be "prefix" or "identity"'),
    ('commit-interval-ms = "1000"', 'commit-interval-ms = "1000": must be whole milliseconds from 20 to 2147483647'),
    ("commit-interval-ms = true", "commit-interval-ms = true: must be whole milliseconds"),
    ("commit-interval-ms = 1.5", "commit-interval-ms = 1.5: must be whole milliseconds"),
    ("commit-interval-ms = 19", "commit-interval-ms = 19: must be whole milliseconds"),
    ("commit-interval-ms = 0x" + "f" * 5000, "commit-interval-ms = (an integer too large): must be"),
    ("replication-factor = 0", "replication-factor = 0: must be -1 (the target's default) or a whole number"),
    ("replication-factor = -2", "replication-factor = -2: must be -1 (the target's default) or a whole number"),
    ('delivery = "twice"', 'delivery = "twice": must be "exactly-once" or "at-least-once"'),
    ('exactly-once-by = "fences"', 'exactly-once-by = "fences": must be "auto", "sequences" or "transactions"'),
    ('on-gap = "clamp"', 'on-gap = "clamp": must be "fail" or "skip"'),
    ('on-too-large = "clamp"', 'on-too-large = "clamp": must be "fail", "skip" or "aside"'),
    ('on-bad-timestamp = "drop"', 'on-bad-timestamp = "drop": must be "fail", "clamp", "skip" or "aside"'),
    ('on-no-key = "clamp"', 'on-no-key = "clamp": must be "fail", "skip" or "aside"'),
    ('start-over = "true"', 'start-over = "true": must be true or false'),
    ("start-over = 1", "start-over = 1: must be true or false"),
    ("commit-min-interval-ms = 19", "commit-min-interval-ms = 19: must be whole milliseconds from 20"),
    ("commit-min-interval-ms = 1001", "commit-min-interval-ms = 1001: must be at most commit-interval-ms (1000)"),
    ("max-bytes-per-second = 1023", "= 1023: must be 0 (no limit) or a whole number of bytes from 1024"),
    ("max-bytes-per-second = -1", "= -1: must be 0 (no limit) or a whole number of bytes from 1024"),
    ('compression = "brotli"', 'compression = "brotli": must be "source", "none", "gzip", "snappy", "lz4" or "zstd"'),
    ('headers = "a=b"', 'headers = "a=b": must be a table of texts'),
    ("headers.number = 5", 'headers = a table: the value of "number" must be text in quotes'),
    ("headers.password = 5", 'headers = a table: the value of "password" must be text in quotes'),
    ('transform = "package.module"', 'transform = "package.module": must be a function as "package.module:function"'),
    ('transform = "a..b:f"', 'transform = "a..b:f": must be a function as "package.module:function"'),
    ('transform = "a:f()"', 'transform = "a:f()": must be a function as "package.module:function"'),
    ("period-ms = 1", "period-ms = 1: must be whole milliseconds from 1000"),
    ("shutdown-timeout-ms = 1", "shutdown-timeout-ms = 1: must be whole milliseconds from 1000"),
    ('topics-exclude = "x"', 'topics-exclude = "x": must be a list of regular expressions'),
    ('topics-exclude = ["("]', 'topics-exclude = "(": not a regular expression: missing ): ('),
    ('topics-exclude = ["a{1001}"]', "not a regular expression: invalid repetition size: {1001}"),
    (
        'topics-exclude = ["(?!a).*"]',
        "not a regular expression: invalid perl operator: (?!; look-around and back-references are not supported (RE2)",
    ),
    ('topics-exclude = [""]', 'topics-exclude = "": an empty pattern matches nothing'),
    ('start = "soon"', 'start = "soon": must be "earliest", "latest" or a timestamp'),
    ('start = "2026-01-31"', "a timestamp needs its offset from UTC"),
    ("start = 2026-01-31", "start = 2026-01-31: must be"),
    ("start = 1969-12-31T23:59:59Z", "a timestamp must not be before 1970"),
    ("from = -1", "from = -1: must be a timestamp such as"),
    ("from = true", "from = true: must be a timestamp such as"),
    ("from = 1.5", "from = 1.5: must be a timestamp such as"),
    ("from = 9223372036854775808", "an offset as a whole number from 0"),
    ('from = "earliest"', 'from = "earliest": must be a timestamp such as'),
    ('until = "2026-01-31"', "a timestamp needs its offset from UTC"),
    ("until = 1969-12-31T23:59:59Z", "a timestamp must not be before 1970"),
    ("until = [5]", "until = [5]: must be a timestamp such as"),
    ("max-bytes-per-run = 65535", "= 65535: must be 0 (no limit) or a whole number of bytes from 65536"),
    ("max-bytes-per-run = -1", "= -1: must be 0 (no limit) or a whole number of bytes from 65536"),
    ("max-partitions-in-parallel = -1", "= -1: must be 0 (no limit) or a whole number from 1"),
    ("producer = 5", "producer = 5: must be a table"),
]


@pytest.mark.parametrize(("line", "expected"), FLOW_PROBLEMS)
def test_a_wrong_key_of_a_flow(problems: Problems, line: str, expected: str) -> None:
    (problem,) = problems(CLUSTERS + FLOW + line)
    assert problem.startswith("mirror.toml: flows.paris-berlin.")
    assert expected in problem


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        (CLUSTERS, "mirror.toml: flows: there is none; add a table [flows.NAME]"),
        (
            CLUSTERS + FLOW.replace("[flows.", "[flow."),
            'mirror.toml: flow = a table: unknown key; did you mean "flows"?',
        ),
        (FLOW, "mirror.toml: clusters: there is none; add a table [clusters.NAME]"),
        ("clusters = 5\n" + FLOW, "mirror.toml: clusters: must be tables: [clusters.NAME]"),
        ("clusters.paris = 5\n" + FLOW, "mirror.toml: clusters.paris: must be a table: [clusters.paris]"),
        (CLUSTERS + FLOW + "[cluster.rome]", 'mirror.toml: cluster = a table: unknown key; did you mean "clusters"?'),
        (CLUSTERS + FLOW.replace("paris-berlin", '"a b"'), 'mirror.toml: flows."a b": a flow\'s name is made of'),
        (CLUSTERS + FLOW + '[clusters."a/b"]\n"bootstrap.servers"="x:1"', 'clusters."a/b": a cluster\'s name is made'),
        (
            CLUSTERS + FLOW.replace('"paris"', '"pariss"'),
            'source = "pariss": no such cluster; there are: paris, berlin',
        ),
        (
            CLUSTERS + FLOW.replace("source", "#"),
            "flows.paris-berlin.source = (not set): required: the name of a cluster",
        ),
        (CLUSTERS + FLOW.replace('["orders"]', "[]"), "topics = []: must be a list of at least one regular expression"),
        (CLUSTERS + FLOW.replace('["orders"]', "[5]"), "topics = 5: must be a list"),
        (CLUSTERS.replace('"paris-1:9092"', "9092") + FLOW, '"bootstrap.servers" = 9092: must be a list of texts'),
        (CLUSTERS.replace(":9092", "") + FLOW, "'paris-1': must be host:port"),
        (CLUSTERS.replace('"bootstrap.servers"', "bootstrap.servers") + FLOW, "a key with dots must be in quotes"),
    ],
)
def test_a_wrong_file(problems: Problems, toml: str, expected: str) -> None:
    assert any(expected in problem for problem in problems(toml))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('producer."acks" = "1"', "flows.paris-berlin.producer.acks = '1': must be 'all' with enable.idempotence"),
        ('producer."retries" = "5"', 'flows.paris-berlin.producer.retries = "5": must be a whole number'),
        ('producer."enable.idempotence" = 1', '"enable.idempotence" = 1: must be true or false'),
        ('producer."delivery.timeout.ms" = 10', '"delivery.timeout.ms" = 10: must be at least linger.ms'),
        ('producer."linger.mss" = 10', 'producer."linger.mss" = 10: unknown key; did you mean "linger.ms"?'),
        ('consumer."fetch.max.bytes" = -1', 'consumer."fetch.max.bytes" = -1: must be a whole number from 1'),
        (
            'consumer."bootstrap.servers" = "x:1"',
            'consumer."bootstrap.servers" = "x:1": belongs to the cluster\'s table',
        ),
        ("consumer.fetch.max.bytes = 1", "flows.paris-berlin.consumer.fetch = a table: unknown key; a key with dots"),
    ],
)
def test_a_wrong_key_of_a_client(problems: Problems, line: str, expected: str) -> None:
    (problem,) = problems(CLUSTERS + FLOW + line)
    assert expected in problem


def test_a_clients_table_is_checked_together_with_its_cluster(problems: Problems) -> None:
    clusters = CLUSTERS + '"request.timeout.ms" = 70000\n'  # berlin's, the target's
    (problem,) = problems(clusters + FLOW + 'producer."delivery.timeout.ms" = 60000')
    assert "request.timeout.ms (70000)" in problem


def test_all_problems_are_reported_at_once(problems: Problems) -> None:
    toml = '[clusters.paris]\n"bootstrap.servers" = 1\n[flows.a]\nsource = "rome"\ntopics = []\nx = 1\n[flows.b]\n'
    text = "\n".join(problems(toml))
    for part in ["servers", "flows.a.source", "a.target", "a.topics", "a.x", "flows.b.source", "b.target", "b.topics"]:
        assert part in text


ONE_UNKNOWN_AND_OTHERS = [
    # A cluster's unknown key beside a contradiction of its known ones.
    (
        CLUSTERS + '"client.idd" = "x"\n"sasl.username" = "u"\n' + FLOW,
        ["client.idd", 'clusters.berlin."sasl.username" = *'],
    ),
    # A flow's unknown key beside contradictions, of its own and its clients' keys.
    (
        CLUSTERS + FLOW + 'naem = 1\ncommit-min-interval-ms = 2000\nfrom = 5\nuntil = 4\nproducer.acks = "1"\n'
        'consumer."auto.offset.reset" = "latest"',
        ["naem", "commit-min-interval-ms", "until", "producer.acks", "auto.offset.reset"],
    ),
    # A client's unknown key, and its cluster's, beside a contradiction.
    (
        CLUSTERS + '"client.idd" = "x"\n' + FLOW + 'producer.x = 1\nproducer."batch.size" = 2147483647\n'
        'producer."transaction.timeout.ms" = 5',
        ["client.idd", "producer.x", '"batch.size" = 2147483647: must be at most', '"transaction.timeout.ms" = 5'],
    ),
    (
        CLUSTERS + FLOW + 'consumer.x = 1\nconsumer."fetch.max.wait.ms" = 30000\nproducer.x = 1',
        ["consumer.x", "producer.x", '"fetch.max.wait.ms" = 30000: must be below'],
    ),
    # A key without a default that is wrong.
    (
        CLUSTERS + FLOW.replace('"orders"', '"("') + 'producer."transactional.id" = "x"',
        ["topics", '"transactional.id"'],
    ),
    # Flows that feed each other, one of them with an unknown key.
    (
        CLUSTERS
        + FLOW
        + 'naming = "identity"\nx = 1\n[flows.back]\nsource = "berlin"\ntarget = "paris"\ntopics = ["orders"]\n'
        'naming = "identity"',
        ["paris-berlin.x", "feed each other"],
    ),
]


@pytest.mark.parametrize(("toml", "expected"), ONE_UNKNOWN_AND_OTHERS)
def test_an_unknown_key_hides_no_other_problem(problems: Problems, toml: str, expected: list[str]) -> None:
    found = problems(toml)
    assert len(found) == len(expected), found
    for part in expected:
        assert any(part in problem for problem in found), found


@pytest.mark.parametrize(
    "toml",
    [
        CLUSTERS.replace('"bootstrap.servers" = "berlin', '"bootstrap.server" = "berlin') + FLOW,
        CLUSTERS + '"securty.protocol" = "SASL_SSL"\n"sasl.mechanism" = "PLAIN"\n' + FLOW,
        CLUSTERS + '"request.timeout.mss" = 5000\n' + FLOW + 'producer."delivery.timeout.ms" = 20000',
        CLUSTERS + FLOW + "commit-interval-mss = 5000\ncommit-min-interval-ms = 2000",
        CLUSTERS + FLOW + 'commit-interval-ms = "5000"\ncommit-min-interval-ms = 2000',
        CLUSTERS + FLOW + 'producer."delivery.timeout.ms" = "x"\nproducer."transaction.timeout.ms" = 60000',
    ],
)
def test_no_problem_is_derived_from_a_wrong_key(problems: Problems, toml: str) -> None:
    assert len(problems(toml)) == 1
