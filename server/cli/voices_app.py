"""`antiphon voices`: list, add, show and remove."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from antiphon.server.cli.console import readable_errors
from antiphon.server.cli.options import ApiKey, AsJson, ConfigFile, Url

voices_app = typer.Typer(
    help="List the voices of a running server, or of the configuration; add and remove them.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)

Place = Annotated[
    str | None,
    typer.Option("--url", help="Running server; without it the configuration's own folder."),
]
Name = Annotated[str, typer.Argument(help="Name of the voice.")]


@voices_app.callback()
def voices(
    context: typer.Context,
    url: Url = None,
    config: ConfigFile = None,
    api_key: ApiKey = None,
    json: AsJson = False,
) -> None:
    """List the voices of a running server, or of the configuration."""
    if context.invoked_subcommand is not None:
        return
    from antiphon.server.cli.voices import run_voices

    with readable_errors(as_json=json):
        run_voices(url, config, api_key, as_json=json)


@voices_app.command()
def add(
    file: Annotated[Path, typer.Argument(help="Recording of 3 to 30 s: wav, flac, mp3, ogg, m4a.")],
    name: Annotated[str, typer.Option(help="Name of the new voice: a-z, 0-9, - and _.")],
    consent_by: Annotated[str, typer.Option(help="Who agreed to the use of this voice.")],
    transcript: Annotated[
        str | None, typer.Option(help="What is said in the recording, word for word.")
    ] = None,
    language: Annotated[str, typer.Option(help="Language of the recording, as en or zh.")] = "",
    scope: Annotated[
        list[str] | None, typer.Option(help="What for; may be repeated. Default: speech.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Date at which the consent ends, as 2030-12-31.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model to make it for; the first that can without it.")
    ] = None,
    clean_up: Annotated[
        bool | None, typer.Option(help="Take noise out, or never; by its noise without either.")
    ] = None,
    replace: Annotated[bool, typer.Option(help="Replace a voice of this name.")] = False,
    url: Place = None,
    config: ConfigFile = None,
    api_key: ApiKey = None,
    json: AsJson = False,
) -> None:
    """Make a voice of a recording, with the consent of the person whose voice it is."""
    from antiphon.server.cli.voice_commands import NewVoice, run_add

    wanted = NewVoice(
        file=file,
        name=name,
        consent_by=consent_by,
        scope=tuple(scope or ("speech",)),
        until=until,
        transcript=transcript,
        language=language,
        model=model,
        clean_up=clean_up,
        replace=replace,
    )
    with readable_errors(as_json=json):
        run_add(wanted, url, config, api_key, as_json=json)


@voices_app.command()
def show(
    name: Name,
    url: Place = None,
    config: ConfigFile = None,
    api_key: ApiKey = None,
    json: AsJson = False,
) -> None:
    """Show a voice: its consent, its figures, whether it may be used."""
    from antiphon.server.cli.voice_commands import run_show

    with readable_errors(as_json=json):
        run_show(name, url, config, api_key, as_json=json)


@voices_app.command()
def remove(
    name: Name,
    url: Place = None,
    config: ConfigFile = None,
    api_key: ApiKey = None,
    json: AsJson = False,
) -> None:
    """Remove a voice. Whoever speaks with it falls silent."""
    from antiphon.server.cli.voice_commands import run_remove

    with readable_errors(as_json=json):
        run_remove(name, url, config, api_key, as_json=json)
