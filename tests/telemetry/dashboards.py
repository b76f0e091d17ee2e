"""The queries of the dashboards and alerts of config/, and the names in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mirror.telemetry.metrics.instruments import ALL, Instrument, Kind

CONFIG: Final = Path(__file__).parents[2] / "config"
BOARDS: Final = tuple(sorted((CONFIG / "dashboards").glob("*.json")))
RULES: Final = CONFIG / "alerts" / "mirror.rules.yml"
_PARTS: Final = ("_bucket", "_sum", "_count")
_NAME: Final = re.compile(r"\b(?:mirror|messaging)_[a-z_]+\b")
_SELECTED: Final = re.compile(r"\{([^}]*)\}")
_GROUPED: Final = re.compile(r"\b(?:by|on) \(([^)]*)\)")
_LABEL_VALUES: Final = re.compile(r"label_values\((.*), (\w+)\)")


@dataclass(frozen=True, slots=True)
class Query:
    """An expression of PromQL, with Grafana's variables in it, and its location."""

    where: str
    expr: str


def load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def panels(board: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return all panels except rows, which only group others."""
    yield from (panel for panel in board["panels"] if panel["type"] != "row")


def queries(path: Path) -> Iterator[Query]:
    """Return the queries of all panels and annotations."""
    board = load(path)
    for panel in panels(board):
        for target in panel["targets"]:
            if target["datasource"]["type"] == "prometheus":
                yield Query(f"{path.name}: {panel['title']} ({target['refId']})", target["expr"])
    for marks in board["annotations"]["list"]:
        yield Query(f"{path.name}: annotation {marks['name']}", marks["expr"])


def choices(path: Path) -> Iterator[tuple[str, str, str]]:
    """Return name, selector and label of each variable whose values come from Prometheus."""
    for variable in load(path)["templating"]["list"]:
        if variable["type"] == "query":
            match = _LABEL_VALUES.fullmatch(variable["query"]["query"])
            assert match is not None, variable["query"]
            yield variable["name"], match[1], match[2]


def filled_in(text: str, values: Mapping[str, str]) -> str:
    """Return ``text`` with ``$name`` replaced, as Grafana does."""
    return re.sub(r"\$(\w+)", lambda match: values[match[1]], text)


def measured_in(expr: str) -> set[str]:
    """Return the names of metrics."""
    return set(_NAME.findall(_GROUPED.sub("", expr)))


def labels_in(expr: str) -> set[str]:
    """Return the names of labels that are selected or grouped by."""
    selected = {part.partition("=")[0].rstrip("!~ ") for text in _SELECTED.findall(expr) for part in text.split(", ")}
    grouped = {part.strip() for text in _GROUPED.findall(expr) for part in text.split(",")}
    return (selected | grouped) - {"le", ""}


def instrument(name: str) -> Instrument | None:
    """Return the instrument with this name in Prometheus."""
    for candidate in ALL:
        name_of = candidate.prometheus
        names = {name_of + part for part in _PARTS} if candidate.kind is Kind.HISTOGRAM else {name_of}
        if name in names:
            return candidate
    return None
