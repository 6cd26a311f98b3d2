"""The whole configuration of a deployment: strict, typed, resolved once, printed with a hash.

A YAML file gives the values, environment variables override single ones:
`ANTIPHON__SERVER__PORT=9000` sets `server.port`, `ANTIPHON__ENGINES__0__FIRST_HOP=8` the first
engine's first hop, and a value is read as YAML, so a list is written `[a, b]`. Unknown keys are
errors, and combinations that cannot work are refused before anything is loaded.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from antiphon.engine.errors import InvalidConfiguration
from antiphon.engine.hops import HopSettings
from antiphon.server.calls.config import CallsSection
from antiphon.server.config_merge import merged
from antiphon.server.lm_config import SpeechLMSection
from antiphon.server.voices.config import VoicesSection


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Limits(_Section):
    """Every bound of the server. What passes one is refused or paused, never queued without end."""

    max_connections: int = Field(default=256, ge=1, le=100_000)
    """Open WebSockets. Further ones are refused at the handshake."""
    max_sessions: int = Field(default=32, ge=1, le=10_000)
    """Turns that speak at the same time. Further ones are refused at once with a retry time."""
    max_contexts: int = Field(default=16, ge=1, le=1_000)
    """Contexts of one connection."""
    retry_after_s: float = Field(default=1.0, gt=0, le=3600)
    """What a refused caller is told to wait. About the length of a short turn."""
    text_queue_chars: int = Field(default=20_000, ge=100, le=10_000_000)
    """Characters of one turn that are received and not yet spoken."""
    message_bytes: int = Field(default=131_072, ge=1_024, le=16_777_216)
    """Longest WebSocket message, and longest body of `POST /v1/audio/speech`. A longer message
    closes the connection (1009)."""
    upload_bytes: int = Field(default=26_214_400, ge=1_024, le=1_073_741_824)
    """Longest body of an HTTP request with a file."""
    request_s: float = Field(default=60.0, ge=0.1, le=3600)
    """How long the body of an HTTP request may take to arrive."""
    audio_lead_s: float = Field(default=120.0, ge=1, le=3600)
    """Seconds of one turn's audio that may be sent ahead of a listener at normal speed. Clients
    buffer and play by themselves, so this bounds waste after a barge-in; it is no pacing."""
    unread_audio_s: float = Field(default=2.0, ge=0.2, le=60)
    """Seconds of one turn's audio that may be under way to a client before it has read them.
    Synthesis pauses at this point. Larger values carry farther over slow links."""
    write_buffer_bytes: int = Field(default=32_768, ge=4_096, le=16_777_216)
    """Bytes kept for a client in the process, and again in the kernel's send buffer."""
    slow_reader_s: float = Field(default=10.0, ge=0.1, le=600)
    """A client that reads nothing for this long while audio waits is closed (1008)."""
    first_message_s: float = Field(default=10.0, ge=0.1, le=600)
    """From the handshake to the first message."""
    idle_s: float = Field(default=300.0, ge=0.1, le=86_400)
    """A connection on which nothing was said and nothing was spoken for this long is closed."""
    text_wait_s: float = Field(default=60.0, ge=0.1, le=3600)
    """An open turn that waits for text, or for its end, for this long is ended with an error."""
    turn_s: float = Field(default=1800.0, ge=1, le=86_400)
    """Longest turn."""
    connection_s: float = Field(default=14_400.0, ge=1, le=604_800)
    """Longest connection; it is closed after the turn that is open then."""
    drain_s: float = Field(default=30.0, ge=0, le=3600)
    """How long open turns may go on after SIGTERM."""


class ServerSection(_Section):
    """Where the server listens and whom it serves."""

    host: str = "127.0.0.1"
    port: int = Field(default=8765, ge=0, le=65_535)
    """0 takes any free port."""
    api_keys: tuple[SecretStr, ...] = ()
    """Accepted keys. Without any, the server listens on loopback addresses only."""
    allowed_origins: tuple[str, ...] = ()
    """Web origins (`https://example.org`) that may open a connection besides the server's own."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names, such as a proxy's, by which clients may call a server without keys."""
    limits: Limits = Limits()


