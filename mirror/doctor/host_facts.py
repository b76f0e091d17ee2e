"""Observes this host: Java, Spark, user, name, the limits of its container, disks."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from mirror import extras
from mirror.doctor.facts import HostFacts
from mirror.errors import FlowError, MirrorError, SandboxError
from mirror.sandbox.java import find_java
from mirror.spark.driver.launch.host_user import has_name, temporary_folder
from mirror.spark.driver.launch.spark_versions import OLDEST_JAVA, check_java, installed_spark, version_warning

_CGROUPS: Final = Path("/sys/fs/cgroup")
_UNLIMITED: Final = 2**60
"""Version 1 of cgroups has a number of this size where there is no limit."""


def observe_host(report_dir: Path, environ: Mapping[str, str]) -> HostFacts:
    """Return what this host offers; ``report_dir`` is where runs keep their reports."""
    release = installed_spark()
    java, java_error = _java(release)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    name = socket.gethostname()
    return HostFacts(
        java=java,
        java_error=java_error,
        spark="" if extras.missing(extras.SPARK) else release or "of a distribution",
        release_warning=version_warning(release) if release else "",
        user_id=os.getuid(),
        has_name=has_name(),
        host_name=name,
        host_name_error=_why(lambda: socket.getaddrinfo(name, None)),
        temporary_error=_why(temporary_folder),
        cores=len(os.sched_getaffinity(0)),
        core_limit=core_limit(_CGROUPS, own_cgroup()),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        memory_limit=memory_limit(_CGROUPS, own_cgroup()),
        open_files=(soft, hard),
        disks=dict(_disks(report_dir, environ)),
    )


def _java(spark: str) -> tuple[str, str]:
    try:
        found = find_java(oldest=OLDEST_JAVA)
        check_java(spark, found.version, found.path)
    except (SandboxError, FlowError) as error:
        return "", str(error)
    return f"Java {found.version} ({found.path})", ""


def _why(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except MirrorError as error:
        return str(error)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def _disks(report_dir: Path, environ: Mapping[str, str]) -> Iterator[tuple[str, int | str]]:
    local = [one for one in environ.get("SPARK_LOCAL_DIRS", "").split(",") if one]
    with suppress(FlowError):  # reported by itself
        local = local or [temporary_folder()]
    for name, folder in (("report folder", report_dir), *(("Spark's folder", Path(one)) for one in local)):
        yield f"{name} {folder}", free_bytes(folder)


def free_bytes(folder: Path) -> int | str:
    """Return the free bytes of the disk of ``folder``, which may be made yet, or why it cannot be written."""
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            return shutil.disk_usage(place).free
    except FileNotFoundError:  # of a file system such as /proc
        return f"no file can be made in {place}"
    except OSError as error:
        return (error.strerror or str(error)).lower()


def own_cgroup() -> str:
    """Return the path of this process's cgroup below the mount; of version 2, or ``/``."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
            if line.startswith("0::"):
                return line.removeprefix("0::")
    return "/"


def core_limit(mount: Path, path: str) -> float | None:
    """Return the number of cores that the container may use; None: no limit but that of the host."""
    limits = []
    for folder in _groups(mount, path):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if quota.isdecimal() and period.isdecimal() and int(period):
            limits.append(int(quota) / int(period))
    quota, period = _read(mount / "cpu/cpu.cfs_quota_us"), _read(mount / "cpu/cpu.cfs_period_us")
    if quota.isdecimal() and period.isdecimal() and int(period):
        limits.append(int(quota) / int(period))
    return min(limits, default=None)


def memory_limit(mount: Path, path: str) -> int | None:
    """Return the bytes of memory that the container may use; None: no limit but that of the host."""
    found = [_read(folder / "memory.max") for folder in _groups(mount, path)]
    found.append(_read(mount / "memory/memory.limit_in_bytes"))
    return min((int(one) for one in found if one.isdecimal() and int(one) < _UNLIMITED), default=None)


def _groups(mount: Path, path: str) -> Iterator[Path]:
    """Yield the folder of a cgroup and of those around it: each may have a limit."""
    folder = mount / path.lstrip("/")
    while folder != mount:
        yield folder
        folder = folder.parent
    yield mount


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except OSError:
        return ""
