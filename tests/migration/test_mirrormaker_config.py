"""The effective settings are those that MirrorMaker 2's own ``MirrorMakerConfig`` has."""

from __future__ import annotations

import random
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from mirror.config.patterns import matches
from mirror.migration import known_keys, precedence
from mirror.migration.java_patterns import convert
from mirror.migration.parsing.entries import Setting, Settings
from mirror.migration.parsing.properties import MalformedEscape, parse
from mirror.migration.parsing.reading import read_properties
from mirror.migration.precedence import MirrorMakerFile, Pair
from tests.migration import client_keys
from tests.migration.generated_files import properties
from tests.mirrormaker.kafkas_classes import KafkasClasses

pytestmark = pytest.mark.brokers

GENERATED: Final = 80
REAL: Final = sorted((Path(__file__).parent / "files").glob("*.properties"))
SECRETS: Final = "/etc/mm2"
"""The folder to which the references of ``providers.properties`` point; MirrorMaker 2 must find it."""
PIECES: Final = ["\\", "\\", "\n", "\n", "\r", "\r\n", *" \t\f#!=:abé\0", "u00e9", "\\u00e9", "\\ud83d\\ude00", "\\u12"]
PATTERN_PIECES: Final = [
    *"aabb..*+?|()[],-",
    ".*",
    "[ab]",
    "[^a]",
    "(?i)",
    "\\.",
    "\\w",
    "\\d",
    "\\Q",
    "\\E",
    "{2}",
    "&&",
    "\\u00e9",
    "(?:",
    "++",
    "\\1",
    "\\C",
    "\\pL",
    "\\p{Lu}",
    "\\p{Greek}",
    "\\ud83d\\ude00",
    "(?<x>a)",
    "(?P<y>a)",
    "[]b]",
    "[^]b]",
]
REFUSED: Final = {
    "oauth": "IAMClientCallbackHandler could not be found",
    "swallowed-line": "",
    "transforms": "com.example.OurTopics could not be found",
}
"""Files that MirrorMaker 2 does not start with: its clients and connectors are not compared, all before them is."""


def test_keys_and_defaults_are_those_of_kafkas_classes(kafka: KafkasClasses) -> None:
    found = kafka.ask(about="keys")
    own = {"client", "producer", "consumer"}
    assert found["client"].keys() == known_keys.CLIENT
    assert found["source"].keys() == known_keys.SOURCE
    assert found["checkpoint"].keys() == known_keys.CHECKPOINT
    assert found["heartbeat"].keys() == known_keys.HEARTBEAT
    assert found["producer"].keys() - found["client"].keys() == client_keys.PRODUCER
    assert found["consumer"].keys() - found["client"].keys() == client_keys.CONSUMER
    assert {
        key: value
        for name, keys in found.items()
        if name not in own
        for key, value in keys.items()
        if value is not None and key not in known_keys.CLIENT
    } == known_keys.DEFAULTS


def test_properties_are_read_as_java_reads_them(kafka: KafkasClasses) -> None:
    rng = random.Random(7)
    texts = ["".join(rng.choices(PIECES, k=rng.randrange(14))) for _ in range(4_000)]
    answers = kafka.ask(about="load", texts=[text.encode("iso-8859-1").hex() for text in texts])
    for text, answer in zip(texts, answers, strict=True):
        try:
            found = [[entry.key, entry.value] for entry in parse(text)]
        except MalformedEscape:
            assert answer is None, text
        else:
            assert found == answer, repr(text)


def test_the_settings_of_generated_files_are_those_of_mirrormaker(kafka: KafkasClasses, tmp_path: Path) -> None:
    rng = random.Random(23)
    compared = 0
    for number in range(GENERATED):
        path = tmp_path / f"{number}.properties"
        path.write_text(properties(rng), encoding="iso-8859-1", newline="")
        compared += compare(kafka, path)
    assert compared > 2 * GENERATED, "pairs of clusters"


@pytest.mark.parametrize("path", REAL, ids=[path.stem for path in REAL])
def test_the_settings_of_written_files_are_those_of_mirrormaker(
    kafka: KafkasClasses, tmp_path: Path, path: Path
) -> None:
    text = path.read_text("iso-8859-1")
    if references := SECRETS in text:
        (tmp_path / "secrets.properties").write_text("cloud.secret = 4711\n")
        (tmp_path / "topics.properties").write_text("topics = orders\n")
        path = tmp_path / path.name
        path.write_text(text.replace(SECRETS, str(tmp_path)), encoding="iso-8859-1")
    compare(kafka, path, refused=REFUSED.get(path.stem), resolved=references)


