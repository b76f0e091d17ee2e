"""The tables of keys in config/README.md: keys and defaults by the models, meanings by the texts below their fields.

python -m tests.config.key_tables     # writes them again
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mirror.config.flow_settings import FlowSettings
from mirror.config.json_schema import meanings_of
from mirror.config.own_tables import FLOW_NAME, OwnTable
from mirror.config.schema import CLUSTER_KEYS
from mirror.config.switch_settings import SwitchConfig
from tests.generated_blocks import table, with_block

DOCUMENT: Final = Path(__file__).parents[2] / "config" / "README.md"
_TABLES: Final = {"producer", "consumer", *FlowSettings.sections()}
"""The keys of a flow that are tables of their own."""


def with_tables(text: str) -> str:
    """Return the document's ``text`` with the present tables."""
    text = with_block(text, "keys of clusters", _table("clusters.NAME", _of_clusters()))
    text = with_block(text, "keys of flows", _table("flows.NAME", _of(FlowSettings)))
    for name, model in FlowSettings.sections().items():
        text = with_block(text, f"keys of {name}", _table(f"flows.NAME.{name}", _of(model)))
    return with_block(text, "keys of switches", _table("switches.NAME", _of(SwitchConfig)))


def _table(name: str, rows: Iterator[tuple[str, str, str]]) -> str:
    return table((f"`[{name}]`", "default", "meaning"), rows)


def _of(model: type[OwnTable]) -> Iterator[tuple[str, str, str]]:
    """Yield key, default and meaning of each key, in the order of the fields."""
    meanings = meanings_of(model)
    for name, field in model.model_fields.items():
        if field.validation_alias == FLOW_NAME:
            continue
        default = field.get_default(call_default_factory=True)
        is_table = model is FlowSettings and field.alias in _TABLES
        shown = "required" if field.is_required() else "" if is_table else _shown(default)
        yield f"`{field.alias}`", shown, meanings[name]


def _of_clusters() -> Iterator[tuple[str, str, str]]:
    for key in CLUSTER_KEYS.values():
        required = key.name == "bootstrap.servers"
        yield f'`"{key.name}"`', "required" if required else _shown(key.default), key.doc


def _shown(default: object) -> str:
    text = "" if default is None else json.dumps(default)
    return f"`{text}`" if isinstance(default, str | bool | tuple | dict) else text


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text("utf-8")), "utf-8")
