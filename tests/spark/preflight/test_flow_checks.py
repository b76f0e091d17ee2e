"""What is wrong with flows: all of it at once, before anything is touched."""

from __future__ import annotations

import json
import pickle
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.client import Admin, ClusterDescription
from mirror.config.models import ClusterConfig, FlowConfig, MirrorConfig
from mirror.errors import AuthenticationFailed, ConnectionFailed, FlowError, MirrorError
from mirror.spark import clusters, concurrent_calls
from mirror.spark.driver import batch_job as job
from mirror.spark.driver import stream_job, stream_site
from mirror.spark.driver.flow_preparation import FlowPreparation
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.spark_start import SparkStart
from mirror.spark.ledger.results import Summary
from mirror.spark.preflight.flow_checks import ClusterTopics, Findings, FlowsRefused, find_problems
from tests.e2e.site import errors_in
from tests.spark import fakes
from tests.spark.observed import check_flows
from tests.spark.planning.test_range_planner import flow

if TYPE_CHECKING:
    from pathlib import Path


def config_of(*flows: FlowConfig) -> MirrorConfig:
    names = {name for each in flows for name in (each.source, each.target)}
    clusters = {name: ClusterConfig(name=name, options={"bootstrap.servers": f"{name}:1"}) for name in names}
    return MirrorConfig(clusters=clusters, flows={each.name: each for each in flows})


def found(*flows: FlowConfig, **clusters: ClusterTopics | MirrorError) -> Findings:
    config = config_of(*flows)
    return find_problems(config, config.select(), {name: cluster(name) for name in config.clusters} | clusters)


def cluster(name: str, *topics: str) -> ClusterTopics:
    return ClusterTopics(f"id-{name}", frozenset(topics or {"orders"}))


SALES = ClusterTopics("id-c", frozenset({"sales"}))


def lines(findings: Findings) -> list[str]:
    return [line for of_flow in findings.problems.values() for line in of_flow]


def test_valid_flows_give_no_lines() -> None:
    assert found(flow(), flow("g", "c")) == Findings(warnings={"f": [], "g": []})


def test_two_names_of_one_cluster_are_refused() -> None:
    same = ClusterTopics("id-a", frozenset({"orders"}))
    (line,) = lines(found(flow(), b=same))
    assert line == (
        "flow f: a and b are two names of one cluster (cluster id id-a), which would be copied into itself;"
        " correct a bootstrap.servers"
    )


def test_a_flow_within_one_cluster_is_valid_and_its_names_are_checked() -> None:
    within = flow(target="a", names={"orders": "web.orders", "clicks": "web.clicks"})
    findings = found(within)
    assert lines(findings) == []
    (line,) = findings.warnings["f"]
    assert line == (
        "names = 'clicks' matches no topic of cluster a that is copied; correct it, or remove it if no such topic is to"
        " come"
    )


def test_a_renamed_topic_into_which_another_flow_copies_is_refused() -> None:
    other = flow("g", "c", topics=["sales"], naming="identity")
    line, again = lines(found(flow(names={"orders": "sales"}), other, c=SALES))
    assert line == again
    assert line.startswith("flows f and g both copy into topic sales of cluster b (a: orders, c: sales); exclude it")


def test_patterns_that_match_no_topic_are_refused() -> None:
    (line,) = lines(found(flow(topics=["order", "click.*"])))
    assert "flow f: none of the 1 topics of cluster a matches topics = ['order', 'click.*']" in line


def test_patterns_that_match_only_internal_topics_are_refused() -> None:
    internal = cluster("a", "__consumer_offsets", "x.internal", "y-replica", "z-internal", "orders")
    (line,) = lines(found(flow(topics=["__.*", "[xyz].*"]), a=internal))
    assert "flow f: topics = ['__.*', '[xyz].*'] matches nothing but topics that topics-exclude = ['__.*'," in line
    assert "(__consumer_offsets, x.internal, y-replica, ...)" in line
    assert "a topics-exclude of your own" in line


def test_one_pattern_of_several_that_matches_nothing_is_a_warning() -> None:
    findings = found(flow(topics=["orders", "clicks"]))
    assert lines(findings) == []
    (line,) = findings.warnings["f"]
    assert line.startswith("topics = 'clicks' matches no topic of cluster a that is copied")


IDENTITY = flow("g", "c", topics=["a.*"], naming="identity")


def test_two_flows_into_one_topic_are_refused() -> None:
    findings = found(flow(), IDENTITY, c=cluster("c", "a.orders"))
    expected = (
        "flows f and g both copy into topic a.orders of cluster b (a: orders, c: a.orders); exclude it from one of"
        ' them, or use naming = "prefix" in flow g'
    )
    assert findings.problems == {"f": [expected], "g": [expected]}
    assert str(FlowsRefused(findings.problems)) == expected, "reported once"
    assert lines(found(flow(), IDENTITY, c=cluster("c", "a.clicks"))) == []


