"""Word times read off speech codes that say which phone begins when."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from antiphon.engine.interface import SpeechProgress
from antiphon.engine.phone_alignment import PhoneAlignment, Step
from antiphon.engine.phone_codes import SILENCE, begins, phone_of
from antiphon.engine.text.text_stream import TextPiece


@dataclass(slots=True)
class _Word:
    piece: TextPiece
    left: int
    """Written phones whose fate is not known."""
    start: int | None = None
    """Token with which its first phone begins; None for one that is not said, as a mark."""
    end: int | None = None


@dataclass(frozen=True, slots=True)
class _Onset:
    token: int
    silence: int | None
    """Where a silence before it began, back to the onset before."""


class PhoneProgress:
    """See `ProgressTracker`. A word lasts from its first phone to the next word or a silence.

    Pieces that are not said, marks and what the LM left out, take no time and end with the word
    before them.
    """

    def __init__(self, phones: Mapping[int, int], seconds_a_token: float) -> None:
        """Time the words of a turn.

        Args:
            phones: the phone (`phone_codes.PHONES`) of each text id that is one.
            seconds_a_token: of the speech that is heard.
        """
        self._phones = phones
        self._seconds_a_token = seconds_a_token
        self._tokens = 0
        self._spoken: deque[SpeechProgress] = deque()
        self._end = 0
        """Token with which the last word ended."""
        self._reset()

    def _reset(self) -> None:
        self._alignment = PhoneAlignment()
        self._words: deque[_Word] = deque()
        self._onsets: deque[_Onset] = deque()
        self._saying: _Word | None = None
        self._silence: int | None = None
        """Where the silence behind the last onset began."""
        self._rest: int | None = None
        """Where the first silence behind the last phone that was said began."""

    def begin_segment(self) -> None:
        """See `ProgressTracker`."""
        self.end_segment()

    def piece(self, piece: TextPiece) -> None:
        """See `ProgressTracker`."""
        phones = [self._phones[each] for each in piece.ids if each in self._phones]
        self._words.append(_Word(piece, len(phones)))
        self._alignment.write(phones)
        self._align()

    def token(self, code: int) -> None:
        """See `ProgressTracker`."""
        phone = phone_of(code)
        if phone == SILENCE:
            if self._silence is None:
                self._silence = self._tokens
        elif begins(code):
            self._onsets.append(_Onset(self._tokens, self._silence))
            self._silence = None
            self._alignment.hear(phone)
        self._tokens += 1
        self._align()

    def end_segment(self) -> None:
        """See `ProgressTracker`."""
        self._alignment.end()
        self._align()
        for word in self._words:
            word.left = 0
        if self._saying is not None and self._saying.end is None:
            self._saying.end = _first(self._rest, self._silence, self._tokens)
        self._close_words()
        self._reset()

    def until(self, spoken_s: float) -> list[SpeechProgress]:
        """See `ProgressTracker`."""
        found: list[SpeechProgress] = []
        # Products of floats must not withhold the last word of a segment.
        while self._spoken and self._spoken[0].end_s <= spoken_s + 1e-6:
            found.append(self._spoken.popleft())
        return found

    def _align(self) -> None:
        for step in self._alignment.steps():
            # Heard before written, since an onset ends the word before it.
            onset = None if step is Step.LEFT_OUT else self._onsets.popleft()
            if onset is not None and self._rest is None:
                self._rest = onset.silence
            if step is Step.ADDED:
                continue
            word = next(each for each in self._words if each.left)
            word.left -= 1
            if onset is not None:
                self._say(word, onset.token)
        said = self._saying
        if said is not None and not said.left and said.end is None:
            behind = None if self._onsets else self._silence
            said.end = behind if self._rest is None else self._rest
        self._close_words()

    def _say(self, word: _Word, token: int) -> None:
        if word is not self._saying:
            if self._saying is not None and self._saying.end is None:
                self._saying.end = _first(self._rest, token)
            self._saying = word
            word.start = token
        self._rest = None

    def _close_words(self) -> None:
        """Hand over the words whose times are known."""
        while self._words and not self._words[0].left:
            word = self._words[0]
            if word.start is None:
                word.start = word.end = self._end
            if word.end is None:
                return
            self._words.popleft()
            self._end = word.end
            self._spoken.append(
                SpeechProgress(
                    word.piece.text,
                    word.piece.source_end,
                    word.start * self._seconds_a_token,
                    word.end * self._seconds_a_token,
                )
            )


def _first(*tokens: int | None) -> int:
    return next(token for token in tokens if token is not None)
