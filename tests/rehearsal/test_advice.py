"""Advice is possible, says how many records it repeats or leaves out, and is the same wherever it is given."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from mirror.client import TopicPartition
from mirror.groups.back_positions import BackReason
from mirror.groups.commit_decision import Reason
from mirror.rehearsal.advice import Advice
from mirror.rehearsal.values import Why
from mirror.relay.progress.target_log import TargetMark, deleted_text, recreated_error, truncated_error
from mirror.telemetry.report.advice import ADVICE

_AHEAD, _BACK = Advice("f", "paris", "berlin"), Advice("f", "berlin", "paris", reverse=True)
_READY = {
    *(Reason.NOT_COPIED, Reason.NOT_COPIED_BACK, Reason.BEHIND, Reason.TRUNCATED, Reason.DELETED, Reason.NO_CONSUMERS),
    BackReason.BEHIND,
}
"""With these a group is ready."""
_TP = TopicPartition("paris.t", 0)


@pytest.mark.parametrize("advice", [_AHEAD, _BACK, Advice("f", "paris", "berlin", syncs=False)])
def test_each_reason_has_advice(advice: Advice) -> None:
    reasons = {*Why, *(BackReason if advice.reverse else Reason)} - _READY
    reasons -= {Why.MOVED} if advice.reverse else set()
    assert {str(reason) for reason in reasons} - {str(reason) for reason in advice.texts()} == set()


@pytest.mark.parametrize("advice", [_AHEAD, _BACK])
def test_advice_that_moves_a_position_says_how_many_records_that_is(advice: Advice) -> None:
    moving = {
        reason: text
        for reason, text in advice.texts(16_423).items()
        if re.search("reset|--resume|go on without|delete", text)
    }
    assert moving.keys() >= {Why.SKIPS, Reason.PASSED}
    for reason, text in moving.items():
        said = "16,423 records" in text or "never back" in text
        assert said, (reason, text)


def test_group_that_lives_on_the_new_cluster_is_left_there() -> None:
    for reason in (Why.SKIPS, Why.MOVED, Reason.ACTIVE, Reason.TAKEN_OVER):
        first = _AHEAD.of(reason, 16_423).partition(";")[0]
        assert "nothing" in first, reason
        assert "the way back: mirror rehearse --reverse" in first, reason
    assert "reset" not in _AHEAD.of(Why.MOVED, 16_423)


_ERRORS: Mapping[str, str] = {
    "target recreated": str(recreated_error("f", _TP.topic, TargetMark(topic_id="a", end=9), "b")),
    "target truncated": str(truncated_error("f", _TP, TargetMark(topic_id="a", end=9), 3, 9)),
}


def _settings(text: str) -> set[str]:
    return set(re.findall(r'[a-z-]+ = (?:"[a-z-]+"|true)', text))


@pytest.mark.parametrize("kind", _ERRORS)
def test_report_advises_the_setting_of_the_error(kind: str) -> None:
    advice = ADVICE[f"failed {kind}"]
    assert re.search(advice.pattern, _ERRORS[kind])
    of_report = {one for step in advice.steps for one in _settings(step.text)}
    assert _settings(_ERRORS[kind]) == of_report
    assert len(of_report) == 1


def test_deleted_and_recreated_target_have_the_same_advice() -> None:
    deleted = deleted_text("f", _TP.topic)
    assert _settings(deleted) == _settings(_ERRORS["target recreated"]) == {'on-target-recreated = "start-over"'}
