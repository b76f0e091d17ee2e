"""A finding has the words of the error of a run, divided into what, why, and what to do."""

from __future__ import annotations

import pytest

from mirror import causes
from mirror.causes import CAUSES, Cause
from mirror.doctor.findings import Finding, Severity, of_error, of_line
from mirror.errors import AuthenticationFailed, ConnectionFailed, KafkaTimeout

_ERROR = Severity.ERROR


@pytest.mark.parametrize("cause", CAUSES, ids=lambda one: one.effect[:40])
def test_a_line_is_divided_where_the_words_of_its_cause_begin(cause: Cause) -> None:
    found = of_line(_ERROR, "cluster a", f"broker 1 at b:9092: it broke: {cause.words}")
    what, why = "broker 1 at b:9092: it broke", cause.effect
    if cause.is_observation:
        what, why = f"{what}: {why}", ""
    assert found == Finding(_ERROR, "cluster a", what, why, cause.remedy)
    assert of_line(_ERROR, "cluster a", cause.words) == Finding(_ERROR, "cluster a", cause.effect, "", cause.remedy)


def test_no_cause_is_part_of_another_one() -> None:
    assert [(a.words, b.words) for a in CAUSES for b in CAUSES if a is not b and a.words in b.words] == []


def test_of_a_timeout_it_is_the_error_of_the_last_attempt() -> None:
    late = KafkaTimeout("describing the versions of broker 2 did not succeed within 6000 ms: and so on")
    late.__cause__ = ConnectionFailed(f"broker 2 at b:9092: connection refused ({causes.ADVERTISED.words})")
    found = of_error(_ERROR, "cluster a", late, causes.UNANSWERED)
    assert (found.what, found.why) == ("broker 2 at b:9092: connection refused", causes.ADVERTISED.effect)
    assert found.remedy == causes.ADVERTISED.remedy


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        (
            f"b: the broker closed the connection before its first answer (perhaps {causes.CONNECTIONS.words})",
            "b: the broker closed the connection before its first answer",
            causes.CONNECTIONS.remedy,
        ),
        (
            f"b:9092: {causes.WANTS_SASL.words} (PLAIN)",
            f"b:9092: {causes.WANTS_SASL.effect}",
            f"{causes.WANTS_SASL.remedy} (PLAIN)",
        ),
        (f"b: it failed: no such user; {causes.LOGIN.remedy}", "b: it failed: no such user", causes.LOGIN.remedy),
    ],
)
def test_what_stands_around_the_words_is_kept(text: str, what: str, remedy: str) -> None:
    found = of_error(_ERROR, "cluster a", AuthenticationFailed(text), causes.AWAY)
    assert (found.what, found.remedy) == (what, remedy)


def test_an_error_without_a_cause_of_its_own_has_that_of_the_place() -> None:
    found = of_error(_ERROR, "cluster a", ConnectionFailed("bootstrap server at a:1: connection refused"), causes.AWAY)
    assert (found.why, found.remedy) == (causes.AWAY.effect, causes.AWAY.remedy)
    assert of_line(_ERROR, "flow f", "something else").why == ""
