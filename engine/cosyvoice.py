"""`CosyVoiceEngine`: a checkpoint with its voices behind the engine interface."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from antiphon.engine.acoustic.engine import TorchAcousticEngine
from antiphon.engine.acoustic.interface import CHUNK_TOKENS, LOOK_AHEAD_TOKENS
from antiphon.engine.checkpoint import Checkpoint, open_checkpoint
from antiphon.engine.checkpoint.voices import StoredVoice, acoustic_prompt
from antiphon.engine.checkpoint.weights import load_module
from antiphon.engine.errors import (
    CheckpointError,
    InvalidConfiguration,
    InvalidRequest,
    UnknownVoice,
    UnsupportedFeature,
)
from antiphon.engine.flow.flow import Flow
from antiphon.engine.hops import LARGEST_HOP, SMALLEST_HOP
from antiphon.engine.interface import (
    Capabilities,
    Mode,
    SpeechFinished,
    SpeechRequest,
    VoiceInfo,
)
from antiphon.engine.session import CosyVoiceSession, SessionSettings, SessionVoice, Stages
from antiphon.engine.speech_lm.prompt_fit import fit_prompt
from antiphon.engine.speech_lm.request import Sampling
from antiphon.engine.speech_lm.torch_backend import TorchSpeechLM
from antiphon.engine.text.bpe_stream import BpeTextStream
from antiphon.engine.text.text_stream import ArpabetTextStream
from antiphon.engine.vocoder.hift import HiFT
from antiphon.engine.voice.voice import AcousticPrompt, LMPrompt
from antiphon.engine.watermark.interface import Watermark

WARM_UP_TEXT = "Hello there, this is a test."
SEEDS = 2**31
MOST_PHONE_CODES = 1000


class CosyVoiceEngine:
    """See `Engine` for its contract."""

    def __init__(
        self,
        name: str,
        stages: Stages,
        voices: Mapping[str, tuple[VoiceInfo, SessionVoice]],
        settings: SessionSettings,
    ) -> None:
        self._stages = stages
        self._voices = dict(voices)
        self._settings = settings
        self._capabilities = Capabilities(
            model=name,
            sample_rate=stages.acoustic.sample_rate,
            modes=frozenset({Mode.ZERO_SHOT}),
            languages=frozenset({"en"}),
            speaks_before_clause_end=True,
            pronunciation=True,
            hop_tokens=(SMALLEST_HOP, LARGEST_HOP),
        )

    @classmethod
    def load(
        cls,
        directory: Path,
        watermark: Watermark,
        *,
        name: str | None = None,
        settings: SessionSettings | None = None,
        max_sessions: int = 8,
    ) -> Self:
        """Load a model directory in the CosyVoice 3 layout.

        Args:
            directory: as published, or the nano checkpoint.
            watermark: the stage every sample goes through.
            name: how requests name the model; the directory's name by default.
            settings: hops, solver and limits of its sessions.
            max_sessions: turns that the speech LM decodes together; as many again may wait.

        Raises:
            CheckpointError: files that are missing or do not fit, or a checkpoint without voices.
        """
        checkpoint = open_checkpoint(directory)
        if not checkpoint.voices:
            raise CheckpointError(
                f"{checkpoint.name} brings no voices in spk2info.pt.", field="spk2info.pt"
            )
        stages = load_stages(checkpoint, watermark, max_sessions=max_sessions)
        voices = {
            voice.name: session_voice(checkpoint, voice) for voice in checkpoint.voices.values()
        }
        return cls(name or checkpoint.name, stages, voices, settings or SessionSettings())

    @property
    def capabilities(self) -> Capabilities:
        """See `Engine`."""
        return self._capabilities

    def voices(self) -> Sequence[VoiceInfo]:
        """See `Engine`."""
        return [info for info, _ in self._voices.values()]

    @property
    def busy(self) -> int:
        """Model requests that run or wait."""
        return self._stages.lm.load_now + self._stages.acoustic.open_streams

    async def warm_up(self) -> None:
        """Speak a short text in the first voice."""
        session = await self.open_session(SpeechRequest(voice=next(iter(self._voices)), seed=0))
        await session.push_text(WARM_UP_TEXT)
        await session.end_text()
        async for event in session.events():
            if isinstance(event, SpeechFinished):
                return

    async def open_session(self, request: SpeechRequest) -> CosyVoiceSession:
        """See `Engine`."""
        if request.voice not in self._voices:
            known = ", ".join(self._voices)
            raise UnknownVoice(
                f"There is no voice {request.voice!r} here; there is {known}.",
                field="voice",
                limit=known,
            )
        self._refuse_unsupported(request)
        _, voice = self._voices[request.voice]
        seed = secrets.randbelow(SEEDS) if request.seed is None else request.seed
        session = CosyVoiceSession(self._stages, voice, self._for(request), seed)
        return session

    def _refuse_unsupported(self, request: SpeechRequest) -> None:
        able = self._capabilities
        if request.speed != 1.0:
            raise UnsupportedFeature(
                f"The model {able.model} speaks at speed 1 only.", field="speed", limit=1
            )
        if request.instruct is not None:
            raise UnsupportedFeature(
                f"The model {able.model} takes no instructions.", field="instruct"
            )
        if request.language is not None and request.language.split("-")[0] not in able.languages:
            raise UnsupportedFeature(
                f"The model {able.model} speaks {', '.join(able.languages)}.", field="language"
            )

    def _for(self, request: SpeechRequest) -> SessionSettings:
        """Return the deployment's settings with the request's hops."""
        wanted: dict[str, Any] = {
            name: value
            for name, value in (("first_hop", request.first_hop), ("max_hop", request.max_hop))
            if value is not None
        }
        if not wanted:
            return self._settings
        hops = self._settings.hops
        if request.max_hop is None and request.first_hop is not None:
            wanted["max_hop"] = max(hops.max_hop, request.first_hop)
        if request.first_hop is None and request.max_hop is not None:
            wanted["first_hop"] = min(hops.first_hop, request.max_hop)
        try:
            return replace(self._settings, hops=replace(hops, **wanted))
        except InvalidConfiguration as error:
            raise InvalidRequest(error.message, field=error.field, limit=error.limit) from error

    async def close(self) -> None:
        """See `Engine`."""
        await self._stages.lm.close()
        await self._stages.acoustic.close()


def load_stages(checkpoint: Checkpoint, watermark: Watermark, *, max_sessions: int) -> Stages:
    """Load what the sessions of a checkpoint share.

    Raises:
        CheckpointError: weights that do not fit the configuration.
    """
    config = checkpoint.lm_config
    ras = config.sampling
    front_end = ArpabetTextStream if is_phone_coded(checkpoint) else BpeTextStream
    tokenizer = checkpoint.tokenizer
    return Stages(
        text=lambda: front_end(tokenizer),
        lm=TorchSpeechLM.load(checkpoint, slots=max_sessions, max_waiting=max_sessions),
        acoustic=load_acoustic(checkpoint),
        watermark=watermark,
        sampling=Sampling(ras.top_p, ras.top_k, ras.win_size, ras.tau_r),
        mix_ratio=config.mix_ratio,
        length_ratios=length_ratios(config.mix_ratio),
    )


def load_acoustic(checkpoint: Checkpoint) -> TorchAcousticEngine:
    """Load flow and vocoder.

    Raises:
        CheckpointError: weights that do not fit the configuration.
    """
    flow = Flow(checkpoint.flow_config)
    load_module(flow, checkpoint.flow_state_dict(), "flow.pt")
    hift = HiFT(checkpoint.hift_config)
    load_module(hift, checkpoint.hift_state_dict(), "hift.pt")
    return TorchAcousticEngine(flow, hift)


def session_voice(checkpoint: Checkpoint, voice: StoredVoice) -> tuple[VoiceInfo, SessionVoice]:
    """Trim a stored voice for each stage.

    The LM gets the prompt after which the fewest of the caller's text ids make the first speech
    token; the flow gets 25·k + 3 tokens, so that prompt and first hop meet its attention chunks.
    """
    config = checkpoint.lm_config
    end_of_prompt = checkpoint.tokenizer.end_of_prompt
    prompt = voice.lm
    if config.needs_end_of_prompt and end_of_prompt not in prompt.text_ids:
        prompt = LMPrompt((end_of_prompt, *prompt.text_ids), prompt.speech_ids)
    fitted = fit_prompt(
        prompt,
        mix_ratio=config.mix_ratio,
        end_of_prompt=end_of_prompt,
        allow_empty=is_phone_coded(checkpoint),
    )
    info = VoiceInfo(
        name=voice.name,
        language="en",
        description=f"voice of {checkpoint.name}",
        mode=Mode.ZERO_SHOT,
        first_token_text_tokens=fitted.caller_text_needed,
    )
    return info, SessionVoice(fitted.prompt, on_the_grid(voice.acoustic))


def length_ratios(mix_ratio: tuple[int, int]) -> tuple[float, float]:
    """Return the fewest and most speech tokens for each text id.

    2 and 20 in the published models, whose blocks have 5 text ids for 15 speech tokens; in
    proportion where blocks are mixed otherwise.
    """
    text, speech = mix_ratio
    return 2 / 3 * speech / text, 20 / 3 * speech / text


def is_phone_coded(checkpoint: Checkpoint) -> bool:
    """Whether text and speech tokens are phones, as in the nano checkpoint.

    Its 240 speech codes (phone, pitch level, start) say nothing of the speaker, and its text
    tokens are ARPABET; the thousands of codes of the published tokenizers carry some of the
    speaker's manner, and their text is byte-pair encoded.
    """
    return checkpoint.lm_config.speech_token_size <= MOST_PHONE_CODES


def on_the_grid(prompt: AcousticPrompt) -> AcousticPrompt:
    """Cut a prompt to the most tokens of the form 25·k + 3; a shorter one stays as it is."""
    chunks = (len(prompt.tokens) - LOOK_AHEAD_TOKENS) // CHUNK_TOKENS
    count = chunks * CHUNK_TOKENS + LOOK_AHEAD_TOKENS
    if chunks < 1 or count == len(prompt.tokens):
        return prompt
    ratio = len(prompt.mel) // len(prompt.tokens)
    return acoustic_prompt(
        np.ascontiguousarray(prompt.tokens[:count]),
        np.ascontiguousarray(prompt.mel[: count * ratio]),
        prompt.embedding,
    )
