"""Speech at other speeds: the length changes, the pitch does not, and cuts leave no trace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.acoustic.decoder import Portion
from antiphon.engine.acoustic.engine import TorchAcousticEngine
from antiphon.engine.acoustic.interface import AcousticSettings
from antiphon.engine.acoustic.tempo import TempoVocoder
from antiphon.engine.errors import InvalidConfiguration, SynthesisFailed
from tests import golden
from tests.engine.acoustic import models

SPEEDS = st.sampled_from([0.5, 0.77, 0.9, 1.0, 1.1, 1.3, 2.0])


class Tape:
    """A vocoder whose samples are the frames themselves: each frame's first channel, once."""

    sample_rate = 50

    def start(self) -> torch.Tensor:
        return torch.zeros(0)

    def place(self, state: torch.Tensor, first_frame: int, mel: torch.Tensor) -> torch.Tensor:
        assert first_frame <= len(state), "a gap"
        return torch.cat([state[:first_frame], mel[:, 0]])

    def speak(
        self, asked: Sequence[tuple[torch.Tensor, bool]]
    ) -> list[Portion[torch.Tensor] | SynthesisFailed]:
        return [Portion(state.numpy(), state, done=True) for state, _ in asked]


def stretched(mel: torch.Tensor, speed: float, cuts: list[int], again: int = 0) -> np.ndarray:
    """The mel at a speed, placed in pieces, each beginning with what was there once before."""
    vocoder = TempoVocoder(Tape())
    state = vocoder.start(speed)
    edges = sorted({0, *[cut for cut in cuts if 0 < cut < len(mel)], len(mel)})
    for start, stop in pairwise(edges):
        first = max(0, start - again)
        if first < start:
            # What will be replaced was something else before.
            state = vocoder.place(state, first, torch.full((start - first, 1), 1e6))
        state = vocoder.place(state, first, mel[first:stop])
    (portion,) = vocoder.speak([(state, True)])
    assert isinstance(portion, Portion)
    return portion.samples


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 700), SPEEDS, st.lists(st.integers(1, 700), max_size=12), st.integers(0, 60))
def test_a_stretched_mel_is_the_same_however_it_is_cut(
    frames: int, speed: float, cuts: list[int], again: int
) -> None:
    mel = torch.linspace(0, 10, frames)[:, None].sin()
    whole = stretched(mel, speed, [])
    assert len(whole) == max(1, int(frames / speed)) or len(whole) == math.ceil(frames / speed)
    np.testing.assert_array_equal(stretched(mel, speed, cuts, again), whole)


def test_whole_utterances_are_stretched_as_the_reference_does() -> None:
    expected = golden.array(3, "token2wav", "speed_1_3.mel_in")[0].T
    tokens = golden.array(3, "flow", "tokens")[0, :40].tolist()
    # Upstream's last call has no chunk mask; the prompt's speech ends in the same flow.
    mel = models.flow().solve_whole(
        torch.tensor([tokens]),
        torch.from_numpy(models.prompt().tokens)[None],
        torch.from_numpy(models.prompt().mel)[None],
        torch.from_numpy(models.prompt().embedding)[None],
        models.PLAN,
        final=True,
        chunked=False,
    )[0]
    for channel in (0, 40, 79):
        ours = stretched(mel[:, channel : channel + 1], len(mel) / 61, [])
        np.testing.assert_allclose(ours, expected[:, channel].numpy(), atol=1e-4)


@cache
def tokens() -> list[int]:
    found: list[int] = golden.array(3, "flow", "tokens")[0].tolist()
    return found[:80]


@pytest.mark.parametrize("speed", [0.8, 1.0, 1.3])
async def test_hops_at_a_speed_join_as_at_any_other(speed: float) -> None:
    engine = TorchAcousticEngine(models.flow(), models.hift(), models.small_settings())
    heard = []
    try:
        for edges in ((80,), (25, 50, 80), (8, 25, 44, 80)):
            stream = await engine.open(models.prompt(53), AcousticSettings(steps=2, speed=speed))
            pieces = []
            for start, stop in zip((0, *edges), edges, strict=False):
                hop = await stream.speak(tokens()[start:stop], final=stop == 80)
                pieces.append(hop.samples)
            stream.close()
            heard.append(np.concatenate(pieces))
    finally:
        await engine.close()
    assert {len(samples) for samples in heard} == {480 * int(160 / speed)}
    # Hops that end at chunk borders change nothing at all; others change what follows them a bit.
    assert np.abs(heard[0] - heard[1]).max() < 1e-3
    assert all(np.isfinite(samples).all() for samples in heard)


async def test_a_speed_out_of_bounds_is_refused() -> None:
    engine = TorchAcousticEngine(models.flow(), models.hift(), models.small_settings())
    try:
        for speed in (0.49, 2.01, math.nan):
            with pytest.raises(InvalidConfiguration) as refused:
                await engine.open(models.prompt(28), AcousticSettings(speed=speed))
            assert refused.value.field == "speed"
    finally:
        await engine.close()
