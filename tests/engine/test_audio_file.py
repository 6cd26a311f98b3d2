"""Files of strangers: every kind decodes, every bad one gives a typed error in bounded time."""

from __future__ import annotations

import io
import time
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from antiphon.engine.audio_file import decode_audio
from antiphon.engine.errors import InvalidRequest

KINDS = [
    ("wav", "pcm_s16le", 16000, "stereo", 1e-3),
    ("wav", "pcm_u8", 8000, "mono", 2e-2),
    ("wav", "pcm_s24le", 48000, "mono", 1e-3),
    ("wav", "pcm_f32le", 44100, "5.1", 1e-3),
    ("flac", "flac", 44100, "stereo", 1e-3),
    ("mp3", "libmp3lame", 44100, "stereo", 0.1),
    ("ogg", "libopus", 48000, "mono", 0.1),
    ("ogg", "vorbis", 44100, "stereo", 0.1),
    ("mp4", "aac", 44100, "stereo", 0.1),
    ("adts", "aac", 44100, "mono", 0.1),
    ("webm", "libopus", 48000, "stereo", 0.1),
]


def tone(seconds: float, rate: int) -> NDArray[np.float32]:
    time_s = np.arange(int(seconds * rate)) / rate
    return (0.4 * np.sin(2 * np.pi * 440.0 * time_s)).astype(np.float32)


def encode(
    samples: NDArray[np.float32], container: str, codec: str, rate: int, layout: str
) -> bytes:
    sink = io.BytesIO()
    with av.open(sink, "w", format=container) as out:
        options = {"strict": "experimental"}  # FFmpeg's own Vorbis encoder asks for it
        stream = out.add_stream(codec, rate=rate, layout=layout, options=options)
        channels = stream.layout.nb_channels
        wanted = stream.codec_context.format or av.AudioFormat("s16")
        frame = av.AudioFrame.from_ndarray(
            np.repeat(samples[None], channels, axis=0), format="fltp", layout=layout
        )
        frame.rate = rate
        resampler = av.AudioResampler(format=wanted, layout=layout, rate=rate)
        fifo = av.AudioFifo()
        for converted in resampler.resample(frame):
            fifo.write(converted)
        size = stream.codec_context.frame_size or 1024
        while (block := fifo.read(size, partial=fifo.samples < size)) is not None:
            out.mux(stream.encode(block))
        out.mux(stream.encode(None))
    return sink.getvalue()


def wav(samples: NDArray[np.float32], rate: int = 24000) -> bytes:
    return encode(samples, "wav", "pcm_f32le", rate, "mono")


