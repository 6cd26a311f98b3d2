"""CosyVoice 2's mel while it grows: each hop pays for its own frames only.

As in `stream.py`: a block of 25 tokens that is whole (with the 3 tokens after it) is final, and
what later blocks need of it is kept: keys and values of every attention, tails of every
convolution, for the encoder once and for the estimator at each call of the solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from antiphon.engine.flow.budget import Charge, MemoryBudget
from antiphon.engine.flow.conformer import KeyValues, run_layers
from antiphon.engine.flow.cosyvoice2 import UP_RATE, ConformerFlow
from antiphon.engine.flow.flow_matching import SolverPlan, fixed_noise, noise_slice
from antiphon.engine.flow.stream import FlowVoice
from antiphon.engine.flow.unet_layers import Memory
from antiphon.engine.flow.unet_matching import UNetSolution


@dataclass(frozen=True, slots=True, eq=False)
class EncoderMemory:
    """What the encoder keeps of finished blocks."""

    layers: tuple[KeyValues, ...]
    up_layers: tuple[KeyValues, ...]
    before_doubling: Tensor
    """(1, 2, dim) the last positions before the doubling."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        pairs = (*self.layers, *self.up_layers)
        return self.before_doubling.nbytes + sum(p.keys.nbytes + p.values.nbytes for p in pairs)


@dataclass(frozen=True, slots=True, eq=False)
class ConformerState:
    """One stream between hops: a value. Copies share what is final."""

    voice: FlowVoice
    plan: SolverPlan
    tokens: tuple[int, ...]
    """Ids from `first_token` on: those not yet final and the 2 before them."""
    first_token: int = 0
    final_tokens: int = 0
    """Prompt and speech tokens whose mel never changes again; a multiple of the block."""
    encoder: EncoderMemory | None = None
    estimator: tuple[Memory, ...] = ()
    """For each call of the plan; empty before the first block is final."""
    charge: Charge | None = None

    @property
    def total_tokens(self) -> int:
        """Tokens of prompt and speech given so far."""
        return self.first_token + len(self.tokens)

    @property
    def nbytes(self) -> int:
        """Bytes held, what is shared with the voice included."""
        own = 0 if self.encoder is None else self.encoder.nbytes
        return own + sum(memory.nbytes for memory in self.estimator)

    def shared(self) -> ConformerState:
        """Return the state of a turn that begins here."""
        return self


@dataclass(slots=True, eq=False)
class BlockSolution(UNetSolution):
    """The solution of one block, or of the part of it that is there, under way."""

    start: int
    """First token, a multiple of the block."""
    stop: int
    before: tuple[Memory, ...]
    """Of each call; empty where the prompt begins."""
    encoder_after: EncoderMemory
    after: list[Memory] = field(default_factory=list)


