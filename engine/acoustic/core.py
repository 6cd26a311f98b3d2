"""The acoustic engine without threads and clocks: streams in, one estimator call at a time out.

The caller owns the time and the thread: it opens streams, submits hops and calls `step` until
nothing is left to do. Everything here is deterministic, which is how it is tested.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from antiphon.engine.acoustic.decoder import (
    MelState,
    MelStreamer,
    SpeechVocoder,
)
from antiphon.engine.acoustic.interface import AcousticSettings, SpokenHop
from antiphon.engine.acoustic.policy import BatchLimits, Demand, choose
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.acoustic.tempo import TempoState, TempoVocoder
from antiphon.engine.acoustic.work import FlowWork, VoiceKey, VoicePrompt, VoicePrompts
from antiphon.engine.errors import AntiphonError, Overloaded, SynthesisFailed
from antiphon.engine.flow.flow_matching import SolverPlan, plan_solver
from antiphon.engine.flow.stream import FlowVoice
from antiphon.engine.watermark.marked import FloatSamples


@dataclass(slots=True, eq=False)
class Stream:
    """One turn. `flow` is None until the prompt of its voice is solved."""

    settings: AcousticSettings
    prompt: VoicePrompt
    speech: TempoState
    flow: MelState | None = None
    solved: int = 0
    """Tokens, the prompt's included, that were solved at least once."""
    error: AntiphonError | None = None
    """Why the turn cannot go on."""

    @property
    def nbytes(self) -> int:
        """Bytes that this turn alone holds."""
        return self.speech.nbytes + (0 if self.flow is None else self.flow.nbytes)


@dataclass(slots=True, eq=False)
class Hop:
    """Tokens that a stream was given, on their way to samples."""

    stream: Stream
    tokens: Sequence[int]
    final: bool
    deadline: float | None
    asked_at: float
    work: FlowWork | None = None
    started_at: float | None = None
    speech: TempoState | None = None
    """The vocoder's side once all mel is there; the stream's own stays as it was until the end."""
    pieces: list[FloatSamples] = field(default_factory=list)
    solved_at: float = 0.0
    result: SpokenHop | AntiphonError | None = None
    timings: dict[str, float] = field(default_factory=dict)

    @property
    def in_progress(self) -> bool:
        """Whether there is work for it: estimator calls, then the vocoder's."""
        return self.result is None and self.work is not None

    @property
    def has_mel(self) -> bool:
        """Whether its estimator calls are made and its samples are not."""
        return self.result is None and self.work is not None and self.work.done


