"""Rules about several keys of a flow, and the policy and options that its tasks get."""

from __future__ import annotations

import json
import pickle

import pytest

from mirror.config.flow_rules import source_options, target_options
from mirror.producer.settings import ProducerSettings
from mirror.relay.model.policy import CopyPolicy

from .conftest import CLUSTERS, FLOW, Load, Problems

AT_LEAST_ONCE = 'delivery = "at-least-once"\n'


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            'producer."transactional.id" = "x"',
            'producer."transactional.id" = "x": each partition has a transactional id',
        ),
        (
            AT_LEAST_ONCE + 'producer."transactional.id" = "x"',
            'producer."transactional.id" = "x": each partition has a',
        ),
        ('on-no-key = "aside"', 'on-no-key = "aside": needs aside = "TOPIC"'),
        ('aside = "a topic"', 'aside = "a topic": must be a topic\'s name'),
        ('aside = "mirror-offsets.f.internal"', "must be a topic of its own, since a flow keeps its own records there"),
        (
            'aside = "beside"\nexactly-once-by = "sequences"',
            'aside = "beside": must not be set with exactly-once-by = "sequences"',
        ),
        (
            'aside = "beside"\non-corrupt = "aside"\ntransform = "a:b"',
            'on-corrupt = "aside": must be "fail" with transform',
        ),
        ('producer."compression.type" = "lz4"', 'producer."compression.type" = "lz4": batches are passed on as they'),
        (
            'consumer."isolation.level" = "read_uncommitted"',
            'consumer."isolation.level" = "read_uncommitted": must be "read_committed"',
        ),
        ('consumer."auto.offset.reset" = "latest"', 'consumer."auto.offset.reset" = "latest": has no effect'),
        (
            'producer."transaction.timeout.ms" = 150999',
            "must be at least delivery.timeout.ms (120000) + request.timeout.ms (30000) + commit-interval-ms (1000)",
        ),
        (
            'producer."delivery.timeout.ms" = 2147483647',
            '"transaction.timeout.ms" = (not set): would have to be delivery.timeout.ms (2147483647) + ',
        ),
        ("from = 5\nuntil = 5", "until = 5: must be after from (5)"),
        (
            'from = "2026-01-31T01:00:00Z"\nuntil = "2026-01-31T01:30:00+01:00"',
            'until = "2026-01-31T01:30:00+01:00": must be after from ("2026-01-31T01:00:00Z")',
        ),
        (
            "start = 2026-01-31T00:00:00Z\nuntil = 2026-01-30T00:00:00Z",
            'until = "2026-01-30T00:00:00+00:00": must be after start ("2026-01-31T00:00:00+00:00")',
        ),
        ('start = "earliest"\nfrom = 5', 'from = 5: start = "earliest" also sets where a partition'),
        (
            AT_LEAST_ONCE + 'producer."transaction.timeout.ms" = 200000',
            '"transaction.timeout.ms" = 200000: has no effect with delivery = "at-least-once": remove the key',
        ),
        (
            AT_LEAST_ONCE + 'exactly-once-by = "auto"',
            'exactly-once-by = "auto": has no effect with delivery = "at-least-once": remove the key',
        ),
    ],
)
def test_contradicting_keys_are_problems(problems: Problems, lines: str, expected: str) -> None:
    (problem,) = problems(CLUSTERS + FLOW + lines)
    assert expected in problem


@pytest.mark.parametrize(
    "lines",
    [
        'producer."transaction.timeout.ms" = 151000',
        'consumer."isolation.level" = "read_committed"',
        # The default is too small for it, and raised.
        'producer."linger.ms" = 100000\nproducer."transaction.timeout.ms" = 161100',
        AT_LEAST_ONCE + 'producer."delivery.timeout.ms" = 9223372036854775807',
        "commit-min-interval-ms = 1000",
        'delivery = "exactly-once"\nexactly-once-by = "sequences"',
        "from = 5\nuntil = 6",
        # Which of the two comes first is unknown.
        "from = 5\nuntil = 1970-01-01T00:00:00Z",
        'start = "latest"\nuntil = 5',
    ],
)
def test_compatible_keys_are_accepted(read: Load, lines: str) -> None:
    assert read(CLUSTERS + FLOW + lines).flows


def test_the_producer_s_options_include_the_flow_s(read: Load) -> None:
    config = read(CLUSTERS + FLOW + 'producer."transaction.timeout.ms" = 500000')
    options = target_options(config, config.flows["paris-berlin"])
    assert options == {"bootstrap.servers": "berlin-1:9092", "transaction.timeout.ms": 500_000}
    assert ProducerSettings.parse({**options, "transactional.id": "t"}).transaction_timeout_ms == 500_000


