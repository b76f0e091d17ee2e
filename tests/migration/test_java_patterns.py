"""Java's regular expressions as RE2's."""

from __future__ import annotations

import pytest

from mirror.migration.java_patterns import convert
from mirror.migration.parsing.entries import Setting


def of(text: str) -> tuple[str, ...]:
    found = convert(Setting(text, 1, "topics"))
    assert not found.problem
    return found.patterns


@pytest.mark.parametrize(
    ("text", "patterns"),
    [
        (".*", (".*",)),
        ("a, b ,a", ("a", "b")),
        ("", ()),
        ("(a,b)", ("(a|b)",)),
        ("(?i)a,b", ("(?i)a|b",)),
        (r"\Qa.b,c\E", (r"\Qa.b|c\E",)),
        ("caf\\u00e9", (r"caf\x{00e9}",)),
        (r"a\.b-\d+", (r"a\.b-\d+",)),
        ("[a-z]+", ("[a-z]+",)),
        ("a{2}[{]", ("a{2}[{]",)),
        (r"\{a}", (r"\{a}",)),
        (r"\Q{\E", (r"\Q{\E",)),
        (r"\x{61}\p{Lu}+", (r"\x{61}\p{Lu}+",)),
        (r"a\++", (r"a\++",)),
        (r"\pL\P{Nd}[\p{Zs}]", (r"\pL\P{Nd}[\p{Zs}]",)),
        ("(?<x>a),(?<y>b)", ("(?<x>a)", "(?<y>b)")),
        ("[]{]", ("[]{]",)),
        ("a\\ud83d\\ude00", (r"a\x{1f600}",)),
    ],
)
def test_patterns_are_those_that_match_the_same_names(text: str, patterns: tuple[str, ...]) -> None:
    assert of(text) == patterns


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(?!test).*", "looks ahead"),
        ("(?<=a)b", "looks behind"),
        ("(?>a+)b", "without backtracking"),
        (r"(a)\1", "refers back"),
        (r"(?<x>a)\k<x>", "refers back"),
        ("a++", "does not backtrack"),
        ("a{2}+", "does not backtrack"),
        ("[a-z&&[^x]]", "intersects"),
        ("[a[bc]]", "a class of its own"),
        ("[[:alpha:]]", "a class of its own"),
        (r"\v", "vertical"),
        (r"a\Z", "not known"),
        ("(?x)a", "comments"),
        ("(?U)a", "Unicode"),
        ("${one}", "Illegal repetition"),
        ("a{x}", "Illegal repetition"),
        (r"\p{Lu}++", "does not backtrack"),
        ("a{2", "Illegal repetition"),
        (r"a\C", "unsupported escape sequence"),
        ("(?P<x>a)", "Unknown inline modifier"),
        ("(?<a_b>a)", "the name of a group"),
        ("(?<x>a)(?<x>b)", "a second group"),
        ("(?<x>a),(?<x>b)", "a second group with the name x"),
        ("(?<x>a),(?<x>a)", "a second group with the name x"),
        (r"\p{Greek}", "Unknown character property name"),
        (r"[\P{^Lu}]", "Unknown character property name"),
        (r"\p{Any}", "Unknown character property name"),
        (r"\p{C}", "not assigned"),
        (r"\pC", "not assigned"),
        (r"\p{IsGreek}", "not a regular expression"),
        ("[]&&a]", "intersects"),
        ("a{1001}", "not a regular expression"),
        ("*", "not a regular expression"),
    ],
)
def test_what_re2_reads_otherwise_or_not_at_all_is_named(text: str, words: str) -> None:
    assert words in convert(Setting(text, 1, "topics")).problem
