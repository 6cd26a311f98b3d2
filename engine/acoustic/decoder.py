"""What the acoustic engine asks of a model: a mel solved call by call, and a vocoder behind it.

Each generation has its own states and solutions; the engine only passes them on. State is a value:
a failed or cancelled hop leaves its stream's state as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor

from antiphon.engine.errors import SynthesisFailed
from antiphon.engine.flow.flow_matching import SolverPlan
from antiphon.engine.flow.stream import FlowVoice
from antiphon.engine.watermark.marked import FloatSamples


class MelState(Protocol):
    """One stream between hops."""

    @property
    def plan(self) -> SolverPlan:
        """The estimator calls of each solution."""

    @property
    def final_tokens(self) -> int:
        """Prompt and speech tokens whose mel never changes again."""

    @property
    def nbytes(self) -> int:
        """Bytes that this state alone holds."""

    def shared(self) -> Any:
        """Return the state of a turn that begins here and pays for nothing before it."""


class MelSolution(Protocol):
    """One part of a mel under way."""

    @property
    def stop(self) -> int:
        """Tokens that have a mel afterwards."""

    @property
    def x(self) -> Tensor:
        """The mel, once all calls were made."""

    @property
    def done(self) -> bool:
        """Whether all calls were made."""


State = TypeVar("State", bound=MelState)
Solution = TypeVar("Solution", bound=MelSolution)


class MelStreamer(Protocol[State, Solution]):
    """A flow that moves states forward (see `FlowStreamer` for what each method does)."""

    @property
    def cache_bytes(self) -> int:
        """Bytes of a memory that all streams share; 0 where each holds its own."""

    def voice(self, tokens: Tensor, mel: Tensor, embedding: Tensor) -> FlowVoice:
        """Bring a voice's arrays to where the weights are."""

    def start(self, voice: FlowVoice, plan: SolverPlan) -> State:
        """Return a stream that has been given the voice's prompt."""

    def prompt_tokens_to_share(self, state: State) -> int:
        """Prompt tokens that are solved once for all turns of a voice."""

    def available(self, state: State, *, final: bool) -> int:
        """Tokens that can be solved."""

    def append(self, state: State, tokens: Sequence[int]) -> State:
        """Return the state with more speech tokens waiting."""

    def next_solution(self, state: State, *, final: bool) -> Solution | None:
        """Set up the next part, or None when all available tokens are final."""

    def solve_step(self, solutions: Sequence[Solution]) -> None:
        """Advance every solution by one estimator call."""

    def finish(self, state: State, solution: Solution, left_context: int | None) -> State:
        """Take a done solution over."""

    def speech(self, state: State, solution: Solution) -> tuple[int, Tensor]:
        """Speech frames of a done solution: the first one's number in the turn, (frames, mel)."""

    def discard(self, solution: Solution) -> None:
        """Let go of a solution whose mel is not finite."""


class SpeechValue(Protocol):
    """The vocoder's side of a stream."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""


Speech = TypeVar("Speech", bound=SpeechValue)


@dataclass(frozen=True, slots=True)
class Portion(Generic[Speech]):
    """Some more of a stream's samples."""

    samples: FloatSamples
    """Float32 (samples,)."""
    state: Speech
    done: bool
    """Whether the mel that is there makes no more of them final."""


class SpeechVocoder(Protocol[Speech]):
    """Mel to samples, with mel that may still be replaced (see `Vocoder`)."""

    @property
    def sample_rate(self) -> int:
        """Samples a second."""

    def start(self) -> Speech:
        """Return the state of a turn before its first frame."""

    def place(self, state: Speech, first_frame: int, mel: Tensor) -> Speech:
        """Add (frames, mel) that begin at a frame of the turn."""

    def speak(
        self, asked: Sequence[tuple[Speech, bool]]
    ) -> Sequence[Portion[Speech] | SynthesisFailed]:
        """Move streams on by what takes a moment each; the flag says whether their mel ends.

        Streams do not influence each other; one whose samples are not finite fails alone.
        """


@dataclass(frozen=True, slots=True)
class Decoder:
    """A model's flow and vocoder, in the form that the engine serves."""

    streamer: MelStreamer[Any, Any]
    vocoder: SpeechVocoder[Any]
    codes: int
    """Size of the speech codebook."""