def test_flows_of_local_records_only_may_copy_into_one_topic_from_several_clusters() -> None:
    into_b = [flow(name, source, naming="identity", origin="local") for name, source in (("f", "a"), ("g", "c"))]
    assert lines(found(*into_b)) == []
    same = ClusterTopics("id-a", frozenset({"orders"}))
    assert "both copy into topic orders" in lines(found(*into_b, c=same))[0], "each record would be copied twice"
    anything = flow("g", "c", naming="identity", register_producers=True)
    assert "both copy into topic orders" in lines(found(into_b[0], anything))[0]


def test_a_prefix_is_not_advised_where_both_flows_have_it() -> None:
    (line,) = set(lines(found(flow(), flow("g"))))
    assert line.endswith(
        "both copy into topic a.orders of cluster b (a: orders, a: orders); exclude it from one of them"
    )


def test_two_flows_into_one_topic_are_refused_if_the_target_has_two_names() -> None:
    other = flow("g", "c", "d", topics=["a.*"], naming="identity")
    clusters = {"b": ClusterTopics("id-b", frozenset()), "d": ClusterTopics("id-b", frozenset())}
    assert len(found(flow(), other, c=cluster("c", "a.orders"), **clusters).problems) == 2
    assert lines(found(flow(), other, c=cluster("c", "a.orders"))) == []


def test_flows_that_feed_each_other_through_two_names_are_refused() -> None:
    back = flow("g", "d", "a", topics=["orders"], naming="identity")
    there = flow("f", "a", "b", topics=["orders"], naming="identity")
    seen = {"b": cluster("b"), "d": ClusterTopics("id-b", frozenset({"orders"}))}
    (line,) = set(lines(found(there, back, **seen)))
    assert line.startswith("flows f, g: these flows feed each other")
    assert lines(found(there, back)) == []


def test_producers_that_are_not_registered_are_found_through_two_names() -> None:
    writer = flow("f", "a", "b", topics=["orders"], naming="identity")
    reader = flow("g", "d", "e", topics=["orders"], naming="identity", origin="local")
    seen = {"b": cluster("b"), "d": ClusterTopics("id-b", frozenset({"orders"}))}
    findings = found(writer, reader, **seen)
    assert set(findings.problems) == {"f", "g"}
    (line,) = set(lines(findings))
    assert line.startswith("flow f: register-producers must be true, because flow g copies from d, which is cluster b,")
    assert lines(found(writer, reader)) == []


def test_a_cluster_that_does_not_answer_stops_only_its_own_flow() -> None:
    dead = ConnectionFailed("c:1 does not answer")
    findings = found(flow(), IDENTITY, c=dead)
    assert findings.problems == {}
    assert findings.errors == {"g": dead}
    (line,) = findings.warnings["f"]
    assert line == "it could not be checked whether flow g also copies into topic a.orders: c:1 does not answer"


def test_both_clusters_of_a_flow_that_do_not_answer_are_named() -> None:
    dead = {name: ConnectionFailed(f"{name}:1 does not answer") for name in "ab"}
    error = found(flow(), **dead).errors["f"]
    assert str(error) == "a:1 does not answer\nb:1 does not answer"
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - bytes made here
    assert (str(copy), clusters.is_away(copy)) == (str(error), True), "a stream waits for both"
    refused = found(flow(), a=dead["a"], b=AuthenticationFailed("b:1: wrong password")).errors["f"]
    assert not clusters.is_away(refused), "no later attempt succeeds by itself"


def test_a_refusal_names_the_cluster_that_does_not_answer_too() -> None:
    fakes.Cluster("a:1").make().add_topic("orders", [1])
    config = config_of(flow(topics=["x"]))
    with pytest.raises(FlowsRefused) as refused:
        check_flows(config, config.select())
    first, second = str(refused.value).splitlines()
    assert "none of the 1 topics" in first
    assert second.startswith("flow f: cluster b does not answer")


def test_every_problem_of_every_flow_is_reported() -> None:
    findings = found(
        flow(topics=["order"]), flow("g", "a", "c", topics=["click"]), flow("h"), c=ClusterTopics("id-a", frozenset())
    )
    assert {name: len(of_flow) for name, of_flow in findings.problems.items()} == {"f": 1, "g": 2}


