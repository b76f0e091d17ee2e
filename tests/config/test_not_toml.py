"""Files that are not TOML: the duplicate key is named, and a MirrorMaker 2 file is recognized."""

from __future__ import annotations

import pytest

from mirror.config.not_toml import not_toml

from .conftest import CLUSTERS, FLOW, Problems

MIRRORMAKER = """
# mm2.properties
clusters = source, target
source.bootstrap.servers = source-1:9092
target.bootstrap.servers = target-1:9092
source->target.enabled = true
source->target.topics = .*
"""


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        (
            CLUSTERS + '"client.id" = "a"\n# here\n"client.id" = "b"\n' + FLOW,
            'line 8: the key "client.id" of [clusters.berlin] appears twice, first in line 6; remove one',
        ),
        (
            CLUSTERS + FLOW + 'producer."linger.ms" = 5\nproducer."linger.ms" = 5',
            'line 12: the key producer."linger.ms" of [flows.paris-berlin] appears twice, first in line 11',
        ),
        # The values are several lines long; the same key elsewhere is another one.
        (
            CLUSTERS + FLOW + 'x = ["""\n""",\n1]\ntopics = [\n"a",\n"b",\n]\n[flows.other]\ntopics = 1',
            "line 14: the key topics of [flows.paris-berlin] appears twice, first in line 10; remove one",
        ),
        (CLUSTERS + CLUSTERS, "line 7: the table [clusters.paris] appears twice, first in line 2; remove one"),
        (CLUSTERS + "[clusters.paris]  # again", "line 6: the table [clusters.paris] appears twice, first in line 2"),
        ("a = 1\n[a.b]\nc = 1", "line 2: the table [a.b] contradicts what is before it"),
        ("a = {b = 1, b = 2}", "Duplicate inline table key 'b' (at line 1, "),
    ],
)
def test_a_duplicate_key_or_table_is_named(problems: Problems, toml: str, expected: str) -> None:
    (problem,) = problems(toml)
    assert problem.startswith(f"mirror.toml: not TOML: {expected}")


def test_the_error_of_a_duplicate_key_shows_no_value() -> None:
    said = not_toml('"sasl.password" = "hunter2"\n"sasl.password" = "hunter2"', ValueError("Cannot overwrite a value"))
    assert '"sasl.password" appears twice' in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    "text",
    [MIRRORMAKER, "bootstrap.servers: a:1,b:1", "us-west->us-east.topics = a.*", MIRRORMAKER.replace(" = ", "=")],
)
def test_a_mirrormaker_properties_file_is_recognized(problems: Problems, text: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith("mirror.toml: not TOML: is this a MirrorMaker 2 properties file? mirror import FILE")


@pytest.mark.parametrize("text", ["x = y", "[clusters.a]\nbootstrap.servers = a:1", '"bootstrap.servers" = a:1'])
def test_other_mistakes_are_not_taken_for_a_properties_file(problems: Problems, text: str) -> None:
    (problem,) = problems(text)
    assert "Invalid value" in problem
