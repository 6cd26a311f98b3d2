"""Every output format: tone in, the same tone out, whatever the split."""

from __future__ import annotations

import importlib.util
import io
import itertools
import time

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from antiphon.engine.audio_file import decode_audio
from antiphon.engine.errors import InvalidConfiguration, InvalidRequest
from antiphon.server.audio import (
    AudioFormat,
    Encoder,
    OpusApplication,
    OpusBackend,
    OpusTuning,
    make_encoder,
    parse_format,
    rates_of,
)
from antiphon.server.audio import opus as opus_module
from antiphon.server.audio.g711 import decode_alaw, decode_ulaw
from antiphon.server.audio.resample import resampled_length
from antiphon.server.audio.samples import from_pcm, to_float
from tests.server.audio.marked import as_marked, tone

RAW = (AudioFormat.PCM, AudioFormat.ULAW, AudioFormat.ALAW)
EVERY = [(fmt, rate) for fmt in AudioFormat for rate in sorted(rates_of(fmt))]


def opuslib_works() -> bool:
    if importlib.util.find_spec("opuslib") is None:
        return False
    try:
        opus_module._opuslib()
    except InvalidConfiguration:
        return False
    return True


BACKENDS = [
    OpusBackend.AV,
    pytest.param(
        OpusBackend.OPUSLIB,
        marks=pytest.mark.skipif(not opuslib_works(), reason="opuslib or libopus is missing"),
    ),
]


def encode_all(
    encoder: Encoder, samples: NDArray[np.float32], cuts: list[int] | None = None
) -> list[bytes]:
    edges = [0, *sorted(cuts or []), len(samples)]
    messages: list[bytes] = []
    for start, stop in itertools.pairwise(edges):
        messages += encoder.encode(as_marked(samples[start:stop], encoder.source_rate))
    return messages + encoder.finish()


def decode_opus_packets(packets: list[bytes], rate: int) -> NDArray[np.float32]:
    codec = av.CodecContext.create("libopus", "r")
    assert isinstance(codec, av.AudioCodecContext)
    codec.sample_rate = rate
    codec.layout = "mono"
    codec.open()
    frames = [
        frame.to_ndarray()[0] for packet in packets for frame in codec.decode(av.Packet(packet))
    ]
    joined = np.concatenate(frames)
    return to_float(joined) if joined.dtype == np.int16 else joined.astype(np.float32)


def decode_messages(fmt: AudioFormat, rate: int, messages: list[bytes]) -> tuple[NDArray, int]:
    data = b"".join(messages)
    match fmt:
        case AudioFormat.PCM:
            return from_pcm(data), rate
        case AudioFormat.ULAW:
            return to_float(decode_ulaw(data)), rate
        case AudioFormat.ALAW:
            return to_float(decode_alaw(data)), rate
        case AudioFormat.OPUS_RAW:
            return decode_opus_packets(messages, 48000), 48000
        case _:
            decoded = decode_audio(data)
            return decoded.samples, decoded.rate


def tone_fit(samples: NDArray, rate: int, hz: float) -> tuple[float, float]:
    """Amplitude of the best-fitting sine at `hz` and the rest's power against it, in dB."""
    phase = 2 * np.pi * hz * np.arange(len(samples)) / rate
    basis = np.stack([np.sin(phase), np.cos(phase)], axis=1)
    weights, *_ = np.linalg.lstsq(basis, samples.astype(np.float64), rcond=None)
    fitted = basis @ weights
    rest = samples - fitted
    level = float(np.hypot(*weights))
    return level, 10 * np.log10(np.mean(rest**2) / np.mean(fitted**2) + 1e-12)


@pytest.mark.parametrize(("fmt", "rate"), EVERY)
def test_a_tone_keeps_pitch_level_and_length(fmt: AudioFormat, rate: int) -> None:
    seconds, hz = 1.01, 437.0
    samples = tone(hz, seconds)
    encoder = make_encoder(fmt, rate, bitrate=64_000 if fmt in (AudioFormat.MP3,) else None)
    messages = encode_all(encoder, samples, cuts=list(range(500, len(samples), 500)))

    assert encoder.samples_in == len(samples)
    assert encoder.samples_out == resampled_length(len(samples), 24000, rate)
    heard, heard_rate = decode_messages(fmt, rate, messages)

    # Codec delay and padding make streams longer, never shorter; MP3 and AAC do not say by how
    # much. 2304 samples is what LAME and a decoder add at most.
    extra = len(heard) / heard_rate - seconds
    slack = 2400 / rate if fmt in (AudioFormat.MP3, AudioFormat.AAC) else 0.041
    assert -1 / rate <= extra <= slack, extra

    middle = heard[round(0.25 * heard_rate) : round(0.9 * heard_rate)]
    level, rest_db = tone_fit(middle, heard_rate, hz)
    assert level == pytest.approx(0.5, rel=0.06)
    limits = {AudioFormat.OPUS: -18, AudioFormat.OPUS_RAW: -18, AudioFormat.AAC: -25}
    g711 = fmt in (AudioFormat.ULAW, AudioFormat.ALAW)
    assert rest_db < (-35 if g711 else limits.get(fmt, -45))


