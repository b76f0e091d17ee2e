"""What a dry run says of the time that producers have to wait."""

from __future__ import annotations

from dataclasses import replace

from mirror.switch.pause import FlowPace, expected_pause, measured
from mirror.switch.record import State, SwitchRecord


def test_what_makes_producers_wait_is_named_with_its_time() -> None:
    flows = [FlowPace("f", is_alive=False, bytes_per_second=2_500_000.0), FlowPace("g", is_alive=True)]
    line, copied, _ = expected_pause(30, flows, 3)
    assert line == (
        "producers are expected to wait for about 49 s: quiet-seconds (30 s) and, meanwhile, the requests of before the"
        " fence 5 s, the last run of f 13 s, the last comparison, and holding 3 flows 26 s"
    )
    assert copied.endswith("the fence: f copies 2.5 MB/s; no run of g has shown a rate yet")


def test_a_flow_that_runs_is_held_and_compared_while_its_topics_have_to_be_quiet() -> None:
    line, *_ = expected_pause(30, [FlowPace("f", is_alive=True)], 1)
    assert line.startswith("producers are expected to wait for about 35 s: quiet-seconds (30 s)")


def test_the_pause_is_that_from_the_fence_until_clients_are_switched() -> None:
    record = SwitchRecord(state=State.PLANNED).entered(State.READY, 1_000)
    record = replace(record, fence_ms=2_000)
    assert measured(record) is None
    for at_ms, state in ((3_500, State.FENCED), (9_000, State.PROVED), (11_000, State.MOVED), (12_000, State.PROVED)):
        record = record.entered(state, at_ms)
    record = replace(record.entered(State.MOVED, 12_500).entered(State.OPEN, 40_000), switched_ms=41_000)
    pause = measured(record.entered(State.REVERSED, 50_000))
    assert pause is not None
    assert pause.line() == (
        "producers were fenced for 39.0 s: fenced 1.5 s, proved 6.5 s, moved 2.5 s, OPEN 27.5 s, switched 1.0 s"
    )
    back = measured(replace(record, switched_ms=0, lifted_ms=13_000))
    assert back is not None
    assert back.line().startswith("producers were fenced for 11.0 s")
    assert back.line().endswith("unfenced 0.5 s")
