"""Breaks the checks that guard copying by sequences, one at a time, and requires that a test fails each time.

    python -m tests.campaign.mutations.campaign [NAME...]

The mutations are those of mutations.toml, or only those named. Each is made in a copy of the tree, where its test has
passed before. The exit status is 1 if the test passes with the mutation, too, or fails without it, and 2 if a mutation
does not apply any more: its text has changed, and mutations.toml must follow.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console

_ROOT: Final = Path(__file__).resolve().parents[3]
_DATA: Final = Path(__file__).with_name("mutations.toml")
_COPIED: Final = ("mirror", "tests", "pyproject.toml")
_PYTEST: Final = ("-m", "pytest", "-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider")
_PROFILE: Final = "--hypothesis-profile=mutations"
_TIMEOUT_S: Final = 900
_MOST_SHOWN: Final = 160
_TESTS_FAILED: Final = 1
"""pytest's exit status; the others mean that the tests could not run."""


class NotApplicable(Exception):
    """The text that a mutation replaces is not there, or not only once."""


class Mutation(NamedTuple):
    """A replacement in one file of the product, and the test that must fail with it."""

    name: str
    breaks: str
    file: str
    search: str
    replace: str
    fails: str

    def applied_to(self, text: str) -> str:
        """Return the ``text`` of the file with the replacement. Raises NotApplicable."""
        found = text.count(self.search)
        if found != 1:
            raise NotApplicable(f"{self.name}: its text occurs {found} times in {self.file}; change {_DATA.name}")
        return text.replace(self.search, self.replace)


def read_mutations() -> list[Mutation]:
    """Return the mutations of mutations.toml."""
    return [Mutation(**one) for one in tomllib.loads(_DATA.read_text())["mutation"]]


def failure_of(test: str, tree: Path) -> str | None:
    """Return how ``test`` fails in ``tree``, a copy of the project; None if it passes.

    Raises RuntimeError if the test could not run.
    """
    command = [sys.executable, *_PYTEST, _PROFILE, test]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    ran = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if not ran.returncode:
        return None
    if ran.returncode != _TESTS_FAILED:
        raise RuntimeError(f"{test}: pytest ended with {ran.returncode}\n{ran.stdout[-4000:]}{ran.stderr}")
    return next(iter(re.findall(r"^E[\s|]+(\S.*)$", ran.stdout, re.MULTILINE)), "it fails")


def _brief(failure: str) -> str:
    return failure if len(failure) <= _MOST_SHOWN else f"{failure[:_MOST_SHOWN]}..."


def main(arguments: Sequence[str]) -> int:
    """Try the mutations, and return the exit status."""
    mutations = {one.name: one for one in read_mutations()}
    chosen = [mutations[name] for name in arguments or mutations]
    console, survived = Console(soft_wrap=True), 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        tree = Path(folder)
        for name in _COPIED:
            copy = shutil.copytree if (_ROOT / name).is_dir() else shutil.copy
            copy(_ROOT / name, tree / name)
        try:
            changed = {one: one.applied_to((_ROOT / one.file).read_text()) for one in chosen}
        except NotApplicable as error:
            console.print(str(error), style="red", markup=False)
            return 2
        for test in dict.fromkeys(mutation.fails for mutation in chosen):
            if (failure := failure_of(test, tree)) is not None:
                console.print(f"{test} fails without a mutation: {_brief(failure)}", style="red", markup=False)
                return 1
        for mutation, text in changed.items():
            path = tree / mutation.file
            path.write_text(text)
            failure = failure_of(mutation.fails, tree)
            shutil.copy(_ROOT / mutation.file, path)
            survived += failure is None
            console.print(f"{mutation.name}: {mutation.breaks}\n  {mutation.fails}", markup=False)
            console.print("  NOTHING FAILS" if failure is None else f"  {_brief(failure)}", markup=False)
    console.print(f"{len(chosen) - survived} of {len(chosen)} mutations fail their test")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
