"""Taking over from a connector that has a topic of its own for its positions, in a dedicated MirrorMaker 2."""

from __future__ import annotations

import pytest

from tests.e2e.connect_worker import START_S
from tests.polling import eventually
from tests.takeover.real.rounds import RECORDS, Kill, Rounds, Way
from tests.takeover.real.site import MirrorMakerSite
from tests.takeover.real.traffic import Traffic

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.timeout(900)]


def with_own_topic(site: MirrorMakerSite) -> None:
    """Have the connector store its positions in a topic of its own from now on."""
    site.positions = f"{site.flow}-own"
    site.settings[f"{site.alias}->{site.other}.offsets.storage.topic"] = site.positions
    site.options.extend(["--offsets-topic", site.positions])


@pytest.mark.parametrize("site", [Way(exactly_once=True)], ids=str, indirect=True)
def test_connector_with_a_topic_of_its_own_is_watched_taken_over_and_continues(site: MirrorMakerSite) -> None:
    rounds = Rounds(site)
    with_own_topic(site)
    with site.mirrormaker():
        with Traffic(site):
            site.await_copied(site.logs, RECORDS)
        unnamed = site.invoke("--dry-run")
        assert unnamed.exit_code == 1
        assert f"It is {site.alias}-mm2 in a dedicated MirrorMaker 2" in unnamed.output
        site.options.extend(["--worker-group", f"{site.alias}-mm2"])
        running = site.invoke("--dry-run")
        assert running.exit_code == 1
        assert f"members of group {site.alias}-mm2" in running.output
    rounds.take_over(kills=[Kill(0.5)])
    rounds.hand_back()
    rounds.go_on()


@pytest.mark.parametrize("site", [Way()], ids=str, indirect=True)
def test_older_positions_in_the_workers_topic_do_not_count(site: MirrorMakerSite) -> None:
    """MirrorMaker 2 begins again, too: Kafka Connect takes each position that is not in the connector's topic for none.

    ``KafkaOffsetBackingStore`` returns null for it, which replaces the one of the workers' topic
    (``ConnectorOffsetBackingStore.get``).
    """
    rounds = Rounds(site)
    with site.mirrormaker(), Traffic(site):
        site.await_copied(site.logs, RECORDS)
        eventually(lambda: site.stored() >= len(site.logs), within_s=START_S, what="stored positions", every_s=0.2)
    with_own_topic(site)
    site.options.extend(["--worker-group", f"{site.alias}-mm2"])
    assert rounds.take_over(kills=[Kill(0.5)], begins_again=True).doubled > RECORDS // 2
    rounds.hand_back()
    rounds.go_on()
