"""A mel that grows: speech tokens in hops, each paying for its own frames only.

Attention sees to the end of a frame's own 25-token chunk, so a chunk whose tokens (and the 3 after
them) are all there is final: its keys, values and convolution tails are kept for every estimator
call. A hop that ends inside a chunk solves the part that is there; the next hop solves that chunk
again from its start, now with more of it in sight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from antiphon.engine.flow.cache import CachedChunk, PagePool
from antiphon.engine.flow.cached_dit import TAIL, CachedDiT, Modulations
from antiphon.engine.flow.flow import Flow
from antiphon.engine.flow.flow_matching import SolverPlan, fixed_noise, guide, noise_slice


@dataclass(frozen=True, slots=True, eq=False)
class FlowVoice:
    """What the flow knows of a voice."""

    tokens: Tensor
    """(prompt tokens,)"""
    mel: Tensor
    """(2 · prompt tokens, mel)"""
    speaker: Tensor
    """(mel,)"""


@dataclass(frozen=True, slots=True, eq=False)
class FlowState:
    """One stream between hops: a value. Copies share what is final."""

    voice: FlowVoice
    plan: SolverPlan
    tokens: tuple[int, ...]
    """Ids from `first_token` on: those not yet final and the 2 before them."""
    first_token: int
    final_tokens: int
    """Prompt and speech tokens whose mel never changes again; a multiple of the chunk."""
    context: tuple[CachedChunk, ...]
    """Final chunks that new ones see, oldest first: the prompt's, then the last ones."""
    kept_chunks: int
    """How many of `context` begin in the prompt: a limit on left context never drops them."""
    shared_chunks: int
    """How many of `context` belong to the voice and are paid for there."""
    tails: Tensor
    """(calls, rows, 2, 30, dim) inputs of the position convolutions before `final_tokens`."""

    @property
    def total_tokens(self) -> int:
        """Tokens of prompt and speech given so far."""
        return self.first_token + len(self.tokens)

    @property
    def nbytes(self) -> int:
        """Bytes that this state alone holds; the voice's chunks are counted with the voice."""
        own = self.context[self.shared_chunks :]
        return self.tails.nbytes + sum(chunk.nbytes for chunk in own)

    def shared(self) -> FlowState:
        """Return the state of a turn that begins here: all chunks are the voice's."""
        return replace(self, shared_chunks=len(self.context))


@dataclass(slots=True, eq=False)
class ChunkSolution:
    """The solution of one chunk, or of the part of it that is there, under way.

    Advanced one estimator call at a time by `SolverStep`; no other state is touched until it is
    taken over by `FlowStreamer.finish`.
    """

    start: int
    """First token, a multiple of the chunk."""
    stop: int
    table: Tensor
    """(calls, rows, chunks) pages seen at each call, its own last."""
    seen: int
    """Keys in those pages, its own frames included."""
    own: CachedChunk
    context: tuple[CachedChunk, ...]
    """Keeps the pages that are seen from being given away."""
    base: Tensor
    rotation: Tensor
    modulations: Modulations
    plan: SolverPlan
    tails_before: Tensor
    tails_after: Tensor
    """Filled call by call."""
    x: Tensor
    """(frames, mel) where the current step started."""
    velocity: Tensor
    """(frames, mel) of the last call."""
    call: int = 0

    @property
    def frames(self) -> int:
        """Mel frames being solved."""
        return self.x.shape[0]

    @property
    def done(self) -> bool:
        """Whether every call was made; `x` is then the mel."""
        return self.call == len(self.plan.evaluations)

    def point(self) -> Tensor:
        """Where the next call looks: (frames, mel)."""
        stage = self.plan.evaluations[self.call].stage_dt
        return torch.add(self.x, self.velocity, alpha=stage) if stage else self.x

    def take(self, velocities: Tensor, tails: Tensor) -> None:
        """Move on by one call's (rows, frames, mel) velocities and (rows, 2, 30, dim) tails."""
        current = self.plan.evaluations[self.call]
        rate = self.plan.cfg_rate
        self.velocity = velocities[0] if len(velocities) == 1 else guide(velocities, rate)
        self.tails_after[self.call] = tails
        if current.advance:
            self.x = torch.add(self.x, self.velocity, alpha=current.dt)
        self.call += 1


