"""A model whose faults are methods of a site, at which everything is copied in the end."""

from __future__ import annotations

from typing import Generic, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from tests.producer.faults import Fault
from tests.relay.partition.sequences_site import CopySite

S = TypeVar("S", bound=CopySite)


class SiteModel(RuleBasedStateMachine, Generic[S]):
    """Its first rule sets ``site``."""

    site: S

    def _happen(self, faults: list[Fault], rounds: int, ms: int) -> None:
        for name, arguments in faults:
            getattr(self.site, name)(**arguments)
        self.site.time_passes(ms, rounds)

    def teardown(self) -> None:
        if not hasattr(self, "site"):
            return
        try:
            self.site.finish()
        finally:
            self.site.close()
