"""Progress that the target has forgotten, and that its record restores, while an earlier attempt still appends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.wire.api import Api
from tests.fakes.control import Action, ServerCall
from tests.polling import eventually
from tests.relay.task.test_healing_on_fakes import TARGET, Site, is_to_target

_FENCES = {"sequences": {Api.INIT_PRODUCER_ID}, "transactions": {Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT}}
"""With which request a copy by each way begins to fence, once it has compared the record with the log."""


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("by", _FENCES)
def test_what_is_appended_until_the_fence_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, by: str, level: int
) -> None:
    """Someone has deleted the committed offsets. Nothing was appended when the record was compared with the log."""
    site = Site(monkeypatch, "sequences", level)
    site.pair.target.admin.broker_configs[""] = {"producer.id.expiration.ms": str(86_400_000)}
    site.write_and_copy(2)
    held = Action(hold="before")
    produced: list[ServerCall] = []
    begun: list[ServerCall] = []
    released: list[ServerCall] = []

    def rule(call: ServerCall) -> Action | None:
        if call.api is Api.PRODUCE and is_to_target(site, call):
            produced.append(call)
            return held if len(produced) == 1 else None
        if call.api is Api.INIT_PRODUCER_ID and call.body.transactional_id:
            begun.append(call)
        if len(begun) < 2 or call.api not in _FENCES[by] or released:
            return None
        released.append(call)
        held.release()
        return Action(stall_ms=100)

    site.pair.target.control.add(rule)
    site.write(1)
    with ThreadPoolExecutor() as pool:
        earlier = pool.submit(site.copy)
        eventually(lambda: produced, what="a batch of the earlier attempt")
        for offsets in site.pair.target.groups.values():
            offsets.pop(TARGET, None)
        site.options = {"exactly_once_by": by}
        result = site.copy()
        earlier.result(20)
    assert (result.outcome, result.end) == (Outcome.COMPLETE, 3), result.error
    assert site.pair.values() == site.values(0, 3)