class AcousticCore:
    """Flow, vocoder, voices and all hops in progress. For one thread."""

    def __init__(
        self,
        streamer: MelStreamer[Any, Any],
        vocoder: SpeechVocoder[Any],
        settings: EngineSettings,
    ) -> None:
        self._streamer = streamer
        self._vocoder = TempoVocoder(vocoder)
        self._limits = BatchLimits(settings.batch_rows, settings.urgent_s, settings.free_rows)
        self._voices = VoicePrompts(settings.voices_mib << 20)
        self._building: list[VoicePrompt] = []
        self._hops: list[Hop] = []

    @property
    def sample_rate(self) -> int:
        """Samples a second."""
        return self._vocoder.sample_rate

    @property
    def voice_bytes(self) -> int:
        """Bytes that the prompts of voices hold."""
        return self._voices.nbytes

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values in use, voices and sessions together."""
        return self._streamer.cache_bytes

    def open(
        self, voice_key: str, voice: FlowVoice, settings: AcousticSettings, now: float
    ) -> Stream:
        """Start a turn; its voice's prompt is put to work unless it is there already."""
        plan = plan_solver(settings.solver, settings.steps, settings.cfg_rate)
        prompt = self._prompt(VoiceKey(voice_key, plan), voice, plan, now)
        return Stream(settings, prompt, self._vocoder.start(settings.speed))

    def forget_voice(self, voice_key: str) -> None:
        """Drop what is held for a voice. Turns that speak with it keep it until they end."""
        self._voices.forget(voice_key)
        wanted = [hop.stream.prompt for hop in self._hops]
        self._building = [
            prompt for prompt in self._building if prompt.key.voice != voice_key or prompt in wanted
        ]

    def submit(
        self,
        stream: Stream,
        tokens: Sequence[int],
        *,
        final: bool,
        deadline: float | None,
        now: float,
    ) -> Hop:
        """Give a stream its next tokens. One hop of a stream at a time."""
        hop = Hop(stream, tokens, final, deadline, now)
        self._hops.append(hop)
        return hop

    def cancel(self, stream: Stream) -> None:
        """Forget the hop of a stream, if it has one; its pages are free when the stream goes."""
        self._hops = [hop for hop in self._hops if hop.stream is not stream]

    def step(self, now: float) -> tuple[list[Hop], float | None, bool]:
        """Make one estimator call, and one of the vocoder behind it, for those who need it most.

        Returns the hops that are done (with results), when a held-back one may start, and whether
        anything was done now.
        """
        for hop in self._hops:
            self._begin(hop)
        items: dict[int, Hop | VoicePrompt] = dict(
            enumerate([*self._building, *(hop for hop in self._hops if hop.in_progress)])
        )
        choice = choose([self._demand(key, i) for key, i in items.items()], now, self._limits)
        chosen = [items[key] for key in choice.keys]
        self._advance([item for item in chosen if item.work and not item.work.done], now)
        self._speak([item for item in chosen if isinstance(item, Hop) and item.has_mel])
        finished = [hop for hop in self._hops if hop.result is not None]
        self._hops = [hop for hop in self._hops if hop.result is None]
        self._building = [
            prompt for prompt in self._building if not (prompt.work.done or prompt.error)
        ]
        return finished, choice.wake_at, bool(choice.keys or finished)

    def _prompt(self, key: VoiceKey, voice: FlowVoice, plan: SolverPlan, now: float) -> VoicePrompt:
        known = self._voices.get(key)
        if known is not None:
            return known
        state = self._streamer.start(voice, plan)
        prompt = VoicePrompt(
            key, FlowWork(state, self._streamer.prompt_tokens_to_share(state)), now
        )
        self._voices.put(prompt)
        if not prompt.work.done:
            self._building.append(prompt)
        return prompt

    def _begin(self, hop: Hop) -> None:
        """Set up a hop's work once its voice is ready; finish it where there is none to do."""
        stream = hop.stream
        error = stream.error or stream.prompt.error
        if error is not None:
            self._fail(hop, error)
        elif hop.work is None:
            if stream.flow is None:
                if not stream.prompt.work.done:
                    if stream.prompt not in self._building:
                        self._building.append(stream.prompt)
                    return
                stream.flow = stream.prompt.start()
                stream.solved = stream.flow.final_tokens
            state = self._streamer.append(stream.flow, hop.tokens)
            target = self._streamer.available(state, final=hop.final)
            solved = target if target <= stream.solved else 0
            hop.work = FlowWork(
                state, target, hop.final, stream.settings.left_context_chunks, solved=solved
            )

    def _demand(self, key: int, item: Hop | VoicePrompt) -> Demand:
        if isinstance(item, VoicePrompt):
            return Demand(key, item.asked_at, rows=item.key.plan.guidance_rows)
        assert item.work is not None
        return Demand(
            key,
            item.asked_at,
            item.deadline,
            item.stream.settings.lead_s,
            item.work.state.plan.guidance_rows,
        )

    def _advance(self, batch: Sequence[Hop | VoicePrompt], now: float) -> None:
        """Make one call for the batch and take over what it completes."""
        ready = [item for item in batch if self._prepare(item, now)]
        for item in self._solve(ready):
            assert item.work is not None
            try:
                item.work.advance(self._streamer)
            except SynthesisFailed as error:
                self._fail(item, error)
                continue
            if item.work.done and isinstance(item, VoicePrompt):
                self._voices.trim()

    def _solve(self, items: Sequence[Hop | VoicePrompt]) -> list[Hop | VoicePrompt]:
        """One estimator call; returns those for whom it succeeded."""
        solutions = [item.work.solution for item in items if item.work and item.work.solution]
        if not solutions:
            return []
        try:
            self._streamer.solve_step(solutions)
        except RuntimeError as error:
            if len(items) > 1:
                return [item for one in items for item in self._solve([one])]
            self._fail(items[0], _failure("estimator", error))
            return []
        return list(items)

    def _prepare(self, item: Hop | VoicePrompt, now: float) -> bool:
        """Set up the next chunk of an item, making room by dropping idle voices' prompts."""
        assert item.work is not None
        if isinstance(item, Hop) and item.started_at is None:
            item.started_at = now
            item.timings["queue"] = now - item.asked_at
        while True:
            try:
                item.work.prepare(self._streamer)
                return True
            except Overloaded as error:
                if not self._voices.drop_oldest():
                    self._fail(item, error)
                    return False
            except RuntimeError as error:
                self._fail(item, _failure("flow", error))
                return False

    def _fail(self, item: Hop | VoicePrompt, error: AntiphonError) -> None:
        """End one item with an error and let go of its memory; the others go on."""
        error = error.with_traceback(None)  # its frames would hold the memory
        if isinstance(item, Hop):
            item.result = error
            item.work = item.speech = None
            item.stream.error = error
            item.stream.flow = None
        else:
            item.error = error
            self._voices.drop(item)

    def _speak(self, hops: Sequence[Hop]) -> None:
        """Make samples of hops whose mel is all there: of short ones all, of long ones a part."""
        asked = [(self._placed(hop), hop.final) for hop in hops]
        if not asked:
            return
        try:
            portions = self._vocoder.speak(asked)
        except RuntimeError as error:
            if len(hops) > 1:
                for hop in hops:
                    self._speak([hop])
            else:
                self._fail(hops[0], _failure("vocoder", error))
            return
        for hop, portion in zip(hops, portions, strict=True):
            if isinstance(portion, SynthesisFailed):
                self._fail(hop, portion)
                continue
            hop.speech = portion.state
            hop.pieces.append(portion.samples)
            if portion.done:
                self._finish(hop, portion.state)

    def _placed(self, hop: Hop) -> TempoState:
        """The vocoder's state of a hop; at first with its mel in place."""
        if hop.speech is not None:
            return hop.speech
        work, speech = hop.work, hop.stream.speech
        assert work is not None
        hop.solved_at = time.monotonic()
        if hop.started_at is not None:
            hop.timings["flow"] = hop.solved_at - hop.started_at
        for mel in work.mel:
            speech = self._vocoder.place(speech, work.first_frame, mel)
            work.first_frame += len(mel)
        hop.speech = speech
        return speech

    def _finish(self, hop: Hop, speech: TempoState) -> None:
        """All samples of a hop are there: move the stream on."""
        work, stream = hop.work, hop.stream
        assert work is not None
        stream.flow, stream.speech, stream.solved = work.state, speech, work.target
        hop.timings["vocoder"] = time.monotonic() - hop.solved_at
        samples = hop.pieces[0] if len(hop.pieces) == 1 else np.concatenate(hop.pieces)
        hop.result = SpokenHop(samples, hop.timings)


def _failure(stage: str, error: RuntimeError) -> SynthesisFailed:
    """What torch raises (out of memory, mostly) as an error of ours that names the stage."""
    return SynthesisFailed(f"the {stage} failed: {type(error).__name__}")
