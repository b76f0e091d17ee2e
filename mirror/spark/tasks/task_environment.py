"""Pass variables of the driver's environment to the tasks: where telemetry goes (``OTEL_*``), and two of ours.

An endpoint may contain a user name, a password or a key, and headers contain keys. Spark shows its settings
(``spark.executorEnv.*``) on its web pages, in event logs and in a cluster's descriptions of processes. So these
variables are not in a setting, but an argument of the function that Spark sends to its executors with each task, and
does not show.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror.telemetry.logs import FORMAT
from mirror.telemetry.settings import PREFIX, SLOW

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping


@dataclass(frozen=True, slots=True)
class TaskEnvironment:
    """The variables, by name. The repr does not show their values."""

    variables: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> TaskEnvironment:
        """Select the variables from the driver's ``environment``."""
        wanted = (name for name in environment if name.startswith(PREFIX) or name in {FORMAT, SLOW})
        return cls({name: environment[name] for name in wanted})

    def complete(self, environment: MutableMapping[str, str]) -> None:
        """Add the variables that an executor's ``environment`` lacks. To be called before anything reads them."""
        for name, value in self.variables.items():
            environment.setdefault(name, value)
