"""What commands that ask for each flow print of all of them."""

from __future__ import annotations

import pytest

from mirror.cli.each_flow import Answers
from mirror.spark.preflight.flow_checks import Findings


def test_a_warning_is_printed_once_with_its_flows(capsys: pytest.CaptureFixture[str]) -> None:
    findings = Findings(warnings={"f": ["a broker is old"], "g": ["a broker is old"]})
    answers = Answers(findings, {"f": ["a broker is old", "its own"], "g": list[str]()})
    answers.print_warnings(lambda lines: lines)
    assert capsys.readouterr().err.splitlines() == [
        "mirror: warning: flows f, g: a broker is old",
        "mirror: warning: flow f: its own",
    ]
