"""docs/protocol.md is true: its conversations are held and its client is run."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import wave
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from antiphon.engine.text.whole_stream import MAX_WHOLE_TEXT
from antiphon.server.config import Limits
from antiphon.server.errors import OUTCOMES
from antiphon.server.protocols.native_messages import TYPES
from tests.server.harness import Client, Running, serving, talking
from tests.server.preset import preset_server

DOCUMENT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", DOCUMENT, re.DOTALL)
CONVERSATIONS = [body for kind, body in BLOCKS if kind == "conversation"]
MEASURED = {
    "session_id", "samples", "total_bytes", "first_packet_ms", "rtf",
    "first_packet_stages_ms", "gaps", "gap_ms",
    "start_ms", "end_ms", "chunk_end_ms", "audio_b64", "characters", "text", "sentence_text",
}  # fmt: skip
"""Fields whose values differ from run to run, or with the engine; their types do not."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Running]:
    async with preset_server() as running:
        yield running


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=range(len(CONVERSATIONS)))
async def test_the_conversations_of_the_document_are_true(
    conversation: str, server: Running
) -> None:
    async with talking(server) as client:
        previous = ""
        for line in conversation.splitlines():
            side, _, content = line.partition(" ")
            if side == "→":
                await client.socket.send(content)
            elif content == "(audio)":
                while not isinstance(await client.receive(), bytes):
                    pass
            else:
                expected = json.loads(content)
                _compare(await _next(client, expected["type"], previous), expected)
                previous = expected["type"]


async def _next(client: Client, kind: str, previous: str) -> dict[str, Any]:
    """The next event of this type; only more audio and repeated events may come before it."""
    while True:
        message = await client.receive()
        if isinstance(message, bytes):
            continue
        if message["type"] == kind:
            return message
        assert message["type"] in ("progress", "audio.chunk", previous), message


def _compare(event: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(event) == list(expected)
    for name, value in expected.items():
        if name not in MEASURED:
            assert event[name] == value, name
        elif value is not None:
            assert type(event[name]) is type(value), name


async def test_the_client_of_the_document_runs(tmp_path: Path) -> None:
    (program,) = [body for kind, body in BLOCKS if kind == "python"]
    async with serving() as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            program,
            cwd=tmp_path,
            env={**os.environ, "ANTIPHON_URL": server.ws},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await asyncio.wait_for(process.communicate(), 20)
    assert json.loads(output)["finish_reason"] == "stop"
    with wave.open(str(tmp_path / "speech.wav")) as file:
        # Eight words of 0.2 s.
        assert file.getnframes() == pytest.approx(8 * 0.2 * 16_000, abs=320)


def test_the_tables_are_whole() -> None:
    assert set(re.findall(r"^\| `((?:session|input)\.\w+)` \|", DOCUMENT, re.MULTILINE)) - {
        "session.started",
        "session.done",
    } == set(TYPES)
    row = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \| (\d+) \| (\d+) \|", re.MULTILINE)
    documented = {
        code: (int(status), int(close))
        for codes, status, close in row.findall(DOCUMENT)
        for code in re.findall(r"`(\w+)`", codes)
    }
    at_start = {"checkpoint_error", "watermark_unavailable", "invalid_configuration"}
    elsewhere = {"unknown_call", "recording_refused"}
    assert documented == {
        code: (outcome.http_status, outcome.close_code)
        for code, outcome in OUTCOMES.items()
        if code not in at_start | elsewhere
    }


def test_the_limits_of_the_document_are_the_defaults() -> None:
    section = DOCUMENT.partition("## Limits")[2].partition("## A whole client")[0]
    for names, values in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([\d., ]+) \|", section, re.M):
        for name, value in zip(re.findall(r"`(\w+)`", names), values.split(", "), strict=True):
            assert getattr(Limits(), name) == float(value), name


def test_the_longest_whole_text_of_the_document_is_true() -> None:
    (row,) = re.findall(r"^\| `POST /v1/audio/speech` \|.*$", DOCUMENT, re.M)
    assert f"`text_queue_chars` ({Limits().text_queue_chars}) characters for every model" in row
    assert f"at most {MAX_WHOLE_TEXT:,} for a published checkpoint" in row
