"""Fixtures for all tests. Real brokers start when the first test asks for them, and are stopped in any case."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Protocol

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from mirror.sandbox.cluster import Cluster
from mirror.sandbox.fetch import KAFKA_VERSION
from tests import jvm
from tests.releases import releases
from tests.stalls import Stalls

# How long an example takes says something about this machine's load, not about the code. The same examples each time,
# so that a red run speaks of what was changed; `make properties` looks for others.
hypothesis.settings.register_profile("mirror", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True)
# The first example that fails is enough: see tests/campaign/mutations.
_GENERATE = (hypothesis.Phase.generate,)
hypothesis.settings.register_profile("mutations", deadline=None, derandomize=True, phases=_GENERATE)
hypothesis.settings.load_profile("mirror")

_CLUSTERS = {"source_cluster", "target_cluster", "new_cluster"}
_TOGETHER = (
    ("tests/alignment/permissions/test_on_brokers.py",),
    ("tests/conformance/test_admin_on_brokers.py",),
    (
        "tests/conformance/test_consumer_backoff.py",
        "tests/conformance/test_consumer_leaders.py",
        "tests/conformance/test_fake_replicas.py",
    ),
    (
        "tests/conformance/test_consumer_going_on.py",
        "tests/conformance/test_consumer_timeouts.py",  # timed, as some of the following ones are
        "tests/conformance/test_consumer_processes.py",
        "tests/conformance/test_consumer_sessions.py",
        "tests/conformance/test_producer_records.py",
        "tests/conformance/test_producer_transaction_calls.py",
    ),
    # Timed: beside the former ones they end the second part of the suite sooner.
    (
        "tests/conformance/test_admin_backoff.py",
        "tests/conformance/test_producer_backoff.py",
        "tests/conformance/test_producer_blocking.py",
    ),
    (
        "tests/conformance/test_fake_sequences.py",
        "tests/conformance/test_fake_topics.py",
        "tests/conformance/test_fake_transactions.py",
        "tests/conformance/test_fenced_batches.py",
        "tests/conformance/test_producer_takeover.py",
    ),
    # The two clusters that all tests may have. Those of tests/copying that do not use its own cluster are here, too.
    (
        "tests/alignment/deletions/test_deletions_on_brokers.py",
        "tests/alignment/test_authority_on_brokers.py",
        "tests/alignment/test_on_brokers.py",
        "tests/benchmarks/test_latency_table.py",
        "tests/brokers/",
        "tests/campaign/test_chaos_short_round.py",
        "tests/cli/test_forget_on_brokers.py",
        "tests/copying/test_corrupt.py",
        "tests/copying/test_fuzzed_source.py",
        "tests/copying/test_murder.py",
        "tests/copying/test_target_made_again.py",
        "tests/e2e/test_copy.py",
        "tests/e2e/test_could_not_run.py",
        "tests/e2e/test_groups.py",
        "tests/e2e/test_stream.py",
        "tests/e2e/test_stream_in_step.py",
        "tests/mirrormaker/test_kafkas_classes.py",
        "tests/relay/partition/search/test_position_search_on_brokers.py",
        "tests/relay/progress/test_progress_topic_on_brokers.py",
        "tests/relay/task/test_topic_rules_on_brokers.py",
        "tests/releases/test_formats.py",
        "tests/spark/test_topics_on_brokers.py",
        "tests/takeover/real/test_real_mirrormaker.py",
        "tests/verify/test_aside_on_brokers.py",
        "tests/verify/test_on_brokers.py",
    ),
    ("tests/copying/",),
    ("tests/e2e/test_on_a_cluster.py",),
    ("tests/e2e/test_on_hosts.py",),
    ("tests/migration/test_client_settings.py", "tests/migration/test_mirrormaker_config.py"),
    ("tests/security/",),
    ("tests/telemetry/test_report_in_browser.py",),
    # They parse all modules.
    ("tests/cli/test_advised_commands.py",),
    ("tests/test_glossary.py",),
)
"""Paths whose tests share what is too large, or takes too long, for each worker to have: one worker runs them all.