class _EngineSection(_Section):
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Model name by which requests choose this engine."""
    text_queue_chars: int = Field(default=2_000, ge=50, le=1_000_000)
    """Characters that the engine itself takes ahead of what it speaks."""


class PresetEngineSection(_EngineSection):
    """Preset voices that speak on any CPU."""

    kind: Literal["preset"]


class CosyVoiceEngineSection(_EngineSection):
    """A checkpoint in one of the official CosyVoice layouts."""

    kind: Literal["cosyvoice"]
    model_dir: Path | None = None
    """Model directory; None for the checkpoint inside the package."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    first_hop: int = 8
    """Speech tokens (40 ms each) in the first hop: smaller is heard earlier and costs more. A
    request may choose its own."""
    max_hop: int = 25
    """Speech tokens in a later hop: larger is cheaper and holds more audio back."""
    hop_growth: float = 2.2
    """Factor from one hop to the next."""
    hop_margin_s: float = 0.25
    """Time before the listener runs dry at which a hop goes ahead with what is there."""
    solver: Literal["euler", "midpoint"] = "euler"
    solver_steps: int = Field(default=10, ge=1, le=64)
    """Evaluations of the flow for each hop; cost grows with them."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Share of probability that the speech LM draws from; None for the checkpoint's own. Small
    models slip less with a smaller one, and vary less."""
    cfg_rate: float = Field(default=0.7, ge=0, le=10)
    """Classifier-free guidance; 0 halves the cost."""
    left_context_chunks: int | None = Field(default=8, ge=1, le=10_000)
    """Chunks (1 s each) that the flow looks back on; None for all, whose cost grows with a turn."""
    acoustic_process: bool = True
    """Compute flow and vocoder in a process of their own. A thread saves one copy of the
    libraries in memory and, beside the speech LM, takes about twice the time (docs/engine.md)."""
    acoustic_hang_s: float = Field(default=30.0, ge=1, le=3600)
    """A process that computes nothing for so long is killed, its turns fail, and another is
    started. It answers between two calls of the model, so that long work does not count; loading
    has a limit of its own (15 minutes)."""
    precision: Literal["float32", "bfloat16", "float16"] | None = None
    """Of the flow's weights and caches; None for float32 on a CPU and bfloat16 on a GPU."""
    cuda_graphs: bool | None = None
    """Capture calls of flow and vocoder; None: on a GPU yes."""
    cache_mib: int | None = Field(default=None, ge=1)
    """Memory for keys and values of all turns and voices; None for 1024 on a CPU, a quarter of a
    GPU up to 32768, of which voices that nobody speaks with may hold half and a quarter."""

    lm: SpeechLMSection = SpeechLMSection()

    def hops(self) -> HopSettings:
        """The hop schedule.

        Raises:
            InvalidConfiguration: a value out of its bounds.
        """
        return HopSettings(self.first_hop, self.max_hop, self.hop_growth, self.hop_margin_s)


EngineSection = Annotated[PresetEngineSection | CosyVoiceEngineSection, Field(discriminator="kind")]


class WatermarkSection(_Section):
    """The mark that every sample carries. `none` must be typed out; the server announces it."""

    name: Literal["perth", "audioseal", "none"] = "perth"
    weights: Path | None = None
    """Weights of `audioseal`; `perth` brings its own."""
    payload: int | None = Field(default=None, ge=0, le=0xFFFF)
    """16 bits that `audioseal` writes into the mark."""


class TextSection(_Section):
    """How whole texts for published checkpoints are read (`POST /v1/audio/speech`)."""

    grammar: Literal["wetext", "ttsfrd", "none"] = "wetext"
    """Writes out numbers, dates and units in Chinese and Japanese; loaded where a checkpoint reads
    such texts. With none they stay digits."""
    ttsfrd_resource: Path | None = None
    """Resource folder of `ttsfrd`."""


