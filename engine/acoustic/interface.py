"""Speech tokens in, samples out: what a session sees of flow and vocoder together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from antiphon.engine.voice.voice import AcousticPrompt
from antiphon.engine.watermark.marked import FloatSamples

LOOK_AHEAD_TOKENS = 3
"""Right context of the flow: a hop of h tokens needs h + 3 tokens from the LM."""
CHUNK_TOKENS = 25
"""Attention blocks of the flow: what lies before the last multiple of this is final."""
VOCODER_HOLD_BACK_S = 0.16
"""Audio that the causal vocoder keeps until more mel follows (8 frames)."""


@dataclass(frozen=True, slots=True)
class AcousticSettings:
    """How one session's mel is solved. Validated by the engine that takes it."""

    steps: int = 10
    """Function evaluations of the solver (NFE) for each hop."""
    cfg_rate: float = 0.7
    """Classifier-free guidance; 0 halves the work."""
    solver: Literal["euler", "midpoint"] = "euler"
    left_context_chunks: int | None = 8
    """Finished 25-token chunks that a new one may attend to besides the prompt; None for all.

    Cost and memory are flat beyond it. Eight seconds change the mel of a long turn about as much
    as halving the solver's steps does (docs/engine.md).
    """
    speed: float = 1.0
    """Tempo of the speech, 0.5 to 2; the pitch stays. A token's samples are divided by it."""
    lead_s: float | None = None
    """Calls: compute at most this far ahead of the listener. None: as capacity allows."""


@dataclass(frozen=True, slots=True)
class SpokenHop:
    """What one hop yields."""

    samples: FloatSamples
    """Float32 mono at the checkpoint's rate: everything that became final to hear."""
    timings: dict[str, float] = field(default_factory=dict)
    """Seconds in `queue`, `flow`, `vocoder`."""


class AcousticStream(Protocol):
    """One turn's flow and vocoder state, owned by one session."""

    async def speak(
        self, tokens: Sequence[int], *, final: bool, deadline: float | None = None
    ) -> SpokenHop:
        """Append tokens and return the samples they make final.

        Until `final`, the last 3 tokens serve as right context only. Over a turn the samples are
        960 for each token, however the tokens were cut into hops. `deadline` is the
        `time.monotonic()` at which the listener runs dry; None means nothing was heard yet.

        Raises:
            SynthesisFailed: non-finite mel or samples.
        """

    def close(self) -> None:
        """Drop the state and any work queued for it. Idempotent; a pending `speak` is cancelled."""


class AcousticEngine(Protocol):
    """Flow and vocoder of one checkpoint, shared by all sessions."""

    @property
    def sample_rate(self) -> int:
        """Samples a second (24000 for CosyVoice 2 and 3)."""

    @property
    def ready(self) -> bool:
        """Whether turns can be spoken now; false while a process is started again."""

    @property
    def open_streams(self) -> int:
        """Turns that are open now."""

    async def warm_voice(self, prompt: AcousticPrompt, settings: AcousticSettings) -> None:
        """Solve a voice's prompt now, so that its first session does not pay for it."""

    def forget_voice(self, key: str) -> None:
        """Drop what is kept for the voice of this `AcousticPrompt.key`."""

    async def open(self, prompt: AcousticPrompt, settings: AcousticSettings) -> AcousticStream:
        """Start a turn in a voice.

        Raises:
            InvalidConfiguration: settings out of range, naming the field.
        """

    async def close(self) -> None:
        """Cancel what runs and free the model."""
