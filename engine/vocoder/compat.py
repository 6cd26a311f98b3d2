"""Upstream's streaming of the vocoders of CosyVoice 1 and 2, for golden numbers only.

Faults that `windows.py` does not have are reproduced here: fade weights whose sum is 1.08, a source
that is overwritten by the last window's tail so that its phase jumps behind it, and a context of 8
(20) frames that is shorter than what the network sees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from antiphon.engine.vocoder.harmonics import Phase
from antiphon.engine.vocoder.hift_noncausal import CentredHiFT

CACHED_FRAMES = {22_050: 20, 24_000: 8}


@dataclass(frozen=True, slots=True)
class UpstreamCache:
    """What upstream keeps of a window: frames, source and samples of its end."""

    mel: Tensor
    source: Tensor
    speech: Tensor


@dataclass(frozen=True, slots=True)
class UpstreamWindow:
    """One call of upstream's vocoder, with the values that golden arrays record."""

    mel: Tensor
    source: Tensor
    raw: Tensor
    emitted: Tensor
    cache: UpstreamCache | None


def upstream_fade(incoming: Tensor, outgoing: Tensor) -> Tensor:
    """Fade over all of `outgoing` with the halves of a Hamming window; last axis."""
    length = outgoing.shape[-1]
    window = torch.from_numpy(np.hamming(2 * length)).to(incoming.dtype)
    faded = incoming.clone()
    faded[..., :length] = incoming[..., :length] * window[:length] + outgoing * window[length:]
    return faded


@torch.inference_mode()
def upstream_window(
    hift: CentredHiFT,
    mel: Tensor,
    cache: UpstreamCache | None,
    *,
    final: bool,
    offsets: Tensor | None = None,
    noise: Tensor | None = None,
) -> UpstreamWindow:
    """Synthesise (1, frames, mel) as upstream does; its random draws are zeros unless given."""
    config = hift.config
    frames = CACHED_FRAMES[config.sampling_rate]
    samples = frames * config.samples_per_frame
    if cache is not None:
        mel = torch.cat([cache.mel, mel], dim=1)
    harmonics = config.nb_harmonics + 1
    if noise is None:
        noise = torch.zeros(1, mel.shape[1] * config.samples_per_frame, harmonics)
    phase = Phase.initial(torch.zeros(1, harmonics) if offsets is None else offsets)
    source = hift.m_source(hift.f0_predictor(mel), phase, noise)
    if cache is not None:
        source = torch.cat([cache.source, source[:, cache.source.shape[1] :]], dim=1)
    raw = hift.decode(mel, source)
    speech = raw if cache is None else upstream_fade(raw, cache.speech)
    if final:
        return UpstreamWindow(mel, source, raw, speech, None)
    kept = UpstreamCache(mel[:, -frames:], source[:, -samples:], speech[:, -samples:])
    return UpstreamWindow(mel, source, raw, speech[:, :-samples], kept)
