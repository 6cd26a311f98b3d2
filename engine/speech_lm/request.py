"""The request every speech LM backend takes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from antiphon.engine.interface import FinishReason
from antiphon.engine.voice.voice import LMPrompt


@dataclass(frozen=True, slots=True)
class Sampling:
    """Repetition-aware sampling (VALL-E 2, arXiv 2406.05370), as the checkpoint was tuned with."""

    top_p: float
    top_k: int
    window: int
    threshold: float
    """Share of the window that one id may fill before it is drawn again."""
    seed: int | None = None
    greedy: bool = False
    """Arg max instead of a draw (golden numbers, tests)."""


@dataclass(frozen=True, slots=True)
class SpeechLMRequest:
    """Text token ids in, speech token ids out.

    `text` is the whole text (plain layout) or an async iterator of pieces as they arrive
    (bi-stream layout).
    """

    prompt: LMPrompt
    text: Sequence[int] | AsyncIterator[Sequence[int]]
    sampling: Sampling
    min_ratio: float = 2.0
    """Fewest speech tokens for each text token."""
    max_ratio: float = 20.0
    """Most speech tokens for each text token; reaching it ends with `FinishReason.LENGTH`."""
    tenant: str | None = None
    """Whom cached prompt prefixes belong to; None shares them with everyone."""
    voice: str | None = None
    """Whose prompt it is, where its cached prefix may have to become unusable (`revoke`)."""


@dataclass(frozen=True, slots=True)
class WarmPrompt:
    """A prompt to be computed before anybody asks for it, and whose it is (`revoke`)."""

    prompt: LMPrompt
    voice: str | None = None


WarmPrompts = Callable[[], Iterable[WarmPrompt]]


def no_prompts() -> Iterable[WarmPrompt]:
    """Nothing has to be warm."""
    return ()


class Generation(Protocol):
    """Speech ids of one request, one by one; never a fill, a stop or a silent-run id.

    `aclose()` cancels: the backend stops within one step and frees the request's KV.
    """

    @property
    def finish_reason(self) -> FinishReason | None:
        """Set once the iterator has ended by itself."""

    @property
    def cached_ids(self) -> int | None:
        """Ids of the first input that the prefix cache held, known with the first speech token.

        None where the backend has no prefix cache.
        """

    def __aiter__(self) -> AsyncIterator[int]: ...

    async def __anext__(self) -> int: ...

    async def aclose(self) -> None:
        """Cancel. Idempotent."""


class SpeechLM(Protocol):
    """One loaded speech LM, shared by all sessions."""

    @property
    def load_now(self) -> int:
        """Requests that run or wait."""

    @property
    def ready(self) -> bool:
        """Whether requests can be taken now; false before `start` and while it is restarted."""

    async def start(self, prompts: WarmPrompts = no_prompts) -> None:
        """Start what needs an event loop. Idempotent.

        Args:
            prompts: what can be computed of the voices before anybody asks for them; asked for
                at every start, a restart after an engine's death among them.

        Raises:
            InvalidConfiguration, SynthesisFailed: it does not start.
        """

    def revoke(self, voice: str) -> None:
        """Make what was cached of a voice unusable, at once and for good."""

    def generate(self, request: SpeechLMRequest) -> Generation:
        """Start a request. Nothing is computed before the first `__anext__`."""

    async def close(self) -> None:
        """Cancel what runs and free the model."""
