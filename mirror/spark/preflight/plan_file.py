"""The file of ``mirror plan --out``: what ``mirror apply FILE`` makes, and the facts that it rests on. No secrets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mirror.alignment.planned import Item
from mirror.errors import FlowError
from mirror.spark.ledger.atomic_write import describe_file_error, write_atomically

if TYPE_CHECKING:
    from mirror.config.models import MirrorConfig

_FORMAT: Final = 1
_AGAIN: Final = "make a new plan: mirror plan --out FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPlan:
    """What is to be changed for one flow; the field names are keys of the file."""

    source_id: str
    """The id of the source cluster."""
    target_id: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """The whole file; the field names are its keys."""

    configuration: str
    """:func:`configuration_hash` of the configuration that it was made by."""
    adopt: bool = False
    """Whether what others have set on the target is replaced."""
    max_deletions: int | None = None
    """A limit that the user has given, instead of the flow's."""
    flows: Mapping[str, FlowPlan]
    """By name."""

    @property
    def count(self) -> int:
        """How many changes it has."""
        return sum(len(flow.items) for flow in self.flows.values())

    def write(self, path: Path) -> None:
        """Write it to ``path``, which is replaced. Raises OSError."""
        write_atomically(path, json.dumps({"format": _FORMAT, **asdict(self)}, indent=2).encode() + b"\n")

    def check_configuration(self, config: MirrorConfig) -> None:
        """Raises FlowError if the plan was made by another configuration than ``config``."""
        if self.configuration != configuration_hash(config):
            raise FlowError(f"the configuration has changed since the plan was made; {_AGAIN}")


def read_plan(path: Path) -> PlanFile:
    """Return the plan in a file. Raises FlowError if there is none."""
    try:
        return _parse(path.read_bytes())
    except OSError as error:
        raise FlowError(f"the plan cannot be read: {describe_file_error(error) or error}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FlowError(f"{path} is no plan that this version has written; {_AGAIN}") from error


def _parse(content: bytes) -> PlanFile:
    """Raises ValueError, TypeError, KeyError, AttributeError or RecursionError if it is none."""
    found = json.loads(content)
    if found.pop("format") != _FORMAT:
        raise ValueError("format")
    _check_types(found)
    flows = {
        name: FlowPlan(**{**one, "items": tuple(Item(**item) for item in one["items"])})
        for name, one in found["flows"].items()
    }
    return PlanFile(**{**found, "flows": flows})


def _check_types(found: Mapping[str, Any]) -> None:
    """Raises TypeError if a value is of a type that no plan has there: "no" would count as true."""
    flows = found["flows"].values()
    items = [item for flow in flows for item in flow["items"]]
    texts = [found["configuration"]]
    texts += [flow[key] for flow in flows for key in ("source_id", "target_id")]
    texts += [item[key] for item in items for key in ("on", "what", "change")]
    right = (
        type(found["adopt"]) is bool
        and (found["max_deletions"] is None or type(found["max_deletions"]) is int)
        and all(type(text) is str for text in texts)
        and all(type(flow["items"]) is list for flow in flows)
        and all(type(item["facts"]) is dict for item in items)
    )
    if not right:
        raise TypeError


def configuration_hash(config: MirrorConfig) -> str:
    """Return the hash of all keys in force, of which secrets are left out: a new password leaves a plan valid."""
    described = json.dumps(config.described(), sort_keys=True)
    return f"sha256:{hashlib.sha256(described.encode()).hexdigest()}"


def refuse_stale(lines: list[str]) -> None:
    """Raises FlowError with the first of these ``lines`` about what has changed since the plan was made, if any."""
    if lines:
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        raise FlowError(f"the plan does not hold any more: {lines[0]}{more}; {_AGAIN}")
