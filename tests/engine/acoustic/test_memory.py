"""The computed memory is what a session really holds."""

from __future__ import annotations

from antiphon.engine.acoustic.interface import AcousticSettings
from antiphon.engine.acoustic.memory import acoustic_memory
from tests.engine.acoustic import models


def test_a_long_turn_holds_no_more_than_computed() -> None:
    asked = AcousticSettings(steps=1, left_context_chunks=2)
    computed = acoustic_memory(models.flow().config, models.small_settings(), asked, 78)
    assert computed.session is not None
    streamer = models.streamer(32)
    state = streamer.start(models.voice_of(models.prompt(78), streamer), models.ONE_STEP)
    state, _ = models.hop(streamer, state, [], final=False)
    state = state.shared()
    voice = streamer.pool.used_bytes + state.tails.nbytes
    assert voice == computed.voice
    held = 0
    for start in range(0, 250, 25):
        hop = list(range(start, start + 25))
        state, _ = models.hop(streamer, state, hop, final=False, left_context=2)
        held = max(held, state.nbytes)
    assert held == computed.session - computed.chunk - state.tails.nbytes


def test_without_a_limit_there_is_no_bound_but_a_price_a_second() -> None:
    asked = AcousticSettings(steps=10, left_context_chunks=None)
    computed = acoustic_memory(models.flow().config, models.small_settings(), asked)
    assert computed.session is None
    assert computed.chunk == 10 * 2 * 2 * 50 * 2 * 64 * 4
