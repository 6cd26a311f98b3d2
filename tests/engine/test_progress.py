from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.hops import SECONDS_A_TOKEN
from antiphon.engine.progress import ProportionalProgress
from antiphon.engine.text.text_stream import TextPiece


def piece(number: int, ids: int) -> TextPiece:
    return TextPiece(tuple(range(ids)), f"w{number}", number + 1, False, False)


@given(
    st.lists(
        st.tuples(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.integers(1, 40)),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 13),
)
def test_each_word_is_reported_once_in_order_within_what_was_spoken(
    turn: list[tuple[list[int], int]], hop: int
) -> None:
    tracker = ProportionalProgress(8, 12)
    spoken = made = words = 0
    reported = []

    def speak(until: int) -> None:
        nonlocal spoken
        while spoken < until:
            spoken = min(spoken + hop, until)
            for progress in tracker.until(spoken * SECONDS_A_TOKEN):
                assert progress.start_s <= progress.end_s <= spoken * SECONDS_A_TOKEN + 1e-6
                reported.append(progress)

    for ids, tokens in turn:
        tracker.begin_segment()
        for count in ids:
            tracker.piece(piece(words, count))
            words += 1
        for _ in range(tokens):
            tracker.token(0)
            made += 1
            # Audio lags behind the LM by the look-ahead.
            speak(max(0, made - 3))
        tracker.end_segment()
    speak(made)
    assert [progress.text for progress in reported] == [f"w{n}" for n in range(words)]
    assert [progress.characters for progress in reported] == list(range(1, words + 1))
    for before, after in pairwise(reported):
        assert before.end_s == after.start_s


def test_a_segment_that_ended_shares_its_length_by_ids() -> None:
    tracker = ProportionalProgress(8, 12)
    tracker.begin_segment()
    for number, ids in enumerate((1, 3)):
        tracker.piece(piece(number, ids))
    for _ in range(40):
        tracker.token(0)
    tracker.end_segment()
    first, second = tracker.until(10.0)
    assert (first.start_s, first.end_s) == (0.0, 10 * SECONDS_A_TOKEN)
    assert (second.start_s, second.end_s) == (10 * SECONDS_A_TOKEN, 40 * SECONDS_A_TOKEN)
