"""The voice gate: how well a nano checkpoint is understood and how much it sounds like its voices.

Link by link, each beside its ceiling: the teacher's own speech, its mel through the vocoder, its
tokens through flow and vocoder, and text in pieces through a real server at several first hops.
Word error rate by the bundled Whisper (base), DNSMOS, F0 correlation, click energy at the borders
of messages, real-time factor on one core, first-packet latency. Then likeness of house voices and
clones by Resemblyzer, and last words at every length.

    python -m bench.voice --model runs/nano/nano --json voice.json --plot voice.png
    python -m bench.voice --model runs/nano/nano --quick
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.hops import LARGEST_HOP
from antiphon.engine.voice.reference import SpeechTokenizer
from antiphon.server.config import CosyVoiceEngineSection, load_config
from antiphon.training.data.speakers import HOUSE
from bench.report import Row, print_table, publish, switches
from bench.voice_last_words import measure_last_words, of_every_length
from bench.voice_likeness import HELD_OUT, TRAINED, measure_likeness
from bench.voice_links import Link, Parts, measure_links, teacher_speech
from bench.voice_sentences import chosen
from bench.voice_server import measure_text, voice_server

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HOPS = (5, 8, 12, 25, LARGEST_HOP)
"""First hops; with the largest, a sentence is spoken in one piece."""
QUICK_HOPS = (8, LARGEST_HOP)
QUICK_SENTENCES = 6
QUICK_CLONES = 2
QUICK_LAST_WORDS = 6
DEFAULT_STEPS = 10


def drawing(links: Sequence[Link]) -> Callable[[Axes], None]:
    """Word error rates as bars."""

    def draw(axes: Axes) -> None:
        names = [link.name for link in links]
        axes.barh(names, [100 * link.word_error_rate for link in links])
        axes.invert_yaxis()
        axes.set_xlabel("word error rate, %")

    return draw


def solver_steps(config: Path) -> int:
    """The steps a deployment's checkpoint is served with."""
    settings = load_config(config)
    section = next(engine for engine in settings.engines if engine.name == settings.model)
    steps = section.solver_steps if isinstance(section, CosyVoiceEngineSection) else None
    return steps or DEFAULT_STEPS


def run(
    model: Path, config: Path, sentences: Sequence[str], hops: Sequence[int], clones: int, ends: int
) -> tuple[list[Link], list[Row], list[Row]]:
    """Links, likeness and last words of a checkpoint."""
    parts = Parts(open_checkpoint(model), solver_steps(config))
    voices = list(parts.checkpoint.voices)
    house = {name: warp for name, warp in HOUSE.items() if name in voices} or HOUSE
    links = measure_links(parts, teacher_speech(sentences, house))
    tokenizer = SpeechTokenizer(parts.checkpoint.file("speech_tokenizer_v3.onnx"))
    with voice_server(config, model) as url:
        links += [measure_text(url, hop, sentences, voices) for hop in hops]
        alike = measure_likeness(url, voices, clones) if clones else []
        last = measure_last_words(url, tokenizer, of_every_length(ends), voices) if ends else None
    return links, alike, [last] if last else []


def main() -> None:
    """Entry point."""
    parser = switches(__doc__ or "")
    parser.add_argument("--model", type=Path, required=True, help="checkpoint directory")
    parser.add_argument("--config", type=Path, default=Path("configs/nano.yaml"))
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--clones", type=int, default=len(HELD_OUT) + len(TRAINED))
    parser.add_argument("--last-words", type=int, default=200, metavar="TEXTS")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    quick = arguments.quick
    count = min(arguments.sentences, QUICK_SENTENCES) if quick else arguments.sentences
    links, alike, last = run(
        arguments.model,
        arguments.config,
        chosen(count),
        QUICK_HOPS if quick else HOPS,
        min(arguments.clones, QUICK_CLONES) if quick else arguments.clones,
        min(arguments.last_words, QUICK_LAST_WORDS) if quick else arguments.last_words,
    )
    publish(
        arguments,
        f"Voice gate: {arguments.model.name}, {count} sentences",
        [link.row() for link in links],
        details={"likeness": alike, "last words": last},
        draw=drawing(links),
    )
    for title, rows in (("Likeness (Resemblyzer)", alike), ("Last words", last)):
        if rows:
            print_table(title, rows)


if __name__ == "__main__":
    main()
