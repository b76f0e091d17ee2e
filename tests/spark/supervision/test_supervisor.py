"""The supervisor with streams that run nothing: threads, edits of the file, failures, signals."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirror.spark.supervision import supervisor
from mirror.spark.supervision.flow_states import FlowState, Held, JobEnded, Latched, Lost, OtherRunClaimed, Resumed
from tests.polling import eventually
from tests.spark.supervision.stand_in import StandInSite, flow


@pytest.fixture(autouse=True)
def _quick_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STEP_S", 0.01)
    monkeypatch.setattr(supervisor, "IDLE_STEP_S", 0.01)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[StandInSite]:
    made = StandInSite(tmp_path, flow("f"), flow("g"))
    yield made
    made.close()


def running(site: StandInSite, *names: str) -> None:
    for name in names:
        site.await_state(name, FlowState.RUNNING)


def test_a_flow_that_fails_is_started_again_and_the_other_one_does_not_notice(site: StandInSite) -> None:
    running(site, "f", "g")
    site.streams["f"][0].end(Lost("its job was aborted"))
    lost = site.await_state("f", FlowState.BACKING_OFF)
    assert lost.reason == "its job was aborted"
    assert lost.until_ms is not None
    site.unix_ms = lost.until_ms
    running(site, "f")
    assert len(site.streams["f"]) == 2
    assert (len(site.streams["g"]), site.streams["g"][0].asked) == (1, [])


@pytest.mark.parametrize("error", [ZeroDivisionError("what"), SystemExit(3), MemoryError("none")])
def test_whatever_ends_a_stream_is_a_failure_with_a_reason(site: StandInSite, error: BaseException) -> None:
    running(site, "f")
    site.streams["f"][0].end(error)
    assert site.await_state("f", FlowState.BACKING_OFF).reason == f"f: {error}"


def test_a_flow_that_is_refused_is_tried_again_until_its_cause_has_gone(site: StandInSite) -> None:
    site.refusals["f"] = ValueError("no topic matches")
    refused = site.await_state("f", FlowState.REFUSED)
    assert refused.until_ms == site.unix_ms + 60_000
    site.refusals.clear()
    site.unix_ms += 60_000
    running(site, "f")


def test_flows_are_added_and_removed_while_the_others_run(site: StandInSite) -> None:
    running(site, "f", "g")
    site.write(flow("f"), flow("h"))
    site.read_file()
    running(site, "h")
    site.await_state("g", FlowState.ENDED)
    site.await_that(lambda: site.left == ["g"])
    assert site.removed == ["g"]
    assert site.streams["g"][0].asked == ["stop"]
    assert (len(site.streams["f"]), site.streams["f"][0].asked) == (1, [])
    assert set(site.streams["h"][0].settings.config.flows) == {"f", "h"}
    site.write(flow("f"), flow("g"), flow("h"))
    site.read_file()
    running(site, "g")
    assert len(site.streams["g"]) == 2


def test_an_edited_flow_is_started_again_with_the_edit_and_only_that_flow(site: StandInSite) -> None:
    running(site, "f", "g")
    site.write(flow("f", 'delivery = "at-least-once"', "refresh-ms = 5000"), flow("g"))
    site.read_file()
    site.await_that(lambda: len(site.streams["f"]) == 2)
    assert site.edits == [("f", ["delivery", "refresh-ms"])]
    assert site.streams["f"][0].asked == ["stop"]
    assert site.streams["f"][1].settings.flow.delivery == "at-least-once"
    assert site.streams["g"][0].asked == []


def test_an_edit_of_a_cluster_restarts_the_flows_of_it(site: StandInSite) -> None:
    running(site, "f", "g")
    site.config.write_text(site.config.read_text().replace('"b:1"', '"b:1,c:1"'))
    site.read_file()
    site.await_that(lambda: len(site.streams["f"]) == len(site.streams["g"]) == 2)
    assert dict(site.edits) == {name: ['clusters.b."bootstrap.servers"'] for name in "fg"}


def test_a_file_that_is_wrong_as_a_whole_changes_nothing_and_is_reported_once(site: StandInSite) -> None:
    running(site, "f", "g")
    good = site.config.read_text()
    for wrong in (good + "[[", good + "[clusters.a]\n", "", good.replace('"bootstrap', '"bootstrip')):
        site.config.write_text(wrong)
        site.read_file()
        site.read_file()
    assert len(site.wrong) == 4
    site.config.unlink()
    site.read_file()
    assert "no such file" in site.wrong[4] or "cannot be read" in site.wrong[4]
    site.config.write_text(good)
    site.read_file()
    assert site.wrong[5:] == [""]
    assert [len(site.streams[name]) for name in "fg"] == [1, 1]
    assert [site.streams[name][0].asked for name in "fg"] == [[], []]


def test_a_flow_with_a_wrong_edit_goes_on_and_a_new_one_that_is_wrong_is_refused_alone(site: StandInSite) -> None:
    running(site, "f", "g")
    site.write(flow("f", "nonsense = 1"), flow("g", "refresh-ms = 2000"), flow("h", "refresh-ms = 1"))
    site.read_file()
    site.await_that(lambda: len(site.streams["g"]) == 2, "the edit of the flow that is right")
    assert "nonsense" in site.state("f").edit_refused
    assert (site.state("f").state, site.streams["f"][0].asked) == (FlowState.RUNNING, [])
    assert site.state("h").state is FlowState.REFUSED
    assert "flows.h.refresh-ms" in site.state("h").reason
    assert set(site.streams["g"][1].settings.config.flows) == {"f", "g"}, "flows are checked with one another"
    site.write(flow("f"), flow("g", "refresh-ms = 2000"), flow("h"))
    site.read_file()
    running(site, "h")
    assert site.state("f").edit_refused == ""
    assert len(site.streams["f"]) == 1


def test_a_signal_ends_all_flows_in_order_and_a_second_one_at_once(site: StandInSite) -> None:
    site.obeys = False
    running(site, "f", "g")
    site.signals = 1
    site.await_that(lambda: site.streams["f"][0].asked == site.streams["g"][0].asked == ["stop"])
    site.streams["f"][0].end(JobEnded("in order"))
    site.await_state("f", FlowState.ENDED)
    assert site.state("g").state is FlowState.RUNNING
    site.signals = 2
    site.await_that(lambda: site.streams["g"][0].asked == ["stop", "cancel"])
    site.streams["g"][0].end(JobEnded("cut short"))
    site.supervisor.run()
    assert sorted(site.left) == ["f", "g"]


def test_a_stream_that_does_not_end_is_cancelled_and_given_up(site: StandInSite) -> None:
    site.obeys = False
    running(site, "f", "g")
    site.signals = 1
    site.streams["g"][0].end(JobEnded("in order"))
    site.await_state("g", FlowState.ENDED)
    site.now_s += 29.9
    site.supervisor.step()
    assert site.streams["f"][0].asked == ["stop"]
    site.now_s += 0.2
    site.supervisor.step()
    assert site.streams["f"][0].asked == ["stop", "cancel"]
    site.now_s += 10.1
    site.supervisor.run()
    assert site.state("f").state is FlowState.ENDED


def test_a_signal_does_not_wait_for_a_check_that_waits_for_a_cluster(site: StandInSite) -> None:
    site.opening.clear()
    site.await_state("f", FlowState.PREPARING)
    site.signals = 1
    site.supervisor.run()
    assert {one.state for one in site.supervisor.states.values()} == {FlowState.ENDED}
    site.opening.set()
    site.supervisor.step()
    assert not any(stream.has_begun for stream in site.streams["f"])


def test_an_edit_does_not_wait_for_a_check_either(site: StandInSite) -> None:
    """What is repaired by the edit may be what the check waits for."""
    site.opening.clear()
    site.await_state("f", FlowState.PREPARING)
    site.write(flow("f", "refresh-ms = 2000"), flow("g"))
    site.read_file()
    site.opening.set()
    running(site, "f")
    assert [stream.settings.flow.refresh_ms for stream in site.streams["f"] if stream.has_begun] == [2_000]


def test_a_waiting_flow_is_held_by_what_its_control_finds_and_resumed(site: StandInSite) -> None:
    site.refusals["f"] = ValueError("no topic matches")
    running(site, "g")
    site.await_state("f", FlowState.REFUSED)
    site.flows["f"].post(Held())
    site.await_state("f", FlowState.HELD)
    site.unix_ms += 10**9
    site.supervisor.step()
    assert site.state("f").state is FlowState.HELD
    site.refusals.clear()
    site.flows["f"].post(Resumed())
    running(site, "f")


def test_mirror_stop_holds_a_flow_that_was_started_before_that_was_found(site: StandInSite) -> None:
    """It has waited, and its retry was due meanwhile: the command must not be lost."""
    running(site, "f")
    site.streams["f"][0].end(Lost("x"))
    site.await_state("f", FlowState.BACKING_OFF)
    site.unix_ms += 120_000
    site.await_that(lambda: len(site.streams["f"]) == 2)
    site.flows["f"].post(Held())
    site.await_state("f", FlowState.HELD)
    assert site.streams["f"][1].asked == ["stop"]


def test_mirror_stop_of_a_flow_that_is_edited_holds_it_and_an_edit_does_not_resume_it(site: StandInSite) -> None:
    site.obeys = False
    running(site, "f", "g")
    site.write(flow("f", "refresh-ms = 2000"), flow("g"))
    site.read_file()
    site.flows["f"].post(Held())
    site.supervisor.step()
    site.write(flow("f", "refresh-ms = 3000"), flow("g"))
    site.read_file()
    site.streams["f"][0].end(JobEnded("in order"))
    site.await_state("f", FlowState.HELD)
    assert (len(site.streams["f"]), site.streams["f"][0].asked) == (1, ["stop"])
    site.write(flow("f", "refresh-ms = 4000"), flow("g"))
    site.read_file()
    assert site.state("f").state is FlowState.HELD
    edited = site.flows["f"].settings
    assert edited is not None
    assert edited.flow.refresh_ms == 4_000, "its site is to follow the commands on the target of now"


def test_a_start_that_was_given_up_changes_nothing_of_the_next_one(site: StandInSite) -> None:
    site.opening.clear()
    site.await_state("f", FlowState.PREPARING)
    site.write(flow("f", "refresh-ms = 2000"), flow("g"))
    site.read_file()
    site.await_that(lambda: site.begun_openings.qsize() == 3, "the second start of the flow")
    late = site.supervisor._flows["f"].start
    assert late is not None
    site.opening.set()
    running(site, "f")
    assert [stream.settings.flow.refresh_ms for stream in site.flows["f"].used] == [2_000]
    assert site.flows["f"].used == [stream for stream in site.streams["f"] if stream.has_begun]


def test_whatever_ends_the_supervisor_no_flow_goes_on(site: StandInSite) -> None:
    running(site, "f", "g")

    def fail() -> int:
        raise ZeroDivisionError("what")

    site.tick = fail  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        site.supervisor.run()
    assert [site.streams[name][0].asked for name in "fg"] == [["cancel"], ["cancel"]]


def test_a_stream_whose_flows_are_all_held_or_have_ended_is_over(site: StandInSite) -> None:
    running(site, "f", "g")
    site.flows["f"].post(OtherRunClaimed("run2", "host2"))
    site.await_state("f", FlowState.HELD)
    site.flows["g"].post(Held())
    site.supervisor.run()
    assert site.state("f").reason == "another run of this flow took over: run2 on host2"
    assert sorted(site.left) == ["f", "g"]


def test_a_stream_waits_for_the_release_of_a_flow_that_its_latch_holds(site: StandInSite) -> None:
    """What starts it again, once it had ended, would find it held again at once."""
    running(site, "f", "g")
    site.flows["g"].post(Held())
    site.streams["f"][0].end(Latched("held since 8"))
    site.await_state("f", FlowState.HELD)
    site.await_state("g", FlowState.HELD)
    ended = threading.Thread(target=site.supervisor.run, daemon=True)
    ended.start()
    eventually(lambda: site.supervisor.states["f"].by_latch, what="the latch")
    assert ended.is_alive()
    site.flows["f"].post(Resumed())
    eventually(lambda: len(site.streams["f"]) == 2, what="another start")
    site.signals = 1
    site.supervisor.wake()
    ended.join(30)
    assert not ended.is_alive()


def test_flows_that_are_not_to_wait_end_when_they_fail(site: StandInSite) -> None:
    site.gives_up_all = True
    site.refusals["f"] = ValueError("no topic matches")
    site.await_state("f", FlowState.ENDED)
    assert site.state("f").reason == "f: no topic matches"
    site.streams["g"][0].end(Lost("x"))
    site.supervisor.run()


def test_each_start_has_one_thread_and_none_is_left(site: StandInSite) -> None:
    running(site, "f", "g")
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("mirror-flow-")]
    assert {"mirror-flow-f", "mirror-flow-g"} <= set(names)
    starts = [one.start for one in site.supervisor._flows.values()]
    site.signals = 1
    site.supervisor.run()
    for start in starts:
        assert start is not None
        start.thread.join(30)
        assert not start.thread.is_alive()


def test_a_signal_ends_a_step_in_which_all_flows_run(site: StandInSite, monkeypatch: pytest.MonkeyPatch) -> None:
    running(site, "f", "g")
    monkeypatch.setattr(supervisor, "IDLE_STEP_S", 60.0)
    step = threading.Thread(target=site.supervisor.step, daemon=True)
    step.start()
    site.supervisor.wake()
    step.join(30)
    assert not step.is_alive()
