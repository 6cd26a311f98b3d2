"""The caller's audio: what comes faster than any voice is not worked on."""

from __future__ import annotations

import numpy as np
import pytest

from antiphon.server.calls.caller import CallerAudio

SECOND = np.zeros(8000, dtype=np.float32)


async def test_a_flood_of_audio_is_dropped_and_a_voice_is_heard_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("antiphon.server.calls.caller.time.monotonic", lambda: now)
    heard: list[bytes] = []
    caller = CallerAudio(lambda event: None)
    caller.add_tap(heard.append)
    taken = [caller.push(SECOND, 8000) for _ in range(600)]
    assert taken == [True] * 10 + [False] * 590
    # Ten seconds may come at once, as after a stall of the network.
    assert caller.seconds == 10
    assert sum(map(len, heard)) == pytest.approx(10 * 32_000, abs=100)
    now += 5
    for _ in range(5):
        assert caller.push(SECOND, 8000)
    assert caller.seconds == 15
    assert not caller.push(SECOND, 8000)
    assert caller.seconds == 15
    caller.close()


async def test_audio_at_the_pace_of_speech_is_never_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("antiphon.server.calls.caller.time.monotonic", lambda: now)
    caller = CallerAudio(lambda event: None)
    for _ in range(3000):
        caller.push(SECOND[:160], 8000)
        now += 0.0198  # a peer's clock may run one per cent fast
    assert caller.seconds == pytest.approx(60)
    caller.close()
