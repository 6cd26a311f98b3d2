"""How much of a voice's prompt the speech LM should hear.

In the bi-stream layout the prompt's own text and speech fill blocks first. Where a transcript has
few text ids for its speech, the caller's text has to fill those blocks before anything is spoken:
a long prompt can cost half a sentence of waiting.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from antiphon.engine.speech_lm.interleave import split_instruction
from antiphon.engine.voice.voice import LMPrompt


def caller_text_needed(speech: int, text: int, mix_ratio: tuple[int, int]) -> int:
    """Return the caller's text ids that must arrive before the first speech token.

    With mix ratio t:s this is t·ceil(P/s) − T for a prompt of P speech and T transcript ids (the
    instruction not counted), and t more where s divides P because a fill comes first; never less
    than one, since nothing is spoken before some text of the caller's.
    """
    per_text, per_speech = mix_ratio
    needed = per_text * (speech // per_speech + 1) - text
    while needed <= 0:
        needed += per_text
    return needed


@dataclass(frozen=True, slots=True)
class Cut:
    """A place where a prompt may begin: text and speech before it belong together."""

    text: int
    """Transcript ids to leave out, from the front."""
    speech: int
    """Speech ids to leave out, from the front."""


@dataclass(frozen=True, slots=True)
class FittedPrompt:
    """A prompt chosen for early speech."""

    prompt: LMPrompt
    caller_text_needed: int


def fit_prompt(
    prompt: LMPrompt,
    *,
    mix_ratio: tuple[int, int],
    end_of_prompt: int,
    cuts: Iterable[Cut] = (),
    allow_empty: bool = False,
) -> FittedPrompt:
    """Choose where the prompt begins, so that the least of the caller's text is needed.

    The end always stays: it is what the new speech continues. Equal needs are settled in favour of
    the longer prompt. `allow_empty` also considers the instruction alone, for checkpoints whose
    speech tokens carry no timbre.
    """
    instruction, transcript = split_instruction(prompt.text_ids, end_of_prompt)
    whole = Cut(0, 0)
    nothing = Cut(len(transcript), len(prompt.speech_ids))
    candidates = [whole, *cuts, *([nothing] if allow_empty else [])]

    def fitted(cut: Cut) -> FittedPrompt:
        text, speech = transcript[cut.text :], prompt.speech_ids[cut.speech :]
        needed = caller_text_needed(len(speech), len(text), mix_ratio)
        return FittedPrompt(LMPrompt((*instruction, *text), speech), needed)

    return min(
        map(fitted, candidates),
        key=lambda choice: (choice.caller_text_needed, -len(choice.prompt.speech_ids)),
    )