class ConformerStreamer:
    """Weights and fixed noise; makes states and moves them forward."""

    def __init__(self, flow: ConformerFlow, memory_bytes: int = 1 << 30) -> None:
        """Serve a flow; all streams together may hold `memory_bytes` of finished blocks."""
        self.flow = flow
        self._budget = MemoryBudget(memory_bytes)
        self.chunk = flow.config.encoder.static_chunk_size
        self.ratio = flow.config.token_mel_ratio
        self.look_ahead = flow.config.pre_lookahead_len
        self._device = flow.input_embedding.weight.device
        self._noise = fixed_noise(flow.config.output_size).to(self._device)

    @property
    def cache_bytes(self) -> int:
        """Bytes that all streams and voices hold."""
        return self._budget.used_bytes

    def voice(self, tokens: Tensor, mel: Tensor, embedding: Tensor) -> FlowVoice:
        """Bring a voice's arrays (see `AcousticPrompt`) to where the weights are."""
        with torch.inference_mode():
            speaker = self.flow.speaker(embedding[None].to(self._device))[0]
        return FlowVoice(tokens.to(self._device), mel.to(self._device), speaker)

    def start(self, voice: FlowVoice, plan: SolverPlan) -> ConformerState:
        """Return a stream that has been given the voice's prompt and nothing solved yet."""
        return ConformerState(voice, plan, tuple(voice.tokens.tolist()))

    def prompt_tokens_to_share(self, state: ConformerState) -> int:
        """Prompt tokens whose memory depends on the voice alone: floor((P - 3) / 25) · 25."""
        usable = max(0, len(state.voice.tokens) - self.look_ahead)
        return usable // self.chunk * self.chunk

    def available(self, state: ConformerState, *, final: bool) -> int:
        """Tokens that can be solved: all of them at the end, else all but the look-ahead."""
        return max(0, state.total_tokens - (0 if final else self.look_ahead))

    def append(self, state: ConformerState, tokens: Sequence[int]) -> ConformerState:
        """Return the state with more speech tokens waiting."""
        return replace(state, tokens=(*state.tokens, *tokens))

    @torch.inference_mode()
    def next_solution(self, state: ConformerState, *, final: bool) -> BlockSolution | None:
        """Set up the next block, or None when all available tokens are final.

        Raises:
            Overloaded: the memory of all streams is used up.
        """
        start = state.final_tokens
        stop = min(start + self.chunk, self.available(state, final=final))
        if stop <= start:
            return None
        self._budget.require_room()
        mu, memory = self._plan(state, start, stop)
        cond = torch.zeros_like(mu)
        first, last = start * self.ratio, stop * self.ratio
        known = state.voice.mel[first:last]
        cond[:, : len(known)] = known
        x = noise_slice(self._noise, first, last)
        return BlockSolution(
            plan=state.plan,
            mu=mu,
            cond=cond,
            speaker=state.voice.speaker[None],
            x=x,
            velocity=torch.zeros_like(x),
            call=0,
            start=start,
            stop=stop,
            before=state.estimator,
            encoder_after=memory,
        )

    def solve_step(self, solutions: Sequence[BlockSolution]) -> None:
        """Advance every solution by one call of the estimator."""
        for solution in solutions:
            memory = Memory(solution.before[solution.call] if solution.before else None)
            solution.advance(self.flow.decoder.estimator, memory, chunked=False)
            solution.after.append(memory)

    def discard(self, solution: BlockSolution) -> None:
        """Let go of a solution whose mel is not finite: it shares no memory that it spoils."""

    def finish(
        self, state: ConformerState, solution: BlockSolution, left_context: int | None
    ) -> ConformerState:
        """Take a done solution over: where it fills its block, that block becomes final.

        `left_context` is how many final blocks besides the prompt's the estimator may see later.
        """
        assert solution.done, "a solution is taken over when all calls were made"
        if solution.stop - solution.start < self.chunk:
            return state
        if left_context is not None:
            prompt_blocks = -(-len(state.voice.tokens) // self.chunk)
            kept = min(prompt_blocks * self.chunk, solution.stop) * self.ratio
            for memory in solution.after:
                memory.keep(kept, left_context * self.chunk * self.ratio)
        history = self.flow.encoder.pre_lookahead_layer.left_context
        keep_from = max(0, solution.stop - history)
        held = solution.encoder_after.nbytes + sum(memory.nbytes for memory in solution.after)
        return replace(
            state,
            tokens=state.tokens[keep_from - state.first_token :],
            first_token=keep_from,
            final_tokens=solution.stop,
            encoder=solution.encoder_after,
            estimator=tuple(solution.after),
            charge=self._budget.charge(held),
        )

    def speech(self, state: ConformerState, solution: BlockSolution) -> tuple[int, Tensor]:
        """Speech frames of a done solution: the first one's number in the turn, (frames, mel)."""
        prompt = len(state.voice.tokens) * self.ratio
        first = solution.start * self.ratio
        skipped = min(max(0, prompt - first), solution.frames)
        return first + skipped - prompt, solution.x[skipped:]

    def _plan(self, state: ConformerState, start: int, stop: int) -> tuple[Tensor, EncoderMemory]:
        """Encode tokens `start` to `stop`; return mu, (1, frames, mel), and what it leaves."""
        encoder, past = self.flow.encoder, state.encoder
        layer = encoder.pre_lookahead_layer
        history = min(start, layer.left_context)
        offset = state.first_token
        wanted = state.tokens[start - history - offset : stop + self.look_ahead - offset]
        inside = history + stop - start
        embedded = encoder.embed(self.flow.embed(torch.tensor([wanted], device=self._device)))
        after = embedded[:, inside:]
        # Where speech ends, zeros follow; they do not pass through the input layer.
        context = torch.nn.functional.pad(after, (0, 0, 0, self.look_ahead - after.shape[1]))
        hidden = layer(embedded[:, :inside], context, history)
        hidden, layers = run_layers(encoder.encoders, hidden, None, past.layers if past else None)
        doubled = encoder.up_layer(hidden, past.before_doubling if past else None)
        mapped, up_layers = run_layers(
            encoder.up_encoders, encoder.up_embed(doubled), None, past.up_layers if past else None
        )
        mu = self.flow.encoder_proj(encoder.after_norm(mapped))
        before = hidden if past is None else torch.cat([past.before_doubling, hidden], dim=1)
        return mu, EncoderMemory(layers, up_layers, before[:, -UP_RATE:].clone())
