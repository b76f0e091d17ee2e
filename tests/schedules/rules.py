"""The alerts as an object of the Prometheus operator: ``python -m tests.schedules.rules`` writes it."""

from __future__ import annotations

import textwrap
from typing import Final

from tests.schedules.tools import ROOT

RULES: Final = ROOT / "config" / "alerts" / "mirror.rules.yml"
OBJECT: Final = ROOT / "config" / "kubernetes" / "monitoring" / "prometheusrule.yaml"
_HEAD: Final = """\
# Made from config/alerts/mirror.rules.yml by `python -m tests.schedules.rules`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: mirror # CHANGE: many installations of the operator select by a label `release`
spec:
"""


def as_object(rules: str) -> str:
    """Return the file of rules as an object."""
    return _HEAD + textwrap.indent(rules, "  ")


if __name__ == "__main__":
    OBJECT.write_text(as_object(RULES.read_text("utf-8")), "utf-8")
