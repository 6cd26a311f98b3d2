"""The part of the configuration that is about calls."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class IceServer(_Section):
    """A STUN or TURN server that browsers and this server may use."""

    urls: tuple[str, ...] = Field(min_length=1)
    username: str | None = None
    credential: SecretStr | None = None


class CallsSection(_Section):
    """Browsers over WebRTC and phones over their bridges."""

    max_calls: int = Field(default=32, ge=0, le=10_000)
    """Calls at the same time; 0 switches calls off."""
    max_calls_per_key: int = Field(default=16, ge=1, le=10_000)
    """Calls of one API key at the same time, where keys are configured."""
    connect_s: float = Field(default=15.0, gt=0, le=300)
    """An offer whose connection does not come up within this time is cleaned up."""
    idle_s: float = Field(default=900.0, ge=1, le=86_400)
    """A call on which nothing is spoken for this long ends."""
    call_s: float = Field(default=14_400.0, ge=1, le=604_800)
    """Longest call."""
    lead_s: float = Field(default=1.5, ge=0, le=60)
    """Flow and vocoder work at most so far ahead of a caller, whom buffered speech serves less
    than others' first words."""
    playout_s: float = Field(default=2.0, ge=0.1, le=60)
    """Speech kept ready for a listener. More rides out slower moments of the engine; a barge-in
    throws that much work away."""
    ice_servers: tuple[IceServer, ...] = ()
    """None by default: then nobody outside is asked for an address, and calls work where browser
    and server can reach each other."""
    opus_bitrate: int = Field(default=32_000, ge=24_000, le=48_000)
    greeting: str | None = Field(default=None, max_length=2_000)
    """Spoken when a call begins; for calls that no agent drives."""
    barge_in: bool = False
    """Whether the caller's voice stops the speech by itself. An agent can switch it for a call."""
    phone_gain_db: float = Field(default=0.0, ge=-20, le=20)
    """Added to speech that goes to phones; peaks are rounded off, never clipped."""
    public_url: str | None = Field(default=None, pattern=r"^wss?://[^\s/?#]+(/[^\s?#]*)?$")
    """Address under which phone providers reach this server, without the path of an endpoint
    (`wss://voice.example.org`). Signatures are checked against it."""
    twilio_auth_token: SecretStr | None = None
    """Twilio's signature is checked with it (HMAC-SHA1); without it and the next, Twilio's doors
    need an API key instead."""
    twilio_signing_key: SecretStr | None = None
    """Shared key of newer accounts (HMAC-SHA256)."""
    audiosocket_host: str = "127.0.0.1"
    audiosocket_port: int | None = Field(default=None, ge=0, le=65_535)
    """TCP port for Asterisk's AudioSocket; None leaves it closed. The protocol has no keys: let
    only your Asterisk reach it."""
