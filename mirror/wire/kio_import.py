"""Import kio without hypothesis.

kio imports hypothesis if it is installed, to register strategies for its types. That costs 0.2 s of CPU in each of a
run's many processes.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Final

_HYPOTHESIS: Final = "hypothesis.strategies"


@contextlib.contextmanager
def lean() -> Iterator[None]:
    """Make hypothesis unavailable to the imports in the block, unless it is already imported.

    After the block hypothesis can be imported as usual.
    """
    if _HYPOTHESIS in sys.modules:
        yield
        return
    sys.modules[_HYPOTHESIS] = None  # type: ignore[assignment] # makes the import raise ModuleNotFoundError
    try:
        yield
    finally:
        del sys.modules[_HYPOTHESIS]
