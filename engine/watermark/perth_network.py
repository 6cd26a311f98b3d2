"""The PerthNet network of `resemble-perth`, on torch alone.

The package's own entry point wants torchaudio and librosa for its spectra; its network needs
neither. Weights are read from the installed wheel without importing the package.

The network works on magnitude spectra in decibels, mapped so that -180 dB is 0 and 15 dB is 1:
windows of 64 ms every 10 ms, 15.625 Hz a bin, of which it reads and changes the lowest 128 (below
2 kHz). Those bins are the same at every sample rate, so no resampling to its 32 kHz is needed.
"""

from __future__ import annotations

from importlib import util
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiphon.engine.errors import WatermarkUnavailable

WINDOW_S = 0.064
HOP_S = 0.01
BINS = 128
BIN_HZ = 1 / WINDOW_S
_REFERENCE_RATE_HZ = 32000
_FLOOR_DB = -180.0
_RANGE_DB = 195.0
_SCALES = {"slow": 1.25, "normal": 1.0, "fast": 0.75}
"""The decoder reads at three tempos, so that stretched audio is found too."""


def weights_file() -> Path:
    """Return the checkpoint inside the installed wheel.

    Raises:
        WatermarkUnavailable: the wheel is not installed or has no weights.
    """
    spec = util.find_spec("perth")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        implicit = Path(folder) / "perth_net" / "pretrained" / "implicit"
        for checkpoint in sorted(implicit.glob("perth_net_*.pth.tar"), reverse=True):
            return checkpoint
    raise WatermarkUnavailable(
        "The perth watermark needs the package resemble-perth: pip install resemble-perth",
        field="watermark.name",
    )


def log_spectrum(samples: Tensor, sample_rate: int) -> Tensor:
    """Return the decibel spectrum (bins, frames) of samples (samples,), 10 ms a frame.

    `sample_rate` must make whole samples of 64 ms and of 10 ms.
    """
    window, hop = round(WINDOW_S * sample_rate), round(HOP_S * sample_rate)
    spectrum = torch.stft(
        samples,
        window,
        hop,
        window=torch.hann_window(window),
        center=True,
        pad_mode="constant",
        return_complex=True,
    )[:BINS]
    magnitude = spectrum.abs() * (_REFERENCE_RATE_HZ / sample_rate)
    return 20 * torch.log10(magnitude.clamp(min=1e-9))


def _layers(outputs: int) -> nn.Sequential:
    hidden = 256
    channels = [(BINS, hidden, 1), *[(hidden, hidden, 7)] * 5]
    modules: list[nn.Module] = []
    for inputs, width, kernel in channels:
        modules += [nn.Conv1d(inputs, width, kernel, padding=kernel // 2), nn.LeakyReLU()]
    return nn.Sequential(*modules, nn.Conv1d(hidden, outputs, 1))


class PerthNetwork(nn.Module):
    """Encoder and decoder with the wheel's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = _layers(BINS)
        self.decoders = nn.ModuleDict({name: _layers(2) for name in _SCALES})

    @classmethod
    def load(cls, checkpoint: Path) -> PerthNetwork:
        """Load the weights of the wheel.

        Raises:
            WatermarkUnavailable: the file is not a PerthNet checkpoint.
        """
        network = cls()
        try:
            state = torch.load(checkpoint, map_location="cpu", weights_only=True)["model"]
            _fill(network.encoder, state, "encoder.layers")
            for name, layers in network.decoders.items():
                _fill(layers, state, f"decoder.{name}_layers")
        except (OSError, KeyError, RuntimeError, ValueError) as error:
            raise WatermarkUnavailable(
                f"{checkpoint.name} of resemble-perth cannot be read ({error}); reinstall it",
                field="watermark.name",
            ) from error
        return network.eval().requires_grad_(False)

    @torch.inference_mode()
    def gains_db(self, spectrum_db: Tensor) -> Tensor:
        """Return the change (bins, frames) in decibels that the encoder makes to a spectrum."""
        changes: Tensor = self.encoder(_normalised(spectrum_db)[None])[0]
        return changes * _RANGE_DB

    @torch.inference_mode()
    def score(self, spectrum_db: Tensor, active: Tensor) -> float:
        """Return about 0 for unmarked and 1 for marked speech.

        Args:
            spectrum_db: (bins, frames).
            active: (frames,) bool, the frames to judge by; at least one.
        """
        values = _normalised(spectrum_db)[None]
        attention, marks = [], []
        for name, scale in _SCALES.items():
            size = max(1, int(values.shape[2] * scale))
            scaled = F.interpolate(values, size=size, mode="linear", align_corners=True)
            weight = F.interpolate(active[None, None].float(), size=size, mode="nearest")
            if not weight.any():
                weight = torch.ones_like(weight)
            out = (self.decoders[name](scaled) * weight).sum(2) / weight.sum(2)
            attention.append(out[0, 0])
            marks.append(out[0, 1])
        shares = torch.softmax(torch.stack(attention), 0)
        return float((shares * torch.stack(marks)).sum())


def _normalised(spectrum_db: Tensor) -> Tensor:
    return (spectrum_db - _FLOOR_DB) / _RANGE_DB


def _fill(layers: nn.Module, state: dict[str, Tensor], prefix: str) -> None:
    convolutions = [module for module in layers.modules() if isinstance(module, nn.Conv1d)]
    for index, convolution in enumerate(convolutions):
        weights = {part: state[f"{prefix}.{index}.conv.{part}"] for part in ("weight", "bias")}
        convolution.load_state_dict(weights)
