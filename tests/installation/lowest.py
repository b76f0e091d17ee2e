"""Environments with the oldest packages that pyproject.toml allows, in ``build``.

``lowest.txt`` locks them: ``make lock`` makes it from what ``python -m tests.installation.lowest`` prints. Old releases
have no wheels for later Pythons than the oldest, where the environments have the suite's versions instead.
``python -m tests.installation.lowest FOLDER`` makes an environment, ``base`` or ``lowest``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from mirror.sandbox.folders import locked

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / "build"
LOCK: Final = Path(__file__).with_name("lowest.txt")
BASE: Final = "base"
LOWEST: Final = "lowest"
"""The environments: one of the base alone, and one of all extras, which has the suite's other packages, too."""
_OLDEST_PYTHON: Final = (3, 11)
_APART: Final = frozenset({"dev", "spark", "gssapi"})
"""Releases of Spark have environments of their own (tests/e2e/spark_releases.py); gssapi would have to be compiled."""


def asked(environment: str) -> list[str]:
    """Return the requirements of an environment, as pyproject.toml has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    optional = project["optional-dependencies"] if environment == LOWEST else {}
    return [*project["dependencies"], *(one for name in optional.keys() - _APART for one in optional[name])]


def lowest(requirement: str) -> str:
    """Return ``requirement`` with its lower bound, or its only version, as ``name==version``."""
    parsed = Requirement(requirement)
    (version,) = (one.version for one in parsed.specifier if one.operator in {">=", "=="})
    extras = f"[{','.join(parsed.extras)}]" if parsed.extras else ""
    return f"{parsed.name}{extras}=={version}"


def python_of(environment: str) -> Path:
    """Return the Python of an environment, which is made if it is not there, or of other requirements."""
    home, lock = BUILD / environment, LOCK if sys.version_info[:2] == _OLDEST_PYTHON else ROOT / "requirements.txt"
    state = "\n".join([sys.version, *asked(environment), lock.read_text("utf-8")])
    made, python = home / "made.txt", home / "bin" / "python"
    with locked(BUILD):
        if not made.exists() or made.read_text("utf-8") != state:
            shutil.rmtree(home, ignore_errors=True)
            _make(home, asked(environment), lock, with_suite=environment == LOWEST)
            made.write_text(state, "utf-8")
    return python


def _make(home: Path, requirements: list[str], lock: Path, *, with_suite: bool) -> None:
    venv.create(home, symlinks=True)
    wanted = home / "requirements.txt"
    wanted.write_text("\n".join(requirements), "utf-8")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(home / "bin" / "python")]
    options = ["--quiet", "--require-hashes", "--requirement", str(wanted), "--constraint", str(lock)]
    # Not from the checkout, where pip would take the suite's own installation for one of this environment.
    subprocess.run([*pip, "install", *options], env=outside(), cwd=home, check=True)
    if with_suite:
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
        suite = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        (packages / "suite.pth").write_text(suite, "utf-8")


def outside() -> dict[str, str]:
    """Return the variables of a process that imports nothing of the checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


if __name__ == "__main__":
    if sys.argv[1:]:
        python_of(sys.argv[1])
    else:
        sys.stdout.writelines(f"{lowest(requirement)}\n" for requirement in sorted(asked(LOWEST)))