@pytest.mark.parametrize(("container", "codec", "rate", "layout", "bound"), KINDS)
def test_every_kind_decodes_to_the_tone_that_went_in(
    container: str, codec: str, rate: int, layout: str, bound: float
) -> None:
    expected = tone(1.0, rate)
    decoded = decode_audio(encode(expected, container, codec, rate, layout))
    assert decoded.rate == rate
    assert abs(len(decoded.samples) - len(expected)) <= 0.06 * rate
    middle = slice(rate // 4, rate // 2)
    spectrum = np.abs(np.fft.rfft(decoded.samples[middle] * np.hanning(rate // 2 - rate // 4)))
    peak_hz = spectrum.argmax() * rate / (rate // 2 - rate // 4)
    assert abs(peak_hz - 440) <= 5
    level = np.sqrt(np.mean(decoded.samples[middle] ** 2))
    assert level == pytest.approx(0.4 / np.sqrt(2), rel=bound)


def test_a_path_is_read_and_its_extension_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "voice.mp3"
    path.write_bytes(wav(tone(0.5, 24000)))
    assert len(decode_audio(path).samples) == 12000
    with pytest.raises(InvalidRequest, match="cannot be read"):
        decode_audio(tmp_path / "absent.wav")


def test_a_wav_streamed_without_sizes_is_read_whole() -> None:
    content = bytearray(wav(tone(0.5, 24000)))
    data = content.index(b"data")
    content[4:8] = content[data + 4 : data + 8] = b"\xff\xff\xff\xff"
    assert len(decode_audio(bytes(content)).samples) == 12000


def test_channels_are_averaged() -> None:
    left_only = np.zeros((2, 8000), np.float32)
    left_only[0] = 0.5
    sink = io.BytesIO()
    with av.open(sink, "w", format="wav") as out:
        stream = out.add_stream("pcm_f32le", rate=16000, layout="stereo")
        packed = np.ascontiguousarray(left_only.T).reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(packed, format="flt", layout="stereo")
        frame.rate = 16000
        out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    np.testing.assert_allclose(decode_audio(sink.getvalue()).samples, 0.25)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_numbers_are_refused(bad: float) -> None:
    samples = tone(0.2, 24000)
    samples[1000] = bad
    with pytest.raises(InvalidRequest, match="not numbers") as caught:
        decode_audio(wav(samples))
    assert caught.value.field == "audio"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"RIFF\x24\0\0\0WAVE",
        b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n",
        b"ffconcat version 1.0\nfile /etc/passwd\n",
        b"PK\x03\x04" + b"\0" * 64,
        b"fLaC" + b"\xff" * 64,
        b"OggS" + b"\0" * 64,
        b"\0\0\0\x20ftypM4A " + b"\0" * 64,
        b"ID3\x04\0\0\0\0\0\0",
    ],
)
def test_what_is_not_audio_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_audio(content)
    assert caught.value.field == "audio"


def test_a_hundred_minutes_are_refused_without_decoding_them() -> None:
    # MP3 frames can be repeated: 100 minutes behind a header that says half a second.
    half_second = encode(np.zeros(4000, np.float32), "mp3", "libmp3lame", 8000, "mono")
    content = half_second * 12_000
    started = time.monotonic()
    with pytest.raises(InvalidRequest, match="longer") as caught:
        decode_audio(content, max_seconds=30)
    assert caught.value.limit == 30
    assert time.monotonic() - started < 2.0


def test_a_file_that_hides_its_length_is_stopped_while_decoding() -> None:
    content = bytearray(wav(tone(3.0, 24000)))
    where = content.find(b"data") + 4
    content[where : where + 4] = b"\xff\xff\xff\xff"
    with pytest.raises(InvalidRequest, match="longer"):
        decode_audio(bytes(content), max_seconds=2.0)


def test_ten_channels_and_too_many_bytes_are_refused() -> None:
    header = bytearray(encode(tone(0.1, 16000), "wav", "pcm_s16le", 16000, "mono"))
    where = header.find(b"fmt ") + 10
    header[where : where + 2] = (10).to_bytes(2, "little")
    block = where + 10
    header[block : block + 2] = (20).to_bytes(2, "little")
    with pytest.raises(InvalidRequest, match="10 channels") as caught:
        decode_audio(bytes(header))
    assert caught.value.limit == 8
    with pytest.raises(InvalidRequest, match="larger"):
        decode_audio(wav(tone(1.0, 24000)), max_bytes=1000)


@pytest.mark.parametrize(("container", "codec"), [("wav", "pcm_s16le"), ("mp4", "aac")])
def test_a_cut_off_file_is_refused(container: str, codec: str) -> None:
    whole = encode(tone(4.0, 24000), container, codec, 24000, "mono")
    with pytest.raises(InvalidRequest):
        decode_audio(whole[: len(whole) // 2])


@settings(max_examples=60, deadline=2000)
@given(
    kind=st.sampled_from(["wav", "flac", "mp3", "ogg", "mp4"]),
    places=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=20),
    keep=st.floats(0.05, 1),
)
def test_damaged_files_decode_or_fail_typed(
    kind: str, places: list[tuple[float, int]], keep: float
) -> None:
    codecs = {
        "wav": "pcm_s16le",
        "flac": "flac",
        "mp3": "libmp3lame",
        "ogg": "libopus",
        "mp4": "aac",
    }
    codec = codecs[kind]
    rate = 48000 if kind == "ogg" else 24000
    content = bytearray(encode(tone(0.3, rate), kind, codec, rate, "mono"))
    for place, value in places:
        content[int(place * (len(content) - 1))] = value
    try:
        decoded = decode_audio(bytes(content[: int(len(content) * keep)]), max_seconds=5)
    except InvalidRequest:
        return
    assert np.isfinite(decoded.samples).all()
    assert 0 < len(decoded.samples) <= 5 * decoded.rate
