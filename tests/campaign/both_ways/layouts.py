"""The clusters of a campaign, the flows between them, and which records each cluster has in the end. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

Topic = tuple[str, str]
"""A cluster, and a topic on it."""


class Layout(NamedTuple):
    """Clusters, and the flows between them: (source, target)."""

    clusters: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    naming: Literal["identity", "prefix"]

    def flows(self, topic: str, keys: str) -> Iterator[tuple[str, str]]:
        """Yield the name and the lines of TOML of each flow; ``keys`` are further lines of all."""
        for source, target in self.edges:
            ends = f'source = "{source}"\ntarget = "{target}"\nnaming = "{self.naming}"\n'
            if self.naming == "identity":
                which = f'topics = {json.dumps([topic])}\norigin = "local"\norigin-from = "earliest"\n'
            else:
                which = f"topics = {json.dumps([f'.*{topic}'])}\n"
            yield f"{source}-{target}", f"{ends}{which}{keys}"

    def origins(self, topic: str) -> dict[Topic, frozenset[str]]:
        """Return all topics of all clusters in the end, and on which clusters their records were produced."""
        if self.naming == "identity":
            return {(cluster, topic): frozenset(self.clusters) for cluster in self.clusters}
        found: dict[Topic, frozenset[str]] = {}
        waiting: list[tuple[str, str, tuple[str, ...]]] = [(one, topic, (one,)) for one in self.clusters]
        while waiting:
            cluster, name, passed = waiting.pop()
            found[cluster, name] = frozenset(passed[:1])
            for source, target in self.edges:
                if source == cluster and target not in passed:
                    waiting.append((target, f"{source}.{name}", (*passed, target)))
        return found


LAYOUTS: Final = {
    "pair": Layout(("a", "b"), (("a", "b"), ("b", "a")), "identity"),
    "mesh": Layout(
        ("a", "b", "c"), tuple((one, other) for one in "abc" for other in "abc" if one != other), "identity"
    ),
    "ring": Layout(("a", "b", "c"), (("a", "b"), ("b", "c"), ("c", "a")), "prefix"),
}
