"""What a flow's configuration says about the configurations of its target topics, and rounds by these rules."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from mirror.alignment.decision import ConfigRules
from mirror.alignment.rounds import Alignment, AlignmentRules
from mirror.client import Admin
from mirror.config.flow_rules import target_options
from mirror.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.alignment.report import AlignmentReport
    from mirror.config.models import FlowConfig, MirrorConfig


def config_rules(flow: FlowConfig) -> ConfigRules:
    """Return which configurations the target topics of ``flow`` get, when they are created and later."""
    if flow.configs == "off":
        return ConfigRules(excludes=lambda _: True)
    return ConfigRules(excludes=flow.excludes_config, overrides=flow.configs_overrides)


def rules_of(flow: FlowConfig) -> AlignmentRules:
    """Return which topics ``flow`` brings in step, and how."""
    return AlignmentRules(
        target_topic=lambda topic: flow.target_topic(topic) if flow.includes(topic) else None,
        configs=config_rules(flow),
    )


@contextmanager
def alignment_of(config: MirrorConfig, flow: FlowConfig, source: Admin, target: Admin) -> Iterator[Alignment]:
    """Yield the rounds of ``flow`` over clients that the caller closes. Raises ConfigError."""
    options = target_options(config, flow)
    with closing(Alignment(flow.name, source, target, options, rules_of(flow), SystemClock())) as alignment:
        yield alignment


@contextmanager
def open_alignment(config: MirrorConfig, flow: FlowConfig) -> Iterator[Alignment]:
    """Yield the rounds of ``flow``, with clients of their own. Raises ConfigError."""
    with (
        Admin(config.clusters[flow.source].client_options()) as source,
        Admin(config.clusters[flow.target].client_options()) as target,
        alignment_of(config, flow, source, target) as alignment,
    ):
        yield alignment


def compare_configs(config: MirrorConfig, flow: FlowConfig, source: Admin, target: Admin) -> AlignmentReport | None:
    """Return how the target topics' configurations differ; None if the flow does not keep them in step.

    Nothing is changed: the target only checks what would be. Raises KafkaError.
    """
    if flow.configs != "sync":
        return None
    with alignment_of(config, flow, source, target) as alignment:
        return alignment.round(write=False)
