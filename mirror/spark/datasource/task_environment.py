"""What tasks need of the driver's environment: where telemetry goes (``OTEL_*``), and how logs look.

An endpoint may have a user, a password or a key in it, and headers hold keys. Spark shows its settings
(``spark.executorEnv.*``) on its pages, in event logs and in a cluster's descriptions of processes. So these variables
are in no setting: they are part of the pickled writer, which Spark sends to its executors with each task and shows
nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror.telemetry.logs import FORMAT
from mirror.telemetry.settings import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping


@dataclass(frozen=True, slots=True)
class TaskEnvironment:
    """The variables, by name; their values are in no repr."""

    variables: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> TaskEnvironment:
        """Those of the driver's host."""
        wanted = (name for name in environment if name.startswith(PREFIX) or name == FORMAT)
        return cls({name: environment[name] for name in wanted})

    def complete(self, environment: MutableMapping[str, str]) -> None:
        """Add the variables that an executor's ``environment`` does not have itself; before anything reads them."""
        for name, value in self.variables.items():
            environment.setdefault(name, value)
