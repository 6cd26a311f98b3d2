"""Everything runs without a network, and does not even try to reach one.

The commands run in a network namespace of their own, in which only loopback exists, while strace
writes down every address that any of their processes connects or sends to.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TINY = ROOT / "tests" / "data" / "golden" / "tiny-cosyvoice3"
LOOPBACK_UP = """
import fcntl, socket, struct
with socket.socket() as probe:
    fcntl.ioctl(probe, 0x8914, struct.pack("16sh22x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS, up
"""
ADDRESS = re.compile(r'sin6?_addr=(?:inet_addr\("|inet_pton\(AF_INET6, ")([^"]+)"|"([0-9a-f.:]+)"')


@pytest.fixture
def isolated(tmp_path: Path) -> list[str]:
    """A command prefix that isolates and records."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("making a network namespace needs root and unshare")
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    trace = ["strace", "--seccomp-bpf", "-f", "-e", "trace=connect,sendto,sendmsg"]
    return ["unshare", "--net", *trace, "-o", str(tmp_path / "trace")]


def run(isolated: list[str], tmp_path: Path, *commands: list[str]) -> None:
    script = "\n".join(
        [f"{sys.executable} -c '{LOOPBACK_UP}'", *(" ".join(command) for command in commands)]
    )
    done = subprocess.run(
        [*isolated, "sh", "-e", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def strangers(tmp_path: Path) -> list[str]:
    """Addresses other than loopback that anything was sent to."""
    lines = (tmp_path / "trace").read_text().splitlines()
    assert any("127.0.0.1" in line for line in lines), "the trace saw nothing at all"
    network = [line for line in lines if "AF_INET" in line or "AF_NETLINK" in line]
    found = []
    for line in network:
        for match in ADDRESS.finditer(line):
            address = match[1] or match[2]
            if not address.startswith("127.") and address not in ("::1", "0.0.0.0", "::"):
                found.append(line)
    return found


@pytest.mark.slow
def test_both_engines_and_the_watermark_work_with_the_network_gone(
    isolated: list[str], tmp_path: Path
) -> None:
    antiphon = [sys.executable, "-m", "antiphon.server.cli"]
    preset = str(ROOT / "configs" / "preset.yaml")
    run(
        isolated,
        tmp_path,
        [*antiphon, "say", "--config", preset, "--output", "preset.wav", "--", "'Hello there.'"],
        [*antiphon, "say", "--model", str(TINY), "--output", "tiny.wav", "--", "'Hello there.'"],
        [*antiphon, "verify", "preset.wav"],
        [*antiphon, "doctor", "--json"],
    )
    assert strangers(tmp_path) == []
