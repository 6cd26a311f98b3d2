"""Virtual speakers: one teacher's envelopes and F0, moved to other throats.

Formants, F0, F0 range, tilt and breathiness are drawn per speaker. F0 goes with the formants
(exponent about 2.9, as between adult men and women) plus some freedom, so the timbres stay human.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from antiphon.training.data.hibari import Array, Envelopes
from antiphon.training.data.synthesis import (
    MEL_HOP,
    f0_per_mel_frame,
    minimum_phase,
    synthesize,
)

_RESIDUAL_VOICED: Final = -1.0
"""The teacher's free-phase branch is rendered as noise, weaker where the voice is periodic."""


@dataclass(frozen=True)
class Warp:
    """How one virtual speaker differs from the teacher.

    `formant`: factor on the frequency axis of the envelopes; `pitch`: factor on F0; `pitch_range`:
    exponent on F0 around its mean; `tilt`: natural-log amplitude change from 0 to 12 kHz;
    `breath`: natural-log change of the noise envelope; `speed`: the teacher's speed input.
    """

    formant: float
    pitch: float
    pitch_range: float
    tilt: float
    breath: float
    speed: float

    def vector(self) -> tuple[float, ...]:
        """The parameters scaled to about unit variance, as a regression target."""
        return (
            (self.formant - 1.0) / 0.08,
            np.log(self.pitch) / 0.28,
            self.tilt / 0.6,
            self.breath / 0.3,
        )


HOUSE: Final[dict[str, Warp]] = {
    "hazel": Warp(1.0, 1.0, 1.0, 0.0, 0.0, 1.0),
    "bruno": Warp(0.86, 0.52, 1.1, -0.2, -0.1, 0.98),
    "ivy": Warp(1.12, 1.36, 0.95, 0.3, 0.1, 1.04),
    "sam": Warp(0.92, 0.70, 1.0, 0.2, 0.0, 1.02),
    "clara": Warp(1.05, 0.88, 0.85, -0.6, 0.4, 0.95),
    "otis": Warp(0.88, 0.62, 1.25, 0.5, -0.2, 1.06),
}


def draw_warp(rng: np.random.Generator) -> Warp:
    """A random virtual speaker."""
    formant = float(rng.uniform(0.85, 1.16))
    pitch = formant**2.9 * float(np.exp(rng.normal(0.0, 0.16)))
    return Warp(
        formant=formant,
        pitch=float(np.clip(pitch, 0.48, 1.5)),
        pitch_range=float(rng.uniform(0.8, 1.3)),
        tilt=float(rng.uniform(-0.8, 0.8)),
        breath=float(rng.uniform(-0.4, 0.4)),
        speed=float(rng.uniform(0.92, 1.1)),
    )


def stretch(envelope: Array, factor: float) -> Array:
    """Move the frequency axis: what was at f is then at `factor * f`. (frames, bins) both ways."""
    if factor == 1.0:
        return envelope
    bins = envelope.shape[1]
    position = np.clip(np.arange(bins) / factor, 0, bins - 1)
    low = np.minimum(position.astype(int), bins - 2)
    weight = (position - low).astype(np.float32)
    moved: Array = envelope[:, low] * (1 - weight) + envelope[:, low + 1] * weight
    return moved


def warp_f0(f0: Array, warp: Warp) -> Array:
    """Scale F0 and its range around the voiced geometric mean; 0 stays 0."""
    voiced = f0 > 0
    if not voiced.any():
        return f0
    mean = float(np.exp(np.log(f0[voiced]).mean()))
    moved = mean * warp.pitch * (np.maximum(f0, 1.0) / mean) ** warp.pitch_range
    return np.where(voiced, np.clip(moved, 60.0, 500.0), 0.0).astype(np.float32)


def speak(
    envelopes: Envelopes, warp: Warp, start: int, stop: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Samples and F0 of envelope frames `start` to `stop` in the virtual speaker's voice.

    :returns: (960 * tokens,) float32 samples at a fixed active level, and (2 * tokens,) F0 in Hz
    """
    part = slice(start, stop)
    f0 = warp_f0(envelopes.f0[part], warp)
    mel_f0 = _on_tokens(f0)
    tilt = np.linspace(0.0, warp.tilt, envelopes.harmonic.shape[1], dtype=np.float32)
    harmonic = stretch(envelopes.harmonic[part], warp.formant) + tilt
    voiced = np.where(f0 > 0, _RESIDUAL_VOICED, 0.0).astype(np.float32)[:, None]
    noise = np.logaddexp(2 * envelopes.noise[part], 2 * (envelopes.residual[part] + voiced)) / 2
    noise = stretch(noise.astype(np.float32), warp.formant) + tilt + warp.breath
    harmonic = np.clip(harmonic, -9.0, 7.0)
    samples = synthesize(harmonic, minimum_phase(harmonic), noise, mel_f0, rng)
    return level(samples), mel_f0


def spoken_f0(envelopes: Envelopes, warp: Warp, start: int, stop: int) -> Array:
    """The F0 that `speak` would return, without making the sound."""
    return _on_tokens(warp_f0(envelopes.f0[start:stop], warp))


def _on_tokens(f0: Array) -> Array:
    tokens = len(f0) * 300 // (2 * MEL_HOP)
    return f0_per_mel_frame(f0, 2 * tokens)


def level(samples: Array) -> Array:
    """Bring the active part to -23 dB RMS, peaks below 0.95."""
    blocks = samples[: len(samples) // MEL_HOP * MEL_HOP].reshape(-1, MEL_HOP)
    energy = np.square(blocks).mean(1)
    active = energy[energy > energy.max() * 1e-3]
    gain = 0.0708 / float(np.sqrt(active.mean()) + 1e-9)
    return samples * min(gain, 0.95 / float(np.abs(samples).max() + 1e-9))
