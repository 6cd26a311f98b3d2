"""The golden runs of the speech LM: what went in. The index says it in words, this in ids."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache

from antiphon.engine.checkpoint import Checkpoint, open_checkpoint
from antiphon.engine.speech_lm.request import Sampling, SpeechLMRequest
from antiphon.engine.voice.voice import LMPrompt
from tests import golden

GREEDY = Sampling(0.8, 25, 10, 0.1, greedy=True)
HELLO = "Hello there, this is a small test of the engine."
LONG = (
    "She said that the meeting should start at nine and that everyone would bring their own notes, "
    "while the people are walking in the street and the river keeps flowing towards the sea, with "
    "care."
)
MEETING = "She said that the meeting should start at nine and."
NOTES = (
    "bring their own notes, while the people are walking in the street and the river keeps flowing "
    "towards the sea, with care. She said that the meeting."
)
UNEVEN = (1, 3, 2, 7, 4)
SINGLE = (1,)


@dataclass(frozen=True)
class Case:
    """One golden run. `pieces` are the lengths in which text arrived, repeated; None: whole."""

    version: int
    name: str
    text: tuple[int, ...]
    prompt: LMPrompt
    pieces: tuple[int, ...] | None

    @property
    def script(self) -> list[int] | None:
        """Ids that stood in for the sampler."""
        found: list[int] | None = golden.notes(self.version)["lm"][self.name].get("script")
        return found

    @property
    def error(self) -> str | None:
        """What the reference implementation raised."""
        found: str | None = golden.notes(self.version)["lm"][self.name]["error"]
        return found

    def expected(self, what: str = "tokens") -> list[int]:
        """Return the reference ids."""
        ids: list[int] = golden.array(self.version, "lm", f"{self.name}.{what}").tolist()
        return ids

    def in_pieces(self) -> list[tuple[int, ...]]:
        """Return the text as it arrived."""
        assert self.pieces is not None
        return cut(self.text, self.pieces)

    def request(self) -> SpeechLMRequest:
        """Return the request, streaming where the case streams."""
        text = self.text if self.pieces is None else stream(self.in_pieces())
        return SpeechLMRequest(self.prompt, text, GREEDY)


def cut(ids: tuple[int, ...], lengths: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Cut ids into pieces of the given lengths, repeated until nothing is left."""
    pieces = []
    while ids:
        for length in lengths:
            pieces.append(ids[:length])
            ids = ids[length:]
    return [piece for piece in pieces if piece]


async def stream(pieces: list[tuple[int, ...]]) -> AsyncIterator[tuple[int, ...]]:
    """Yield pieces without delay."""
    for piece in pieces:
        yield piece


@cache
def checkpoint(version: int) -> Checkpoint:
    """Open the tiny checkpoint of a generation."""
    return open_checkpoint(golden.model_dir(version))


@cache
def cases(version: int) -> dict[str, Case]:
    """Return the golden runs of version 2 or 3 by name."""
    encode = checkpoint(version).tokenizer.encode
    system = "You are a helpful assistant.<|endofprompt|>" if version == 3 else ""
    transcript = tuple(encode(f"{system}The quick brown fox jumps over the lazy dog."))
    speech = tuple(golden.array(version, "frontend", "zero_shot.speech_token").flatten().tolist())
    voice = LMPrompt(transcript, speech)
    bare = LMPrompt(tuple(encode("<|endofprompt|>")) if version == 3 else ())
    meeting = tuple(encode("She said that the meeting should start at."))
    plain = {3: HELLO, 2: "She said that the meeting should start at."}[version]
    zero_shot = {3: MEETING, 2: HELLO}[version]
    flowing = (
        "flowing towards the sea, with care. She said that the meeting should start at nine and "
        "that everyone would bring their own notes, while the people are."
    )
    rows: list[tuple[str, str | tuple[int, ...], LMPrompt, tuple[int, ...] | None]] = [
        ("plain", plain, bare, None),
        ("zero_shot", zero_shot, voice, None),
        ("long", LONG, bare, None),
        ("plain_scripted_stop", plain, bare, None),
        ("bistream_prompt_uneven", NOTES, voice, UNEVEN),
        ("bistream_prompt_single", NOTES, voice, SINGLE),
        ("bistream_noprompt_uneven", LONG, bare, UNEVEN),
        ("bistream_short", meeting[:3], LMPrompt(transcript), SINGLE),
        ("bistream_prompt_short_text", HELLO, voice, SINGLE),
        ("bistream_scripted", HELLO, bare, SINGLE),
    ]
    if version == 3:
        rows.append(("bistream_prompt_error", LONG, voice, UNEVEN))
    else:
        rows.append(("min_len", flowing, bare, None))
    return {
        name: Case(
            version, name, tuple(encode(text)) if isinstance(text, str) else text, prompt, pieces
        )
        for name, text, prompt, pieces in rows
    }


_COMMON = [
    "plain",
    "zero_shot",
    "long",
    "plain_scripted_stop",
    "bistream_prompt_uneven",
    "bistream_prompt_single",
    "bistream_noprompt_uneven",
    "bistream_short",
    "bistream_prompt_short_text",
    "bistream_scripted",
]
NAMES = {3: [*_COMMON, "bistream_prompt_error"], 2: [*_COMMON, "min_len"]}
