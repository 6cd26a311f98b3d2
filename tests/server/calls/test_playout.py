"""The queue of a call and its clock, with numbers for time."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.interface import SpeechRequest
from antiphon.server.audio import AudioFormat
from antiphon.server.calls.playout import FRAME_S, FrameFormat, MediaClock, Playout
from antiphon.server.settings import TurnSettings
from antiphon.server.turn_events import Audio, Done, Effect, Progress, TurnReport

FORM = FrameFormat(silence=b"\0" * 4, frame_bytes=4)
SETTINGS = TurnSettings("tone", SpeechRequest("low"), AudioFormat.PCM, 100, "none")


def audio(turn: int, payload: bytes) -> Audio:
    return Audio(turn, "", payload, len(payload) // 2, 0.02)


def progress(turn: int, text: str) -> Progress:
    return Progress(turn, "", text, len(text), 0, 0.0, 0.1)


def done(turn: int) -> Done:
    return Done(TurnReport(turn, "", SETTINGS, "stop", 10, 5, 0.1, 0.1, 0, 0.0))


def drain(playout: Playout) -> tuple[bytes, list[Effect]]:
    heard, reports = b"", []
    while True:
        step = playout.next()
        reports += step.reports
        if step.frame is None:
            return heard, reports
        heard += step.frame.payload


def test_messages_are_cut_into_frames_and_reports_wait_for_their_place() -> None:
    playout = Playout(FORM, 1.0)
    playout.put(audio(0, b"aaaabbbb"))
    playout.put(progress(0, "a"))
    playout.put(audio(0, b"cccc"))
    playout.put(done(0))
    first = playout.next()
    assert first.frame is not None
    assert first.frame.payload == b"aaaa"
    assert [type(each) for each in first.reports] == [Audio]
    second = playout.next()
    assert second.frame is not None
    assert (second.frame.payload, second.reports) == (b"bbbb", [])
    third = playout.next()
    assert third.frame is not None
    assert [type(each) for each in third.reports] == [Progress, Audio]
    assert playout.played_s(0) == pytest.approx(0.06)
    last = playout.next()
    assert last.frame is None
    assert [type(each) for each in last.reports] == [Done]
    assert playout.counters.underruns == 0
    assert playout.is_empty


def test_a_turn_that_goes_on_without_a_frame_is_an_underrun_once() -> None:
    playout = Playout(FORM, 1.0)
    playout.put(audio(0, b"aaaa"))
    playout.next()
    for _ in range(5):
        assert playout.next().frame is None
    assert playout.counters.underruns == 1
    playout.put(audio(0, b"bbbb"))
    playout.next()
    playout.next()
    assert playout.counters.underruns == 2
    playout.put(done(0))
    for _ in range(5):
        playout.next()
    assert playout.counters.underruns == 2
    assert playout.counters.silence_frames == 11


def test_a_turn_gathers_a_few_frames_before_it_begins() -> None:
    playout = Playout(FrameFormat(silence=b"\0" * 4, frame_bytes=4, preroll=3), 1.0)
    playout.put(audio(0, b"aaaa"))
    assert playout.next().frame is None
    playout.put(audio(0, b"bbbbcccc"))
    assert [playout.next().frame is None for _ in range(4)] == [False, False, False, True]
    assert playout.counters.underruns == 1  # the turn goes on
    playout.put(audio(0, b"dddd"))
    assert playout.next().frame is not None
    playout.put(done(0))
    # A short turn that is complete, and one that comes slowly, begin without more.
    playout.put(audio(1, b"eeee"))
    playout.put(done(1))
    assert playout.next().frame is not None
    playout.put(audio(2, b"ffff"))
    assert [playout.next().frame is None for _ in range(4)] == [True, True, True, False]


def test_barge_in_drops_speech_and_says_that_turns_were_cancelled() -> None:
    playout = Playout(FORM, 1.0)
    playout.put(audio(0, b"aaaabbbb"))
    playout.put(progress(0, "a"))
    playout.put(done(0))
    playout.next()
    (ended,) = playout.clear()
    assert isinstance(ended, Done)
    assert ended.report.finish_reason == "cancelled"
    assert playout.next().frame is None
    assert playout.counters.dropped_frames == 1
    assert playout.counters.underruns == 0


def test_what_a_buffering_peer_has_not_played_is_unheard() -> None:
    playout = Playout(FORM, 1.0)
    for item in (audio(0, b"aaaa"), progress(0, "one"), audio(0, b"bbbb"), done(0)):
        playout.put(item)
    playout.defer("m1", playout.next().reports)
    playout.defer("m2", playout.next().reports)
    playout.defer("m3", playout.next().reports)
    assert [type(each) for each in playout.heard("m1")] == [Audio]
    (ended,) = playout.clear()
    assert isinstance(ended, Done)
    assert ended.report.finish_reason == "cancelled"
    # Marks of what was cleared come back at once and mean nothing any more.
    assert playout.heard("m2") == playout.heard("m3") == []


def test_a_later_mark_stands_for_the_earlier_ones() -> None:
    playout = Playout(FORM, 1.0)
    playout.defer("m1", [progress(0, "one")])
    playout.defer("m2", [progress(0, "two")])
    assert [each.text for each in playout.heard("m2") if isinstance(each, Progress)] == [
        "one",
        "two",
    ]


async def test_the_queue_is_bounded_by_its_capacity() -> None:
    playout = Playout(FORM, 0.1)
    for _ in range(5):
        await asyncio.wait_for(playout.room(), 1)
        playout.put(audio(0, b"aaaa"))
    waiting = asyncio.ensure_future(playout.room())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    playout.next()
    await asyncio.wait_for(waiting, 1)


@given(
    st.lists(
        st.one_of(st.binary(min_size=4, max_size=4).map(lambda b: b * 2), st.just(None)),
        max_size=30,
    ),
    st.lists(st.integers(0, 5), max_size=10),
)
def test_whatever_the_rhythm_nothing_is_lost_or_reordered(
    items: list[bytes | None], takes: list[int]
) -> None:
    playout = Playout(FORM, 10.0)
    heard, reports = b"", []
    expected, marks = b"", 0
    pauses = iter(takes)
    for item in items:
        if item is None:
            playout.put(progress(0, str(marks)))
            marks += 1
        else:
            playout.put(audio(0, item))
            expected += item
        for _ in range(next(pauses, 0)):
            step = playout.next()
            reports += step.reports
            heard += step.frame.payload if step.frame else b""
    rest, late = drain(playout)
    assert heard + rest == expected
    texts = [each.text for each in [*reports, *late] if isinstance(each, Progress)]
    assert texts == [str(i) for i in range(marks)]


def test_the_clock_ticks_every_20_ms_whatever_the_delays() -> None:
    clock = MediaClock(100.0)
    now = 100.0
    for i in range(200):
        tick, wait = clock.next(now)
        assert tick == i
        now += wait
        assert now == pytest.approx(100.0 + i * FRAME_S, abs=1e-9)
        now += 0.013 if i % 7 else 0.0  # work between two ticks
    assert clock.jumps == 0


@given(st.lists(st.floats(0, 0.35), min_size=1, max_size=60))
def test_media_time_stays_with_the_wall_clock(stalls: list[float]) -> None:
    clock = MediaClock(0.0)
    now, last = 0.0, -1
    for stall in stalls:
        now += stall
        tick, wait = clock.next(now)
        assert tick > last
        last = tick
        now += wait
        # Never ahead of its time, never more than the bound behind it.
        assert -1e-9 <= now - tick * FRAME_S <= MediaClock.MOST_BEHIND_S + 1e-9


def test_after_a_stall_time_stamps_jump() -> None:
    clock = MediaClock(0.0)
    clock.next(0.0)
    tick, wait = clock.next(1.005)
    assert clock.jumps == 1
    assert tick == 51
    assert wait == pytest.approx(0.015)
