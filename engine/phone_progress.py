"""Word times read off speech codes that say which phone begins when."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile

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

    A mark's is the silence behind its word, so that a sentence ends where the next one begins. What
    the LM left out takes no time.
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
        if self._rest is None:
            self._rest = self._silence
        self._end_words(None, self._tokens)
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
        self._end_at_silence()
        self._close_words()

    def _end_at_silence(self) -> None:
        word = self._saying
        if word is None or word.left or word.piece.clause_end or word.end is not None:
            return
        behind = None if self._onsets else self._silence
        word.end = behind if self._rest is None else self._rest

    def _say(self, word: _Word, token: int) -> None:
        if word is not self._saying:
            self._end_words(word, token)
            self._saying = word
            word.start = token
        self._rest = None

    def _end_words(self, following: _Word | None, token: int) -> None:
        """End what comes before a word that begins with `token`; None: the segment ends there."""
        for word in takewhile(lambda each: each is not following, self._words):
            if word.end is not None:
                continue
            if word.piece.clause_end:
                word.end = token
            elif word is self._saying:
                word.end = token if self._rest is None else self._rest

    def _close_words(self) -> None:
        """Hand over the words whose times are known."""
        while self._words and not self._words[0].left:
            word = self._words[0]
            start, end = word.start, word.end
            if start is None:
                start = self._end
                # What was left out takes no time; a mark waits for the silence's end.
                end = end if word.piece.clause_end else start
            if end is None:
                return
            self._words.popleft()
            self._end = end
            self._spoken.append(
                SpeechProgress(
                    word.piece.text,
                    word.piece.source_end,
                    start * self._seconds_a_token,
                    end * self._seconds_a_token,
                )
            )
