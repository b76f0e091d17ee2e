"""A cut-over behind Kroxylicious: the gateway fences the clients, and takes them to the other cluster."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.polling import eventually
from tests.switch.guarded_pair import Writer, pair, read_some
from tests.switch.kroxylicious import UNIT, gateway, systemctl, with_path
from tests.switch.test_hook_examples import HOOKS
from tests.switch.test_on_brokers import mirror, run_flow

pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]


def test_clients_of_a_gateway_are_fenced_and_arrive_at_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gateway"
    folder.mkdir()
    monkeypatch.setenv("PATH", with_path(folder))
    hook = [str(HOOKS / "gateway.py"), str(folder), UNIT]
    with (
        pair(tmp_path, f'fence = "hook"\nhook-fence = {hook}\nhook-switch = {hook}\n') as clusters,
        gateway(folder, {"old": clusters.source, "new": clusters.target}) as address,
    ):
        with clusters.config.open("a") as file:
            file.write(f'clients = "{address}"\n')
        (folder / "proxy.yaml").symlink_to("old.yaml")
        systemctl(folder, "start")
        # These clients are never given another address.
        options: dict[str, Any] = {"bootstrap.servers": address}
        writer = Writer(options, "client")
        eventually(lambda: len(writer.acknowledged) > 300, what="records on the source", within_s=60)
        read = read_some(options, 50)
        for flow in ("ahead", "back", "ahead"):
            run_flow(clusters, flow)
        assert mirror(*clusters.command("--until", "fenced")).returncode == 0
        assert not (folder / "pid").exists()
        fenced = len(writer.acknowledged)
        rolled_back = mirror(*clusters.command("--rollback"))
        assert rolled_back.returncode == 6, rolled_back.stderr
        eventually(lambda: len(writer.acknowledged) > fenced, what="records on the source", within_s=60)
        done = mirror(*clusters.command())
        assert done.returncode == 0, done.stderr
        before = len(writer.acknowledged)
        eventually(lambda: len(writer.acknowledged) > before + 100, what="records on the target", within_s=60)
        acknowledged = writer.stop()
        read += read_some(options, len(acknowledged) - len(read) + 1)
    found = Counter(read)
    assert found.keys() >= set(acknowledged)
    assert max(found.values()) == 1
