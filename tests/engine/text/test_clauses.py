from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from antiphon.engine.text.clauses import Clause, ClauseLimits, ClauseSplitter
from antiphon.engine.text.words import Word
from tests.engine.text.helpers import normalise

WORDS = st.lists(
    st.builds(
        Word,
        st.sampled_from(["one", "two", "and", "because", "three", ""]),
        st.none(),
        st.sampled_from(["", "", "", ",", "."]),
    ).filter(lambda word: bool(word.text or word.mark)),
    max_size=60,
)


def clauses(words: list[Word], limits: ClauseLimits | None = None) -> list[Clause]:
    splitter = ClauseSplitter(limits)
    return [*splitter.push(words), *splitter.end()]


def lines(text: str, limits: ClauseLimits | None = None) -> list[str]:
    return [" ".join(w.text + w.mark for w in c.words) for c in clauses(normalise(text), limits)]


def test_cut_at_marks_and_the_first_clause_may_be_short() -> None:
    assert lines("Sure, I can do that. Yes. It is no trouble at all; come in!") == [
        "Sure,",
        "I can do that.",
        "Yes. It is no trouble at all;",
        "come in!",
    ]


def test_long_ones_are_cut_before_a_conjunction() -> None:
    limits = ClauseLimits(first_max_words=6, max_words=8)
    text = "we went out early because the rain had stopped at last and nobody was around there"
    assert lines(text, limits) == [
        "we went out early",
        "because the rain had stopped at last",
        "and nobody was around there",
    ]


def test_without_a_place_to_cut_the_limit_holds() -> None:
    assert [len(c.words) for c in clauses([Word("word")] * 40)] == [8, 16, 16]


def test_a_mark_behind_the_limit_ends_the_rest_and_no_longer_clause() -> None:
    limits = ClauseLimits(first_max_words=6)
    assert lines("they all went home early because it rained. Good.", limits) == [
        "they all went home early",
        "because it rained.",
        "Good.",
    ]
    full = [*[Word("word")] * 8, Word("word", None, ",")]
    assert [len(c.words) for c in clauses(full)] == [8, 1]


def test_a_lone_pause_joins_the_word_before_it() -> None:
    (first, second) = clauses(normalise("one — two"))
    assert first.words == (Word("one", None, ",", 5),)
    assert second.words == (Word("two", None, "", 9),)


@settings(max_examples=200, deadline=None)
@given(WORDS, st.lists(st.integers(0, 60)))
@example([*[Word("one")] * 8, Word("one", None, ",")], [])
@example([*[Word("one")] * 24, Word("one", None, ".")], [])
def test_streamed_equals_whole_within_limits(words: list[Word], cuts: list[int]) -> None:
    whole = clauses(words)
    splitter = ClauseSplitter()
    streamed: list[Clause] = []
    edges = [0, *sorted(min(c, len(words)) for c in cuts), len(words)]
    for start, end in pairwise(edges):
        streamed += splitter.push(words[start:end])
    assert [*streamed, *splitter.end()] == whole
    assert [w.text for c in whole for w in c.words] == [w.text for w in words if w.text]
    limits = ClauseLimits()
    assert all(len(c.words) <= limits.max_words for c in whole)
    assert all(len(c.words) <= limits.first_max_words for c in whole[:1])
