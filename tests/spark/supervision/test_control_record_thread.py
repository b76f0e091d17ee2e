"""One thread follows a flow's control record in every state: commands of `mirror stop`, and other runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mirror.client import Admin
from mirror.config.load import load
from mirror.errors import KafkaError, KafkaTimeout
from mirror.relay.progress.flow_topic import status_topic_of, topic_of
from mirror.relay.progress.latch import Latch, Role
from mirror.spark.run_control import RunControlClient
from mirror.spark.supervision import control_record_thread
from mirror.spark.supervision.control_record_thread import ControlRecordThread
from mirror.spark.supervision.flow_states import Held, OtherRunClaimed, Resumed
from tests.polling import eventually
from tests.spark.fakes import Cluster
from tests.spark.supervision.stand_in import CLUSTERS, flow

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.relay.progress.control_record import RunControl

OPTIONS = {"bootstrap.servers": "b:1"}


class Site:
    def __init__(self, folder: Path, *, every_ms: int = 5) -> None:
        self.target = Cluster("b:1").make()
        path = folder / "mirror.toml"
        path.write_text(CLUSTERS + flow("f"))
        self.now_ms = RunControlClient(Admin(OPTIONS), "f", "x").wanted.since_ms
        self.posted: list[object] = []
        self.on_post: Callable[[], object] = bool
        self.warned: list[str] = []
        self.control = ControlRecordThread(
            load(path).flows["f"],
            OPTIONS,
            self._post,
            self.warned.append,
            every_ms=every_ms,
            unix_ms=lambda: self.now_ms,
        )

    def _post(self, event: object) -> None:
        self.posted.append(event)
        self.on_post()

    def client(self, run: str = "") -> RunControlClient:
        return RunControlClient(Admin(OPTIONS), "f", run)

    def found(self) -> RunControl:
        found = self.client().read()
        assert found is not None
        return found

    def let_die(self) -> None:
        """Let the time pass in which the run, which stores the real time, was to give a sign of life."""
        self.now_ms = self.found().seen_ms + 61_000

    def posts(self, event: object) -> None:
        """Wait until the control posts this event again and again, and no other one."""
        eventually(lambda: self.posted[-3:] == [event] * 3, what=f"{event}")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.control.close()


def test_a_claimed_flow_is_renewed_from_the_claim_on_whatever_its_start_waits_for(site: Site) -> None:
    site.control.claim("run1")
    found = site.found()
    site.client()._commit(replace(found, seen_ms=found.seen_ms - 11_000))
    eventually(lambda: site.found().seen_ms >= found.seen_ms, what="the sign of life")
    site.posts(Resumed())


def test_mirror_stop_holds_a_flow_until_it_is_resumed(site: Site) -> None:
    site.control.claim("run1")
    assert site.client().stop() is not None
    site.posts(Held())
    assert not site.found().ended, "its tasks may run still"
    site.control.hold()
    eventually(lambda: site.found().ended, what="the end")
    site.posts(Held())
    assert site.client().resume() is not None
    site.posts(Resumed())
    assert site.client().resume() is None, "nothing is stopped any more"


@pytest.mark.parametrize("released", ["before", "after"])
def test_a_flow_that_is_released_while_its_stream_begins_to_hold_it_begins_again(
    site: Site, monkeypatch: pytest.MonkeyPatch, released: str
) -> None:
    """What releases it resumes what holds it; that may not be stored yet."""
    latch = Latch(role=Role.ACTIVE if released == "before" else Role.HELD)
    monkeypatch.setattr(control_record_thread, "read_latch", lambda *_: latch)
    site.control.claim("run1")
    site.control.hold(by_latch=True)
    if released == "after":
        site.posts(Held(latch.held_line("f")))
        assert site.client().resume() is not None
    site.posts(Resumed())


def test_a_held_flow_can_be_resumed_although_its_end_was_not_written_or_its_record_is_gone(
    site: Site,
) -> None:
    site.control.claim("run1")
    site.client().stop()
    site.target.stop()
    site.control.hold()
    site.target.start()
    eventually(lambda: site.found().ended, what="the end")
    with site.target.change() as state:
        state["groups"].clear()
    eventually(lambda: site.client().read() is not None and site.found().ended, what="the record")
    old = site.found()
    site.client()._commit(replace(old, seen_ms=old.seen_ms - 11_000))
    eventually(lambda: site.found().seen_ms >= old.seen_ms, what="a renewal: `held` is not shown of a dead driver")
    site.client().resume()
    site.posts(Resumed())


def test_a_flow_is_held_on_a_target_where_none_of_its_runs_was(site: Site) -> None:
    """An edit of a held flow may give it another target: `mirror stop --resume` writes to that one."""
    other = site.client("run0")
    other.claim()
    site.control.hold()
    site.control.request().result()
    assert site.posted == []
    other.want(ended=True)
    other.sync()
    site.posts(Held())
    assert (site.found().run, site.found().ended) == (site.control.run, True)
    site.client().resume()
    site.posts(Resumed())
    run = site.control.begin()
    site.control.wait(claims=True)
    eventually(lambda: (site.found().run, site.found().ended) == (run, False), what="the run of the next start")


def test_the_end_of_a_control_is_no_command_to_the_next_one(site: Site) -> None:
    """An edit of a running flow may give it another target: the control of the target of before is closed."""
    site.control.claim("run1")
    site.control.close()
    assert site.found().ended
    assert Held() not in site.posted


def test_a_flow_that_another_run_takes_over_is_free_once_that_run_has_ended_or_died(site: Site) -> None:
    for number, end in enumerate(("ends", "dies")):
        site.control.claim(f"run1{number}")
        other = site.client(f"run2{number}")
        other.claim()
        site.posts(OtherRunClaimed(f"run2{number}", other.wanted.host))
        if end == "ends":
            other.want(ended=True)
            other.sync()
        else:
            site.let_die()
        site.posts(Resumed())
        assert site.found().run == f"run2{number}", "only the next start claims the flow"


def test_a_waiting_flow_is_known_as_a_run_unless_another_one_copies_it(site: Site) -> None:
    other = site.client("run0")
    other.claim()
    site.control.wait(claims=True)
    site.control.request().result()
    assert site.found().run == "run0"
    site.let_die()
    eventually(lambda: site.found().run == site.control.run, what="the claim: the other run has died")
    assert {topic_of("f"), status_topic_of("f")} <= Admin(OPTIONS).list_topics().keys()
    site.client().stop()
    site.posts(Held())


def test_of_a_flow_that_is_refused_nothing_is_made_and_a_claim_stays(site: Site) -> None:
    site.control.wait(claims=False)
    site.control.request().result()
    assert (site.client().read(), Admin(OPTIONS).list_topics()) == (None, {})
    site.control.claim(site.control.begin())
    run = site.control.begin()
    site.control.wait(claims=False)
    eventually(lambda: site.found().run == run, what="the run of the start that was refused")
    assert site.warned == []


def test_a_stop_of_the_run_that_waits_counts_for_the_start_that_begins_meanwhile(site: Site) -> None:
    site.control.claim("run1")
    asked = site.found().stopped()
    site.control.close()
    site.client()._commit(asked)
    late = ControlRecordThread(site.control._flow, OPTIONS, site.posted.append, site.warned.append, every_ms=60_000)
    late._own_runs.add("run1")
    run = late.claim("run2")
    run.sync()
    assert (site.found().run, site.posted[-1]) == ("run2", Held())
    late.close()


def test_a_run_of_an_earlier_start_changes_nothing_any_more(site: Site) -> None:
    early = site.control.claim("run1")
    site.control.claim("run2")
    early.end_job()
    early.announce_assignments(7)
    early.sync()
    assert (site.found().run, site.found().job, site.found().version) == ("run2", 0, 0)
    assert site.warned == []


def test_another_run_that_this_one_replaces_is_named_once(site: Site) -> None:
    site.client("run0").claim()
    site.control.claim("run1")
    site.control.claim("run2")
    assert [line.partition(" on ")[0] for line in site.warned] == ["took over from run run0"]


def test_a_run_whose_claim_was_not_answered_is_one_of_its_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def claim_unanswered(run: str) -> None:
        commit = RunControlClient._commit

        def time_out(client: RunControlClient, record: RunControl) -> None:
            commit(client, record)
            raise KafkaTimeout("no answer")

        with monkeypatch.context() as patched:
            patched.setattr(RunControlClient, "_commit", time_out)
            with pytest.raises(KafkaTimeout):
                site.control.claim(run)

    claim_unanswered("run1")
    site.client().stop()
    claim_unanswered("run2")
    site.control.claim("run3")
    site.posts(Held())
    assert site.warned == []
    claim_unanswered("run4")
    assert site.found().run == "run4"
    site.control.close()
    assert site.found().ended


def test_the_end_of_a_job_is_no_stop_of_the_flow(site: Site) -> None:
    """`mirror stop` alone stops: an edit while the target does not answer must not be taken for it."""
    run = site.control.claim("run1")
    run.begin_job(1)
    run.end_job()
    eventually(lambda: site.found().job == 2, what="the command to the tasks")
    assert not site.found().stop
    site.posts(Resumed())


def test_a_target_that_is_away_is_asked_again_and_another_error_is_said_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = site.control.claim("run1")
    failing: list[KafkaError] = [KafkaTimeout("no answer")]
    tried = list[int]()

    def sync(_: object) -> object:
        tried.append(1)
        raise failing[-1]

    with monkeypatch.context() as patched:
        patched.setattr(RunControlClient, "sync", sync)
        with pytest.raises(KafkaTimeout):
            run.sync()
        failing.append(KafkaError("the group may not be read"))
        eventually(lambda: len(tried) > 5, what="further attempts")
    site.posts(Resumed())
    assert site.warned == ["commands to this run cannot be followed: the group may not be read"]


def test_a_run_that_is_stopped_at_each_renewal_requests_no_further_ones(tmp_path: Path) -> None:
    """`mirror run` stops whenever the record says so; its tasks may take minutes to end."""
    site = Site(tmp_path, every_ms=60_000)
    run = site.control.claim("run1")
    run.begin_job(1)
    site.on_post = run.end_job
    site.client().stop()
    run.sync()
    for _ in range(5):
        site.control.unclaimed()  # what was requested before is done first
    assert (site.posted, site.found().job) == ([Held()] * 2, 2)
    site.control.close()


def test_requests_wait_for_one_renewal_while_the_target_does_not_answer(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = site.control.claim("run1")
    asked, answered = threading.Event(), threading.Event()

    def read(_: object) -> None:
        asked.set()
        assert answered.wait(30)
        raise KafkaTimeout("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(RunControlClient, "read", read)
        assert asked.wait(30)
        requests = {id(site.control.request()): site.control.request() for _ in range(25)}
        assert len(requests) == 1
        answered.set()
        for request in requests.values():
            with pytest.raises(KafkaTimeout):
                request.result(30)
    run.want(version=3)
    run.sync()
    assert site.found().version == 3, "a later request is another renewal"


def test_no_caller_hangs_once_the_control_has_ended(site: Site) -> None:
    run = site.control.claim("run1")
    site.control.close()
    assert site.found().ended
    with pytest.raises(KafkaError, match="has ended"):
        run.sync()
    assert not site.control._thread.is_alive()
