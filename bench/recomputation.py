"""Against full recomputation as upstream does it: the first packet, and 20 seconds' compute.

Three ways on the same weights and kernels, in one run, in turn:

- ours: caches, the voice's prompt solved once, hops of the deployment's schedule;
- recomputed, same hops: prompt and everything so far solved and vocoded again at each of our hops;
- recomputed, upstream's hops: the same with 25 tokens first, then 50, then 100. (Upstream also pads
  its first hop until prompt and hop fill chunks, up to 24 tokens more; that is left out, in its
  favour.)

A first packet is the time from the request to the first samples, with the speech LM of the
checkpoint decoding for all sessions at once and flow and vocoder in their own process, as in a
server; watermark, encoding and network, the same for all, are left out. All sessions ask at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count

import numpy as np

from antiphon.engine.acoustic.engine import DecoderEngine
from antiphon.engine.acoustic.interface import CHUNK_TOKENS, LOOK_AHEAD_TOKENS, AcousticSettings
from antiphon.engine.acoustic.loader import load_acoustic_engine
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.checkpoint import Checkpoint
from antiphon.engine.hops import HopPlan, HopSettings
from antiphon.engine.speech_lm.request import SpeechLM
from antiphon.engine.speech_lm.torch_backend import TorchSpeechLM
from antiphon.engine.voice.voice import AcousticPrompt
from bench.acoustic_lab import Lab, voices
from bench.lm_subject import Subject
from bench.report import Row

UPSTREAM_HOPS = (25, 50, 100)
"""Upstream doubles its hop up to 100 tokens."""
TOKENS_A_SECOND = 25
COMPARED_S = 20
"""Length of the utterance whose compute is compared, in seconds."""
_keys = count()


@dataclass(frozen=True, slots=True)
class Way:
    """One way of computing."""

    name: str
    first_hop: int
    upstream_hops: bool
    recomputes: bool

    def hops(self, tokens: int) -> list[int]:
        """Tokens that each hop of an utterance adds (the last 3 only as look-ahead)."""
        made: list[int] = []
        plan = HopPlan(HopSettings(first_hop=self.first_hop))
        while sum(made) < tokens:
            if self.upstream_hops:
                wanted = UPSTREAM_HOPS[min(len(made), len(UPSTREAM_HOPS) - 1)]
                wanted += 0 if made else LOOK_AHEAD_TOKENS
            else:
                wanted = plan.wanted()
                plan.took(wanted)
            made.append(min(wanted, tokens - sum(made)))
        return made


def ways(first_hop: int) -> list[Way]:
    """What is compared; the first one is ours."""
    return [
        Way("ours", first_hop, upstream_hops=False, recomputes=False),
        Way("recomputed, same hops", first_hop, upstream_hops=False, recomputes=True),
        Way("recomputed, upstream's hops", CHUNK_TOKENS, upstream_hops=True, recomputes=True),
    ]


def unshared(prompt: AcousticPrompt) -> AcousticPrompt:
    """The same voice under a name that nobody has solved."""
    return replace(prompt, key=f"{prompt.key}-{next(_keys)}")


def compute(
    lab: Lab, prompt: AcousticPrompt, tokens: Sequence[int], way: Way, settings: AcousticSettings
) -> list[float]:
    """Processor seconds of each hop of an utterance."""
    lab.warm(prompt, settings)
    stream, given = lab.open(prompt, settings), 0
    spent: list[float] = []
    for hop in way.hops(len(tokens)):
        before, given = given, given + hop
        final = given == len(tokens)
        if way.recomputes:
            own = unshared(prompt)
            stream = lab.open(own, settings)
            spent.append(lab.speak(stream, tokens[:given], final=final)[1])
            lab.core.forget_voice(own.key)
        else:
            spent.append(lab.speak(stream, tokens[before:given], final=final)[1])
    return spent


@dataclass(frozen=True)
class Server:
    """What a first packet goes through: the speech LM, then flow and vocoder."""

    engine: DecoderEngine
    lm: SpeechLM
    subject: Subject
    prompt: AcousticPrompt
    settings: AcousticSettings

    async def tokens(self, count: int, seed: int) -> list[int]:
        """The first tokens of a request; the rest is not made."""
        made: list[int] = []
        generation = self.lm.generate(self.subject.request(seed))
        async for token in generation:
            made.append(token)
            if len(made) == count:
                break
        await generation.aclose()
        return made

    async def first_packet(self, way: Way, seed: int) -> float:
        """Milliseconds from the request to the first samples."""
        asked = time.perf_counter()
        own = unshared(self.prompt) if way.recomputes else self.prompt
        stream = await self.engine.open(own, self.settings)
        tokens = await self.tokens(way.hops(1 << 10)[0], seed)
        spoken = await stream.speak(tokens, final=False)
        heard = 1000 * (time.perf_counter() - asked)
        assert len(spoken.samples), "a first hop sounds"
        stream.close()
        if way.recomputes:
            self.engine.forget_voice(own.key)
        return heard

    async def lm_alone(self, way: Way, rounds: int) -> float:
        """Least milliseconds to the tokens of a first hop, nothing else running."""
        times = []
        for seed in range(rounds + 1):
            started = time.perf_counter()
            await self.tokens(way.hops(1 << 10)[0], seed)
            times.append(1000 * (time.perf_counter() - started))
        return min(times)


@dataclass(slots=True)
class Compared:
    """What was measured of one way."""

    way: Way
    hops_s: list[float]
    """Processor seconds of each hop of the utterance."""
    lm_ms: float = 0.0
    first_ms: dict[int, list[float]] = field(default_factory=dict)
    """First packets by the number of sessions that asked at once."""

    @property
    def floor_ms(self) -> float:
        """A first packet whose stages each had the machine to themselves."""
        return self.lm_ms + 1000 * self.hops_s[0]

    def figures(self) -> dict[str, float]:
        """By name, as in the table."""
        figures = {
            "whole utterance, processor s": sum(self.hops_s),
            "floor of the first packet, ms": self.floor_ms,
            "of it LM alone, ms": self.lm_ms,
            "of it flow and vocoder alone, ms": 1000 * self.hops_s[0],
        }
        for sessions, times in self.first_ms.items():
            for percent in (50, 95):
                name = f"first packet, {sessions} at once, p{percent}, ms"
                figures[name] = float(np.percentile(times, percent))
        return figures


async def measure_packets(
    checkpoint: Checkpoint, compared: list[Compared], settings: AcousticSettings, counts: list[int],
    rounds: int,
) -> None:  # fmt: skip
    """First packets of each way for each number of sessions, rounds taken in turn."""
    own = EngineSettings(own_process=True, max_streams=max(counts) + 1)
    engine = load_acoustic_engine(checkpoint, own)
    lm = TorchSpeechLM.load(checkpoint, slots=max(counts), positions=512)
    server = Server(engine, lm, Subject.of(checkpoint.directory), voices(checkpoint)[0], settings)
    try:
        await engine.warm_voice(server.prompt, settings)
        for one in compared:
            one.lm_ms = await server.lm_alone(one.way, rounds)
        for sessions in counts:
            for number in range(rounds):
                for one in compared:
                    seeds = range(100 * number, 100 * number + sessions)
                    asked = (server.first_packet(one.way, seed) for seed in seeds)
                    one.first_ms.setdefault(sessions, []).extend(await asyncio.gather(*asked))
    finally:
        await lm.close()
        await engine.close()


def rows_of(compared: Sequence[Compared]) -> list[Row]:
    """A row for each figure, a column for each way and one for how many times ours it is."""
    ours, *others = compared
    figures = {one.way.name: one.figures() for one in compared}
    rows: list[Row] = [
        {"": "first hop, tokens", ours.way.name: f"{ours.way.hops(1 << 10)[0]}"}
        | {
            column: value
            for one in others
            for column, value in (
                (one.way.name, f"{one.way.hops(1 << 10)[0]}"),
                (f"× ({one.way.name})", ""),
            )
        }
    ]
    for name, value in figures[ours.way.name].items():
        row: dict[str, str | float] = {"": name, ours.way.name: value}
        for one in others:
            other = figures[one.way.name][name]
            row |= {one.way.name: other, f"× ({one.way.name})": other / value}
        rows.append(row)
    return rows


def compare(
    lab: Lab,
    checkpoint: Checkpoint,
    tokens: list[int],
    settings: AcousticSettings,
    *,
    first_hop: int,
    rounds: int,
) -> tuple[str, list[Row], dict[str, object]]:
    """Measure all ways; returns the table's title and rows, and details."""
    prompt = voices(checkpoint)[0]
    compared = []
    for way in ways(first_hop):
        runs = [compute(lab, prompt, tokens, way, settings) for _ in range(1 if rounds < 3 else 2)]
        compared.append(Compared(way, min(runs, key=sum)))
    asyncio.run(measure_packets(checkpoint, compared, settings, [1, 4], rounds))
    title = (
        f"Against full recomputation: {len(tokens) / TOKENS_A_SECOND:g} s of audio, "
        f"{settings.steps} {settings.solver} steps, guidance {settings.cfg_rate:g}, "
        f"{settings.left_context_chunks} chunks of left context, prompt of {len(prompt.tokens)}"
    )
    details: dict[str, object] = {
        "compared": {one.way.name: asdict(one) for one in compared},
        "settings": asdict(settings),
    }
    return title, rows_of(compared), details
