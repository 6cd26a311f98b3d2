"""What speech goes through on its way to a listener: codecs, resampling, level, noise.

Each function takes mono float32 samples at `rate` Hz and returns samples at the same rate, the
length within a codec's padding of what went in.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import av
import numpy as np

from antiphon.engine.watermark.marked import FloatSamples

Degradation = Callable[[FloatSamples, int], FloatSamples]


def _resample(samples: FloatSamples, source: int, target: int) -> FloatSamples:
    resampler = av.AudioResampler(format="flt", layout="mono", rate=target)
    frame = av.AudioFrame.from_ndarray(samples[None], format="flt", layout="mono")
    frame.sample_rate = source
    parts = [f.to_ndarray()[0] for f in (*resampler.resample(frame), *resampler.resample(None))]
    return np.concatenate(parts).astype(np.float32)


def codec(name: str, container: str, kbit: int, codec_rate: int) -> Degradation:
    """A round trip through an encoder of PyAV at `kbit` kbit/s (0 for codecs without a choice)."""

    def apply(samples: FloatSamples, rate: int) -> FloatSamples:
        buffer = io.BytesIO()
        with av.open(buffer, "w", format=container) as sink:
            stream = sink.add_stream(name, rate=codec_rate)
            assert isinstance(stream, av.AudioStream)
            stream.layout = "mono"
            if kbit:
                stream.bit_rate = kbit * 1000
            frame = av.AudioFrame.from_ndarray(
                np.clip(samples, -1, 1)[None], format="flt", layout="mono"
            )
            frame.sample_rate = rate
            to_codec = av.AudioResampler(format=stream.format, layout="mono", rate=codec_rate)
            for piece in (*to_codec.resample(frame), *to_codec.resample(None)):
                sink.mux(stream.encode(piece))
            sink.mux(stream.encode(None))
        buffer.seek(0)
        with av.open(buffer, "r") as source:
            to_float = av.AudioResampler(format="flt", layout="mono", rate=rate)
            parts = [
                piece.to_ndarray()[0]
                for decoded in (*source.decode(audio=0), None)
                for piece in to_float.resample(decoded)
            ]
        return np.concatenate(parts).astype(np.float32)

    return apply


def resampled(through: int) -> Degradation:
    """To `through` Hz and back."""
    return lambda samples, rate: _resample(_resample(samples, rate, through), through, rate)


def gain(db: float) -> Degradation:
    """Louder or quieter, clipped at full scale."""
    factor = np.float32(10 ** (db / 20))
    return lambda samples, rate: np.clip(samples * factor, -1, 1)


def white_noise(snr_db: float, seed: int = 0) -> Degradation:
    """White noise under the speech."""

    def apply(samples: FloatSamples, rate: int) -> FloatSamples:
        noise = np.random.default_rng(seed).standard_normal(len(samples)).astype(np.float32)
        level = np.sqrt(np.mean(samples**2)) * 10 ** (-snr_db / 20)
        return samples + noise * np.float32(level)

    return apply


def crop(seconds: float) -> Degradation:
    """The middle `seconds` only, whatever is there: the shortest may fall into a pause."""

    def apply(samples: FloatSamples, rate: int) -> FloatSamples:
        keep = min(len(samples), round(seconds * rate))
        start = (len(samples) - keep) // 2
        return samples[start : start + keep]

    return apply


CODECS: dict[str, Degradation] = {
    "opus 16": codec("libopus", "ogg", 16, 48000),
    "opus 24": codec("libopus", "ogg", 24, 48000),
    "opus 32": codec("libopus", "ogg", 32, 48000),
    "mu-law 8 kHz": codec("pcm_mulaw", "wav", 0, 8000),
    "mp3 64": codec("libmp3lame", "mp3", 64, 24000),
}
OTHERS: dict[str, Degradation] = {
    "8 kHz and back": resampled(8000),
    "16 kHz and back": resampled(16000),
    "+6 dB": gain(6),
    "-6 dB": gain(-6),
    "white noise 20 dB": white_noise(20),
    "crop 0.5 s": crop(0.5),
    "crop 1 s": crop(1.0),
    "crop 3 s": crop(3.0),
}
