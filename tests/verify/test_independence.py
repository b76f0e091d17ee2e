"""A fault of the copier cannot hide itself: what verifies copies has none of its code."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import mirror.verify


def test_verification_loads_nothing_of_the_copier() -> None:
    modules = [f"mirror.verify.{module.name}" for module in pkgutil.iter_modules(mirror.verify.__path__)]
    assert "mirror.verify.comparison" in modules
    code = f"import sys, {', '.join(modules)}; print([name for name in sys.modules if name.startswith('mirror.')])"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "mirror.verify.comparison" in loaded
    assert not any(f"'mirror.{name}" in loaded for name in ("relay", "spark", "config", "groups"))
