"""Cut-overs between real clusters, there and back, while clients work and processes are killed.

    python -m tests.campaign.switches.campaign [--cutovers 20] [--topics 30] [--groups 20] [--producers 12] [--seed N]
                                               [--brokers 3,3] [--per-second 5] [--quiet-seconds 30]
                                               [--calm] [--break NAME] [--results FILE] [--table FILE]

Two clusters obey ACLs, and one stream copies between them both ways. Producers and consumers of confluent-kafka and of
Java's clients work without interruption; each switch's ``hook-switch`` moves them. `mirror cutover` is repeated until
the switch is done, while operators, brokers, Spark workers and the stream are killed by SIGKILL at moments that follow
from the seed; some attempts are rolled back. Afterwards another client reads the target:

- each record that a producer had an acknowledgement for is there, once, in its producer's order;
- no group has skipped a record, and none has read one again behind which it had committed;
- the ACLs are as they have to be: behind each rollback exactly as before, and behind the end with the denials moved.

``--break`` breaks the command on purpose: the campaign has to find it (:mod:`tests.campaign.switches.broken`). Results
are appended to ``--results`` as JSON lines; ``--table FILE`` only prints such a file as a table. The files of a
campaign with findings stay in ``build/switches``. The exit status is 1 where there are findings.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from rich.console import Console

from tests.alignment.permissions.guarded import LOGIN
from tests.campaign.switches import results
from tests.campaign.switches.broken import BREAKS
from tests.campaign.switches.clients import Clients, Layout
from tests.campaign.switches.cutover import WITHIN_S, CutoverResult, CutoverRound
from tests.campaign.switches.schedule import Plan, plan
from tests.campaign.switches.site import A, B, SwitchSite, open_clusters
from tests.polling import eventually

_BUILD: Final = Path(__file__).parents[3] / "build"
_FIRST_S: Final = 420.0
_BROKEN_WITHIN_S: Final = 240.0
"""A break that the command itself refuses again and again is found by then."""
_BROKEN: Final = "tests.campaign.switches.broken"


def play(
    *,
    cutovers: int,
    topics: int,
    groups: int,
    producers: int,
    seed: int,
    brokers: tuple[int, int],
    console: Console,
    per_second: float = 5,
    quiet_s: int = 3,
    calm: bool = False,
    plans: tuple[Plan, ...] = (),
    breaking: str = "",
    results_file: Path | None = None,
) -> list[CutoverResult]:
    """Play a campaign on its own clusters; return the results. ``plans`` replace those of the seed."""
    folder = Path(tempfile.mkdtemp(prefix="switches-"))
    layout = Layout.of(topics, groups, producers)
    about = {"campaign": f"{seed}-{time.time_ns()}", "topics": topics, "groups": len(layout.groups)}
    about |= {"producers": len(layout.producers), "brokers": brokers, "quiet_s": quiet_s, "break": breaking}
    played: list[CutoverResult] = []
    began_s = time.monotonic()

    def say(line: str) -> None:
        console.print(f"  {time.monotonic() - began_s:6.1f} s: {line}", markup=False)

    try:
        with open_clusters({A: brokers[0], B: brokers[1]}) as clusters:
            site = SwitchSite(folder, clusters, layout.topics, [*layout.groups])
            clients = Clients(
                folder, layout, {name: cluster.bootstrap(LOGIN) for name, cluster in clusters.items()}, per_second
            )
            site.add_switches(cutovers, clients.hook, quiet_s)
            try:
                clients.start(A)
                site.stream.start()
                say("clusters, clients and stream are started")
                eventually(site.is_copied, within_s=_FIRST_S, every_s=2, what="the first copies")
                for number in range(cutovers):
                    planned = plans[number] if plans else plan(seed, number, calm=calm)
                    result = CutoverResult(number, seed, planned)
                    played.append(result)
                    console.print(f"cut-over {number}: {_shown(planned)}", markup=False)
                    program = ("-m", _BROKEN, breaking) if breaking else ("-m", "mirror.cli")
                    within_s = _BROKEN_WITHIN_S if breaking else WITHIN_S
                    round_ = CutoverRound(site, clients, folder, result, say, program, within_s)
                    round_.play()
                    _report(result, about, console, results_file)
                    if result.findings:
                        break
                    if number + 1 < cutovers:
                        round_.release_back()
            except AssertionError as error:
                played[-1:] = played[-1:] or [CutoverResult(0, seed, Plan((), early_stop=False, with_children=False))]
                played[-1].findings.append(str(error))
                _report(played[-1], about, console, results_file)
            finally:
                site.await_brokers()
                site.stream.kill()
                clients.stop()
            if any(one.findings for one in played):
                kept = _BUILD / "switches" / str(seed)
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("classes"), symlinks=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return played


def _shown(planned: Plan) -> str:
    kills = [f"{one.victim} {one.delay_s} s after {one.moment}" for one in planned.kills]
    return "; ".join(kills) or "no kills"


def _report(result: CutoverResult, about: dict[str, object], console: Console, path: Path | None) -> None:
    line = results.line(result, **about)
    if path is not None:
        results.append(path, line)
    console.print(
        f"  {result.seconds:.0f} s, {result.records} records, beyond quiet-seconds {line['excess_s']},"
        f" steps {result.steps_s}, {len(result.findings)} findings",
        markup=False,
    )
    for one in result.findings:
        console.print(f"  FOUND: {one}", markup=False)


def _pair(text: str) -> tuple[int, int]:
    first, _, second = text.partition(",")
    return int(first), int(second or first)


def main() -> int:
    """Play; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cutovers", type=int, default=20)
    parser.add_argument("--topics", type=int, default=30)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--producers", type=int, default=12, help="idempotent ones; two transactional ones are added")
    parser.add_argument("--per-second", type=float, default=5, help="records of each producer")
    parser.add_argument("--quiet-seconds", type=int, default=30, help="of each switch")
    parser.add_argument("--seed", type=int, help="of the kills")
    parser.add_argument("--brokers", type=_pair, default=(3, 3), help="of the first and of the second cluster")
    parser.add_argument("--calm", action="store_true", help="kill nothing")
    parser.add_argument("--break", dest="breaking", choices=sorted(BREAKS), default="", help="what is to be found")
    parser.add_argument("--results", type=Path, default=_BUILD / "switches.jsonl", help="gets a line for each cut-over")
    parser.add_argument("--table", type=Path, help="only print the lines of this file as a table")
    arguments = parser.parse_args()
    console = Console(soft_wrap=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # What was started is stopped then, too.
    if arguments.table is not None:
        lines = results.read(arguments.table)
    else:
        seed = random.SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
        console.print(f"seed {seed}")
        played = play(
            cutovers=arguments.cutovers,
            topics=arguments.topics,
            groups=arguments.groups,
            producers=arguments.producers,
            seed=seed,
            brokers=arguments.brokers,
            console=console,
            per_second=arguments.per_second,
            quiet_s=arguments.quiet_seconds,
            calm=arguments.calm,
            breaking=arguments.breaking,
            results_file=arguments.results,
        )
        lines = results.read(arguments.results)[-len(played) :]
    console.print(results.table(lines))
    for line in results.summary(lines):
        console.print(line, markup=False)
    return 1 if any(one["findings"] for one in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