@pytest.mark.parametrize("fmt", [*RAW, AudioFormat.WAV, AudioFormat.FLAC])
def test_no_step_at_borders(fmt: AudioFormat) -> None:
    hz = 300.0
    samples = tone(hz, 0.6)
    messages = encode_all(make_encoder(fmt, 24000), samples, cuts=list(range(77, 14000, 77)))
    heard, rate = decode_messages(fmt, 24000, messages)
    steps = np.abs(np.diff(heard[: len(samples)]))
    steepest = 0.5 * 2 * np.pi * hz / rate
    quantum = 0.5 / 16 if fmt in (AudioFormat.ULAW, AudioFormat.ALAW) else 1e-4
    assert steps.max() <= steepest + quantum


@pytest.mark.parametrize(("fmt", "rate"), [
    (AudioFormat.PCM, 24000), (AudioFormat.PCM, 22050), (AudioFormat.WAV, 44100),
    (AudioFormat.ULAW, 8000), (AudioFormat.ALAW, 8000), (AudioFormat.OPUS_RAW, 24000),
    (AudioFormat.OPUS_RAW, 48000), (AudioFormat.OPUS, 16000), (AudioFormat.MP3, 24000),
    (AudioFormat.FLAC, 24000), (AudioFormat.AAC, 24000),
])  # fmt: skip
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    length=st.integers(0, 6000),
    fractions=st.lists(st.floats(0, 1, allow_nan=False), max_size=12),
)
def test_any_split_gives_the_same_bytes(
    fmt: AudioFormat, rate: int, length: int, fractions: list[float]
) -> None:
    samples = np.random.default_rng(5).normal(0, 0.2, length).astype(np.float32)
    whole = encode_all(make_encoder(fmt, rate), samples)
    pieces = encode_all(make_encoder(fmt, rate), samples, [int(f * length) for f in fractions])
    assert b"".join(pieces) == b"".join(whole)
    if fmt is AudioFormat.OPUS_RAW:
        assert pieces == whole


