"""The JSON Schema of a configuration, by which editors complete a file and check it while it is written. Pure.

It is of draft 7, which Taplo reads, the TOML of most editors. It says less than ``mirror check-config``: nothing is
required, since the environment and the secrets folder may set every key.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from mirror.config.effective import UNSETTABLE
from mirror.config.flow_settings import FlowSettings
from mirror.config.own_tables import FLOW_NAME, OwnTable
from mirror.config.schema import CLIENT_KEYS, CLUSTER_KEYS
from mirror.config.switch_settings import SwitchConfig

if TYPE_CHECKING:
    from mirror.cluster.keys import Key

Schema = dict[str, Any]

_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_TEXT_OR_NUMBER: Final = {"type": ["string", "integer", "boolean"]}
_OPEN: Final = {
    **{key: {"type": "string"} for key in ("headers", "names", "mask")},
    "configs-overrides": _TEXT_OR_NUMBER,
}
"""The values of tables whose keys are the user's own."""


def json_schema() -> Schema:
    """Return the schema of a whole file."""
    flow = _own_table(FlowSettings)
    for client, keys in CLIENT_KEYS.items():
        # Without their defaults: some are others in a copy.
        settable = {name: _kafka_key(key) for name, key in keys.items() if name not in UNSETTABLE}
        flow["properties"][client] = {"description": f"Keys of the flow's Kafka {client}.", **_table(settable)}
    cluster = _table({name: _kafka_key(key) | _default(key) for name, key in CLUSTER_KEYS.items()})
    clusters = {"description": "The Kafka clusters, by name.", "type": "object", "additionalProperties": cluster}
    flows = {
        "description": "The flows, by name: each copies topics from one cluster to another.",
        "type": "object",
        "additionalProperties": flow,
    }
    switches = {
        "description": "The switches, by name: each moves the clients of some flows' topics to the target.",
        "type": "object",
        "additionalProperties": _own_table(SwitchConfig),
    }
    tables = {"clusters": clusters, "flows": flows, "switches": switches}
    return {"$schema": _DRAFT, "title": "kafka-spark-mirror", **_table(tables)}


def meanings_of(model: type[OwnTable]) -> dict[str, str]:
    """Return the text that stands below each field of ``model`` that has one, by the field's name."""
    (body,) = [
        node.body
        for node in ast.parse(inspect.getsource(sys.modules[model.__module__])).body
        if isinstance(node, ast.ClassDef) and node.name == model.__name__
    ]
    found = {}
    for field, below in itertools.pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


def _table(properties: Schema) -> Schema:
    """Return the schema of a table that has no other keys than these."""
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _own_table(model: type[OwnTable]) -> Schema:
    """Return the schema of a table of this project's own keys."""
    meanings, properties = meanings_of(model), model.model_json_schema()["properties"]
    found: Schema = {}
    for name, field in model.model_fields.items():
        if field.validation_alias == FLOW_NAME:
            continue
        key, kind = str(field.alias), field.annotation
        if isinstance(kind, type) and issubclass(kind, OwnTable):
            found[key] = {"description": kind.__doc__, **_own_table(kind)}
            continue
        meaning = _LINK.sub(r"\1", meanings[name])
        found[key] = properties[key] | {"description": f"{meaning}\n\nValid: {field.description}."}
        del found[key]["title"]
        if key in _OPEN:
            found[key]["additionalProperties"] = _OPEN[key]
    return _table(found)


def _kafka_key(key: Key) -> Schema:
    """Return the schema of one of Kafka's dotted keys, without its default."""
    found: Schema = {"description": f"{key.doc}{'; a secret, better kept outside of the file' if key.secret else ''}"}
    match key.kind:
        case "int":
            found |= {"type": "integer", "minimum": key.low, "maximum": key.high}
        case "bool":
            found |= {"type": "boolean"}
        case "list":
            found |= {"type": ["string", "array"], "items": {"type": "string"}}
        case _:
            found |= {"type": "string"}
    return found | ({"enum": list(key.choices)} if key.choices else {})


def _default(key: Key) -> Schema:
    return {} if key.default in {None, "", ()} else {"default": key.default}
