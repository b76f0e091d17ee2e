"""kio is imported without hypothesis, which it loads where it is installed: with it, tests generate kio's types.

That is 0.2 s of CPU for each of a run's many processes.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Final

_HYPOTHESIS: Final = "hypothesis.strategies"


@contextlib.contextmanager
def lean() -> Iterator[None]:
    """Around imports: there is no hypothesis, unless it is there already. Who imports it later gets it."""
    if _HYPOTHESIS in sys.modules:
        yield
        return
    sys.modules[_HYPOTHESIS] = None  # type: ignore[assignment] # an import of it raises ModuleNotFoundError
    try:
        yield
    finally:
        del sys.modules[_HYPOTHESIS]
