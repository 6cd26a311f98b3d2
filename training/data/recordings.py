"""Recordings of people who agreed to it, as corpus shards for fine-tuning.

A manifest has one JSON object a line: `file` (a path relative to the manifest), `text`, `speaker`
and `consent`, a sentence that says who agreed to what and when. A line without consent stops the
import.
"""

import json
from pathlib import Path

import numpy as np
import torch

from antiphon.engine.audio_file import decode_audio
from antiphon.engine.errors import ConsentRequired
from antiphon.engine.vocoder.f0 import F0Predictor
from antiphon.engine.voice.features import log_mel
from antiphon.engine.voice.resample import resample
from antiphon.training.data.align import align
from antiphon.training.data.codes import encode, token_edges
from antiphon.training.data.corpus import Utterance, write_shard
from antiphon.training.data.features import MEL
from antiphon.training.data.hibari import Array
from antiphon.training.data.phones import PHONES, lm_text, pronounce
from antiphon.training.data.sentences import Sentence
from antiphon.training.data.speakers import level
from antiphon.training.stages.tokenizer import Recogniser, features

VOICED_ABOVE_HZ = 50.0


def import_recordings(
    manifest: Path, shard: Path, recogniser: Recogniser, f0_net: F0Predictor
) -> int:
    """Align every recording with its text and write one shard; returns how many fitted.

    Raises:
        ConsentRequired: a line without a consent statement; nothing is written.
    """
    lines = [json.loads(line) for line in manifest.read_text("utf-8").splitlines() if line.strip()]
    for number, line in enumerate(lines, 1):
        if not str(line.get("consent", "")).strip():
            raise ConsentRequired(
                f"Line {number} of {manifest.name} has no consent statement.", field="consent"
            )
    made = []
    for line in lines:
        audio = decode_audio(manifest.parent / line["file"])
        samples = resample(audio.samples, audio.rate, MEL.sampling_rate)
        item = utterance(samples, line["text"], line["speaker"], recogniser, f0_net)
        if item is not None:
            made.append(item)
    if made:
        write_shard(shard, made)
    return len(made)


@torch.no_grad()
def utterance(
    samples: Array, text: str, speaker: str, recogniser: Recogniser, f0_net: F0Predictor
) -> Utterance | None:
    """One recording at 24 kHz; None if its text cannot be said in its time."""
    spoken = pronounce(Sentence(tuple(text.lower().split())))
    tokens = len(samples) // 960
    if spoken is None or not tokens:
        return None
    samples = level(samples[: 960 * tokens])
    logits = recogniser(features(samples)[None])[0, :tokens, : len(PHONES)]
    parts = align(logits.log_softmax(-1).numpy(), spoken)
    edges = None if parts is None else token_edges(parts.edge, tokens)
    if parts is None or edges is None:
        return None
    f0 = f0_net(log_mel(samples, MEL)[None])[0].float().numpy()
    f0 = np.where(f0 > VOICED_ABOVE_HZ, f0, 0.0).astype(np.float32)
    codes, owner = encode(parts, edges, f0)
    return Utterance(
        speaker=speaker,
        text=lm_text(spoken),
        spoken=text,
        warp=(),
        phase_locked=False,
        samples=samples,
        f0=f0,
        codes=codes,
        owner=owner,
    )
