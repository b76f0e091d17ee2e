"""A real MirrorMaker 2 that starts again after it was taken over stops the flow, before it stores any position."""

from __future__ import annotations

import pytest

from mirror.client import Admin
from mirror.config.load import load
from mirror.spark.driver.takeover_watch import open_watch
from mirror.takeover import watch as takeover_watch
from tests.e2e.connect_worker import START_S
from tests.e2e.site import Site
from tests.polling import eventually
from tests.takeover.real.rounds import Way
from tests.takeover.real.site import MirrorMakerSite

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.parametrize("site", [Way()], ids=str, indirect=True)
def test_one_that_starts_again_stops_the_flow(site: MirrorMakerSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has nothing to copy, so that the state of its tasks alone shows it."""
    monkeypatch.setattr(takeover_watch, "INTERVAL_MS", 200)
    site.source.fill(site.plain, [b"%d" % number for number in range(100)])
    with site.mirrormaker():
        site.await_copied(site.logs, 100)
    assert site.takeover()["complete"]
    config = load(site.configuration())
    (flow,) = config.select(site.flow)
    warned: list[str] = []
    with (
        Admin({"bootstrap.servers": site.target.address}) as target,
        open_watch(config, flow, target, warned.append) as watch,
    ):
        watch.check()
        with site.mirrormaker():
            eventually(lambda: watch.read() is not None, within_s=START_S, what="MirrorMaker 2", every_s=0.2)
        assert warned == []
    assert "its task " in str(watch.resumed)
    assert f"according to topic mm2-status.{site.alias}.internal" in str(watch.resumed)
    run = Site(site.folder).run("--flow", site.flow)
    assert (run.status, [line for line in run.errors if str(watch.resumed) in line]) == (4, run.errors)
    assert site.takeover()["complete"]
    with (
        Admin({"bootstrap.servers": site.target.address}) as target,
        open_watch(config, flow, target, warned.append) as watch,
    ):
        watch.check()
