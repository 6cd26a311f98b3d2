"""What a limit on the flow's left context costs in words understood and in distance of the mel.

The speech LM speaks a passage that is several times longer than the limits, sentence by sentence,
once for each seed. The same codes then go through flow and vocoder under each limit, in the hops of
a server, and Whisper base writes down what it hears, sentence by sentence as the codes divide it.
The distance is the mean absolute difference of the mel (natural log) from unlimited context.

    python -m bench.left_context --model DIR --json left.json --plot left.png
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from antiphon.engine.acoustic.interface import CHUNK_TOKENS, AcousticSettings
from antiphon.engine.checkpoint import Checkpoint
from antiphon.engine.generations import front_end
from antiphon.engine.prompts import PromptMaker
from antiphon.engine.speech_lm.request import Sampling, SpeechLMRequest
from antiphon.engine.speech_lm.torch_backend import TorchSpeechLM
from antiphon.engine.voice.voice import AcousticPrompt
from bench.acoustic_lab import Lab, model_switch, open_model, voices
from bench.asr import transcribe, word_error_rate
from bench.first_packet import TEXTS
from bench.report import Row, publish, switches

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOP_P = 0.3
"""As configs/nano.yaml: the codes should not be what limits the words."""


@dataclass(frozen=True, slots=True)
class Passage:
    """Speech codes of consecutive sentences."""

    codes: list[int]
    ends: list[int]
    """Tokens after each sentence."""


async def passage(checkpoint: Checkpoint, texts: tuple[str, ...], seed: int) -> Passage:
    """Have the speech LM speak sentences in the checkpoint's first voice."""
    lm = TorchSpeechLM.load(checkpoint, slots=1)
    prompts = PromptMaker(checkpoint)
    first = next(voice for voice in checkpoint.voices.values() if len(voice.acoustic.tokens))
    prompt = prompts.fit(prompts.stored(first)).prompt
    sampling = checkpoint.lm_config.sampling
    codes: list[int] = []
    ends = []
    for number, text in enumerate(texts):
        stream = front_end(checkpoint)()
        ids = [i for piece in (*stream.push(text), *stream.end()) for i in piece.ids]
        chosen = Sampling(
            TOP_P, sampling.top_k, sampling.win_size, sampling.tau_r, seed=100 * seed + number
        )
        codes += [token async for token in lm.generate(SpeechLMRequest(prompt, ids, chosen))]
        ends.append(len(codes))
    await lm.close()
    return Passage(codes, ends)


def hops_of(count: int) -> list[int]:
    """Chunks, the last one shorter."""
    whole, rest = divmod(count, CHUNK_TOKENS)
    return [CHUNK_TOKENS] * whole + ([rest] if rest else [])


def heard(lab: Lab, prompt: AcousticPrompt, spoken: Passage, settings: AcousticSettings) -> float:
    """Speak a passage and return the word error rate over its sentences."""
    stream = lab.open(prompt, settings)
    pieces, given = [], 0
    for hop in hops_of(len(spoken.codes)):
        final = given + hop == len(spoken.codes)
        pieces.append(lab.speak(stream, spoken.codes[given : given + hop], final=final)[0])
        given += hop
    samples = np.concatenate(pieces)
    rate = lab.vocoder.sample_rate
    cuts = [end * rate // CHUNK_TOKENS for end in (0, *spoken.ends)]
    pairs = [
        (text, transcribe(samples[start:end], rate))
        for text, (start, end) in zip(TEXTS[: len(spoken.ends)], pairwise(cuts), strict=True)
    ]
    return word_error_rate(pairs)


def draw(axes: Axes, rows: list[Row]) -> None:
    """Draw word errors against the limit."""
    names = [str(row["left context"]) for row in rows]
    axes.bar(names, [float(row["WER, %"] or 0) for row in rows])
    axes.set_xlabel("left context")
    axes.set_ylabel("word error rate, %")


def main(argv: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = switches(__doc__ or "")
    model_switch(parser)
    parser.add_argument("--left-context", type=int, nargs="*", default=[2, 4, 8])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--seeds", type=int, help="times the passage is spoken")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    checkpoint = open_model(arguments)
    lab, prompt = Lab.of(checkpoint), voices(checkpoint)[0]
    seeds = arguments.seeds or (1 if arguments.quick else 4)
    texts = TEXTS[:2] if arguments.quick else TEXTS
    spoken = [asyncio.run(passage(checkpoint, texts, seed)) for seed in range(seeds)]
    unlimited = AcousticSettings(steps=arguments.steps, left_context_chunks=None)
    whole = [lab.mel(prompt, one.codes, unlimited, hops_of(len(one.codes))) for one in spoken]
    rows: list[Row] = []
    for limit in (*arguments.left_context, None):
        settings = AcousticSettings(steps=arguments.steps, left_context_chunks=limit)
        mels = [lab.mel(prompt, one.codes, settings, hops_of(len(one.codes))) for one in spoken]
        distances = [
            float((mel - other).abs().mean()) for mel, other in zip(mels, whole, strict=True)
        ]
        errors = [heard(lab, prompt, one, settings) for one in spoken]
        rows.append(
            {
                "left context": "all chunks" if limit is None else f"{limit} chunks",
                "passages": seeds,
                "seconds each": round(np.mean([len(one.codes) for one in spoken]) / CHUNK_TOKENS),
                "WER, %": 100 * float(np.mean(errors)),
                "least, %": 100 * min(errors),
                "most, %": 100 * max(errors),
                "mel distance": float(np.mean(distances)),
            }
        )
    publish(arguments, "Left context", rows, draw=lambda axes: draw(axes, rows))


if __name__ == "__main__":
    main()