@pytest.mark.parametrize(("hz", "rate"), [(6000, 8000), (7000, 12000), (9000, 16000)])
def test_what_a_lower_rate_cannot_hold_is_filtered_out(hz: int, rate: int) -> None:
    messages = encode_all(make_encoder(AudioFormat.PCM, rate), tone(hz, 0.5))
    heard = from_pcm(b"".join(messages))[rate // 20 : -rate // 20]
    # An alias would be as loud as the tone itself.
    assert 20 * np.log10(np.sqrt(np.mean(heard**2)) / 0.35 + 1e-9) < -50


@given(
    length=st.integers(0, 9000),
    rate=st.sampled_from(sorted(rates_of(AudioFormat.PCM))),
    source=st.sampled_from([16000, 22050, 24000]),
    fractions=st.lists(st.floats(0, 1, allow_nan=False), max_size=5),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_samples_are_counted_exactly(
    length: int, rate: int, source: int, fractions: list[float]
) -> None:
    encoder = make_encoder(AudioFormat.WAV, rate, source)
    samples = np.random.default_rng(6).normal(0, 0.2, length).astype(np.float32)
    data = b"".join(encode_all(encoder, samples, [int(f * length) for f in fractions]))
    assert encoder.samples_out == (len(data) - 44) // 2
    assert abs(encoder.samples_out - round(length * rate / source)) <= 1


@pytest.mark.parametrize("rate", sorted(rates_of(AudioFormat.PCM)))
def test_the_resampler_holds_back_two_milliseconds_at_most(rate: int) -> None:
    # One sample a frame, so that framing holds back nothing.
    encoder = make_encoder(AudioFormat.PCM, rate, frame_ms=20)
    encoder._codec.frame_samples = 1
    given_samples = 0
    for _ in range(20):
        encoder.encode(as_marked(tone(300, 0.02)))
        given_samples += 480
        held_ms = 1000 * (given_samples / 24000 - encoder.samples_out / rate)
        assert held_ms <= 2.0 + 1000 / rate


def test_pcm_messages_last_20_to_100_ms_and_the_last_is_padded() -> None:
    encoder = make_encoder(AudioFormat.PCM, 24000)
    messages = encoder.encode(as_marked(tone(300, 0.333)))
    messages += encoder.encode(as_marked(tone(300, 0.021)))
    messages += encoder.finish()
    assert all(960 <= len(message) <= 4800 for message in messages)
    assert all(len(message) % 960 == 0 for message in messages)
    assert encoder.samples_out == round(0.354 * 24000)
    assert sum(map(len, messages)) == 18 * 960


def test_fixed_messages_for_the_telephone() -> None:
    encoder = make_encoder(AudioFormat.ULAW, 8000, message_ms=20)
    messages = encode_all(encoder, tone(300, 0.5))
    assert {len(message) for message in messages} == {160}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rate", sorted(rates_of(AudioFormat.OPUS_RAW)))
def test_raw_opus_is_one_20_ms_packet_a_message(backend: OpusBackend, rate: int) -> None:
    samples = tone(437, 0.5)
    encoder = make_encoder(AudioFormat.OPUS_RAW, rate, opus_backend=backend)
    messages = encode_all(encoder, samples, cuts=[1, 700, 5000])
    # 25 packets of speech and one for the codec's delay.
    assert len(messages) == 26
    # RFC 6716, section 3.1: configurations of 20 ms, one frame, mono.
    for message in messages:
        config, stereo, count = message[0] >> 3, message[0] >> 2 & 1, message[0] & 3
        assert (stereo, count) == (0, 0)
        assert config % 4 == (1 if config < 12 else 3) or config in (13, 15)
    heard = decode_opus_packets(messages, 48000)
    level, _ = tone_fit(heard[9600:22000], 48000, 437)
    assert level == pytest.approx(0.5, rel=0.06)


@pytest.mark.parametrize("backend", BACKENDS)
def test_both_opus_back_ends_state_their_delay(backend: OpusBackend) -> None:
    make = opus_module.opus_encoder
    voip = make(24000, bitrate=32000, backend=backend)
    low = make(24000, bitrate=32000, backend=backend, application=OpusApplication.LOW_DELAY)
    assert (voip.lookahead_samples, low.lookahead_samples) == (156, 60)
    impulse = np.zeros(480, dtype=np.float32)
    impulse[200] = 0.9
    packets = low.encode(impulse) + low.encode(np.zeros(480, dtype=np.float32)) + low.finish()
    heard = decode_opus_packets(packets, 48000)
    assert int(np.abs(heard).argmax()) == pytest.approx(2 * (200 + 60), abs=6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_error_correction_is_switched_in_a_running_turn_without_a_seam(
    backend: OpusBackend,
) -> None:
    samples = tone(300, 1.2)
    tuning = OpusTuning(bitrate=32_000)
    encoder = make_encoder(AudioFormat.OPUS_RAW, 24000, opus_backend=backend, opus_tuning=tuning)
    packets: list[bytes] = []
    for i, start in enumerate(range(0, len(samples), 480)):
        tuning.loss_percent = 10 if 20 <= i < 40 else 0
        packets += encoder.encode(as_marked(samples[start : start + 480]))
    packets += encoder.finish()
    assert len(packets) == 61
    assert encoder.samples_out == len(samples)
    heard = decode_opus_packets(packets, 48000)
    for at in (20, 40):
        around = heard[at * 960 - 960 : at * 960 + 2880]
        assert np.abs(np.diff(around)).max() < 1.5 * 0.5 * 2 * np.pi * 300 / 48000
        level, rest_db = tone_fit(around, 48000, 300)
        assert level == pytest.approx(0.5, rel=0.1)
        assert rest_db < -15


def test_a_lost_packet_is_filled_from_the_next_one() -> None:
    # Speech-like: error correction lives in Opus' speech layer. A rising pitch, so that plain
    # concealment, which goes on with the old one, is told apart from the real thing.
    time_s = np.arange(24000) / 24000
    rising = 0.4 * np.sin(2 * np.pi * (120 * time_s + 180 * time_s**2))
    voice = (rising * (1 + 0.8 * np.sin(2 * np.pi * 5 * time_s))).astype(np.float32)

    def correction_sizes(loss_percent: int) -> int:
        tuning = OpusTuning(bitrate=24_000, loss_percent=loss_percent)
        encoder = make_encoder(AudioFormat.OPUS_RAW, 16000, opus_tuning=tuning)
        packets = encode_all(encoder, voice)
        # RFC 6716, section 4.2.3: in the speech layer's frame header the bit after the voice
        # activity flag says whether a copy of the previous frame follows.
        return sum(1 for packet in packets if packet[0] >> 3 < 12 and packet[1] & 0x40)

    assert correction_sizes(0) == 0
    assert correction_sizes(20) > 20


def test_gain_rounds_peaks_off_and_keeps_the_rest() -> None:
    quiet, loud = tone(300, 0.2, level=0.1), tone(300, 0.2, level=0.9)
    for samples, peak in ((quiet, 0.2), (loud, 1.0)):
        encoder = make_encoder(AudioFormat.WAV, 24000, gain_db=6.02)
        heard = from_pcm(b"".join(encode_all(encoder, samples))[44:])
        assert np.abs(heard).max() == pytest.approx(peak, abs=0.01)
        assert np.abs(heard).max() < 1.0


def test_a_step_blocks_the_loop_for_less_than_a_millisecond() -> None:
    samples = as_marked(np.random.default_rng(1).normal(0, 0.2, 48000))
    for fmt in (AudioFormat.OPUS_RAW, AudioFormat.OPUS, AudioFormat.ULAW, AudioFormat.PCM):
        encoder = make_encoder(fmt, 24000)
        steps = encoder.steps(samples)
        seconds = []
        while True:
            start = time.perf_counter()
            if next(steps, None) is None:
                break
            seconds.append(time.perf_counter() - start)
        # The median: other work on a shared machine stretches some.
        assert np.median(seconds) < 1e-3, fmt


@pytest.mark.parametrize("rate", [11025, 22050, 32000, 44100])
@pytest.mark.parametrize("fmt", [AudioFormat.OPUS, AudioFormat.OPUS_RAW])
def test_opus_at_a_rate_it_does_not_have_is_refused_by_name(fmt: AudioFormat, rate: int) -> None:
    with pytest.raises(InvalidRequest, match=f"{fmt.value} is not offered at {rate}") as caught:
        make_encoder(fmt, rate)
    assert caught.value.field == "sample_rate"
    assert caught.value.limit == "8000, 12000, 16000, 24000, 48000"


def test_wrong_requests_are_typed() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_format("vorbis")
    assert caught.value.field == "response_format"
    with pytest.raises(InvalidRequest) as caught:
        make_encoder(AudioFormat.MP3, 24000, bitrate=1)
    assert caught.value.field == "bitrate"
    with pytest.raises(InvalidRequest):
        make_encoder(AudioFormat.PCM, 7)


def test_unmarked_audio_is_not_encoded() -> None:
    encoder = make_encoder(AudioFormat.PCM, 24000)
    with pytest.raises(TypeError):
        encoder.encode(tone(300, 0.1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="24000"):
        encoder.encode(as_marked(tone(300, 0.1), 22050))


@pytest.mark.parametrize("fmt", list(AudioFormat))
def test_an_empty_turn_ends_cleanly(fmt: AudioFormat) -> None:
    encoder = make_encoder(fmt, 24000)
    data = b"".join(encoder.finish())
    assert encoder.samples_out == 0
    if fmt in (*RAW, AudioFormat.OPUS_RAW):
        assert data == b""
    if fmt is AudioFormat.WAV:
        assert data[:4] == b"RIFF"


@pytest.mark.parametrize("fmt", list(AudioFormat))
def test_a_cancelled_turn_is_just_dropped(fmt: AudioFormat) -> None:
    for _ in range(3):
        encoder = make_encoder(fmt, 24000)
        encoder.encode(as_marked(tone(300, 0.05)))
        del encoder


def test_streamed_wav_says_that_its_length_is_open() -> None:
    header = make_encoder(AudioFormat.WAV, 24000).encode(as_marked(tone(300, 0.1)))[0][:44]
    assert header[4:8] == header[40:44] == b"\xff\xff\xff\xff"


def test_ogg_pages_leave_every_20_ms() -> None:
    encoder = make_encoder(AudioFormat.OPUS, 24000)
    messages = encoder.encode(as_marked(tone(300, 0.4)))
    assert len(messages) == 20
    with av.open(io.BytesIO(b"".join(messages + encoder.finish())), mode="r") as container:
        assert container.streams.audio[0].codec_context.name in ("opus", "libopus")
