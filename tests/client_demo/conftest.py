"""aioice leaves loopback out of its candidates; in tests there is nothing else."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioice.ice.get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])
