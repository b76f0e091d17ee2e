"""Each check of this host finds what is wrong, and nothing once its advice was followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from mirror import causes
from mirror.causes import Cause
from mirror.doctor.facts import HostFacts
from mirror.doctor.findings import Severity
from mirror.doctor.host_checks import Needs, check_host, slots_of
from mirror.doctor.host_facts import core_limit, free_bytes, memory_limit, observe_host

_GB: Final = 1_000_000_000
_NEEDS: Final = Needs(worker_bytes=200_000_000, connections=60)
_GOOD: Final[dict[str, Any]] = {
    "java": "Java 17 (/usr/bin/java)",
    "spark": "4.3.0",
    "cores": 8,
    "memory_bytes": 16 * _GB,
    "open_files": (1_024, 4_096),
    "disks": {"report folder r": 5 * _GB},
}
_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE


def test_nothing_is_found_where_all_is_well() -> None:
    assert {one.severity for one in check_host(HostFacts(**_GOOD), _NEEDS)} == {Severity.OK}


@pytest.mark.parametrize(
    ("bad", "severity", "cause", "what"),
    [
        ({"java_error": "no Java found"}, _E, causes.JAVA, "no Java found"),
        ({"java_error": "no Java found", "spark": ""}, _N, causes.JAVA, "no Java found"),
        ({"spark": ""}, _N, causes.SPARK, "PySpark is not installed"),
        ({"release_warning": "Spark 9.9 is not tested"}, _W, causes.RELEASES, "Spark 9.9 is not tested"),
        ({"has_name": False, "user_id": 1_000_770}, _N, causes.USER_NAME, "user 1000770 has no passwd entry"),
        ({"host_name": "pod-1", "host_name_error": "not known"}, _W, causes.OWN_NAME, "pod-1 is not found: not known"),
        ({"core_limit": 1.5}, _N, causes.CORES, "its container may use 1.5 of 8 cores"),
        ({"core_limit": 0.5}, _W, causes.CORES, "its container may use 0.5 of 8 cores"),
        ({"memory_limit": 2 * _GB}, _W, causes.MEMORY, "2.0 GB of memory, and 8 tasks may need 3.0 GB"),
        ({"open_files": (256, 256)}, _E, causes.OPEN_FILES, "may open 256 files, and needs up to 1,024"),
        ({"open_files": (256, 4_096)}, _W, causes.WORKER_FILES, "may open 256 files, and a worker needs up to 260"),
        ({"temporary_error": "no folder"}, _E, causes.TEMPORARY, "no folder"),
        ({"disks": {"report folder r": "read-only file system"}}, _E, causes.FOLDER, "r cannot be written: read-only"),
        ({"disks": {"Spark's folder t": 5_000_000}}, _W, causes.DISK, "Spark's folder t has 0.01 GB left"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found_with_its_cause(
    bad: dict[str, Any], severity: Severity, cause: Cause, what: str
) -> None:
    found = {one.why: one for one in check_host(HostFacts(**_GOOD | bad), _NEEDS) if one.severity is not Severity.OK}
    one = found[cause.effect]
    assert (one.severity, one.remedy) == (severity, cause.remedy)
    assert what in one.what


def test_parts_of_a_core_count_as_one_slot() -> None:
    assert [slots_of(HostFacts(cores=8, core_limit=limit)) for limit in (None, 0.5, 1.5, 16.0)] == [8, 1, 2, 8]


def test_the_least_limit_of_a_container_and_of_those_around_it_counts(tmp_path: Path) -> None:
    pod = tmp_path / "kubepods" / "pod"
    (pod / "container").mkdir(parents=True)
    (pod / "container" / "cpu.max").write_text("max 100000\n")
    (pod / "container" / "memory.max").write_text("max\n")
    assert (core_limit(tmp_path, "/kubepods/pod/container"), memory_limit(tmp_path, "/kubepods/pod/container")) == (
        None,
        None,
    )
    (pod / "cpu.max").write_text("150000 100000\n")
    (pod / "memory.max").write_text(f"{2 * _GB}\n")
    assert core_limit(tmp_path, "/kubepods/pod/container") == 1.5
    assert memory_limit(tmp_path, "/kubepods/pod/container") == 2 * _GB


def test_limits_of_the_first_version_of_cgroups_are_found(tmp_path: Path) -> None:
    for name, value in {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(value)
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.limit_in_bytes").write_text("9223372036854771712")
    assert (core_limit(tmp_path, "/"), memory_limit(tmp_path, "/")) == (None, None)
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("50000")
    (tmp_path / "memory/memory.limit_in_bytes").write_text("1000")
    assert (core_limit(tmp_path, "/"), memory_limit(tmp_path, "/")) == (0.5, 1_000)


def test_a_folder_that_does_not_exist_yet_is_that_around_it(tmp_path: Path) -> None:
    assert isinstance(free_bytes(tmp_path / "a" / "b"), int)
    assert free_bytes(Path("/proc/self/nothing")) == "no file can be made in /proc/self"
    assert list(tmp_path.iterdir()) == []


def test_this_host_is_observed(tmp_path: Path) -> None:
    found = observe_host(tmp_path / "report", {"SPARK_LOCAL_DIRS": str(tmp_path)})
    assert (found.cores > 0, found.memory_bytes > 0, found.host_name != "") == (True, True, True)
    assert list(found.disks) == [f"report folder {tmp_path}/report", f"Spark's folder {tmp_path}"]
