"""A copied topic in memory whose flow is rehearsed by the command."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from mirror.cli.app import app
from mirror.config.load import load
from mirror.spark.ledger.status_table import StatusTable, read_status
from mirror.spark.preflight.flow_groups import open_sync
from tests.fakes.cluster import GroupOffset
from tests.groups.sync_site import GROUP, SOURCE, TARGET
from tests.polling import eventually
from tests.relay.fake_pair import FLOW, FakePair


class Site:
    """A copied topic of 250 records, a configuration, and a group at record 137."""

    def __init__(self, pair: FakePair, folder: Path, *, before: int = 0) -> None:
        """``before``: so many records of others are on the target in front of the copy."""
        self.pair, self.folder = pair, folder
        pair.write(*(b"%d" % number for number in range(250)))
        if before:
            pair.log().append_values(*(b"theirs" for _ in range(before)))
        pair.copy(start_over=bool(before))
        eventually(lambda: not background_threads(), what="the end of what the copy still writes")
        pair.target.add_topic(f"mirror-groups.{FLOW}.internal")
        self.file = folder / "mirror.toml"
        self.configure(f"[flows.{FLOW}.groups]")
        self.commit(source=137)

    def configure(self, *lines: str, topics: str = "t") -> None:
        self.file.write_text(
            f'[clusters.paris]\n"bootstrap.servers" = "{self.pair.source.bootstrap}"\n'
            f'[clusters.berlin]\n"bootstrap.servers" = "{self.pair.target.bootstrap}"\n'
            f'[flows.{FLOW}]\nsource = "paris"\ntarget = "berlin"\ntopics = ["{topics}"]\nconfigs = "off"\n'
            + "".join(f"{line}\n" for line in lines)
        )

    def invoke(self, *arguments: str, flow: str | None = FLOW) -> Result:
        options = ["--config", str(self.file), *(() if flow is None else ("--flow", flow))]
        return CliRunner().invoke(app, ["rehearse", *options, *arguments], env={"COLUMNS": "200"})

    @property
    def target(self) -> dict[str, object]:
        """The options of the target's clients."""
        return {"bootstrap.servers": self.pair.target.bootstrap}

    def reported(self) -> StatusTable:
        return read_status(self.target, FLOW, 5_000)

    def ask(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """The exit status, and the JSON of the flow."""
        found = self.invoke("--json", *arguments)
        assert found.exit_code in {0, 3}, found.output
        return found.exit_code, json.loads(found.stdout)["flows"][0]

    def move(self, *arguments: str, group: str = GROUP) -> tuple[int, dict[str, Any]]:
        status, found = self.ask(*arguments)
        ((move,),) = [one["partitions"] for one in found["groups"] if one["group"] == group]
        return status, move

    def round(self) -> None:
        config = load(self.file)
        (flow,) = config.select()
        with open_sync(config, flow) as sync:
            sync.round()

    def commit(self, source: int | None = None, target: int | None = None, group: str = GROUP) -> None:
        if source is not None:
            self.pair.source.groups[group][SOURCE] = GroupOffset(source, -1, "")
        if target is not None:
            self.pair.target.groups[group][TARGET] = GroupOffset(target, -1, "")


def background_threads() -> list[str]:
    """A copy does not wait for all of them at its end: anchors that are being written are written again."""
    return [one.name for one in threading.enumerate() if one.name.startswith("mirror-inquiry")]
