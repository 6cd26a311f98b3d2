"""The turn machine, without sockets: every order of events keeps its promises."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.errors import SynthesisFailed
from antiphon.engine.interface import SpeechRequest
from antiphon.server.audio import AudioFormat
from antiphon.server.config import Limits
from antiphon.server.settings import TurnSettings
from antiphon.server.turn import TurnMachine
from antiphon.server.turn_events import (
    Audio,
    Cancel,
    Close,
    CloseConnection,
    Configure,
    CutOff,
    Done,
    Drain,
    Dropped,
    Effect,
    EndText,
    Failed,
    Feed,
    FeedEnd,
    FeedFlush,
    Finished,
    Flush,
    Opened,
    OpenTurn,
    Progressed,
    PushText,
    Ready,
    Refused,
    Spoke,
    StopTurn,
    Tick,
)

SETTINGS = TurnSettings(
    model="tone",
    request=SpeechRequest("low"),
    format=AudioFormat.PCM,
    sample_rate=24_000,
    watermark="none",
)
LIMITS = Limits(text_queue_chars=100, max_contexts=2)


def machine(limits: Limits = LIMITS) -> TurnMachine:
    return TurnMachine(limits, 0.0)


def configured(limits: Limits = LIMITS) -> TurnMachine:
    made = machine(limits)
    assert made.handle(Configure("", SETTINGS), 0.0) == [Ready("", SETTINGS)]
    return made


def refused(effects: list[Effect]) -> Any:
    found = [effect for effect in effects if isinstance(effect, Refused)]
    assert len(found) == 1
    return found[0].error


def done(effects: list[Effect]) -> Done:
    found = [effect for effect in effects if isinstance(effect, Done)]
    assert len(found) == 1
    return found[0]


def test_a_turn_from_text_to_done() -> None:
    turns = configured()
    assert turns.handle(PushText("", "Hel"), 1.0) == [
        Opened(0, "", SETTINGS),
        OpenTurn(0, "", SETTINGS),
        Feed(0, "Hel"),
    ]
    assert turns.handle(PushText("", "lo."), 1.1) == [Feed(0, "lo.")]
    assert turns.handle(Spoke(0, b"ab", 2400, 0.1, 0.05), 1.25) == [Audio(0, "", b"ab", 2400, 0.1)]
    assert turns.handle(EndText(""), 1.3) == [FeedEnd(0)]
    turns.handle(Spoke(0, b"cd", 2400, 0.1, 0.05), 1.5)
    turns.handle(Progressed(0, "Hello.", 6, 0.0, 0.2), 1.5)
    report = done(turns.handle(Finished(0, "stop"), 1.6)).report
    assert report.samples == 4800
    assert report.first_packet_s == pytest.approx(0.25)
    assert report.rtf == pytest.approx(0.5)
    # The second packet came 0.15 s after a listener had played the first.
    assert (report.gaps, report.gap_s) == (1, pytest.approx(0.15))
    assert report.characters == 6


def test_text_before_a_configuration_is_refused() -> None:
    assert refused(machine().handle(PushText("", "a"), 0.0)).code == "wrong_order"


def test_configuration_while_speaking_is_refused() -> None:
    turns = configured()
    turns.handle(PushText("", "a"), 0.0)
    error = refused(turns.handle(Configure("", SETTINGS), 0.0))
    assert (error.code, error.field) == ("wrong_order", "type")


def test_text_after_the_end_is_refused_until_the_turn_is_done() -> None:
    turns = configured()
    turns.handle(PushText("", "a"), 0.0)
    turns.handle(EndText(""), 0.0)
    assert refused(turns.handle(PushText("", "b"), 0.0)).code == "wrong_order"
    assert refused(turns.handle(EndText(""), 0.0)).code == "wrong_order"
    turns.handle(Finished(0, "stop"), 0.0)
    assert turns.handle(PushText("", "b"), 0.0)[1] == OpenTurn(1, "", SETTINGS)


@pytest.mark.parametrize("text", ["a\x00", "\x1b[0m", "a\x7f", "\x9f", "\ud800", "\udfff b"])
def test_characters_without_a_spoken_form_are_refused(text: str) -> None:
    turns = configured()
    error = refused(turns.handle(PushText("", text), 0.0))
    assert (error.code, error.field) == ("unspeakable_character", "text")


def test_text_beyond_the_queue_is_refused_and_the_turn_goes_on() -> None:
    turns = configured()
    turns.handle(PushText("", "a" * 90), 0.0)
    error = refused(turns.handle(PushText("", "b" * 11), 0.0))
    assert (error.code, error.field, error.limit) == ("text_too_long", "text", 100)
    assert "this piece was not taken" in error.message
    assert turns.handle(PushText("", "c" * 10), 0.0) == [Feed(0, "c" * 10)]
    # What was spoken makes room.
    turns.handle(Progressed(0, "", 50, 0.0, 1.0), 0.0)
    assert turns.handle(PushText("", "d" * 50), 0.0) == [Feed(0, "d" * 50)]


def test_blank_text_opens_nothing_and_is_kept_for_the_count() -> None:
    turns = configured()
    assert turns.handle(PushText("", " \n"), 0.0) == []
    assert turns.handle(PushText("", "a"), 0.0)[-1] == Feed(0, " \na")


def test_a_turn_without_text_is_done_without_work() -> None:
    turns = configured()
    turns.handle(PushText("", "   "), 0.0)
    effects = turns.handle(EndText(""), 0.0)
    assert [type(effect) for effect in effects] == [Opened, Done]
    assert done(effects).report.finish_reason == "empty"


def test_cancel_stops_before_it_answers_and_the_next_turn_is_new() -> None:
    turns = configured()
    turns.handle(PushText("", "a"), 0.0)
    effects = turns.handle(Cancel(""), 0.0)
    assert [type(effect) for effect in effects] == [StopTurn, Done]
    assert done(effects).report.finish_reason == "cancelled"
    assert turns.handle(Spoke(0, b"late", 1, 0.1), 0.0) == []
    assert turns.handle(Finished(0, "cancelled"), 0.0) == []
    assert turns.handle(PushText("", "b"), 0.0)[1] == OpenTurn(1, "", SETTINGS)


def test_cancel_without_a_turn_does_nothing() -> None:
    assert configured().handle(Cancel(""), 0.0) == []


def test_the_rest_of_a_failed_text_is_not_a_new_turn() -> None:
    turns = configured()
    turns.handle(PushText("", "a"), 0.0)
    effects = turns.handle(Failed(0, SynthesisFailed("x")), 0.0)
    assert [type(effect) for effect in effects] == [StopTurn, Refused, Done]
    assert turns.handle(PushText("", "the rest"), 0.0) == []
    assert turns.handle(EndText(""), 0.0) == []
    assert turns.handle(PushText("", "new"), 0.0)[1] == OpenTurn(1, "", SETTINGS)


def test_contexts_are_limited_and_free() -> None:
    turns = configured()
    turns.handle(Configure("a", SETTINGS), 0.0)
    error = refused(turns.handle(Configure("b", SETTINGS), 0.0))
    assert (error.field, error.limit) == ("context_id", 2)
    assert turns.handle(Close("a"), 0.0) == []
    assert turns.handle(Configure("b", SETTINGS), 0.0) == [Ready("b", SETTINGS)]


def test_close_lets_an_ended_turn_speak_and_stops_an_open_one() -> None:
    turns = configured()
    turns.handle(Configure("a", SETTINGS), 0.0)
    turns.handle(PushText("", "ended"), 0.0)
    turns.handle(EndText(""), 0.0)
    turns.handle(PushText("a", "open"), 0.0)
    effects = turns.handle(Close(None), 0.0)
    assert [type(effect) for effect in effects] == [StopTurn, Done]
    assert turns.handle(PushText("", "more"), 0.0) == []
    last = turns.handle(Finished(0, "stop"), 0.0)
    assert last[-1] == CloseConnection(1000, "closed by the client")
    assert turns.closed


def test_draining_ends_open_turns_and_refuses_new_ones() -> None:
    turns = configured()
    turns.handle(PushText("", "a"), 0.0)
    assert turns.handle(Drain(), 0.0) == []
    turns.handle(Configure("x", SETTINGS), 0.0)
    effects = turns.handle(PushText("x", "b"), 0.0)
    assert refused(effects).code == "not_ready"
    last = turns.handle(Finished(0, "stop"), 0.0)
    assert isinstance(last[-1], CloseConnection)
    assert last[-1].code == 1012


def test_a_server_that_stops_ends_every_turn_with_an_error_and_then_the_connection() -> None:
    turns = configured()
    turns.handle(Configure("x", SETTINGS), 0.0)
    turns.handle(PushText("", "a"), 0.0)
    turns.handle(PushText("x", "b"), 0.0)
    turns.handle(Drain(), 0.0)
    effects = turns.handle(CutOff(), 30.0)
    assert [each.error.code for each in effects if isinstance(each, Refused)] == ["not_ready"] * 2
    assert len([each for each in effects if isinstance(each, Done)]) == 2
    assert effects[-1] == CloseConnection(1012, "the server is about to stop")


@pytest.mark.parametrize(
    ("events", "at", "field"),
    [
        ([], 10.0, "first_message_s"),
        ([Configure("", SETTINGS)], 300.0, "idle_s"),
        ([Configure("", SETTINGS), PushText("", "a")], 60.0, "text_wait_s"),
        ([Configure("", SETTINGS), PushText("", "a"), EndText("")], 1800.0, "turn_s"),
    ],
)
def test_deadlines(events: list[Any], at: float, field: str) -> None:
    turns = machine()
    for event in events:
        turns.handle(event, 0.0)
    assert turns.deadline() == pytest.approx(at)
    assert turns.handle(Tick(), at - 0.01) == []
    effects = turns.handle(Tick(), at)
    error = refused(effects)
    assert (error.code, error.field) == ("deadline_exceeded", field)
    assert error.limit == at
    ends_turn = len(events) > 1
    assert isinstance(effects[-1], Done if ends_turn else CloseConnection)


def test_a_listener_who_waits_for_audio_is_not_idle() -> None:
    turns = configured()
    turns.handle(PushText("", "a"), 0.0)
    turns.handle(Spoke(0, b"", 1, 0.1), 50.0)
    assert turns.deadline() == pytest.approx(110.0)


CONTEXTS = st.sampled_from(["", "a", "b"])
COMMANDS = st.one_of(
    st.builds(Configure, CONTEXTS, st.just(SETTINGS)),
    st.builds(PushText, CONTEXTS, st.sampled_from(["one ", "two", "  ", "x" * 60, "\x00"])),
    st.builds(EndText, CONTEXTS),
    st.builds(Flush, CONTEXTS),
    st.builds(Cancel, CONTEXTS),
    st.builds(Close, st.one_of(st.none(), CONTEXTS)),
    st.just(Drain()),
    st.just(CutOff()),
    st.just(Dropped()),
)
TURNS = st.integers(0, 5)
REPORTS = st.one_of(
    st.builds(Spoke, TURNS, st.just(b"x"), st.just(480), st.just(0.02)),
    st.builds(Progressed, TURNS, st.just("x"), st.integers(0, 60), st.just(0.0), st.just(0.1)),
    st.builds(Finished, TURNS, st.sampled_from(["stop", "length", "empty"])),
    st.builds(Failed, TURNS, st.just(SynthesisFailed("x"))),
    st.just(Tick()),
)
STEPS = st.lists(st.tuples(st.one_of(COMMANDS, COMMANDS, REPORTS), st.floats(0, 40)), max_size=60)


@settings(max_examples=400, deadline=None)
@given(STEPS)
def test_any_order_of_events_keeps_the_promises(steps: list[tuple[Any, float]]) -> None:
    turns = machine()
    now = 0.0
    opened: set[int] = set()
    working: set[int] = set()
    ended: set[int] = set()
    texts: dict[int, int] = defaultdict(int)
    closed = False
    for event, wait in steps:
        now += wait
        effects = turns.handle(event, now)
        assert not (closed and effects), "nothing follows the close"
        for i, effect in enumerate(effects):
            match effect:
                case Opened(turn):
                    assert turn == len(opened), "turns are numbered in order"
                    opened.add(turn)
                case OpenTurn(turn):
                    assert turn in opened - ended
                    working.add(turn)
                case Feed(turn, text):
                    assert turn in working - ended
                    texts[turn] += len(text)
                case FeedFlush(turn) | FeedEnd(turn):
                    assert turn in working - ended
                case Audio(turn):
                    assert turn in opened - ended, "no audio after done"
                case Done(report):
                    assert report.turn in opened - ended, "one done a turn"
                    ended.add(report.turn)
                case CloseConnection():
                    assert i == len(effects) - 1
                    closed = True
        assert sum(turns.is_open(turn) for turn in opened) <= LIMITS.max_contexts
        assert turns.unspoken_characters <= LIMITS.max_contexts * LIMITS.text_queue_chars
        assert turns.contexts <= LIMITS.max_contexts
        if isinstance(event, Dropped):
            closed = True
        assert turns.closed == closed
        assert (turns.deadline() is None) == closed
        if not closed and event == Tick():
            due = turns.deadline()
            assert due is not None
            assert due > now, "a tick leaves no deadline behind"
    if not closed:
        turns.handle(Close(None), now)
        for turn in sorted(opened):
            turns.handle(Finished(turn, "stop"), now)
        assert turns.closed, "every turn ends, and then the connection"
