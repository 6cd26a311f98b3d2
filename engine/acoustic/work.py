"""Flow work that is done call by call, and the voices whose prompts it fills in."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from antiphon.engine.acoustic.decoder import MelSolution, MelState, MelStreamer
from antiphon.engine.errors import AntiphonError, SynthesisFailed
from antiphon.engine.flow.flow_matching import SolverPlan


@dataclass(slots=True, eq=False)
class FlowWork:
    """Chunks to be solved one after the other, until `target` tokens have a mel."""

    state: MelState
    target: int
    final: bool = False
    left_context: int | None = None
    solution: MelSolution | None = None
    first_frame: int = 0
    """Speech frame that `mel` begins with."""
    mel: list[Tensor] = field(default_factory=list)
    solved: int = 0
    """Tokens that have a mel, the last ones perhaps not a final one."""

    @property
    def done(self) -> bool:
        """Whether no further call is needed."""
        return self.solution is None and max(self.solved, self.state.final_tokens) >= self.target

    def prepare(self, streamer: MelStreamer[Any, Any]) -> MelSolution:
        """Return the solution whose next call is due, setting it up first where needed.

        Raises:
            Overloaded: the cache has no room for another chunk.
        """
        if self.solution is None:
            self.solution = streamer.next_solution(self.state, final=self.final)
            assert self.solution is not None, "work that is done is not prepared"
        return self.solution

    def advance(self, streamer: MelStreamer[Any, Any]) -> None:
        """Take a solution over once all its calls were made.

        Raises:
            SynthesisFailed: its mel is not finite.
        """
        solution = self.solution
        if solution is None or not solution.done:
            return
        self.solution = None
        if not bool(torch.isfinite(solution.x).all()):
            streamer.discard(solution)
            raise SynthesisFailed("the flow produced a mel that is not finite")
        first, mel = streamer.speech(self.state, solution)
        if len(mel):
            if not self.mel:
                self.first_frame = first
            self.mel.append(mel)
        self.solved = solution.stop
        self.state = streamer.finish(self.state, solution, self.left_context)


@dataclass(frozen=True, slots=True)
class VoiceKey:
    """What a prompt's cache depends on."""

    voice: str
    plan: SolverPlan


@dataclass(slots=True, eq=False)
class VoicePrompt:
    """The part of a voice's prompt that all its sessions share."""

    key: VoiceKey
    work: FlowWork
    asked_at: float
    error: AntiphonError | None = None
    """Why it could not be solved; it is not held any longer then."""

    def start(self) -> MelState:
        """State of a new session: the prompt is solved, nothing was said."""
        state: MelState = self.work.state.shared()
        return state

    @property
    def nbytes(self) -> int:
        """Bytes held for all sessions together."""
        return self.work.state.nbytes


class VoicePrompts:
    """Prompts by voice and plan; the least recently used go when they are over the budget.

    Dropping one frees its pages as soon as no session speaks with it.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._prompts: OrderedDict[VoiceKey, VoicePrompt] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Bytes of all prompts that are held."""
        return sum(prompt.nbytes for prompt in self._prompts.values())

    def get(self, key: VoiceKey) -> VoicePrompt | None:
        """Return a prompt and count it as used."""
        prompt = self._prompts.get(key)
        if prompt is not None:
            self._prompts.move_to_end(key)
        return prompt

    def put(self, prompt: VoicePrompt) -> None:
        """Hold a prompt."""
        self._prompts[prompt.key] = prompt

    def trim(self) -> None:
        """Drop the least recently used ones beyond the budget."""
        while self._prompts and self.nbytes > self._budget:
            self._prompts.popitem(last=False)

    def drop_oldest(self) -> bool:
        """Drop one to make room for a session; False when none is left."""
        if not self._prompts:
            return False
        self._prompts.popitem(last=False)
        return True

    def forget(self, voice: str) -> None:
        """Drop all that is held for a voice, as when its consent is revoked."""
        for key in [key for key in self._prompts if key.voice == voice]:
            del self._prompts[key]

    def drop(self, prompt: VoicePrompt) -> None:
        """Drop one prompt, as when solving it failed."""
        if self._prompts.get(prompt.key) is prompt:
            del self._prompts[prompt.key]
