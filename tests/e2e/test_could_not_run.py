"""What keeps a flow from running: one line that says what and where, status 1, nothing written, no secret shown."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from mirror.relay.progress.flow_topic import inventory_topic_of, offset_topic_of, status_topic_of, topic_of
from tests.e2e.broker_side import Side
from tests.e2e.false_brokers import old_broker, silent_server, web_server
from tests.e2e.site import Run, Site, flow

TIMEOUT_MS = 5000
SMALL = {"default.api.timeout.ms": TIMEOUT_MS, "request.timeout.ms": 4000}
NOBODY = "127.0.0.1:1"
SECRET = "hunter2-canary"
TRACES = re.compile(r"Traceback|^\s+at [\w.$/]+\(|Exception in thread|Caused by", re.MULTILINE)


def check_wrong(run: Run, status: int, *parts: str) -> None:
    """One line on stderr with all of ``parts``, no trace, and nothing of what should not be said."""
    assert run.status == status, run.err
    (line,) = run.errors
    assert line.startswith("mirror: ")
    for part in parts:
        assert part in line
    assert not TRACES.search(run.out + run.err)
    assert SECRET not in run.out + run.err


@pytest.mark.parametrize(
    ("text", "arguments", "parts"),
    [
        (None, [], ["mirror.toml: no such file", "--config"]),
        ("[clusters.a\n", [], ["mirror.toml", "line 1"]),
        ('topics = ["a"]\ntopics-typo = 1', [], ["flows.f.topics-typo = 1", 'did you mean "topics"']),
        ('topics = ["("]', [], ['flows.f.topics = "("', "not a regular expression"]),
        ('topics = ["a"]', ["--flow", "g"], ['flow = "g"', "no such flow", "there are: f"]),
        ('topics = ["a"]\nproducer = {"acks" = "1"}', [], ["acks", "all"]),
    ],
)
def test_a_wrong_configuration_is_reported_before_anything_starts(
    text: str | None, arguments: list[str], parts: list[str], site: Site
) -> None:
    if text is not None and text.startswith("["):
        site.config.write_text(text)
    elif text is not None:
        site.write({"a": NOBODY, "b": "127.0.0.1:2"}, {"f": f'source = "a"\ntarget = "b"\n{text}'})
    check_wrong(site.run(*arguments), 1, *parts)
    assert not site.report.exists()


def test_every_problem_is_reported_at_once_and_debug_shows_where_it_was_raised(site: Site) -> None:
    site.write({"a": NOBODY}, {"f": flow("a", "nowhere", ["("])}, a={"sasl.passwort": SECRET})
    run = site.run()
    assert run.status == 1
    assert len(run.errors) == 3
    assert not TRACES.search(run.err)
    shown = site.run("--debug")
    assert shown.status == 1
    assert "Traceback (most recent call last)" in shown.err
    assert shown.errors[-3:] == run.errors
    assert SECRET not in run.err + shown.err


@pytest.mark.cluster
@pytest.mark.timeout(900)
@pytest.mark.brokers
@pytest.mark.spark
def test_flows_that_cannot_run(site: Site, source: Side, target: Side, unique: Callable[[str], str]) -> None:
    """One session, one flow for each cluster that is no help; every flow is tried, and one that can run does."""
    good, wanted = unique("good"), unique("wanted")
    for topic in (good, wanted):
        source.create(topic)
        source.fill(topic, [b"1", b"2"])
    before, source_before = target.topics(), source.topics()
    flows = {
        "good": flow("a", "b", [good]),
        "no-source": flow("gone", "b", [wanted]),
        "no-target": flow("a", "gone", [wanted]),
        "old": flow("old", "b", [wanted]),
        "web": flow("a", "web", [wanted]),
        "silent": flow("silent", "b", [wanted]),
    }
    with old_broker() as old, web_server() as web, silent_server() as silent:
        clusters = {"a": source.address, "b": target.address, "gone": NOBODY}
        site.write(
            {**clusters, "old": old, "web": web, "silent": silent},
            flows,
            **dict.fromkeys(["gone", "old", "web", "silent"], SMALL),
        )
        run = site.run()
    assert run.status == 1, run.err
    result = {name: line for line in run.errors for name in flows if line.startswith(f"mirror: flow {name}: ")}
    assert len(run.errors) == len(result) == len(flows) - 1, run.err
    timed_out = f"within {TIMEOUT_MS} ms"
    expected = {
        "no-source": ["cluster gone", timed_out, NOBODY, "connection refused", "bootstrap.servers"],
        "no-target": ["cluster gone", timed_out, NOBODY, "connection refused", "bootstrap.servers"],
        "old": [old, "Apache Kafka 2.1 or newer"],
        "web": ["cluster web", timed_out, web, "is this a Kafka listener"],
        "silent": ["cluster silent", timed_out, silent, "is this a Kafka listener"],
    }
    for name, parts in expected.items():
        assert [part for part in parts if part not in result[name]] == [], result[name]
    assert not TRACES.search(run.out + run.err)
    found = site.flows()
    assert {name: each["outcome"] for name, each in found.items()} == {
        name: "complete" if name == "good" else "failed" for name in flows
    }
    assert all(
        f"mirror: flow {name}: {found[name]['error'].removeprefix(f'flow {name}: ')}" == result[name] for name in result
    )
    own_topics = topic_of("good"), offset_topic_of("good"), status_topic_of("good"), inventory_topic_of("good")
    assert target.topics() - before - {"__consumer_offsets", "__transaction_state"} == {f"a.{good}", *own_topics}
    assert target.read(f"a.{good}") == [b"1", b"2"]
    assert source.topics() == source_before


@pytest.mark.timeout(900)
@pytest.mark.brokers
def test_flows_that_are_wrong_are_refused_together(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    """Before any task starts: the flow that is right does not run, either, and nothing is changed."""
    good = unique("good")
    source.create(good)
    source.fill(good, [b"1", b"2"])
    before = target.topics()
    flows = {
        "good": flow("a", "b", [good]),
        "no-topic": flow("a", "b", [unique("typo")]),
        "inside": flow("a", "b", ["__.*"]),
        "itself": flow("a", "other-name", [good]),
        "second": flow("a", "b", [good]),
    }
    source.create(f"__{unique('hidden')}")
    renamed = source.address.replace("127.0.0.1", "localhost")
    assert renamed != source.address
    site.write({"a": source.address, "b": target.address, "other-name": renamed}, flows)
    run = site.run()
    assert run.status == 1, run.err
    expected = [
        ["flows good and second both copy into topic", f"a.{good}", "exclude it from one of them"],
        ["flow no-topic: ", f"matches topics = ['{unique_name(flows['no-topic'])}']", "create the topic"],
        ["flow inside: topics = ['__.*'] matches nothing but topics that topics-exclude", "internal"],
        ["flow itself: a and other-name are two names of one cluster", "cluster id"],
    ]
    assert len(run.errors) == len(expected), run.err
    for line, parts in zip(run.errors, expected, strict=True):
        assert [part for part in parts if part not in line] == [], line
    assert not TRACES.search(run.out + run.err)
    # Its brokers make this one as soon as anybody asks where a group is.
    assert target.topics() - {"__consumer_offsets"} == before - {"__consumer_offsets"}
    assert {name: each["outcome"] for name, each in site.flows().items()} == dict.fromkeys(flows, "failed")


def unique_name(toml: str) -> str:
    """The one topic that a flow's TOML names."""
    return toml.partition('topics = ["')[2].partition('"]')[0]


@pytest.mark.timeout(900)
@pytest.mark.brokers
@pytest.mark.spark
@pytest.mark.cluster
def test_debug_shows_the_trace_of_a_flow_that_cannot_run(
    site: Site, source: Side, unique: Callable[[str], str]
) -> None:
    topic = unique("traced")
    source.create(topic)
    site.write({"a": source.address, "gone": NOBODY}, {"f": flow("a", "gone", [topic])}, gone=SMALL)
    run = site.run("--debug")
    assert run.status == 1
    assert "Traceback (most recent call last)" in run.err
    assert "connection refused" in run.errors[0]
