"""Whether pronunciation overrides are heard: fifty hard words, and two ways to say one word.

Each word is pushed as ARPABET in brackets inside a carrier sentence. The checkpoint's own speech
tokenizer, which is a phone recogniser, listens to the result; the best matching stretch of what it
hears is compared with the phones that were asked for.

    python -m bench.pronunciation --model runs/nano/nano
"""

from __future__ import annotations

from pathlib import Path

import torch

from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.voice.reference import SpeechTokenizer
from antiphon.engine.voice.resample import resample
from antiphon.training.data.phones import base
from bench.phone_listener import closest, heard_phones
from bench.report import Row, publish, switches
from bench.voice_measures import MEASURE_HZ, RATE_HZ
from bench.voice_server import say, voice_server

TOMATOES = ("T AH0 M EY1 T OW2", "T AH0 M AA1 T OW2")
CARRIERS = (
    "She bought one {} today.",
    "This {} is very good.",
    "Do you want a {} with it?",
    "He cut the {} in half.",
    "I said {} again.",
    "Put the {} on the table.",
    "Every {} was sold.",
    "My brother dropped a {}.",
    "The red {} is mine.",
    "Nobody likes {} soup.",
)
HARD_WORDS = tuple(
    line.strip().split(" ", 1)
    for line in """
    nguyen W IH1 N
    siobhan SH AH0 V AO1 N
    quinoa K IY1 N W AA2
    worcester W UH1 S T ER0
    acetaminophen AH0 S IY2 T AH0 M IH1 N AH0 F AH0 N
    ibuprofen AY2 B Y UW0 P R OW1 F AH0 N
    gnocchi N OW1 K IY0
    hermes EH0 R M EH1 Z
    porsche P AO1 R SH AH0
    hyundai HH AH1 N D EY0
    nike N AY1 K IY0
    ikea AY0 K IY1 AH0
    xiaomi SH AW1 M IY0
    huawei W AA1 W EY2
    adobe AH0 D OW1 B IY0
    asus EY1 S UW0 S
    joaquin W AA0 K IY1 N
    saoirse S ER1 SH AH0
    caoimhe K IY1 V AH0
    niamh N IY1 V
    xavier Z EY1 V Y ER0
    leicester L EH1 S T ER0
    arkansas AA1 R K AH0 N S AO2
    tucson T UW1 S AA0 N
    edinburgh EH1 D AH0 N B ER0 AH0
    versailles V ER0 S AY1
    ciabatta CH AH0 B AA1 T AH0
    bruschetta B R UW0 S K EH1 T AH0
    croissant K W AA0 S AA1 N
    chipotle CH IH0 P OW1 T L EY2
    worsted W UH1 S T IH0 D
    colonel K ER1 N AH0 L
    yacht Y AA1 T
    choir K W AY1 ER0
    subpoena S AH0 P IY1 N AH0
    hyperbole HH AY0 P ER1 B AH0 L IY2
    epitome IH0 P IH1 T AH0 M IY2
    anemone AH0 N EH1 M AH0 N IY2
    metformin M EH0 T F AO1 R M IH0 N
    warfarin W AO1 R F ER0 IH0 N
    ketamine K EH1 T AH0 M IY2 N
    amoxicillin AH0 M AA2 K S AH0 S IH1 L AH0 N
    psoriasis S ER0 AY1 AH0 S AH0 S
    pneumonia N UH0 M OW1 N Y AH0
    asthma AE1 Z M AH0
    diarrhea D AY2 ER0 IY1 AH0
    eczema EH1 K S AH0 M AH0
    tsunami S UW0 N AA1 M IY0
    pterodactyl T EH2 R AH0 D AE1 K T AH0 L
    ptarmigan T AA1 R M AH0 G AH0 N
    """.splitlines()
    if line.strip()
)


def plain(phones: str) -> list[str]:
    """Phones without stress."""
    return [base(phone) for phone in phones.split()]


def bracketed(phones: str) -> str:
    """`T AH0` as `[T][AH0]`."""
    return "".join(f"[{phone}]" for phone in phones.split())


def measure(model: Path, config: Path, words: int, carriers: int) -> list[Row]:
    """Hard words within one phone error, and carriers in which both tomatoes are told apart."""
    checkpoint = open_checkpoint(model)
    tokenizer = SpeechTokenizer(checkpoint.file("speech_tokenizer_v3.onnx"))
    voices = list(checkpoint.voices)

    def hear(url: str, text: str, number: int) -> list[str]:
        samples = say(url, text, voices[number % len(voices)], number).samples
        return heard_phones(tokenizer, resample(samples, RATE_HZ, MEASURE_HZ))

    with voice_server(config, model) as url:
        exact = right = total = 0
        for number, (_, phones) in enumerate(HARD_WORDS[:words]):
            heard = hear(url, f"Please say {bracketed(phones)} once more.", number)
            wrong = closest(plain(phones), heard)
            exact += wrong == 0
            right, total = right + len(plain(phones)) - wrong, total + len(plain(phones))
        apart = 0
        for number, carrier in enumerate(CARRIERS[:carriers]):
            told = []
            for phones in TOMATOES:
                heard = hear(url, carrier.format(bracketed(phones)), number)
                nearest = [closest(plain(option), heard) for option in TOMATOES]
                told.append(nearest[TOMATOES.index(phones)] < max(nearest))
            apart += all(told)
    return [
        {"check": "hard words, all phones heard", "right": exact, "of": words},
        {"check": "phones of hard words", "right": right, "of": total},
        {"check": "both tomatoes told apart", "right": apart, "of": carriers},
    ]


def main() -> None:
    """Entry point."""
    parser = switches(__doc__ or "")
    parser.add_argument("--model", type=Path, required=True, help="checkpoint directory")
    parser.add_argument("--config", type=Path, default=Path("configs/nano.yaml"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    words, carriers = (6, 2) if arguments.quick else (len(HARD_WORDS), len(CARRIERS))
    rows = measure(arguments.model, arguments.config, words, carriers)
    publish(arguments, f"Pronunciation: {arguments.model.name}", rows)


if __name__ == "__main__":
    main()
