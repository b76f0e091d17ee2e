"""Rounds over copies that may have repeated records. Real clients, brokers in memory."""

from __future__ import annotations

import pytest

from mirror.groups.commit_decision import Reason
from mirror.relay.offsets.index import Place, Translation
from mirror.relay.offsets.partition_offsets import PartitionOffsets
from tests.groups.sync_site import Site, only
from tests.relay.fake_pair import FakePair


@pytest.mark.parametrize(("exactly_once", "reason", "offset"), [(False, None, 7), (True, Reason.BEHIND, 12)])
def test_a_position_at_a_late_copy_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, *, exactly_once: bool, reason: Reason | None, offset: int
) -> None:
    """Two attempts have appended at once, and the segment of one of them was not written yet in the first round."""
    pair = FakePair(monkeypatch, exactly_once=exactly_once)
    pair.write(*(b"%d" % number for number in range(10)))
    pair.copy()
    site = Site(pair)
    sync = site.sync()
    site.commit(7)
    with monkeypatch.context() as patch:
        patch.setattr(PartitionOffsets, "translate", lambda *_: Translation(Place.RECORD, 12))
        sync.round()
    assert site.at_target() == 12
    found = [only(sync.round()).reason for _ in range(6)]
    assert (found[-1], site.at_target()) == (reason, offset)
    site.close()
