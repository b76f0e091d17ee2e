"""Switches: the tables of a configuration that say whose clients move, and how the source is fenced."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.config.effective import configured_keys, effective_config
from mirror.config.load import load_valid_flows
from mirror.errors import ConfigError

from .conftest import CLUSTERS, FLOW, Load, Problems

FLOWS = CLUSTERS + FLOW + 'naming = "identity"\norigin = "local"\n'
BACK = """[flows.back]
source = "berlin"
target = "paris"
topics = ["orders"]
naming = "identity"
origin = "local"
"""
SWITCH = '[switches.saturday]\nflows = ["paris-berlin"]\n'


def test_a_switch_has_its_keys_and_defaults(read: Load) -> None:
    config = read(FLOWS + BACK + SWITCH + 'back = ["back"]\nquiet-seconds = 5\nwaive = ["old-.*"]\n')
    switch = config.switch("saturday")
    assert (switch.flows, switch.back, switch.quiet_seconds, switch.deadline_seconds) == (
        ("paris-berlin",),
        ("back",),
        5,
        900,
    )
    assert effective_config(config)["switches"]["saturday"]["fence"] == "acl"
    assert ("switches", "saturday", "quiet-seconds") in configured_keys(config)


def test_an_unknown_switch_is_named_with_those_that_there_are(read: Load) -> None:
    with pytest.raises(ConfigError, match='no such switch; did you mean "saturday"'):
        read(FLOWS + SWITCH).switch("saturdy")
    with pytest.raises(ConfigError, match=r"there are: none; add a table \[switches.NAME\]"):
        read(FLOWS).switch("saturday")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[switches.x]\n", "switches.x.flows = (not set): required: a list of at least one flow's name"),
        ('[switches.x]\nflows = ["paris-berln"]\n', 'no such flow; did you mean "paris-berlin"?'),
        (SWITCH + "quiet-second = 3\n", 'did you mean "quiet-seconds"?'),
        (SWITCH + 'back = ["paris-berlin"]\n', "must copy from berlin to paris, back from where the switch leads"),
        (SWITCH + 'fence = "hook"\n', 'hook-fence = (not set): required with fence = "hook"'),
        (SWITCH + 'fence = "hook"\nhook-fence = ["x"]\ndeny-read = true\n', "deny-read = true: has no effect"),
        (SWITCH + 'hook-fence = ["x"]\n', 'has no effect unless fence = "hook": remove the key'),
        (SWITCH + "deadline-seconds = 30\n", "must be more than quiet-seconds (30)"),
        (SWITCH + 'waive = ["("]\n', "not a regular expression"),
        (BACK + SWITCH.replace('"]', '", "back"]'), "must copy from paris to berlin, as paris-berlin does"),
        ('[switches."a b"]\nflows = ["paris-berlin"]\n', "a switch's name is made of letters, digits"),
        ("switches = 1\n", "must be tables: [switches.NAME]"),
    ],
)
def test_what_is_wrong_with_a_switch_is_said(text: str, expected: str, problems: Problems) -> None:
    toml = text + FLOWS if text.startswith("switches =") else FLOWS + text
    (line,) = problems(toml)
    assert expected in line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('naming = "prefix"', 'must have naming = "identity"'),
        ("until = 10", "must have no until: clients find no newer records on the target"),
        ('delivery = "at-least-once"', '"exactly-once": what is'),
        ('names = { "x" = "y" }', "must have no names: clients find no other names of topics and groups on the target"),
        ('groups.names = { "x" = "y" }', "must have no names: clients find no other names of topics and groups on the"),
    ],
)
def test_a_flow_that_cannot_switch_is_named(line: str, expected: str, problems: Problems) -> None:
    flow = FLOW + line + ("" if line.startswith("naming") else '\nnaming = "identity"') + "\n"
    assert any(expected in one for one in problems(CLUSTERS + flow + SWITCH))


def test_a_switch_goes_with_a_flow_that_is_wrong(tmp_path: Path) -> None:
    text = FLOWS.replace('topics = ["orders"]', "topics = 1") + BACK + SWITCH
    config, errors = load_valid_flows(tmp_path / "x.toml", environ={}, text=text.encode())
    assert (list(errors), config.switches) == (["paris-berlin"], {})
