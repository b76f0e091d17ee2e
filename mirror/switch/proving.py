"""Whether a verification proves that the target has all that the source had at its fenced ends. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mirror.verify.values import PROVED_BEFORE


def flow_of(output: str) -> Mapping[str, Any] | None:
    """Return what ``mirror verify --json`` has printed of its one flow; None for less, as of one that was killed."""
    try:
        (found,) = json.loads(output)["flows"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, dict) else None


# Invariant: A switch is proved only if each partition was compared up to its fenced end, with no difference and nothing
#   left out but what an earlier link of the same proof has.
# Test: tests/switch/test_proving.py::test_what_is_not_compared_up_to_the_fenced_end_is_not_proved
def unproved(partitions: Sequence[Mapping[str, Any]], ends: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
    """Yield a line for each partition that is not proved; ``partitions`` are those of ``mirror verify --json``."""
    found = {(one["topic"], one["partition"]): one for one in partitions}
    for topic, of_topic in ends.items():
        for number, end in enumerate(of_topic):
            if end and (why := _why(found.get((topic, number)), end)):
                yield f"{topic}-{number}: {why}"


def _why(one: Mapping[str, Any] | None, end: int) -> str:
    if one is None:
        return "it was not compared"
    if one["error"]:
        return str(one["error"])
    if left := [line for line in one["incomplete"] if not line.endswith(PROVED_BEFORE)]:
        return "; ".join(left)
    compared = one.get("source", {}).get("equal_to", 0)
    return "" if compared >= end else f"equal up to offset {compared} of {end}"
