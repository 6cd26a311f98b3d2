"""The vocoders of CosyVoice 1 and 2 equal the golden arrays; streams equal the whole."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.vocoder.compat import UpstreamCache, upstream_fade, upstream_window
from antiphon.engine.vocoder.harmonics import HarmonicSource, Phase
from antiphon.engine.vocoder.hift_noncausal import CentredHiFT
from antiphon.engine.vocoder.windows import FADE_FRAMES, WindowedVocoder, WindowState, _fade
from tests import golden


@cache
def tiny(version: int) -> CentredHiFT:
    checkpoint = open_checkpoint(golden.model_dir(version))
    hift = CentredHiFT(checkpoint.hift_config)
    hift.load_state_dict(checkpoint.hift_state_dict(), strict=True)
    return hift.prepare_for_serving()


def draws(version: int) -> tuple[Phase, Tensor]:
    """Start phases and noise as upstream drew them."""
    rand = golden.array(version, "hift", "draw.0.rand").reshape(1, 9)
    noise = golden.array(version, "hift", "draw.1.randn_like")
    if version == 2:
        # Upstream adds them to a sample that its interpolation never reads.
        return Phase.initial(torch.zeros(1, 9)), noise
    offsets = rand - 0.5
    offsets[:, 0] = 0
    return Phase.initial(offsets), noise.transpose(1, 2)


@pytest.mark.parametrize("version", [1, 2])
def test_every_stage_is_the_reference_one(version: int) -> None:
    hift = tiny(version)
    mel = golden.array(version, "hift", "mel").transpose(1, 2)
    phase, noise = draws(version)
    f0 = hift.f0_predictor(mel)
    golden.assert_close(f0, version, "hift", "f0")
    sines = hift.m_source.harmonics(f0, phase, noise)[:, :4800]
    golden.assert_close(sines, version, "hift", "sine_before_linear")
    source = hift.m_source(f0, phase, noise)
    golden.assert_close(source[:, None], version, "hift", "source")
    golden.assert_close(hift(mel, phase, noise), version, "hift", "wav")
    given_source = golden.array(version, "hift", "source")[:, 0]
    golden.assert_close(hift.decode(mel, given_source), version, "hift", "wav")


def test_upstreams_windows_of_version_2_are_the_reference_ones() -> None:
    cache_: UpstreamCache | None = None
    for index, (first, last) in enumerate(((0, 98), (98, 198), (198, 260))):
        mel = golden.array(2, "flow", f"stream.{index}.mel").transpose(1, 2)[:, first:last]
        window = upstream_window(tiny(2), mel, cache_, final=index == 2)
        cache_ = window.cache
        golden.assert_close(window.emitted, 2, "token2wav", f"{index}.emitted")
        if index == 1:
            golden.assert_close(window.raw, 2, "token2wav", "1.wav_raw")
            golden.assert_close(window.source[:, None], 2, "token2wav", "1.source")
            golden.assert_close(window.mel.transpose(1, 2), 2, "token2wav", "1.mel_in")


@pytest.mark.parametrize("version", [1, 2])
def test_no_sample_depends_on_frames_beyond_the_context(version: int) -> None:
    hift = tiny(version)
    length, context = hift.config.samples_per_frame, hift.context_frames
    mel = golden.array(version, "flow", "offline.mel").transpose(1, 2)[:, :80]
    other = mel.clone()
    other[:, 40] += 0.5
    f0 = hift.f0_predictor(mel)
    noise = torch.zeros(1, 80 * length, 9)
    phase = Phase.initial(torch.zeros(1, 9))

    def speak(frames: Tensor) -> Tensor:
        # The phase after a changed F0 differs for ever: hold it outside of the F0 net's reach.
        changed = hift.f0_predictor(frames)
        changed[:, 46:] = f0[:, 46:]
        changed[:, :35] = f0[:, :35]
        return hift.decode(frames, hift.m_source(changed, phase, noise))

    assert torch.equal(
        speak(mel)[:, : (40 - context) * length], speak(other)[:, : (40 - context) * length]
    )
    difference = (speak(mel) - speak(other)).abs()[0]
    assert difference[(40 - 2) * length : (40 + 2) * length].max() > 1e-3


def stream(
    windows: WindowedVocoder, mel: Tensor, cuts: list[int], seed: int = 3
) -> tuple[Tensor, list[WindowState]]:
    state = windows.start(seed)
    states = [state]
    pieces = []
    edges = [*cuts, mel.shape[1]]
    for edge in edges:
        final = edge == mel.shape[1]
        samples, state = windows.advance(mel[:, state.frames : edge], state, final=final)
        states.append(state)
        pieces.append(samples)
    return torch.cat(pieces, dim=1), states


@settings(max_examples=10, deadline=None)
@given(
    version=st.sampled_from([1, 2]),
    cuts=st.lists(st.integers(1, 119), max_size=5, unique=True).map(sorted),
)
def test_with_full_context_every_cut_gives_the_same_samples(version: int, cuts: list[int]) -> None:
    hift = tiny(version)
    windows = WindowedVocoder(hift, hift.context_frames + FADE_FRAMES)
    mel = golden.array(version, "flow", "offline.mel").transpose(1, 2)[:, :120]
    whole, _ = stream(windows, mel, [])
    assert whole.shape[1] == 120 * hift.config.samples_per_frame
    torch.testing.assert_close(stream(windows, mel, cuts)[0], whole, atol=1.5e-3, rtol=0)


@pytest.mark.parametrize(("version", "hold"), [(1, 12), (2, 8)])
def test_the_hold_that_is_served_hides_its_seams(version: int, hold: int) -> None:
    # Upstream loses the phase behind every seam; here the difference stays that of a few frames'
    # missing context, 40 dB below the speech, and the state does not grow.
    windows = WindowedVocoder(tiny(version), hold)
    mel = golden.array(version, "flow", "offline.mel").transpose(1, 2)[:, :240]
    whole, _ = stream(windows, mel, [])
    cut, states = stream(windows, mel, list(range(30, 240, 30)))
    error = (cut - whole).square().mean().sqrt()
    assert error < 0.01 * whole.square().mean().sqrt()
    assert states[-2].nbytes == states[-3].nbytes < 600_000


def test_phase_goes_on_behind_a_window() -> None:
    config = replace(tiny(2).config, nsf_sigma=0.0)
    for interpolated in (True, False):
        source = HarmonicSource(config, interpolated=interpolated)
        f0 = torch.linspace(100, 220, 40)[None]
        start = Phase.initial(torch.zeros(1, 9))
        noise = torch.zeros(1, 40 * 480, 9)
        whole = source.harmonics(f0, start, noise)
        after = source.advance(f0[:, :20], start)
        rest = source.harmonics(f0[:, 20:], after, noise[:, : 20 * 480])
        torch.testing.assert_close(rest, whole[:, 20 * 480 :], atol=1e-5, rtol=0)


def test_fades_keep_the_level_where_upstreams_raise_it() -> None:
    tone = torch.ones(1, 4000)
    assert _fade(tone[:, :3840], tone, 960).sub(1).abs().max() < 1e-6
    bump = upstream_fade(tone, tone[:, :3840]).max()
    assert 20 * torch.log10(bump) == pytest.approx(0.67, abs=0.01)


@pytest.mark.parametrize("version", [1, 2])
def test_full_size_keys_equal_the_manifest(version: int) -> None:
    manifest = json.loads(golden.golden_path(f"manifest/cosyvoice{version}.json").read_text())
    described = manifest["modules"]["hift"]
    expected = {key: tuple(value["shape"]) for key, value in described["keys"].items()}
    small = tiny(version).config
    full = replace(
        small, base_channels=512, f0_predictor=replace(small.f0_predictor, cond_channels=512)
    )
    with torch.device("meta"):
        hift = CentredHiFT(full)
    assert {key: tuple(value.shape) for key, value in hift.state_dict().items()} == expected