class FlowStreamer:
    """Weights, fixed noise and page pool; makes states and moves them forward."""

    def __init__(self, flow: Flow, pool: PagePool, *, plans: int = 8) -> None:
        self.flow = flow
        self.pool = pool
        self.dit = CachedDiT(flow.decoder.estimator, pool.dtype)
        self.chunk = flow.config.chunk_size
        self.ratio = flow.config.token_mel_ratio
        self.look_ahead = flow.pre_lookahead_layer.right_context
        self._device = flow.input_embedding.weight.device
        self._noise = fixed_noise(flow.config.output_size).to(self._device)
        self._modulations: dict[SolverPlan, Modulations] = {}
        self._plans = plans

    @property
    def cache_bytes(self) -> int:
        """Bytes of pages in use."""
        return self.pool.used_bytes

    def discard(self, solution: ChunkSolution) -> None:
        """Clean the pages of a solution whose mel is not finite."""
        self.pool.scrub(solution.own)

    def voice(self, tokens: Tensor, mel: Tensor, embedding: Tensor) -> FlowVoice:
        """Bring a voice's arrays (see `AcousticPrompt`) to where the weights are."""
        with torch.inference_mode():
            speaker = self.flow.speaker(embedding[None].to(self._device))[0]
        return FlowVoice(tokens.to(self._device), mel.to(self._device), speaker)

    def start(self, voice: FlowVoice, plan: SolverPlan) -> FlowState:
        """Return a stream that has been given the voice's prompt and nothing solved yet."""
        config = self.flow.config.estimator
        shape = (len(plan.evaluations), plan.guidance_rows, 2, TAIL, config.dim)
        return FlowState(
            voice=voice,
            plan=plan,
            tokens=tuple(voice.tokens.tolist()),
            first_token=0,
            final_tokens=0,
            context=(),
            kept_chunks=0,
            shared_chunks=0,
            tails=torch.zeros(shape, dtype=self.dit.dtype, device=self._device),
        )

    def prompt_tokens_to_share(self, state: FlowState) -> int:
        """Prompt tokens whose cache depends on the voice alone: floor((P - 3) / 25) · 25."""
        usable = max(0, len(state.voice.tokens) - self.look_ahead)
        return usable // self.chunk * self.chunk

    def available(self, state: FlowState, *, final: bool) -> int:
        """Tokens that can be solved: all of them at the end, else all but the look-ahead."""
        return max(0, state.total_tokens - (0 if final else self.look_ahead))

    def append(self, state: FlowState, tokens: Sequence[int]) -> FlowState:
        """Return the state with more speech tokens waiting."""
        return replace(state, tokens=(*state.tokens, *tokens))

    def next_solution(self, state: FlowState, *, final: bool) -> ChunkSolution | None:
        """Set up the next chunk, or None when all available tokens are final.

        Raises:
            Overloaded: no pages are left.
        """
        start = state.final_tokens
        stop = min(start + self.chunk, self.available(state, final=final))
        if stop <= start:
            return None
        plan = state.plan
        own = self.pool.allocate(len(plan.evaluations), plan.guidance_rows)
        with torch.inference_mode():
            pages = [chunk.pages for chunk in (*state.context, own)]
            first, last = start * self.ratio, stop * self.ratio
            x = noise_slice(self._noise, first, last)
            return ChunkSolution(
                start=start,
                stop=stop,
                table=torch.stack(pages, dim=-1).to(self._device),
                seen=len(state.context) * self.pool.frames + last - first,
                own=own,
                context=state.context,
                base=self._base(state, start, stop),
                rotation=self.dit.rotation(first, last - first),
                modulations=self.modulations(plan),
                plan=plan,
                tails_before=state.tails,
                tails_after=torch.empty_like(state.tails),
                x=x,
                velocity=torch.zeros_like(x),
            )

    def finish(
        self, state: FlowState, solution: ChunkSolution, left_context: int | None
    ) -> FlowState:
        """Take a done solution over: where it fills its chunk, that chunk becomes final.

        `left_context` is how many final chunks besides the prompt's may be seen by later ones.
        """
        assert solution.done, "a solution is taken over when all calls were made"
        if solution.stop - solution.start < self.chunk:
            return state
        kept = state.kept_chunks + (solution.start < len(state.voice.tokens))
        context = (*state.context, solution.own)
        if left_context is not None and len(context) - kept > left_context:
            context = (*context[:kept], *context[len(context) - left_context :])
        keep_from = max(0, solution.stop - self.flow.pre_lookahead_layer.left_context)
        return replace(
            state,
            tokens=state.tokens[keep_from - state.first_token :],
            first_token=keep_from,
            final_tokens=solution.stop,
            context=context,
            kept_chunks=kept,
            tails=solution.tails_after,
        )

    def speech(self, state: FlowState, solution: ChunkSolution) -> tuple[int, Tensor]:
        """Speech frames of a done solution: the first one's number in the turn, (frames, mel)."""
        prompt = len(state.voice.tokens) * self.ratio
        first = solution.start * self.ratio
        skipped = min(max(0, prompt - first), solution.frames)
        return first + skipped - prompt, solution.x[skipped:]

    def modulations(self, plan: SolverPlan) -> Modulations:
        """Modulations of a plan, kept for the last few plans."""
        known = self._modulations.pop(plan, None) or self.dit.modulations(plan)
        self._modulations[plan] = known
        while len(self._modulations) > self._plans:
            del self._modulations[next(iter(self._modulations))]
        return known

    def _base(self, state: FlowState, start: int, stop: int) -> Tensor:
        """Project mu, condition and speaker of tokens `start` to `stop`."""
        layer = self.flow.pre_lookahead_layer
        history = min(start, layer.left_context)
        offset = state.first_token
        wanted = state.tokens[start - history - offset : stop + self.look_ahead - offset]
        embedded = self.flow.embed(torch.tensor(wanted, device=self._device))[None]
        inside = history + stop - start
        after = embedded[:, inside:]
        missing = self.look_ahead - after.shape[1]
        context = torch.nn.functional.pad(after, (0, 0, 0, missing))
        mu = layer(embedded[:, :inside], context, history).repeat_interleave(self.ratio, dim=1)[0]
        cond = torch.zeros_like(mu)
        known = state.voice.mel[start * self.ratio : stop * self.ratio]
        cond[: len(known)] = known
        rows = state.plan.guidance_rows
        return self.dit.base(cond, mu, state.voice.speaker, rows)