def test_options_reveal_what_the_clients_need(read: Load) -> None:
    login = (
        '"security.protocol" = "SASL_SSL"\n"sasl.mechanism" = "PLAIN"\n"sasl.username" = "u"\n"sasl.password" = "p"\n'
    )
    toml = CLUSTERS.replace("[clusters.berlin]", login + "[clusters.berlin]")
    config = read(toml + FLOW + 'consumer."client.rack" = "r"')
    options = source_options(config, config.flows["paris-berlin"])
    assert (options["sasl.password"], options["client.rack"]) == ("p", "r")


EVERYTHING = """
delivery = "at-least-once"
commit-interval-ms = 500
commit-min-interval-ms = 50
on-gap = "skip"
on-target-loss = "fail"
on-target-recreated = "start-over"
on-too-large = "skip"
on-bad-timestamp = "clamp"
on-no-key = "skip"
start-over = true
max-bytes-per-second = 10000
compression = "zstd"
transform = "my.module:change"
headers = { via = "paris", "auth-token" = "hush" }
"""


def test_the_policy_of_a_task(read: Load) -> None:
    flow = read(CLUSTERS + FLOW + EVERYTHING).flows["paris-berlin"]
    assert flow.copy_policy(tasks=3) == CopyPolicy(
        exactly_once=False,
        commit_interval_ms=500,
        commit_min_interval_ms=50,
        on_gap="skip",
        on_target_loss="fail",
        on_target_recreated="start-over",
        on_too_large="skip",
        on_bad_timestamp="clamp",
        on_no_key="skip",
        start_over=True,
        max_bytes_per_second=3333,
        compression="zstd",
        headers=(("via", b"paris"), ("auth-token", b"hush")),
        transform="my.module:change",
    )


@pytest.mark.parametrize(
    ("lines", "interval_ms"),
    [
        ("", 0),
        ("[flows.paris-berlin.groups]\ninterval-ms = 8000", 2_000),
        ("mirrormaker.checkpoints = true\n[flows.paris-berlin.groups]\nsync = false\ninterval-ms = 8000", 2_000),
        ("[flows.paris-berlin.groups]\nsync = false", 0),
    ],
)
def test_a_task_writes_the_index_more_often_for_groups(read: Load, lines: str, interval_ms: int) -> None:
    assert read(CLUSTERS + FLOW + lines).flows["paris-berlin"].copy_policy().index_interval_ms == interval_ms


@pytest.mark.parametrize("mode", ["auto", "sequences", "transactions"])
def test_the_policy_of_a_task_has_the_way_to_be_exactly_once(read: Load, mode: str) -> None:
    flow = read(CLUSTERS + FLOW + f'exactly-once-by = "{mode}"').flows["paris-berlin"]
    assert flow.copy_policy().exactly_once_by == mode


def test_the_default_way_to_be_exactly_once_is_that_of_the_policy(read: Load) -> None:
    assert read(CLUSTERS + FLOW).flows["paris-berlin"].copy_policy().exactly_once_by == CopyPolicy().exactly_once_by


def test_a_share_of_a_limit_is_never_no_limit(read: Load) -> None:
    flow = read(CLUSTERS + FLOW + "max-bytes-per-second = 1024").flows["paris-berlin"]
    assert flow.copy_policy(tasks=5000).max_bytes_per_second == 1


def test_a_secret_header_travels_but_is_not_shown(read: Load) -> None:
    config = read(CLUSTERS + FLOW + EVERYTHING)
    flow = config.flows["paris-berlin"]
    assert config.described()["flows"]["paris-berlin"]["headers"] == {"via": "paris", "auth-token": "***"}
    assert "hush" not in f"{config!r} {flow} {json.dumps(config.described())}"
    assert pickle.loads(pickle.dumps(flow)) == flow  # noqa: S301 - bytes made here


def test_overrides_have_their_types(read: Load) -> None:
    prefix = "MIRROR_FLOWS__PARIS_BERLIN__"
    environ = {
        prefix + "START_OVER": "true",
        prefix + "MAX_BYTES_PER_SECOND": "4096",
        prefix + "HEADERS": '{"via": "rome", "token": "hush"}',
        prefix + "TRANSFORM": "m:f",
    }
    flow = read(CLUSTERS + FLOW + 'headers.via = "paris"', environ).flows["paris-berlin"]
    assert (flow.start_over, flow.max_bytes_per_second, flow.transform) == (True, 4096, "m:f")
    assert flow.copy_policy().headers == (("via", b"rome"), ("token", b"hush"))
    assert "hush" not in repr(flow)


def test_an_override_of_a_table_by_a_list_is_a_problem(problems: Problems) -> None:
    (problem,) = problems(CLUSTERS + FLOW, {"MIRROR_FLOWS__PARIS_BERLIN__HEADERS": '["via"]'})
    assert problem.endswith("must be a table of texts, added to every record as its headers")
