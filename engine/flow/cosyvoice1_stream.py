"""CosyVoice 1's mel while it grows: overlapping windows, faded into each other.

Nothing in this flow is causal, so a window is solved anew with the prompt before it. Its last 20
tokens are solved again by the next window, from the same noise and the same mu; both mels are faded
over these 34 frames. Frames are counted from the beginning of the turn, so that rounding does not
add up over the windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from antiphon.engine.flow.cosyvoice1 import EDGE_TOKENS, Continuation, RegulatedFlow
from antiphon.engine.flow.flow_matching import SolverPlan, fixed_noise, noise_slice
from antiphon.engine.flow.stream import FlowVoice
from antiphon.engine.flow.unet_matching import UNetSolution

SHORTEST_HOP_TOKENS = 25
"""Half a second: shorter windows cost a prompt each and lack context to be good."""


@dataclass(frozen=True, slots=True, eq=False)
class WindowedState:
    """One stream between hops: a value."""

    voice: FlowVoice
    plan: SolverPlan
    tokens: tuple[int, ...] = ()
    """Ids from `final_tokens` on: the overlap and what waits."""
    final_tokens: int = 0
    """Speech tokens whose mel was handed out."""
    frames: int = 0
    """Speech frames that were handed out."""
    overlap: Tensor | None = None
    """(frames, mel) that the last window made of the overlap."""
    continuation: Continuation | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that this state alone holds."""
        if self.overlap is None or self.continuation is None:
            return 0
        kept = (self.overlap, self.continuation.noise, self.continuation.mu)
        return sum(tensor.nbytes for tensor in kept)

    def shared(self) -> WindowedState:
        """Return the state of a turn that begins here."""
        return self


@dataclass(slots=True, eq=False)
class WindowSolution(UNetSolution):
    """The solution of one window, its prompt included, under way."""

    stop: int
    """Speech tokens that are handed out afterwards."""
    first_frame: int
    """Of the window, in prompt and window."""
    final: bool
    after: Continuation


class RegulatedStreamer:
    """Weights and fixed noise; makes states and moves them forward."""

    def __init__(self, flow: RegulatedFlow) -> None:
        self.flow = flow
        self._device = flow.input_embedding.weight.device
        self._noise = fixed_noise(flow.config.output_size).to(self._device)
        self._overlap = flow.frames(EDGE_TOKENS)

    @property
    def cache_bytes(self) -> int:
        """Streams share no memory."""
        return 0

    def voice(self, tokens: Tensor, mel: Tensor, embedding: Tensor) -> FlowVoice:
        """Bring a voice's arrays (see `AcousticPrompt`) to where the weights are."""
        with torch.inference_mode():
            speaker = self.flow.speaker(embedding[None].to(self._device))[0]
        return FlowVoice(tokens.to(self._device), mel.to(self._device), speaker)

    def start(self, voice: FlowVoice, plan: SolverPlan) -> WindowedState:
        """Return a stream of a voice."""
        return WindowedState(voice, plan)

    def prompt_tokens_to_share(self, state: WindowedState) -> int:
        """None: every window solves the prompt with its own speech in sight."""
        return 0

    def available(self, state: WindowedState, *, final: bool) -> int:
        """Speech tokens that can be handed out: all at the end, else all but the overlap."""
        total = state.final_tokens + len(state.tokens)
        if final:
            return total
        usable = total - EDGE_TOKENS
        return usable if usable >= state.final_tokens + SHORTEST_HOP_TOKENS else state.final_tokens

    def append(self, state: WindowedState, tokens: Sequence[int]) -> WindowedState:
        """Return the state with more speech tokens waiting."""
        return replace(state, tokens=(*state.tokens, *tokens))

    def next_solution(self, state: WindowedState, *, final: bool) -> WindowSolution | None:
        """Set up a window over all tokens that wait, or None where they are too few."""
        stop = self.available(state, final=final)
        if stop <= state.final_tokens:
            return None
        prompt = state.voice.mel
        total = state.final_tokens + len(state.tokens)
        # The end of a very short speech may round down to nothing: it gets its one frame.
        last = max(self.flow.frames(total), state.frames + 1)
        noise = torch.cat(
            [
                noise_slice(self._noise, 0, len(prompt)),
                noise_slice(self._noise, len(prompt) + state.frames, len(prompt) + last),
            ]
        )
        noise, mu, cond, after = self.flow.prepare_window(
            torch.tensor([state.tokens], device=self._device),
            state.voice.tokens[None],
            prompt[None],
            noise[None],
            state.continuation,
        )
        return WindowSolution(
            plan=state.plan,
            mu=mu,
            cond=cond,
            speaker=state.voice.speaker[None],
            x=noise[0],
            velocity=torch.zeros_like(noise[0]),
            call=0,
            stop=stop,
            first_frame=len(prompt),
            final=final,
            after=after,
        )

    def solve_step(self, solutions: Sequence[WindowSolution]) -> None:
        """Advance every solution by one call of the estimator."""
        for solution in solutions:
            solution.advance(self.flow.decoder.estimator, None, chunked=False)

    def discard(self, solution: WindowSolution) -> None:
        """Let go of a solution whose mel is not finite: it shares no memory that it spoils."""

    def speech(self, state: WindowedState, solution: WindowSolution) -> tuple[int, Tensor]:
        """Frames that a done solution hands out: the first one's number, (frames, mel)."""
        mel = self._faded(state, solution)
        return state.frames, mel if solution.final else mel[: -self._overlap]

    def finish(
        self, state: WindowedState, solution: WindowSolution, left_context: int | None
    ) -> WindowedState:
        """Take a done solution over. `left_context` has no meaning: windows see the prompt only."""
        assert solution.done, "a solution is taken over when all calls were made"
        mel = self._faded(state, solution)
        handed_out = len(mel) - (0 if solution.final else self._overlap)
        return replace(
            state,
            tokens=state.tokens[solution.stop - state.final_tokens :],
            final_tokens=solution.stop,
            frames=state.frames + handed_out,
            overlap=None if solution.final else mel[handed_out:],
            continuation=solution.after,
        )

    def _faded(self, state: WindowedState, solution: WindowSolution) -> Tensor:
        """Fade from the last window's overlap into this window, (frames, mel)."""
        mel = solution.x[solution.first_frame :]
        if state.overlap is None:
            return mel
        length = min(len(state.overlap), len(mel))
        rise = (torch.arange(length, device=mel.device, dtype=mel.dtype) + 0.5) / length
        rise = rise[:, None]
        faded = mel[:length] * rise + state.overlap[:length] * (1 - rise)
        return torch.cat([faded, mel[length:]])
