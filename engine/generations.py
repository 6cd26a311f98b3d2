"""What the generations of CosyVoice do differently, where a session does not see it.

A checkpoint of any generation becomes the same `Stages`; how it is to be asked (languages, modes,
tags, hops) is in its `Traits`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from antiphon.engine.acoustic.loader import load_acoustic_engine
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.checkpoint import Checkpoint
from antiphon.engine.checkpoint.config import ModelGeneration, RASConfig
from antiphon.engine.checkpoint.special_tokens import special_tokens
from antiphon.engine.errors import InvalidConfiguration
from antiphon.engine.flow.cosyvoice1 import EDGE_TOKENS
from antiphon.engine.flow.cosyvoice1_stream import SHORTEST_HOP_TOKENS
from antiphon.engine.interface import Mode
from antiphon.engine.phone_codes import CODES, phone_named
from antiphon.engine.phone_progress import PhoneProgress
from antiphon.engine.progress import ProgressTracker, ProportionalProgress
from antiphon.engine.segments import SegmentLimits
from antiphon.engine.session import SessionSettings, Stages
from antiphon.engine.speech_lm.loader import load_speech_lm
from antiphon.engine.speech_lm.request import Sampling
from antiphon.engine.speech_lm.settings import LMSettings
from antiphon.engine.text.arpabet import PHONES
from antiphon.engine.text.bpe_stream import SPOKEN_TAGS, BpeTextStream
from antiphon.engine.text.grammar import Grammar
from antiphon.engine.text.text_stream import ArpabetTextStream, TextStream
from antiphon.engine.text.whole_stream import WholeTextStream
from antiphon.engine.text.whole_text import WholeTextFrontEnd
from antiphon.engine.voice.reference import can_hear
from antiphon.engine.watermark.interface import Watermark

MOST_PHONE_CODES = 1000
_V1_MIX_RATIO = (5, 30)
"""No blocks in version 1; the usual speech for a text, of which progress is estimated."""
_V1_HOP = 100
"""Tokens of 20 ms. Every window solves the prompt again, so that small ones cost most."""
_LANGUAGES = {
    ModelGeneration.V1: frozenset({"zh", "en", "ja", "yue", "ko"}),
    ModelGeneration.V2: frozenset({"zh", "en", "ja", "yue", "ko"}),
    ModelGeneration.V3: frozenset(
        {"zh", "en", "ja", "yue", "ko", "de", "es", "fr", "it", "ru"}
    ),
}  # fmt: skip
"""As their model cards say, by BCP 47 primary tag."""


@dataclass(frozen=True, slots=True)
class Traits:
    """How a checkpoint wants to be asked."""

    modes: frozenset[Mode]
    languages: frozenset[str]
    while_writing: bool
    """Whether it speaks text that is still being written (the bi-stream layout)."""
    pronunciation: bool
    """Whether phones in brackets are spoken as written."""
    has_hops: bool


def traits(checkpoint: Checkpoint) -> Traits:
    """Read a checkpoint's traits from its configuration and, as published, its name.

    Version 1 was published as three models of one architecture; only the one whose name has
    `Instruct` was trained to follow instructions. Voices are converted where the networks that
    hear recordings are there.
    """
    modes = {Mode.PRESET, Mode.ZERO_SHOT, Mode.CROSS_LINGUAL}
    generation = checkpoint.generation
    if can_hear(checkpoint):
        modes.add(Mode.VOICE_CONVERSION)
    if is_phone_coded(checkpoint):
        return Traits(frozenset(modes), frozenset({"en"}), True, True, True)
    first = generation is ModelGeneration.V1
    if not first or "instruct" in checkpoint.name.lower():
        modes.add(Mode.INSTRUCT)
    return Traits(
        frozenset(modes),
        _LANGUAGES[generation],
        while_writing=not first,
        pronunciation=generation is ModelGeneration.V3,
        has_hops=not first,
    )


def load_stages(
    checkpoint: Checkpoint,
    watermark: Watermark,
    *,
    max_sessions: int,
    device: torch.device | str = "cpu",
    lm: LMSettings | None = None,
    acoustic: EngineSettings | None = None,
) -> Stages:
    """Load what the sessions of a checkpoint share; `lm` chooses the speech LM's backend.

    Raises:
        CheckpointError: weights that do not fit the configuration.
        InvalidConfiguration: a backend that is not installed, or does not know this generation.
    """
    # First, since a backend that is not there should not cost the time of loading the rest.
    speech_lm = load_speech_lm(
        checkpoint, lm or LMSettings(), max_sessions=max_sessions, device=device
    )
    if checkpoint.generation is ModelGeneration.V1:
        mix_ratio, ratios = _V1_MIX_RATIO, (2.0, 20.0)
        ras = checkpoint.text_speech_lm_config.sampling
    else:
        config = checkpoint.lm_config
        mix_ratio, ratios = config.mix_ratio, (config.min_ratio, config.max_ratio)
        ras = config.sampling
    return Stages(
        text=front_end(checkpoint),
        lm=speech_lm,
        acoustic=load_acoustic_engine(checkpoint, acoustic, device),
        watermark=watermark,
        sampling=_sampling(ras),
        mix_ratio=mix_ratio,
        length_ratios=ratios,
        progress=_progress(checkpoint, mix_ratio),
        seconds_a_token=1 / checkpoint.token_rate,
    )


def _progress(
    checkpoint: Checkpoint, mix_ratio: tuple[int, int]
) -> Callable[[float], ProgressTracker]:
    phones = phone_ids(checkpoint)
    if phones is None:
        return lambda seconds_a_token: ProportionalProgress(*mix_ratio, seconds_a_token)
    return lambda seconds_a_token: PhoneProgress(phones, seconds_a_token)


def _sampling(ras: RASConfig) -> Sampling:
    return Sampling(ras.top_p, ras.top_k, ras.win_size, ras.tau_r)


def front_end(checkpoint: Checkpoint, language: str | None = None) -> Callable[[], TextStream]:
    """Return what makes the text front end of a turn in a language (None: English or mixed)."""
    tokenizer = checkpoint.tokenizer
    if is_phone_coded(checkpoint):
        return lambda: ArpabetTextStream(tokenizer)
    tags = _tags(checkpoint.generation, language)
    return lambda: BpeTextStream(tokenizer, language=language, tags=tags)


def whole_front_end(
    checkpoint: Checkpoint, language: str | None, grammar: Grammar | None
) -> Callable[[], TextStream] | None:
    """Return what makes the front end of a whole text in a language.

    None where whole texts are read like streamed ones: phones have no pieces to be cut into.
    """
    if is_phone_coded(checkpoint):
        return None
    tokenizer = checkpoint.tokenizer
    front_end = WholeTextFrontEnd(
        lambda text: len(tokenizer.encode(text)),
        grammar=grammar,
        tags=_tags(checkpoint.generation, language),
        language=language,
    )
    return lambda: WholeTextStream(front_end, tokenizer)


def _tags(generation: ModelGeneration, language: str | None) -> frozenset[str]:
    """What a caller may write to be performed; in version 3 also Pinyin, where it can be meant."""
    if generation is not ModelGeneration.V3 or language == "en":
        return SPOKEN_TAGS
    # Phones in capitals are read by every text stream.
    lower = {token for token in special_tokens(generation) if token[0] == "[" and token.islower()}
    return SPOKEN_TAGS | lower


def fitted_settings(checkpoint: Checkpoint, settings: SessionSettings) -> SessionSettings:
    """Return a deployment's settings as a generation can use them.

    Version 1 needs a clause's whole text, so that clauses are its segments, and windows large
    enough that each yields something beyond its overlap with the next.
    """
    if checkpoint.generation is not ModelGeneration.V1:
        return settings
    hops = replace(
        settings.hops,
        first_hop=max(settings.hops.first_hop, EDGE_TOKENS + SHORTEST_HOP_TOKENS),
        max_hop=max(settings.hops.max_hop, _V1_HOP),
    )
    limits = settings.segments
    clauses = SegmentLimits(
        sentence_words=limits.sentence_words,
        clause_words=min(limits.clause_words, limits.sentence_words + 1),
        most_words=limits.most_words,
    )
    return replace(settings, hops=hops, segments=clauses)


def is_phone_coded(checkpoint: Checkpoint) -> bool:
    """Whether text and speech tokens are phones, as in the nano checkpoint.

    Its 240 speech codes (phone, pitch level, start) say nothing of the speaker, and its text
    tokens are ARPABET; the thousands of codes of the published tokenizers carry some of the
    speaker's manner, and their text is byte-pair encoded.
    """
    if checkpoint.generation is ModelGeneration.V1:
        return False
    return checkpoint.lm_config.speech_token_size <= MOST_PHONE_CODES


def phone_ids(checkpoint: Checkpoint) -> dict[int, int] | None:
    """Return the phone of each text id that is one, where speech codes say which phone sounds.

    Those are checkpoints with as many codes as `phone_codes` describes and a text token for every
    ARPABET phone. None for others: their words' times can only be estimated.
    """
    if not is_phone_coded(checkpoint) or checkpoint.lm_config.speech_token_size != CODES:
        return None
    ids = {phone: checkpoint.tokenizer.token_id(f"[{phone}]") for phone in PHONES}
    found = {each: phone_named(phone) for phone, each in ids.items() if each is not None}
    return found if len(found) == len(ids) else None


def choose_device(wanted: str) -> str:
    """Return where a model is to run; `auto` takes a CUDA device where there is one.

    Raises:
        InvalidConfiguration: CUDA is asked for and there is none.
    """
    found = torch.cuda.is_available()
    if wanted == "auto":
        return "cuda" if found else "cpu"
    if wanted.startswith("cuda") and not found:
        raise InvalidConfiguration(
            "There is no CUDA device here, or this build of PyTorch has no CUDA.", field="device"
        )
    return wanted
