"""The commands and their options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from antiphon.server.cli.console import readable_errors
from antiphon.server.cli.options import ApiKey, AsJson, ConfigFile, Url
from antiphon.server.cli.voices_app import voices_app

app = typer.Typer(
    name="antiphon",
    help="Real-time voice server: text that is still being written becomes speech that is heard.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.command()
def serve(
    config: ConfigFile = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes any free one.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Directory of a CosyVoice checkpoint to serve.")
    ] = None,
    json: AsJson = False,
    exit_with_parent: Annotated[
        bool, typer.Option(hidden=True, help="End when standard input is closed.")
    ] = False,
) -> None:
    """Serve until interrupted, and say how to talk to the server."""
    from antiphon.server.cli.serve import run_server

    with readable_errors(as_json=json):
        run_server(config, host, port, model, as_json=json, exit_with_parent=exit_with_parent)


@app.command()
def say(
    text: Annotated[str, typer.Argument(help="What to say; - reads standard input.")],
    url: Url = None,
    voice: Annotated[str | None, typer.Option(help="Voice; see `antiphon voices`.")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Model name; without --url also the directory of a checkpoint."),
    ] = None,
    rate: Annotated[
        float,
        typer.Option(min=0.0, help="Words per second, as an LLM writes; 0 sends all at once."),
    ] = 20.0,
    output: Annotated[Path, typer.Option("--output", "-o", help="WAV file.")] = Path("out.wav"),
    audio_format: Annotated[
        str, typer.Option("--format", help="Form in which the audio travels.")
    ] = "pcm",
    sample_rate: Annotated[int, typer.Option(help="Sample rate of the audio in Hz.")] = 24000,
    seed: Annotated[int | None, typer.Option(help="Seed of the sampling.")] = None,
    config: ConfigFile = None,
    api_key: ApiKey = None,
    play: Annotated[bool, typer.Option(help="Play the speech if there is a sound device.")] = True,
    json: AsJson = False,
) -> None:
    """Speak a text that is sent in small pieces, and write what was heard."""
    from antiphon.server.cli.say import SayOptions, run_say

    if text == "-":
        text = sys.stdin.read()
    options = SayOptions(
        text=text,
        url=url,
        voice=voice,
        model=model,
        words_per_second=rate,
        output=output,
        format=audio_format,
        sample_rate=sample_rate,
        seed=seed,
        config=config,
        api_key=api_key,
        play=play,
        as_json=json,
    )
    with readable_errors(as_json=json):
        run_say(options)


@app.command()
def convert(
    file: Annotated[Path, typer.Argument(help="Recording of up to 300 s, from 16 kHz.")],
    voice: Annotated[str | None, typer.Option(help="Voice; see `antiphon voices`.")] = None,
    url: Url = None,
    model: Annotated[
        str | None,
        typer.Option(help="Model name; without --url also the directory of a checkpoint."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="File.")] = Path("out.wav"),
    audio_format: Annotated[
        str, typer.Option("--format", help="wav, mp3, opus, aac or flac.")
    ] = "wav",
    sample_rate: Annotated[int, typer.Option(help="Sample rate of the audio in Hz.")] = 24000,
    speed: Annotated[float, typer.Option(help="1 is the recording's own pace.")] = 1.0,
    config: ConfigFile = None,
    api_key: ApiKey = None,
    json: AsJson = False,
) -> None:
    """Say a recording again in another voice, and write what was heard."""
    from antiphon.server.cli.convert import ConvertOptions, run_convert

    options = ConvertOptions(
        file=file,
        voice=voice,
        url=url,
        model=model,
        output=output,
        format=audio_format,
        sample_rate=sample_rate,
        speed=speed,
        config=config,
        api_key=api_key,
        as_json=json,
    )
    with readable_errors(as_json=json):
        run_convert(options)


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="Audio file: wav, flac, mp3, aac, ogg, m4a, webm.")],
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Say whether a file carries the watermark, with the score and where."""
    from antiphon.server.cli.verify import run_verify

    with readable_errors(as_json=json):
        run_verify(file, config, as_json=json)


@app.command()
def doctor(
    model: Annotated[
        Path | None, typer.Option(help="Checkpoint directory to look at as well.")
    ] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Report what this machine can run and what is missing.

    Exit code: 0 where nothing is wrong, 1 where the report has problems, 2 where it could not be
    made. Optional parts that are not installed are no problems.
    """
    from antiphon.server.cli.doctor import run_doctor

    with readable_errors(as_json=json):
        run_doctor(model, config, as_json=json)


app.add_typer(voices_app, name="voices")


def run() -> None:
    """Run the command line of this process."""
    app()
