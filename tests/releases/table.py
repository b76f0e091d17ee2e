"""The table of config/README.md of what tests show on which release of brokers: it follows from their parameters.

python -m tests.releases.table     # writes it again
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, cast

from mirror.wire.api import Api
from tests.copying import test_gaps, test_logs, test_way_back
from tests.e2e import test_copy, test_stream
from tests.fakes.api_metadata import WITH_TOPIC_IDS
from tests.fakes.releases import RELEASES, versions_of
from tests.generated_blocks import table as table_of
from tests.generated_blocks import with_block
from tests.releases import test_calls, test_formats, test_groups, test_security, test_targets
from tests.releases.releases import MAIN_VERSION, OTHERS, VERSIONS, authorizer
from tests.releases.topics import OLD_FORMATS, writes_old_formats
from tests.security import test_protocols
from tests.security.conftest import MECHANISMS

Test = Callable[..., Any]

DOCUMENT: Final = Path(__file__).parents[2] / "config" / "README.md"
_NOT_RUN: Final = "-"
_ALL_KINDS: Final = test_formats.test_topics_of_all_kinds_are_copied_in_both_ways
_TO_TARGET: Final = test_targets.test_a_target_takes_copies_in_both_ways
_PLAIN: Final = (
    _ALL_KINDS,
    test_groups.test_positions_move_with_the_copy_and_back,
    test_gaps.test_recreated_topic_is_a_gap,
)
_COMPACTED: Final = (_ALL_KINDS, test_logs.test_compacted_topic_with_tombstones_is_copied)
_TRANSACTIONAL: Final = (_ALL_KINDS, test_logs.test_interleaved_transactions_are_copied_up_to_the_last_stable_offset)
_POSITIONS: Final = (
    test_groups.test_positions_move_with_the_copy_and_back,
    test_way_back.test_a_consumer_fails_over_and_back_with_no_record_skipped,
)
_JOBS: Final = "tests.releases.test_jobs"
_ALL_KINDS_OF_JOBS: Final = "all_kinds"
"""In the name of a test that copies plain, compacted and transactional topics."""
_COMMANDS: Final = {
    "run": test_copy.test_the_first_run_copies_all_and_the_second_only_what_is_new,
    "stream": test_stream.test_a_stream_follows_what_comes_finds_what_is_new_and_ends_in_order,
}
"""The word for a command in the names of the tests of jobs -> a test of it with the main release."""


def with_table(text: str) -> str:
    """Return the document's ``text`` with the present table."""
    return with_block(text, "releases of brokers", table())


def table() -> str:
    """Return a row for each release, the oldest first."""
    columns: dict[str, Callable[[str], str]] = {
        "brokers": _brokers,
        "topics that are copied from there": _topics,
        "message formats": _formats,
        "jobs from there": _jobs,
        "as a target": _target,
        "positions of groups, both ways": lambda version: _yes(_runs(version, *_POSITIONS)),
        "configurations and ACLs are read": _reads,
        "login": _login,
        "permissions are known beforehand": lambda version: _yes(version in test_calls.REPORT_PERMISSIONS, "no"),
        "topic ids": lambda version: _yes(_has_topic_ids(version), "no"),
    }
    if importlib.util.find_spec(_JOBS) is None:
        del columns["jobs from there"]
    return table_of(list(columns), ([cell(version) for cell in columns.values()] for version in VERSIONS))


def versions(test: Test) -> list[str]:
    """Return the values of the parameter ``version``. Tests without it run the main release."""
    return [str(row["version"]) for row in _parameters(test)] or [MAIN_VERSION]


def _parameters(test: Test) -> Iterator[dict[str, object]]:
    """Yield the parameters by name, of each time that ``test`` runs for a release."""
    for mark in cast("list[Any]", getattr(test, "pytestmark", [])):
        if mark.name != "parametrize":
            continue
        names = mark.args[0].replace(" ", "").split(",") if isinstance(mark.args[0], str) else mark.args[0]
        if "version" in names:
            for value in mark.args[1]:
                values = getattr(value, "values", value)  # of pytest.param
                yield dict(zip(names, (values,) if isinstance(values, str) else values, strict=True))


def _runs(version: str, *tests: Test) -> bool:
    return any(version in versions(test) for test in tests)


def _yes(holds: bool, other: str = _NOT_RUN) -> str:
    return "yes" if holds else other


def _brokers(version: str) -> str:
    other = OTHERS.get(version)
    return f"{version}, {'ZooKeeper' if other is not None and other.zookeeper else 'KRaft'}"


def _topics(version: str) -> str:
    jobs = _of_jobs(_ALL_KINDS_OF_JOBS)
    kinds = {
        "plain": _runs(version, *_PLAIN, *jobs),
        "compacted": _runs(version, *_COMPACTED, *jobs),
        "transactional": _runs(version, *_TRANSACTIONAL, *jobs),
    }
    return ", ".join(kind for kind, shown in kinds.items() if shown) or _NOT_RUN


def _formats(version: str) -> str:
    old = OLD_FORMATS if writes_old_formats(version) and _runs(version, _ALL_KINDS) else ()
    return ", ".join(map(str, [*old, 2]))


def _jobs(version: str) -> str:
    tests = {command: [latest, *_of_jobs(command)] for command, latest in _COMMANDS.items()}
    return ", ".join(f"`mirror {command}`" for command in tests if _runs(version, *tests[command])) or _NOT_RUN


def _of_jobs(word: str) -> list[Test]:
    """Return the tests of jobs that run for several releases and have ``word`` in their names."""
    if importlib.util.find_spec(_JOBS) is None:
        return []
    found = vars(importlib.import_module(_JOBS)).items()
    return [test for name, test in found if name.startswith("test_") and f"_{word}_" in name and any(_parameters(test))]


def _target(version: str) -> str:
    if _runs(version, test_targets.test_an_older_target_is_refused_in_one_line):
        return "refused"
    levels = [row["level"] for row in _parameters(_TO_TARGET) if row["version"] == version]
    if not levels:
        return _NOT_RUN
    named = " and ".join(str(level) for level in levels if level)
    return f"transactions and sequences{f'; `transaction.version` {named}' if named else ''}"


def _reads(version: str) -> str:
    if not _runs(version, test_calls.test_calls_of_a_source_have_confluent_kafka_s_results):
        return _NOT_RUN
    return f"yes, with `{authorizer(version)['authorizer.class.name'].rpartition('.')[2]}`"


def _login(version: str) -> str:
    if logins := [login for release, login in test_security.LOGINS if release == version]:
        sasl = [login for login in logins if login != test_security.CERTIFICATE]
        mutual = ["mutual TLS"] if test_security.CERTIFICATE in logins else []
        return ", ".join([f"{', '.join(sasl)} over TLS", *mutual])
    return f"{', '.join(MECHANISMS)}, with and without TLS" if _runs(version, test_protocols.test_sasl) else _NOT_RUN


def _has_topic_ids(version: str) -> bool:
    """Whether the requests of that time have ids; brokers in memory speak these requests."""
    if version == MAIN_VERSION:
        return _runs(version, test_gaps.test_recreated_topic_is_a_gap)
    spoken = max((one for one in RELEASES if _numbers(one) <= _numbers(version)), key=_numbers)
    return versions_of(spoken)[Api.METADATA][1] >= WITH_TOPIC_IDS


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text("utf-8")), "utf-8")
