"""A flow of a stream whose clusters do not answer yet: it is checked again until they do."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from mirror.errors import ConnectionFailed, FlowError, KafkaTimeout, MirrorError, is_outage
from mirror.spark.preflight.flow_checks import Findings

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSE_S: Final = 2.0
"""Between two checks, each of which lasts as long as its clusters' ``default.api.timeout.ms``."""


def is_away(error: BaseException) -> bool:
    """Whether a flow was not checked because a cluster does not answer, so that a later check may succeed."""
    return is_outage(error) or (error.__cause__ is not None and is_outage(error.__cause__))


def may_start_later(error: BaseException) -> bool:
    """Whether a flow was not started because brokers are away, or answer that a partition has no leader yet."""
    return any(isinstance(one, ConnectionFailed | KafkaTimeout) for one in (error, error.__cause__))


class AwaitedFlow:
    """Checks a flow in a thread of its own until its clusters answer; the check may then refuse it."""

    def __init__(self, flow: str, check: Callable[[], Findings]) -> None:
        """``check`` raises MirrorError if the flow must not run; any other exception refuses the flow, too."""
        self.findings: Findings | None = None
        """The result of the check that every cluster has answered."""
        self._flow: Final = flow
        self._check: Final = check
        self._ended: Final = threading.Event()
        # A daemon: the end of the process must not wait for a cluster.
        threading.Thread(target=self._repeat, name=f"mirror-await-{flow}", daemon=True).start()

    def _repeat(self) -> None:
        while not self._ended.wait(_PAUSE_S):
            findings = self._checked()
            error = findings.errors.get(self._flow)
            if error is None or not is_away(error):
                self.findings = findings
                return

    def _checked(self) -> Findings:
        try:
            return self._check()
        except Exception as error:  # noqa: BLE001 - without this thread the flow would wait for ever
            known = error if isinstance(error, MirrorError) else FlowError(f"{type(error).__name__}: {error}")
            return Findings(errors={self._flow: known})

    def end(self) -> None:
        """Check no more."""
        self._ended.set()
