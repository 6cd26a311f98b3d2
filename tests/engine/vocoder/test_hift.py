"""The causal vocoder against the reference numbers, and streamed against whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from antiphon.engine.checkpoint.config import FlowConfig, HiFTConfig
from antiphon.engine.vocoder.hift import HiFT
from antiphon.engine.vocoder.layers import Snake, Tails, _SnakeFunction
from antiphon.engine.vocoder.source import SourceNoise
from tests import golden
from tests.engine.acoustic import models


def _mel() -> torch.Tensor:
    return golden.array(3, "hift", "mel").transpose(1, 2)


def _noise(frames: int) -> torch.Tensor:
    noise = models.source_noise()
    return noise.draw(noise.start, 480 * frames)[0][None]


def test_whole_mel() -> None:
    hift = models.hift()
    with torch.inference_mode():
        samples, f0 = hift(_mel(), _noise(32))
    golden.assert_close(f0, 3, "hift", "f0")
    golden.assert_close(samples, 3, "hift", "wav")


def test_excitation() -> None:
    source = models.hift().m_source
    f0 = golden.array(3, "hift", "f0")
    excitation, phase = source(f0, torch.zeros(1, dtype=torch.float64), _noise(32))
    golden.assert_close(excitation[:, None], 3, "hift", "source")
    merged = source.harmonics(f0, phase, _noise(32))[:, :4800]
    golden.assert_close(merged, 3, "hift", "sine_before_linear")


@pytest.mark.parametrize("call", [0, 1, 2])
def test_excitation_of_growing_prefixes(call: int) -> None:
    f0 = golden.array(3, "hift", f"grow.{call}.f0")
    start = torch.zeros(1, dtype=torch.float64)
    excitation, _ = models.hift().m_source(f0, start, _noise(f0.shape[1]))
    golden.assert_close(excitation[:, None], 3, "hift", f"grow.{call}.source")


def test_what_is_drawn_before_and_behind_the_noise_is_upstreams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Upstream keeps both, nobody hears them; equal draws show that nothing between is missed."""
    drawn: list[torch.Tensor] = []
    rand = torch.rand

    def recorded(*size: int, generator: torch.Generator) -> torch.Tensor:
        drawn.append(rand(*size, generator=generator))
        return drawn[-1]

    monkeypatch.setattr(torch, "rand", recorded)
    checkpoint = models.checkpoint()
    noise = SourceNoise(checkpoint.flow_config, checkpoint.hift_config)
    monkeypatch.undo()
    phases = drawn[0].clone()
    phases[0] = 0.0
    golden.assert_close(phases[None], 3, "hift", "rand_ini")

    state = noise.start
    for _ in range(72):  # upstream's table ends at 300 s
        _, state = noise.draw(state, 100_000)
    generator = torch.Generator()
    generator.set_state(state)
    torch.rand(noise.harmonics + 1, generator=generator)  # the layer that mixes the harmonics
    golden.assert_close(torch.rand(1, 64, 1, generator=generator), 3, "hift", "uv_slice")


def test_noise_is_upstreams_drawn_piece_by_piece() -> None:
    noise = models.source_noise()
    state = noise.start
    pieces = []
    for size in (1, 480, 7, 14872):
        drawn, state = noise.draw(state, size)
        pieces.append(drawn)
    golden.assert_close(torch.cat(pieces)[None], 3, "hift", "sine_waves_slice")


def test_noise_of_the_official_size() -> None:
    path = golden.golden_path("common/cosyvoice3_fixed_buffers.safetensors")
    with safe_open(path, "pt") as arrays:
        names = list(arrays.keys())
        name = next(n for n in names if arrays.get_slice(n).get_shape()[-1] == 9 and "ini" not in n)
        expected = arrays.get_tensor(name).view(-1, 9)
    tiny_flow, tiny_hift = models.checkpoint().flow_config, models.checkpoint().hift_config
    noise = SourceNoise(tiny_flow, _with_width(tiny_hift, 512))
    assert torch.equal(noise.draw(noise.start, len(expected))[0], expected)


def _with_width(config: HiFTConfig, width: int) -> HiFTConfig:
    return replace(config, f0_predictor=replace(config.f0_predictor, cond_channels=width))