def test_a_refusal_can_be_pickled() -> None:
    refused = FlowsRefused({"f": ["one", "two"]})
    assert str(pickle.loads(pickle.dumps(refused))) == "one\ntwo"  # noqa: S301 - bytes made here


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_only_the_clusters_that_matter_are_described() -> None:
    fakes.Cluster("a:1").make().add_topic("orders", [1])
    fakes.Cluster("b:1").make()
    # d is no flow's that is to run, and could not write a topic of f's: that it is missing concerns no flow.
    config = config_of(flow(), flow("h", "d", topics=["clicks"]), IDENTITY)
    findings = check_flows(config, config.select("f"))
    assert findings.errors == {}
    (line,) = findings.warnings["f"]
    unchecked = "it could not be checked whether flow g also copies into topic a.orders"
    assert line.startswith(f"{unchecked}: cluster c does not answer")
    fakes.Cluster("c:1").make().add_topic("a.orders", [1])
    with pytest.raises(FlowsRefused, match=r"flows f and g both copy into topic a\.orders"):
        check_flows(config, config.select("f"))


def test_a_cluster_that_does_not_answer_is_named_during_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.Cluster("a:1").make().add_topic("orders", [1])
    fakes.Cluster("b:1").make()
    answers = threading.Event()
    said = list[str]()

    class Slow(Admin):
        def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterDescription:
            if self.network_thread.settings.bootstrap == (("b", 1),):
                assert answers.wait(60)
            return super().describe_cluster(timeout_ms=timeout_ms)

    def waiting(line: str) -> None:
        said.append(line)
        if all(each.startswith("cluster b ") for each in said[-2:]) and len(said) >= 2:
            answers.set()  # the other one has answered, and was not named any more: on a busy machine that takes long

    monkeypatch.setattr(clusters, "Admin", Slow)
    monkeypatch.setattr(concurrent_calls, "_FIRST_NOTICE_S", 0.05)
    monkeypatch.setattr(concurrent_calls, "_NOTICE_INTERVAL_S", 0.05)
    config = config_of(flow())
    check_flows(config, config.select(), waiting)
    assert "cluster b has not answered for 0 s; still waiting" in said


def test_a_refusal_is_in_the_summary_of_every_flow(folder: Path) -> None:
    fakes.Cluster("a:1").make().add_topic("orders", [1])
    fakes.Cluster("b:1").make()
    config = config_of(flow(topics=["y"]), flow("g", topics=["x"]))
    with pytest.raises(FlowsRefused):
        job.check(config, config.select(), Summary(folder / "report", pytest.fail), Consoles())
    flows = json.loads((folder / "report" / "summary.json").read_text())["flows"]
    assert [(each["flow"], each["outcome"]) for each in flows] == [("f", "failed"), ("g", "failed")]
    assert all("none of the 1 topics" in each["error"] for each in flows)


def test_a_flow_that_is_refused_stops_no_other_one(folder: Path) -> None:
    fakes.Cluster("a:1").make().add_topic("orders", [1])
    fakes.Cluster("b:1").make()
    config = config_of(flow(), flow("g", topics=["x"]))
    findings = job.check(config, config.select(), Summary(folder / "report", pytest.fail), Consoles())
    assert list(findings.errors) == ["g"]
    assert isinstance(findings.errors["g"], FlowsRefused)
    assert "none of the 1 topics" in str(findings.errors["g"])


class NoSpark(SparkStart):
    """Never there: who waits for it waits for ever."""

    def _start(self) -> None:
        pass