Each cluster takes 10 to 80 s of CPU of a run, half of it while nothing uses it: tests that share one are required to
be here.
"""
_LONG = (
    "tests/conformance/test_fake_sequences.py",
    "tests/conformance/test_fake_transactions.py",
    "tests/conformance/test_fenced_batches.py",
    "tests/conformance/test_producer_takeover.py",
    "tests/copying/",
    "tests/security/",
)
"""Of the tests on brokers, those that keep a worker for about a minute or two."""
_TIMED = (
    "tests/copying/test_isolation.py",
    "tests/runtime/",
    "tests/campaign/",
    "tests/conformance/test_admin_backoff.py",
    "tests/conformance/test_consumer_backoff.py",
    "tests/conformance/test_consumer_leaders.py",
    "tests/conformance/test_consumer_timeouts.py",
    "tests/conformance/test_fake_replicas.py",
    "tests/conformance/test_intervals.py",
    "tests/conformance/test_producer_backoff.py",
    "tests/conformance/test_producer_blocking.py",
    "tests/sandbox/test_process.py",
    "tests/spark/driver/test_submission.py",
)
"""Tests under these paths compare times with bounds that a busy machine breaks, as all do that use ``stalls``.

(Those of the fake's replicas do not: they share three brokers with tests that do.)
"""
_SLOW = (
    "tests/alignment/deletions/test_deletion_commands.py",
    "tests/alignment/permissions/test_decision.py::test_nothing_is_allowed",
    "tests/benchmarks/",
    "tests/cli/",
    "tests/cluster/test_admin_each_call.py",
    "tests/cluster/test_loop_turns.py",
    "tests/cluster/test_reaper.py",
    "tests/cluster/test_session_bounds.py",
    "tests/config/test_cycles.py",
    "tests/config/test_hostile.py",
    "tests/conformance/test_calls_on_the_fake.py",
    "tests/consumer/test_fetch_routes.py",
    "tests/consumer/test_isolation.py",
    "tests/consumer/test_prefetch_bound.py",
    "tests/doctor/test_addresses.py",
    "tests/e2e/",
    "tests/exporter/test_exporter.py",
    "tests/exporter/test_exporter_process.py",
    "tests/faults/",
    "tests/groups/test_empty_partitions.py",
    "tests/groups/test_sync_after_crashes.py",
    "tests/installation/",
    "tests/migration/test_importing.py::test_every_line_of_generated_files",
    "tests/migration/test_stores.py",
    "tests/migration/test_strimzi.py",
    "tests/mirrormaker/test_checkpoints.py",
    "tests/producer/test_takeover.py",
    "tests/producer/test_transaction_codes.py",
    "tests/rehearsal/test_scale.py",
    "tests/relay/batches/test_encoding_schedule.py",
    "tests/relay/batches/test_reencode.py",
    "tests/relay/masking/test_json_masks.py",
    "tests/relay/masking/test_record_masks.py",
    "tests/relay/offsets/test_attempts_at_once.py",
    "tests/relay/partition/search/test_position_search.py",
    "tests/relay/partition/search/test_reading_together.py",
    "tests/relay/partition/search/test_search_slices.py",
    "tests/relay/progress/test_followed_topic.py",
    "tests/relay/progress/test_progress_topic.py",
    "tests/relay/progress/test_stored_json.py",
    "tests/relay/task/test_imports.py",
    "tests/relay/task/test_last_epochs.py",
    "tests/relay/task/test_task.py",
    "tests/relay/task/test_topic_rules.py",
    "tests/relay/task/test_turns.py",
    "tests/relay/test_byte_limits_simulated.py",
    "tests/schedules/test_files.py",
    "tests/security/test_secrets_in_objects.py",
    "tests/spark/discovery/test_topic_watch.py",
    "tests/spark/driver/",
    "tests/spark/ledger/test_full_disk.py",
    "tests/spark/preflight/test_dry_run.py",
    "tests/spark/preflight/test_flow_checks.py",
    "tests/spark/preflight/test_portions.py",
    "tests/spark/rehearsing/test_ages.py",
    "tests/spark/supervision/test_supervisor.py",
    "tests/spark/test_holding.py",
    "tests/switch/failback/test_groups_behind_a_tail.py",
    "tests/switch/test_exact_groups.py",
    "tests/switch/test_hook_examples.py",
    "tests/switch/test_hooks.py",
    "tests/takeover/test_matching.py",
    "tests/telemetry/test_export.py",
    "tests/telemetry/test_metrics.py",
    "tests/telemetry/test_report",
    "tests/test_documents.py",
    "tests/test_observation.py",
    "tests/verify/test_damages.py",
    "tests/wire/test_bombs.py",
    "tests/wire/test_codec.py",
    "tests/wire/test_decode.py",
    "tests/wire/test_encode.py::test_what_goes_in_comes_out",
    "tests/wire/test_hostile_bytes.py",
    "tests/wire/test_legacy.py",
    "tests/wire/test_produce_answers.py",
    "tests/wire/test_produce_frames.py",
)
"""Fuzzers, large inputs, whole runs of the driver, and what starts processes.

Together they take longer than the other thousands of tests.
"""
_SLOW_KINDS = ("_on_fakes.py", "_model.py", "_races.py")
"""Whole copies between fakes, and random courses, by the names of their files."""
_HANGS_S = 480
"""What waits for other processes, or takes long, is given more time on a busy machine before it is said to hang."""
_LONGER = ("brokers", "spark", "timed", "slow")
_FREEZE_AFTER = 50
"""Tests. Each copy in a test runs Python's cycle collector once, which goes through all that is not frozen."""
_TESTS_DONE = pytest.StashKey[int]()
_THREADS_BEFORE = pytest.StashKey["weakref.WeakSet[threading.Thread]"]()
_SHARED = pytest.StashKey["SharedFixtures"]()
_THREADS_END_S = 5.0
"""Clients that are closed do not wait for the end of their network threads."""


def pytest_configure(config: pytest.Config) -> None:
    """Have every Spark that a test starts start quickly, and Ctrl-C be heard by what tests start."""
    config.stash[_SHARED] = SharedFixtures()
    config.pluginmanager.register(config.stash[_SHARED])
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's "&" has it ignored, by all that comes of it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(jvm.SPARK))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep Python's cycle collector from going through all modules and tests: each copy in a test runs it once.

    That took 0.2 s of CPU for each copy, and collecting the tests takes half as long again with it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Freeze what tests leave, too: modules that they import, caches, reports."""
    done = item.config.stash[_TESTS_DONE] = item.config.stash.get(_TESTS_DONE, 0) + 1
    try:
        return (yield)
    finally:
        if done % _FREEZE_AFTER == 0:
            gc.collect()
            gc.freeze()


class SharedFixtures:
    """Notes what fixtures of several tests start. (A conftest's hook is not called for those of a session.)"""

    def __init__(self) -> None:
        self.threads = weakref.WeakSet[threading.Thread]()
        self._clusters: list[tuple[pytest.FixtureDef[object], pytest.FixtureRequest]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        if _is_shared_cluster(fixturedef):
            self._clusters.append((fixturedef, request))
        before = set(threading.enumerate())
        try:
            return (yield)
        finally:
            self.threads.update(set(threading.enumerate()) - before)

    def stop_clusters(self) -> None:
        """Stop those that run, behind all that uses them; a later test starts its own."""
        while self._clusters:
            fixturedef, request = self._clusters.pop()
            fixturedef.finish(request)  # type: ignore[arg-type]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Note the threads that there are."""
    item.stash[_THREADS_BEFORE] = weakref.WeakSet(threading.enumerate())
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Require that the threads of the mirror end with the test that started them, or whose fixtures did.

    In a later test they would use what that one has replaced: its clock, its brokers, its random numbers.
    Behind the last test of a group, its clusters end: pytest would keep those of a session to the worker's end, and an
    idle broker takes 2% of a core.
    """
    shared = item.config.stash[_SHARED]
    try:
        return (yield)
    finally:
        if _is_worker(item.config) and nextitem is not None and _group(nextitem.nodeid) != _group(item.nodeid):
            shared.stop_clusters()
        known = {*item.stash.get(_THREADS_BEFORE, ()), *shared.threads}
        started = [one for one in threading.enumerate() if one not in known and one.name.startswith("mirror-")]
        until_s = time.monotonic() + _THREADS_END_S
        for thread in started:
            thread.join(max(0.0, until_s - time.monotonic()))
        left = sorted(one.name for one in started if one.is_alive())
        assert not left, f"{item.nodeid} leaves threads that run: {', '.join(left)}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what uses a cluster or measures times, so that it cannot be forgotten; say what goes first."""
    for item in items:
        alone = not item.get_closest_marker("cluster") and _group(item.nodeid) is None
        if alone and _shares_a_cluster(item):
            raise pytest.UsageError(f"{item.nodeid}: shares a cluster: add it to _TOGETHER in tests/conftest.py")
        if _CLUSTERS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.brokers)
        if item.nodeid.startswith(_TIMED) or "stalls" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timed)
        if item.nodeid.startswith(_SLOW) or item.path.name.endswith(_SLOW_KINDS):
            item.add_marker(pytest.mark.slow)
        if not item.get_closest_marker("timeout") and any(map(item.get_closest_marker, _LONGER)):
            item.add_marker(pytest.mark.timeout(_HANGS_S))
    if _is_worker(config):
        items.sort(key=_turn)


def _is_worker(config: pytest.Config) -> bool:
    """Whether xdist has started this process."""
    return hasattr(config, "workerinput")


def _group(nodeid: str) -> str | None:
    """Return what those have in common that run on one worker, or None."""
    return next((paths[0] for paths in _TOGETHER if nodeid.startswith(paths)), None)


def _shares_a_cluster(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    fixtures = item._fixtureinfo.name2fixturedefs  # pytest does not publish where they are from
    return any(_is_shared_cluster(found[-1]) for found in fixtures.values())


def _is_shared_cluster(fixturedef: pytest.FixtureDef[object]) -> bool:
    return fixturedef.scope != "function" and fixturedef.func.__annotations__.get("return") == "Iterator[Cluster]"


def _turn(item: pytest.Item) -> tuple[bool, ...]:
    """Sorts a worker's tests: those that wait for brokers, the longest first, then the others, the longest last.

    See :class:`OneByOne`. The last tests to end are short in this way.
    """
    if item.get_closest_marker("brokers") or item.get_closest_marker("spark"):
        long = item.get_closest_marker("spark") is not None or item.nodeid.startswith(_LONG)
        return (False, not long)
    return (True, item.get_closest_marker("slow") is not None)


class OneByOne(LoadScopeScheduling):  # type: ignore[misc]
    """Tests go to workers one by one, but for those that stay together.

    The last worker begins at the other end of the queue: it runs the tests that only compute beside those on brokers
    and Spark, which wait for half of their time, and it starts no clusters before those are nearly done.

    (xdist's own groups do not work with pytest 9: it changes a name that pytest does not look at any more.)
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node.gateway.id == f"gw{self.numnodes - 1}":
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid) or nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> OneByOne:
    """For the process that hands out the tests."""
    return OneByOne(config, log)


class NewCluster(Protocol):
    """Starts a cluster for one test."""

    def __call__(
        self,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        release: str = KAFKA_VERSION,
    ) -> Cluster: ...


@pytest.fixture(scope="session")
def source_cluster() -> Iterator[Cluster]:
    """One broker to copy from, shared by all tests: use topics with ``unique`` names, and do it no harm."""
    with Cluster(heap=jvm.BROKER) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def target_cluster() -> Iterator[Cluster]:
    """One broker to copy to, shared in the same way."""
    with Cluster(heap=jvm.BROKER) as cluster:
        yield cluster


@pytest.fixture
def new_cluster() -> Iterator[NewCluster]:
    """``new_cluster(brokers=1, properties=None, listeners=None, release="4.3.0")``: a cluster that the test may harm.

    The releases are those of tests/releases/releases.py.
    """
    with contextlib.ExitStack() as running:

        def start(
            brokers: int = 1,
            properties: Mapping[str, str] | None = None,
            listeners: Mapping[str, str] | None = None,
            release: str = KAFKA_VERSION,
        ) -> Cluster:
            cluster = releases.cluster(release, brokers, properties=properties, listeners=listeners)
            return running.enter_context(cluster)

        yield start


@pytest.fixture
def stalls() -> Iterator[Stalls]:
    """What this process was kept from running, for the upper bounds of times.

    Again for each test, so that its thread and its open files are not there where others count theirs.
    """
    with Stalls() as watched:
        yield watched


@pytest.fixture
def unique() -> Callable[[str], str]:
    """``unique("orders")`` -> ``"orders-3f9c..."``: a name for a topic, group or id that no other test uses."""
    return lambda name: f"{name}-{uuid.uuid4().hex[:12]}"
