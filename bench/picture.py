"""Draw one streamed sentence: when its text went in, when its audio came, how it sounds."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

import matplotlib
import numpy as np

from antiphon.server.cli.conversation import Turn, pieces_of, speak
from antiphon.server.cli.local_server import local_server

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

TEXT = "The train to Brighton leaves at 7:30 pm from platform 4, and a ticket costs $12.50."
RATE = 24_000
WORDS_PER_SECOND = 20.0


def draw(turn: Turn, text: str, file: Path) -> None:
    """Draw the time line, the waveform with its words, and the spectrogram."""
    samples = np.frombuffer(b"".join(turn.messages), "<i2") / 32768
    figure, (line, wave, spectrum) = pyplot.subplots(
        3, 1, figsize=(10, 6), height_ratios=(1, 1.3, 1.6), layout="constrained"
    )
    _draw_time_line(line, turn, text)
    seconds = np.arange(len(samples)) / RATE
    wave.plot(seconds, samples, linewidth=0.4)
    top = float(np.abs(samples).max())
    for number, word in enumerate(turn.progress):
        wave.text(
            (word["start_ms"] + word["end_ms"]) / 2000,
            top * (1.12 if number % 2 else 1.35),
            word["text"],
            ha="center",
            fontsize="x-small",
        )
    wave.set(ylabel="waveform", xlim=(0, seconds[-1]), ylim=(-1.1 * top, 1.6 * top), yticks=[])
    # Digital silence has no logarithm.
    audible = samples + 1e-6
    spectrum.specgram(audible, NFFT=1024, Fs=RATE, noverlap=768, vmin=-140, vmax=-40)
    spectrum.set(ylabel="Hz", xlabel="seconds of speech", ylim=(0, 10_000), xlim=(0, seconds[-1]))
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


def _draw_time_line(axes: Axes, turn: Turn, text: str) -> None:
    sent = np.arange(len(pieces_of(text))) / WORDS_PER_SECOND
    came = np.array(turn.arrivals) - turn.first_text_at
    lengths = np.array([len(message) for message in turn.messages]) / 2 / RATE
    axes.vlines(sent, 0.6, 1.0, color="C0", label="a word goes in")
    axes.plot(came, np.full(len(came), 0.3), "|", color="C1", markersize=9, label="audio comes out")
    axes.barh(-0.15, lengths.sum(), left=came[0], height=0.25, color="C2", label="heard")
    axes.annotate(
        f"first packet {turn.first_packet_ms:.0f} ms",
        (came[0], 0.3),
        xytext=(came[0] + 0.4, 0.62),
        arrowprops={"arrowstyle": "->"},
    )
    axes.set(yticks=[], ylim=(-0.35, 1.1), xlabel="seconds since the first word was sent")
    axes.legend(loc="upper right", fontsize="small", ncols=3)


def main() -> None:
    """Speak the sentence through a server of its own and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=Path("configs/preset.yaml"))
    parser.add_argument("--voice")
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what the server reported")
    parser.add_argument("--plot", type=Path, default=Path("docs/pictures/speech.png"))
    arguments = parser.parse_args()
    config = {"seed": 1} | ({"voice": arguments.voice} if arguments.voice else {})
    with local_server(["--config", str(arguments.config)]) as ready:
        speaking = speak(ready["url"], arguments.text, config, words_per_second=WORDS_PER_SECOND)
        turn = asyncio.run(speaking)
    draw(turn, arguments.text, arguments.plot)
    if arguments.json:
        arguments.json.write_text(json.dumps(turn.done, indent=2) + "\n")
    print(f"{arguments.plot}: first packet {turn.first_packet_ms:.0f} ms")


if __name__ == "__main__":
    main()
