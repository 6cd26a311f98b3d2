"""What `antiphon voices add|show|remove` do: on a running server, or in the deployment's folder."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from antiphon.engine.errors import (
    AntiphonError,
    CheckpointError,
    InvalidConfiguration,
    InvalidRequest,
    UnsupportedFeature,
)
from antiphon.server.cli.console import out, print_json, progress
from antiphon.server.cli.voices import ask_json
from antiphon.server.config import Config, CosyVoiceEngineSection, load_config

if TYPE_CHECKING:
    from antiphon.engine.voice.folder import VoiceFolder

MAX_FILE_BYTES = 16 << 20
_STYLES = {"good": "green", "warn": "yellow", "refuse": "red"}


@dataclass(frozen=True, slots=True)
class NewVoice:
    """A voice to be made."""

    file: Path
    name: str
    consent_by: str
    scope: tuple[str, ...]
    until: str | None
    transcript: str | None
    language: str
    model: str | None
    clean_up: bool | None
    replace: bool

    def body(self) -> dict[str, Any]:
        """As `POST /v1/voices` takes it.

        Raises:
            InvalidRequest: the file cannot be read or is too large.
        """
        try:
            with self.file.open("rb") as file:
                audio = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise InvalidRequest(
                f"The recording {self.file} cannot be read.", field="audio"
            ) from error
        if len(audio) > MAX_FILE_BYTES:
            raise InvalidRequest(
                f"The recording is larger than {MAX_FILE_BYTES} bytes.",
                field="audio",
                limit=MAX_FILE_BYTES,
            )
        consent: dict[str, Any] = {"given_by": self.consent_by, "scope": list(self.scope)}
        if self.until is not None:
            consent["until"] = self.until
        return {
            "name": self.name,
            "audio": base64.b64encode(audio).decode(),
            "consent": consent,
            "transcript": self.transcript,
            "language": self.language,
            "model": self.model,
            "clean_up": self.clean_up,
            "replace": self.replace,
        }


def run_add(
    wanted: NewVoice, url: str | None, config: Path | None, api_key: str | None, *, as_json: bool
) -> None:
    """Make a voice and print its report.

    Raises:
        AntiphonError: the recording, the consent or the name will not do; nothing is stored.
    """
    body = wanted.body()
    with progress("Listening to the recording", quiet=as_json):
        if url is not None:
            made = ask_json("POST", url, "/v1/voices", api_key, body)
        else:
            made = asyncio.run(_add_here(body, load_config(config)))
    if as_json:
        print_json(made)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("measure", "value", "verdict", ""):
        table.add_column(column)
    for finding in made["report"]["findings"]:
        verdict = finding["verdict"]
        table.add_row(
            finding["measure"],
            f"{finding['value']:g}",
            f"[{_STYLES.get(verdict, 'white')}]{verdict}[/]",
            finding["message"],
        )
    out.print(table)
    voice = made["voice"]
    out.print(f"The voice {voice['name']} is made for {voice['model']}.", markup=False)


def run_show(
    name: str, url: str | None, config: Path | None, api_key: str | None, *, as_json: bool
) -> None:
    """Print a voice.

    Raises:
        AntiphonError: there is none of that name, or the server cannot be asked.
    """
    voice = (
        ask_json("GET", url, f"/v1/voices/{_quoted(name)}", api_key)
        if url is not None
        else _shown_here(name, load_config(config))
    )
    if as_json:
        print_json(voice)
        return
    for key, value in voice.items():
        if isinstance(value, dict):
            value = ", ".join(f"{inner} {each}" for inner, each in value.items())
        if value not in (None, ""):
            out.print(f"{key:<12}{value}", markup=False)


def run_remove(
    name: str, url: str | None, config: Path | None, api_key: str | None, *, as_json: bool
) -> None:
    """Remove a voice.

    Raises:
        AntiphonError: there is none of that name, or the server cannot be asked.
    """
    if url is not None:
        ask_json("DELETE", url, f"/v1/voices/{_quoted(name)}", api_key)
    else:
        _folder(load_config(config)).remove(name)
    if as_json:
        print_json({"removed": name})
    else:
        out.print(f"The voice {name} is removed.", markup=False)


async def _add_here(body: dict[str, Any], config: Config) -> dict[str, Any]:
    from antiphon.engine.checkpoint import open_checkpoint
    from antiphon.engine.engine_voices import EngineVoices
    from antiphon.engine.prompts import PromptMaker
    from antiphon.engine.voice.enroller import Enroller
    from antiphon.server.loading import house_checkpoint
    from antiphon.server.voices.hearing import enrolment_settings
    from antiphon.server.voices.submission import from_json_values
    from antiphon.server.voices.views import enrolment_fields, record_fields

    folder = _folder(config)
    wanted = from_json_values(body)
    section = _section(config, wanted.model)
    directory = section.model_dir or house_checkpoint()
    if directory is None:
        raise CheckpointError(
            "No checkpoint comes with this package; name one with `model_dir`.", field="model_dir"
        )
    checkpoint = open_checkpoint(directory)
    prompts = PromptMaker(checkpoint)
    own = map(prompts.stored, checkpoint.voices.values())
    made = await Enroller(checkpoint, section.name, enrolment_settings(config.voices)).enrol(
        wanted.audio,
        name=wanted.name,
        consent=wanted.consent,
        transcript=wanted.transcript,
        language=wanted.language,
        clean_up=wanted.clean_up,
    )
    EngineVoices(section.name, prompts, own).check_new(made.voice)
    folder.add(made.voice, replace=wanted.replace)
    return {"voice": record_fields(made.voice), **enrolment_fields(made)}


def _shown_here(name: str, config: Config) -> dict[str, Any]:
    from antiphon.server.voices.views import record_fields

    folder = _folder(config)
    voice = folder.load(name)
    reason = None
    try:
        folder.require(name)
    except AntiphonError as error:
        reason = error.message
    return {**record_fields(voice), "usable": reason is None, "reason": reason}


def _section(config: Config, model: str | None) -> CosyVoiceEngineSection:
    able = [each for each in config.engines if isinstance(each, CosyVoiceEngineSection)]
    for section in able:
        if model in (None, section.name):
            return section
    known = ", ".join(section.name for section in able)
    raise UnsupportedFeature(
        f"No engine{f' {model}' if model else ''} of this configuration can learn voices"
        f"{f'; {known} can' if known else ''}.",
        field="model",
        limit=known,
    )


def _folder(config: Config) -> VoiceFolder:
    from antiphon.server.loading import load_voices

    folder = load_voices(config.voices)
    if folder is None:
        raise InvalidConfiguration(
            "This configuration keeps no voices of recordings; set voices.folder.",
            field="voices.folder",
        )
    return folder


def _quoted(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="")
