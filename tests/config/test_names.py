"""The names that topics and groups have on the target: by rules, and each of them of one source name only."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.config.models import FlowConfig
from mirror.config.own_tables import GroupsConfig
from mirror.config.patterns import new_name, old_names

from .conftest import CLUSTERS, FLOW, Load, Problems

_TEXT = st.text("ab.-", max_size=3)
_LITERAL = _TEXT.map(lambda text: text.replace(".", r"\."))
_GROUPS = st.sampled_from(["(.*)", "(a+)", "([^.]*)", "(a|b-|)", "(?)", "((a)|b)", r"([)a]*)"])
_NAME = st.text("ab.-", max_size=6)


@st.composite
def _tables(draw: st.DrawFn) -> dict[str, str]:
    table = {}
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            pattern = draw(_LITERAL) + draw(_GROUPS.filter(lambda group: group != "(?)")) + draw(_LITERAL)
            table[pattern] = draw(_TEXT) + draw(st.sampled_from(["$1", "${1}"])) + draw(_TEXT)
        else:
            table[draw(_LITERAL.filter(bool))] = draw(_TEXT.filter(bool))
    return table


def flow(names: dict[str, str], *topics: str, **settings: Any) -> FlowConfig:
    default = {"name": "f", "source": "a", "target": "b", "topics": topics or (".*",), "topics_exclude": ()}
    return FlowConfig.model_validate({**default, "names": names, **settings})


def test_the_first_rule_that_matches_a_whole_name_gives_the_new_one() -> None:
    table = {"orders": "eu.orders", "clicks-(.*)": "web.$1", "clicks-(.)": "never-$1", r"v1\.(.*)[.]raw": "${1}1"}
    names = ["orders", "orders2", "clicks-a", "clicks-", "v1.x.raw", "v1-x-raw"]
    assert [new_name(table, name) for name in names] == ["eu.orders", None, "web.a", "web.", "x1", None]


@given(table=_tables(), name=_NAME)
def test_the_reverse_of_a_rule_is_the_name_that_it_was_given_for(table: dict[str, str], name: str) -> None:
    """For each rule alone; and a name that is found back gets the new name by its rule."""
    for pattern, template in table.items():
        rule = {pattern: template}
        if (new := new_name(rule, name)) is not None:
            assert list(old_names(rule, new)) == [name]
        assert all(new_name(rule, old) == name for old in old_names(rule, name))


@given(
    table=_tables(),
    topics=st.sets(_NAME.filter(bool), max_size=8),
    naming=st.sampled_from(["prefix", "identity"]),
    within=st.booleans(),
)
def test_no_two_copied_topics_have_one_name_and_each_name_leads_back(
    table: dict[str, str], topics: set[str], naming: str, within: bool
) -> None:
    try:
        made = flow(table, naming=naming, target="a" if within else "b")
    except ValueError:
        return  # two plain names get one name
    copied = [topic for topic in topics if made.includes(topic)]
    names = {topic: made.target_topic(topic) for topic in topics}
    assert len(set(names.values())) == len(topics)
    for topic in copied:
        assert made.source_topic(names[topic]) == topic
        assert not within or (names[topic] != topic and not made.includes(names[topic])), "it would come back"
    for topic in topics - set(copied):
        assert made.left_out(topic) or made.why_no_name(topic)


@given(table=_tables(), groups=st.sets(_NAME, max_size=8))
def test_no_two_groups_have_one_name_and_each_name_leads_back(table: dict[str, str], groups: set[str]) -> None:
    try:
        made = GroupsConfig.model_validate({"names": table, "exclude": ["b.*"]})
    except ValueError:
        return
    for group in groups:
        name = made.target_group(group)
        assert (made.source_group(name) == group) is made.includes(group)
        assert group.startswith("b") or made.includes(group) or made.name_taken_by(group) == made.source_group(name)
    names = [made.target_group(group) for group in groups if made.includes(group)]
    assert len(set(names)) == len(names)


def test_a_topic_that_no_rule_matches_keeps_what_naming_says() -> None:
    for naming, expected in (("prefix", "a.clicks"), ("identity", "clicks")):
        made = flow({"orders": "eu.orders"}, naming=naming)
        assert [made.target_topic(topic) for topic in ("orders", "clicks")] == ["eu.orders", expected]
        assert [made.source_topic(name) for name in ("eu.orders", expected)] == ["orders", "clicks"]
        assert made.source_topic("a.orders" if naming == "prefix" else "orders") is None


def test_a_name_that_a_rule_gives_is_not_that_of_another_topic() -> None:
    made = flow({"orders": "sales"}, naming="identity")
    why = "its copy would be sales, which is kept for the copy of orders: give it another name in names, or leave it"
    assert made.why_no_name("sales") == f"{why} out by topics-exclude"
    assert (made.includes("sales"), made.source_topic("sales"), made.includes("orders")) == (False, "orders", True)
    assert made.target_topic("sales") == "sales (sales)", "no topic of a broker has this name"
    assert flow({"orders": "sales"}, "orders", naming="identity").why_no_name("sales"), "a topic that is not selected"


def test_a_name_that_brokers_refuse_and_one_of_checkpoints() -> None:
    assert flow({"(.*)x": "$1"}).why_no_name(".x") == (
        "its copy would have the name '.', which brokers refuse: give it another name in names, or leave it out by"
        " topics-exclude"
    )
    assert flow({"x": "a.checkpoints.internal"}).left_out("x") == "it has checkpoints"
    assert flow({"x": "__consumer_offsets"}).left_out("x") == "its brokers keep their own records there"


def test_heartbeats_keep_their_name() -> None:
    made = flow({"(.*)": "eu.$1"}, mirrormaker={"heartbeats": True})
    assert (made.target_topic("heartbeats"), made.source_topic("a.heartbeats")) == ("a.heartbeats", "heartbeats")


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ('{ "a.b" = "x" }', '"a.b" must be plain text with at most one group in parentheses, so that the reverse is'),
        ('{ "(a)(b)" = "$1" }', '"(a)(b)" must be plain text with at most one group in parentheses, so that the'),
        ('{ "(?:a|b)" = "x" }', '"(?:a|b)" must be plain text with at most one group in parentheses, so that the'),
        ('{ "(?i)a" = "x" }', '"(?i)a" must be plain text with at most one group in parentheses, so that the reverse'),
        ('{ "(a" = "x" }', "not a regular expression: missing ): (a"),
        ('{ "a(.*)" = "x" }', '"x": "a(.*)" has a group, so that $1 is needed once'),
        ('{ "a(.*)" = "$1$1" }', '"$1$1": "a(.*)" has a group, so that $1 is needed once'),
        ('{ "a(.*)" = "$10" }', '"$10": "a(.*)" has a group, so that $1 is needed once'),
        ('{ "a(.*)" = "$2" }', '"$2": "a(.*)" has a group, so that $1 is needed once'),
        ('{ "a" = "$1" }', '"$1": "a" has no group, so that $ has no meaning'),
        ('{ "a" = "x", "b" = "x" }', '"a" and "b" get the same name "x"'),
        ('{ "a" = "x y" }', "\"x y\": a topic's name is made of letters, digits, '.', '_' and '-'"),
        ('{ "a" = 1 }', 'must be a table such as { "orders" = "eu.orders"'),
        ('{ "a" = "" }', "\"\": a topic's name is made of letters, digits, '.', '_' and '-'"),
    ],
)
def test_a_rule_whose_reverse_is_not_known_is_refused(names: str, problem: str, problems: Problems) -> None:
    (line,) = problems(f"{CLUSTERS}{FLOW}names = {names}\n")
    assert line.startswith("mirror.toml: flows.paris-berlin.names = ")
    assert problem in line


def test_rules_of_groups_are_checked_too(problems: Problems, read: Load) -> None:
    table = '[flows.paris-berlin.groups]\nnames = { "(.*)" = "eu" }\n'
    (line,) = problems(CLUSTERS + FLOW + table)
    assert line.endswith('"eu": "(.*)" has a group, so that $1 is needed once')
    groups = read(CLUSTERS + FLOW + table.replace('"eu"', '"eu $1"')).flows["paris-berlin"].groups
    assert (groups.target_group("billing"), groups.source_group("eu billing")) == ("eu billing", "billing")
    assert (groups.source_group("billing"), groups.name_taken_by("eu x")) == (None, None)


def test_plain_topics_that_would_get_one_name_are_a_configuration_error(problems: Problems) -> None:
    text = CLUSTERS + FLOW.replace('["orders"]', '["orders", "sales"]')
    (line,) = problems(f'{text}naming = "identity"\nnames = {{ "orders" = "sales" }}\n')
    assert line == (
        'mirror.toml: flows.paris-berlin.topics = "sales": its copy would be sales, which is kept for the copy of'
        " orders: give it another name in names, or leave it out by topics-exclude"
    )


def test_the_order_of_rules_is_that_of_the_file_and_a_variable_may_set_them(read: Load) -> None:
    text = f'{CLUSTERS}{FLOW}names = {{ "or(.*)" = "x.$1", "orders" = "y" }}\n'
    assert read(text).flows["paris-berlin"].target_topic("orders") == "x.ders"
    found = read(CLUSTERS + FLOW, {"MIRROR_FLOWS__PARIS_BERLIN__NAMES": '{"orders": "eu.orders"}'})
    assert found.flows["paris-berlin"].target_topic("orders") == "eu.orders"


# --- within one cluster

WITHIN = FLOW.replace('"berlin"', '"paris"')


def test_a_flow_within_one_cluster_gives_every_topic_another_name(problems: Problems, read: Load) -> None:
    made = read(f'{CLUSTERS}{WITHIN}names = {{ "orders" = "web.orders" }}\n')
    assert made.flows["paris-berlin"].target_topic("orders") == "web.orders"
    assert not made.flows["paris-berlin"].may_wait_for_topics
    (line,) = problems(f'{CLUSTERS}{WITHIN}naming = "identity"\nnames = {{ "clicks" = "web.clicks" }}\n')
    assert line == (
        'mirror.toml: flows.paris-berlin.topics = "orders": its copy would have its own name, and both ends of the'
        " flow are cluster paris: give it another name in names, or leave it out by topics-exclude"
    )


def test_a_copy_within_one_cluster_that_is_selected_is_refused(problems: Problems) -> None:
    both = WITHIN.replace('["orders"]', r'["orders", "web\\.orders"]')
    (line,) = problems(f'{CLUSTERS}{both}names = {{ "orders" = "web.orders" }}\n')
    assert line == (
        'mirror.toml: flows.paris-berlin.topics = "orders": its copy web.orders is selected by topics, too, and would'
        " be copied again: leave web.orders out by topics-exclude"
    )
    made = flow({"(.*)": "web.$1"}, target="a", topics_exclude=[r"web\..*"])
    assert (made.includes("orders"), made.includes("web.orders")) == (True, False)
    assert flow({"(.*)": "web.$1"}, target="a").why_no_name("orders") is not None


def test_heartbeats_do_not_go_from_a_cluster_to_itself(problems: Problems) -> None:
    text = f'{CLUSTERS}{WITHIN}names = {{ "orders" = "web.orders" }}\n[flows.paris-berlin.mirrormaker]\n'
    (line,) = problems(f"{text}heartbeats = true\n")
    assert line == (
        "mirror.toml: flows.paris-berlin.mirrormaker.heartbeats = true: must be false where both ends of the flow are"
        " one cluster: remove the key"
    )
