"""The sandbox's verifier over many partitions at once: it waits half a second at the end of each one's log.

What is compared, and how, is the verifier's own (``sandbox.copy_verifier``); only the loop over partitions is here. It
runs in a process of its own (``python -m tests.benchmarks.side_by_side.comparing SOURCE TOPIC TARGET COPY``, and
``--without-times`` for a copier that cannot keep timestamps), so that it can be ended at any time with its readers'
threads.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from mirror.sandbox import copy_verifier
from mirror.sandbox.copy_verifier import CopyCheck
from mirror.sandbox.process import launch, stop

_AT_ONCE: Final = 8
_MANY: Final = 8
_WITHOUT_TIMES: Final = "--without-times"


def comparison(
    source: str, topic: str, target: str, copy: str, folder: Path, *, within_s: float, timestamps: bool
) -> dict[str, Any]:
    """Return ``equal`` (None where it could not be compared) and ``difference``, in a results file's form."""
    log = folder / "comparison.log"
    module = "tests.benchmarks.side_by_side.comparing"
    words = [source, topic, target, copy, *([] if timestamps else [_WITHOUT_TIMES])]
    process = launch([sys.executable, "-m", module, *words], output=log, outlives_owner=False)
    until = time.monotonic() + within_s
    try:
        while process.alive() and time.monotonic() < until:
            time.sleep(0.1)
    finally:
        stop([process], grace_s=0)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    if process.child is None or process.child.returncode or not lines:
        return {"equal": None, "difference": f"it could not be compared: {lines[-1] if lines else 'no answer'}"}
    verdict: dict[str, Any] = json.loads(lines[-1])
    return verdict


def compare(source: str, topic: str, target: str, copy: str, *, timestamps: bool = True) -> CopyCheck:
    """Compare as ``copy_verifier.compare`` does."""
    partitions = copy_verifier.partition_count(source, topic)
    if partitions <= _MANY or copy_verifier.partition_count(target, copy) != partitions:
        return copy_verifier.compare(source, topic, target, copy, timestamps=timestamps)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(partial(_one, source, topic, target, copy, timestamps), range(partitions)))
    return CopyCheck(
        sum(verdict.records for verdict in found),
        next((verdict.difference for verdict in found if not verdict.equal), None),
    )


def _one(source: str, topic: str, target: str, copy: str, timestamps: bool, partition: int) -> CopyCheck:
    right = copy_verifier.read_records(target, copy, partition, timestamps=timestamps)
    records = 0
    for one in copy_verifier.read_records(source, topic, partition, timestamps=timestamps):
        other = next(right, None)
        if other is None or one[1:] != other[1:]:
            return CopyCheck(records, copy_verifier.describe_difference(topic, partition, one, other))
        records += 1
    extra = next(right, None)
    return CopyCheck(records, None if extra is None else f"{copy}-{partition} offset {extra[0]}: not in the source")


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != _WITHOUT_TIMES]
    check = compare(*words, timestamps=_WITHOUT_TIMES not in sys.argv)
    sys.stdout.write(json.dumps({"equal": check.equal, "difference": check.difference}) + "\n")