class LogSection(_Section):
    """What is written to standard error. Neither text nor audio is ever logged."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    form: Literal["console", "json"] = "console"


class Config(_Section):
    """A deployment."""

    server: ServerSection = ServerSection()
    engines: tuple[EngineSection, ...] = (PresetEngineSection(name="preset", kind="preset"),)
    model: str = "preset"
    """Engine that speaks when a request names none."""
    voice: str | None = "heart"
    """Voice that speaks when a request names none; None for the default model's first."""
    memory_gib: float | None = Field(default=None, gt=0, le=65_536)
    """Memory that all models together may take of the device (of the GPU where there is one);
    None for all of it. What cannot fit is refused before anything is loaded."""
    watermark: WatermarkSection = WatermarkSection()
    log: LogSection = LogSection()
    calls: CallsSection = CallsSection()
    voices: VoicesSection = VoicesSection()
    text: TextSection = TextSection()

    def resolved(self) -> dict[str, Any]:
        """Every value in JSON types, keys (secrets) replaced by asterisks."""
        return self.model_dump(mode="json")

    @property
    def digest(self) -> str:
        """First 12 hex digits of the SHA-256 of the resolved form."""
        text = json.dumps(self.resolved(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def describe(self) -> str:
        """The resolved form as YAML below a line with its hash, for start-up and `doctor`."""
        body = yaml.safe_dump(self.resolved(), sort_keys=False, allow_unicode=True)
        return f"# antiphon configuration {self.digest}\n{body}"


def load_config(
    path: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    model_dir: Path | None = None,
) -> Config:
    """Read, merge and check a configuration.

    Args:
        path: YAML file; None for the defaults.
        environment: where overrides are looked up; None for the process's own.
        overrides: dotted paths to values (`{"server.port": 0}`) that win over everything else.
        model_dir: checkpoint for the first CosyVoice engine, or for a new one where there is none.

    Raises:
        InvalidConfiguration: unreadable file, unknown key, wrong value or combination; `field` is
            the dotted path.
    """
    environment = os.environ if environment is None else environment
    values = merged(path, environment, overrides or {}, model_dir)
    if "engines" in values:
        # The built-in default voice belongs to the built-in default engine.
        values.setdefault("voice", None)
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        raise _as_configuration_error(error) from None
    check(config)
    return config


def check(config: Config) -> None:
    """Refuse combinations that cannot work.

    Raises:
        InvalidConfiguration: naming the field.
    """
    names = [engine.name for engine in config.engines]
    if not names:
        raise InvalidConfiguration("No engine is configured.", field="engines")
    for name in names:
        if names.count(name) > 1:
            raise InvalidConfiguration(f"Two engines are called {name!r}.", field="engines")
    if config.model not in names:
        raise InvalidConfiguration(
            f"The default model {config.model!r} is none of the engines: {', '.join(names)}.",
            field="model",
            limit=", ".join(names),
        )
    for i, engine in enumerate(config.engines):
        _check_engine(engine, f"engines.{i}")
    _check_watermark(config.watermark)
    if (config.text.grammar == "ttsfrd") != (config.text.ttsfrd_resource is not None):
        raise InvalidConfiguration(
            "The grammar ttsfrd needs the path of its resource folder, and no other takes one.",
            field="text.ttsfrd_resource",
        )
    if not config.server.api_keys and not is_loopback(config.server.host):
        raise InvalidConfiguration(
            f"Without server.api_keys the server may listen on loopback addresses only, "
            f"not on {config.server.host}.",
            field="server.host",
            limit="127.0.0.1",
        )
    for i, key in enumerate(config.server.api_keys):
        if len(key.get_secret_value()) < 8 or not key.get_secret_value().isascii():
            raise InvalidConfiguration(
                "An API key needs at least 8 ASCII characters.",
                field=f"server.api_keys.{i}",
                limit=8,
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_engine(engine: PresetEngineSection | CosyVoiceEngineSection, at: str) -> None:
    if isinstance(engine, PresetEngineSection):
        return
    if engine.model_dir is not None and not engine.model_dir.is_dir():
        raise InvalidConfiguration(
            f"The model directory {engine.model_dir} does not exist.", field=f"{at}.model_dir"
        )
    try:
        engine.hops()
    except InvalidConfiguration as error:
        names = {"growth": "hop_growth", "margin_s": "hop_margin_s"}
        field = names.get(error.field or "", error.field)
        raise InvalidConfiguration(
            f"{at}: {error.message}.", field=f"{at}.{field}", limit=error.limit
        ) from None
    try:
        engine.lm.settings()
    except InvalidConfiguration as error:
        raise InvalidConfiguration(
            f"{at}: {error.message}", field=f"{at}.{error.field}", limit=error.limit
        ) from None


def _check_watermark(watermark: WatermarkSection) -> None:
    if watermark.name == "audioseal" and watermark.weights is None:
        raise InvalidConfiguration(
            "The audioseal watermark needs the path of its weights.", field="watermark.weights"
        )
    if watermark.name != "audioseal" and watermark.weights is not None:
        raise InvalidConfiguration(
            f"The watermark {watermark.name!r} takes no weights.", field="watermark.weights"
        )
    if watermark.name != "audioseal" and watermark.payload is not None:
        raise InvalidConfiguration(
            f"The watermark {watermark.name!r} carries no payload.", field="watermark.payload"
        )


def _as_configuration_error(error: ValidationError) -> InvalidConfiguration:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    # The tag of a discriminated union is part of pydantic's path and of no use to the reader.
    path = [str(part) for part in first["loc"] if part not in ("preset", "cosyvoice")]
    dotted = ".".join(path)
    what = "is not a known key" if first["type"] == "extra_forbidden" else first["msg"].lower()
    return InvalidConfiguration(f"{dotted}: {what}.", field=dotted)
