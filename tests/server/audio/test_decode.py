"""Files that people send: good ones are read, all others are refused in a sentence."""

from __future__ import annotations

import io
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.errors import InvalidRequest
from antiphon.server.audio import AudioFormat, decode_audio, make_encoder
from antiphon.server.audio.plain import wav_header
from tests.server.audio.marked import as_marked, tone


def wav(samples: np.ndarray, rate: int = 24000) -> bytes:
    data = (samples * 32767).astype("<i2").tobytes()
    return wav_header(rate, len(data)) + data


def refused(data: bytes | Path, **limits: float) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        decode_audio(data, **limits)  # type: ignore[arg-type]
    assert caught.value.field == "file"
    assert str(caught.value).endswith(".")
    return caught.value


def test_a_wav_comes_back_as_it_was(tmp_path: Path) -> None:
    samples = tone(440, 0.3, rate=22050)
    path = tmp_path / "tone.wav"
    path.write_bytes(wav(samples, 22050))
    decoded = decode_audio(path)
    assert decoded.sample_rate == 22050
    assert decoded.seconds == pytest.approx(0.3, abs=1e-3)
    assert np.abs(decoded.samples - samples).max() < 1e-4


def test_an_open_ended_wav_is_read() -> None:
    encoder = make_encoder(AudioFormat.WAV, 24000)
    data = b"".join(encoder.encode(as_marked(tone(440, 0.3))) + encoder.finish())
    assert len(decode_audio(data).samples) == 7200


def test_stereo_is_mixed_down() -> None:
    sink = io.BytesIO()
    with av.open(sink, "w", format="wav") as container:
        stream = container.add_stream("pcm_s16le", rate=16000, layout="stereo")
        left = (tone(440, 0.2, 16000) * 32767).astype(np.int16)
        both = np.stack([left, np.zeros_like(left)], axis=1).reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(both, format="s16", layout="stereo")
        frame.sample_rate = 16000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    decoded = decode_audio(sink.getvalue())
    assert decoded.samples.shape == (3200,)
    assert np.abs(decoded.samples).max() == pytest.approx(0.25, abs=0.01)


def test_too_long_and_too_large_are_refused_with_the_limit() -> None:
    data = wav(tone(440, 2.0))
    assert refused(data, max_seconds=1.0).limit == 1.0
    assert refused(data, max_bytes=100).limit == 100


def test_a_header_that_lies_about_its_length_is_bounded() -> None:
    data = wav_header(24000) + bytes(2 * 24000 * 3)
    assert refused(data, max_seconds=2.0).limit == 2.0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello, this is not audio at all" * 20,
        wav_header(24000, 0),
        b"#EXTM3U\n#EXTINF:10,\nhttp://127.0.0.1:9/secret.wav\n",
        b"ffconcat version 1.0\nfile /etc/hostname\n",
    ],
)
def test_what_is_not_audio_is_refused(data: bytes) -> None:
    refused(data)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "No such file" in str(refused(tmp_path / "nothing.wav"))
    assert refused(tmp_path)


def test_a_picture_has_no_audio() -> None:
    sink = io.BytesIO()
    with av.open(sink, "w", format="matroska") as container:
        stream = container.add_stream("ffv1", rate=5)
        stream.width, stream.height, stream.pix_fmt = 16, 16, "yuv420p"
        frame = av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8), format="rgb24")
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    assert "no audio" in str(refused(sink.getvalue()))


def test_float_files_with_nan_are_refused() -> None:
    sink = io.BytesIO()
    with av.open(sink, "w", format="wav") as container:
        stream = container.add_stream("pcm_f32le", rate=16000, layout="mono")
        frame = av.AudioFrame.from_ndarray(
            np.full((1, 1600), np.nan, np.float32), format="flt", layout="mono"
        )
        frame.sample_rate = 16000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    assert "not numbers" in str(refused(sink.getvalue()))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    fmt=st.sampled_from([AudioFormat.WAV, AudioFormat.FLAC, AudioFormat.OPUS, AudioFormat.MP3]),
    damage=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=20),
    keep=st.integers(0, 3000),
)
def test_damaged_files_are_read_or_refused(
    fmt: AudioFormat, damage: list[tuple[int, int]], keep: int
) -> None:
    encoder = make_encoder(fmt, 24000)
    data = bytearray(b"".join(encoder.encode(as_marked(tone(440, 0.2))) + encoder.finish()))
    for place, value in damage:
        data[place % len(data)] = value
    try:
        decoded = decode_audio(bytes(data[:keep]))
    except InvalidRequest as error:
        field = error.field
        assert field == "file"
    else:
        assert len(decoded.samples) > 0
        assert np.isfinite(decoded.samples).all()
