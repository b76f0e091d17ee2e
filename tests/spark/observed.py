"""Observations of clusters, as commands and rounds make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirror.client import Admin
from mirror.config.models import FlowConfig, MirrorConfig
from mirror.observation import Side, Sides
from mirror.spark.clusters import Clusters
from mirror.spark.preflight import flow_checks
from mirror.spark.preflight.flow_checks import Findings


def sides_of(source: Admin, target: Admin) -> Sides:
    """A new observation of cluster ``a`` and of cluster ``b``."""
    return Sides(Side("a", source), Side("b", target))


def check_flows(
    config: MirrorConfig, flows: Sequence[FlowConfig], on_waiting: Callable[[str], None] | None = None
) -> Findings:
    """Check these flows as a command does that asks nothing else."""
    with Clusters(config) as clusters:
        return flow_checks.check_flows(config, flows, clusters, on_waiting)