def compare(kafka: KafkasClasses, path: Path, *, refused: str | None = None, resolved: bool = False) -> int:
    """Compare every setting of a file; return for how many pairs of clusters.

    MirrorMaker 2 refuses to make a client or connector with an error that contains ``refused``. If it has ``resolved``
    references, the settings of workers and clients are compared by their keys.
    """
    theirs = kafka.ask(about="file", path=str(path))
    assert "error" not in theirs, path.read_text("iso-8859-1")
    ours = MirrorMakerFile(read_properties(path.read_bytes(), str(path)).settings)
    assert texts(ours.properties) == theirs["properties"]
    assert sorted(ours.clusters()) == theirs["clusters"]
    errors = [found["error"] for of in ("clients", "pairs") for found in theirs[of].values() if "error" in found]
    assert bool(errors) == (refused is not None)
    assert all(str(refused) in error for error in errors), errors
    for alias in ours.clusters():
        client = theirs["clients"][alias]
        assert texts(ours.cluster(alias)) == client["all"], alias
        if "error" not in client:
            compare_clients(ours, alias, client, resolved=resolved)
    assert sorted(map(str, ours.pairs())) == sorted(theirs["pairs"])
    for pair in ours.pairs():
        compare_connectors(ours, pair, theirs["pairs"][str(pair)], resolved=resolved)
    return len(ours.pairs())


def compare_clients(ours: MirrorMakerFile, alias: str, theirs: Mapping[str, Any], *, resolved: bool) -> None:
    """Compare the clients of a cluster that are made outside of connectors; MirrorMaker's have defaults, too."""
    for client in ("consumer", "producer", "admin"):
        found = precedence.client(ours.cluster(alias), client)
        trimmed = {key: ",".join(precedence.items(setting)) for key, setting in found.items()}
        if resolved:
            assert trimmed.keys() <= theirs[client].keys(), (alias, client)
        else:
            assert trimmed.items() <= theirs[client].items(), (alias, client)
        assert theirs[client].keys() <= known_keys.CLIENT


def compare_connectors(ours: MirrorMakerFile, pair: Pair, theirs: Mapping[str, Any], *, resolved: bool) -> None:
    for connector in precedence.CONNECTORS:
        assert texts(ours.connector(pair, connector)) == theirs[connector], connector
    worker = texts(ours.worker(pair))
    assert worker.keys() == theirs["worker"].keys()
    assert resolved or worker == theirs["worker"]
    if "error" in theirs:
        return
    source = ours.connector(pair, precedence.SOURCE)
    assert precedence.is_true(source["enabled"], otherwise=False) == theirs["enabled"]
    found = {
        "consumer": precedence.source_consumer(source),
        "source admin": precedence.admin(source, "source"),
        "target admin": precedence.admin(source, "target"),
    }
    for name, settings in found.items():
        one, other = without_id(texts(settings)), without_id(theirs[name])
        assert one.keys() == other.keys(), name
        assert resolved or one == other, name


def texts(settings: Settings) -> dict[str, str]:
    return {key: setting.value for key, setting in settings.items()}


def without_id(settings: Mapping[str, str]) -> dict[str, str]:
    """Without the client's id, to which MirrorMaker 2 adds the client's role."""
    return {key: value for key, value in settings.items() if key != "client.id"}


def test_patterns_match_the_names_that_java_matches_and_are_refused_where_java_refuses_them(
    kafka: KafkasClasses,
) -> None:
    rng = random.Random(11)
    names = ["a", "b", "ab", "aab", "A", "a.b", "axb", "a-b", "abab", "aa", "[", "]", "a&b", "é", "b1", "_b", "😀"]
    compared = refused = 0
    for _ in range(1_200):
        text = "".join(rng.choices(PATTERN_PIECES, k=rng.randrange(1, 7)))
        theirs = kafka.ask(about="pattern", list=text, names=names)
        found = convert(Setting(text, 1, "topics"))
        if theirs is None:
            refused += 1
            assert found.problem, text
        elif not found.problem and found.patterns:
            compared += 1
            assert [name for name in names if matches(found.patterns, name)] == theirs, text
    assert min(compared, refused) > 200


def test_names_of_properties_are_those_that_java_knows(kafka: KafkasClasses) -> None:
    """Of RE2's names: categories of one letter or two, scripts, and Any."""
    names = [f"{first}{second}" for first in string.ascii_uppercase for second in ["", *string.ascii_lowercase]]
    for name in [*names, "Any", "Greek", "Latin", "Han", "Old_Italic", "^Lu", "^L", "^Greek"]:
        text = f"\\p{{{name}}}"
        theirs = kafka.ask(about="pattern", list=text, names=list(string.printable))
        found = convert(Setting(text, 1, "topics"))
        assert theirs is not None or found.problem, text
        if not found.problem:
            assert [one for one in string.printable if matches(found.patterns, one)] == theirs, text