def test_constructing_and_drawing_leave_the_global_generator_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    config: FlowConfig = models.checkpoint().flow_config
    noise = SourceNoise(config, models.checkpoint().hift_config)
    noise.draw(noise.start, 10)
    assert torch.equal(torch.rand(3), expected)


def _stream(mel: torch.Tensor, sizes: list[int]) -> tuple[torch.Tensor, list[int]]:
    hift, noise = models.hift(), models.source_noise()
    state, table = None, noise.start
    pieces, given_frames = [], 0
    state_sizes = []
    for number, size in enumerate(sizes):
        given_frames += size
        final = number == len(sizes) - 1
        start = 0 if state is None else state.frames
        done = given_frames - start - (0 if final else hift.look_ahead)
        if done <= 0:
            continue
        own, beyond = hift.noise_samples(done, final=final)
        drawn, table = noise.draw(table, own)
        ahead, _ = noise.draw(table, beyond)
        samples, state = hift.advance(
            mel[:, start:given_frames], torch.cat([drawn, ahead])[None], state, final=final
        )
        state_sizes.append(state.nbytes)
        pieces.append(samples)
    return torch.cat(pieces, dim=1), state_sizes


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_streamed_equals_whole_for_any_split(data: st.DataObject) -> None:
    mel = _mel()
    sizes = []
    while (left := mel.shape[1] - sum(sizes)) > 0:
        sizes.append(data.draw(st.integers(1, left)))
    with torch.inference_mode():
        whole, _ = models.hift()(mel, _noise(mel.shape[1]))
    streamed, state_sizes = _stream(mel, sizes)
    assert streamed.shape == whole.shape
    assert (streamed - whole).abs().max() <= 1e-4
    assert len(set(state_sizes)) <= 1, "the state does not grow"


@pytest.mark.parametrize("call", [0, 1, 2])
def test_growing_prefixes_as_upstream_computes_them(call: int) -> None:
    expected = golden.array(3, "hift", f"grow.{call}.wav")
    streamed, _ = _stream(_mel(), [16, 10, 6])
    golden.assert_close(streamed[:, : expected.shape[1]], 3, "hift", f"grow.{call}.wav")
    frames = (16, 26, 32)[call]
    predictor = models.hift().f0_predictor
    mel = _mel()[:, :frames].double()
    f0 = predictor(mel) if call == 2 else predictor.advance(mel, Tails(None))
    golden.assert_close(f0.float(), 3, "hift", f"grow.{call}.f0")


def test_phase_does_not_drift_over_an_hour() -> None:
    source = models.hift().m_source
    f0 = torch.full((1, 1000), 123.4)
    cycles = torch.zeros(1, dtype=torch.float64)
    for _ in range(180):
        cycles = source._phase(f0, cycles)[:, -1]
    exact = (180_000 * (float(f0[0, 0]) * 480 / 24000)) % 1.0
    assert abs(float(cycles[0]) - exact) < 1e-6


def test_the_vocoder_can_be_trained_in_batches() -> None:
    config = models.checkpoint().hift_config
    hift = HiFT(config)
    samples, f0 = hift(torch.randn(2, 12, 80), torch.rand(2, 12 * 480, 9))
    assert samples.shape == (2, 12 * 480)
    assert f0.shape == (2, 12)
    samples.square().mean().backward()
    assert all(parameter.grad is not None for parameter in hift.parameters())


def test_derivative_of_snake() -> None:
    snake = Snake(3).double()
    snake.alpha.data.uniform_(0.5, 2.0, generator=torch.Generator().manual_seed(0))
    x = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    alpha = snake.alpha[None, :, None]
    assert torch.autograd.gradcheck(_SnakeFunction.apply, (x, alpha))


def test_old_weight_norm_names_load_too() -> None:
    old = {
        name.replace("parametrizations.weight.original0", "weight_g").replace(
            "parametrizations.weight.original1", "weight_v"
        ): tensor
        for name, tensor in models.checkpoint().hift_state_dict().items()
    }
    hift = HiFT(models.checkpoint().hift_config)
    hift.load_state_dict(old, strict=True)
