from __future__ import annotations

import numpy as np
import pytest

from antiphon.engine.errors import CheckpointError
from antiphon.engine.preset.model import PresetModel


@pytest.fixture(scope="module")
def model() -> PresetModel:
    return PresetModel("heart")


def test_durations_place_every_symbol_within_the_samples(model: PresetModel) -> None:
    symbols = "həlˈO ðˈɛɹ."
    spoken = model.speak(symbols, 1.0, np.random.default_rng(0))
    assert len(spoken.symbol_ends) == len(symbols)
    assert (np.diff(spoken.symbol_ends) >= 0).all()
    assert 0 < spoken.symbol_ends[0] < spoken.symbol_ends[-1] <= len(spoken.samples)
    # The words are where the model says: the first ends before two thirds of the sound.
    energy = np.cumsum(spoken.samples.astype(np.float64) ** 2)
    assert 0.2 < energy[spoken.symbol_ends[4]] / energy[-1] < 0.9


def test_unknown_symbols_take_no_time(model: PresetModel) -> None:
    spoken = model.speak("hˈI☃ hˈI", 1.0, np.random.default_rng(0))
    assert len(spoken.symbol_ends) == 8
    assert spoken.symbol_ends[3] == spoken.symbol_ends[2]


def test_the_same_seed_gives_the_same_samples(model: PresetModel) -> None:
    one, two = (model.speak("hˈI.", 1.0, np.random.default_rng(5)).samples for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_speed_shortens(model: PresetModel) -> None:
    slow, fast = (
        len(model.speak("həlˈO ðˈɛɹ.", speed, np.random.default_rng(0)).samples)
        for speed in (0.5, 2.0)
    )
    assert fast < slow / 2


def test_a_voice_that_would_have_to_be_downloaded_is_refused() -> None:
    with pytest.raises(CheckpointError, match="fenrir"):
        PresetModel("fenrir")