def test_a_refused_configuration_does_not_wait_for_spark(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes.Cluster("a:1").make().add_topic("orders", [1])
    fakes.Cluster("b:1").make()
    path = folder / "mirror.toml"
    clusters = [f'[clusters.{name}]\n"bootstrap.servers" = "{name}:1"' for name in "ab"]
    ends = 'source = "a"\ntarget = "b"'
    flows = [f"[flows.{name}]\n{ends}\ntopics = [{topics}]" for name, topics in [("f", "'z'"), ("g", "'x', 'y'")]]
    path.write_text("\n".join([*clusters, *flows]))
    monkeypatch.setattr(job, "catch_signals", lambda: None)
    monkeypatch.setattr(job, "SparkStart", NoSpark)
    assert job.main(["--config", str(path), "--report-dir", str(folder / "report")]) == 1
    _, line = errors_in(capsys.readouterr().err).splitlines()
    assert line.startswith("mirror: flow g: none of the 1 topics of cluster a matches topics = ['x', 'y']")


@pytest.mark.parametrize(("module", "start"), [(job, "SparkStart"), (stream_job, "start_stream_context")])
def test_an_unencrypted_password_is_reported_once_at_the_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], module: Any, start: str
) -> None:
    fakes.Cluster("a:1").make().add_topic("orders", [1])
    fakes.Cluster("b:1").make()
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
    secret = "m4rker-of-a-password"
    keys = {"bootstrap.servers": "a:1", **login, "sasl.password": secret}
    own = "\n".join(f'"{key}" = "{value}"' for key, value in keys.items())
    flows = [f'[flows.{name}]\nsource = "a"\ntarget = "b"\ntopics = ["x{name}"]' for name in "fg"]
    path = folder / "mirror.toml"
    path.write_text("\n".join(["[clusters.a]", own, '[clusters.b]\n"bootstrap.servers" = "b:1"', *flows]))
    monkeypatch.setattr(job, "catch_signals", lambda: None)
    monkeypatch.setattr(stream_site.Signals, "listen", lambda _: None)
    monkeypatch.setattr(module, start, NoSpark)
    assert module.main(["--config", str(path), "--report-dir", str(folder / "report")]) == 1
    lines = capsys.readouterr().err.splitlines()
    warning, *errors = errors_in("\n".join(lines)).splitlines()
    assert warning.startswith("mirror: warning: cluster a: the password of sasl.mechanism PLAIN goes to a unencrypted")
    assert errors
    assert all("none of the 1 topics" in line for line in errors)
    assert not [line for line in lines if secret in line]


def test_a_flow_whose_cluster_does_not_answer_ends_with_that_error() -> None:
    fakes.Cluster("a:1").make().add_topic("orders", [1])
    config = config_of(flow())
    preparation = FlowPreparation(config, flow(), cast("Any", None), check_flows(config, config.select()), bool)
    with pytest.raises(FlowError, match="cluster b does not answer"):
        preparation.open_watch()


def test_keys_without_effect_are_warnings() -> None:
    fakes.Cluster("a:1").make().add_topic("orders", [1])
    fakes.Cluster("b:1").make()
    config = config_of(flow(consumer={"group.id": "x"}, transform="no_such_module:function"))
    transform, key = check_flows(config, config.select()).warnings["f"]
    assert transform.startswith('transform = "no_such_module:function" cannot be loaded: ModuleNotFoundError')
    assert key.startswith('flows.f.consumer."group.id" has no effect')


def test_the_checks_change_nothing() -> None:
    made = [fakes.Cluster(f"{name}:1").make() for name in "ab"]
    made[0].add_topic("orders", [1])
    before = [each.state() for each in made]
    config = config_of(flow())
    assert check_flows(config, config.select()) == Findings(warnings={"f": []})
    assert [each.state() for each in made] == before


def _both_directions(**more: object) -> tuple[FlowConfig, FlowConfig]:
    same: dict[str, Any] = {"naming": "identity", "origin": "local", **more}
    return flow("there", **same), flow("back", "b", "a", **same)


def test_a_flow_back_from_an_empty_cluster_waits_for_what_the_other_flow_creates() -> None:
    """It has no warning, because the other flow creates all that it copies."""
    empty = ClusterTopics("id-b", frozenset())
    assert found(*_both_directions(), b=empty) == Findings(warnings={"there": [], "back": []})


def test_a_flow_back_to_which_nothing_comes_waits_with_a_warning() -> None:
    """By its name a topic does not go back where it came from."""
    there, back = flow("there"), flow("back", "b", "a", topics=[".*orders"])
    findings = found(there, back, b=cluster("b", "a.orders"))
    assert findings.problems == {}
    waits = (
        "cluster b has no topic that it copies yet, or this client's user lacks Describe on it;"
        " one is copied once it is listed"
    )
    assert findings.warnings == {"there": [], "back": [waits]}


def test_flows_in_both_directions_without_any_topic_are_refused() -> None:
    empty = {name: ClusterTopics(f"id-{name}", frozenset()) for name in "ab"}
    assert all("none of the 0 topics of cluster" in line for line in lines(found(*_both_directions(), **empty)))
    assert len(lines(found(*_both_directions(), **empty))) == 2


def test_a_flow_without_a_way_back_does_not_wait_for_topics() -> None:
    """Of three flows in a row, the last one has no topic."""
    row = flow("f", naming="identity"), flow("g", "b", "c", naming="identity")
    (line,) = lines(found(*row, b=ClusterTopics("id-b", frozenset())))
    assert line.startswith("flow g: none of the 0 topics of cluster b matches")


def test_a_pattern_for_what_another_flow_creates_is_no_warning() -> None:
    there, back = _both_directions(topics=["orders", "clicks"])
    findings = found(there, back, a=cluster("a", "orders", "clicks"), b=cluster("b", "orders"))
    assert findings == Findings(warnings={"there": [], "back": []})
