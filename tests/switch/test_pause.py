"""What a dry run says of the time that producers have to wait."""

from __future__ import annotations

from mirror.switch.pause import FlowPace, expected_pause


def test_what_makes_producers_wait_is_named_with_its_time() -> None:
    flows = [FlowPace("f", is_alive=False, bytes_per_second=2_500_000.0), FlowPace("g", is_alive=True)]
    line, copied, _ = expected_pause(30, flows, 3)
    assert line == (
        "producers are expected to wait for about 83 s: quiet-seconds and the fence 32 s, the last run of f 13 s,"
        " the last comparison 26 s, holding 3 flows 12 s"
    )
    assert copied.endswith("the fence: f copies 2.5 MB/s; no run of g has shown a rate yet")


def test_a_flow_that_runs_needs_no_last_run() -> None:
    line, *_ = expected_pause(10, [FlowPace("f", is_alive=True)], 1)
    assert line == (
        "producers are expected to wait for about 37 s: quiet-seconds and the fence 12 s, the last comparison 13 s,"
        " holding 1 flows 12 s"
    )
