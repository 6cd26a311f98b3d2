"""Speech LM: text ids in, speech codes out, plain and interleaved.

Some heads are shown where to look: the alignment is known, so -log of the attention on the aligned
phone is part of the loss at first. Without it a small LM takes many times longer to find out that
speech follows the text.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from antiphon.engine.checkpoint.config import LMConfig
from antiphon.training.data.codes import Ids
from antiphon.training.data.corpus import Corpus
from antiphon.training.data.split import Split
from antiphon.training.loop import Draw, apply_gradients, matrices_and_rest
from antiphon.training.stages.qwen2 import Guide, TrainableSpeechLM
from antiphon.training.text_ids import END_OF_PROMPT_ID, encode, is_phone

IGNORE = -100


@dataclass(frozen=True)
class LMPlan:
    """Shares of the situations a batch is made of."""

    positions: int = 1500
    prompted: float = 0.3
    interleaved: float = 0.5
    noise: float = 0.03
    """Share of speech inputs replaced by random codes, so that the LM can recover from errors."""
    guide_start: float = 0.5
    guide_end: float = 0.05


@dataclass(frozen=True)
class Example:
    """One utterance, or two of one speaker joined: text ids, codes, and each code's text position.

    `aligned[i]` indexes `text`; silence points at the phone before it.
    """

    text: list[int]
    codes: list[int]
    aligned: list[int]


@dataclass(frozen=True)
class Laid:
    """Inputs (unified ids), targets (speech rows) and guides of one row, position by position."""

    inputs: list[int]
    targets: list[int]
    guides: list[int]


def example(corpus: Corpus, index: int) -> Example:
    """Text and codes of an utterance with their alignment."""
    text = encode(corpus.rows[index]["text"])
    phones = [position for position, identifier in enumerate(text) if is_phone(identifier)]
    aligned, last = [], phones[0]
    for owner in corpus.owner(index):
        last = phones[owner] if owner >= 0 else last
        aligned.append(last)
    return Example(text, corpus.codes(index).tolist(), aligned)


def joined(first: Example, second: Example) -> Example:
    """The prompt's example before the target's."""
    shift = len(first.text)
    return Example(
        first.text + second.text,
        first.codes + second.codes,
        first.aligned + [position + shift for position in second.aligned],
    )


def lay_plain(config: LMConfig, item: Example) -> Laid:
    """sos, <|endofprompt|>, text, task, speech, eos."""
    rows = config.ids.rows
    head = [config.ids.sos, rows + END_OF_PROMPT_ID, *(rows + t for t in item.text)]
    inputs = [*head, config.ids.task, *item.codes]
    targets = [IGNORE] * len(head) + [*item.codes, config.ids.eos]
    guides = [-1] * len(head) + [2 + position for position in item.aligned] + [-1]
    return Laid(inputs, targets, guides)


def lay_interleaved(config: LMConfig, item: Example) -> Laid | None:
    """Blocks of text and speech as the server lays them; None if the speech is too short."""
    rows, (per_text, per_speech) = config.ids.rows, config.mix_ratio
    blocks = len(item.text) // per_text
    if len(item.codes) <= blocks * per_speech:
        return None
    inputs = [config.ids.sos, rows + END_OF_PROMPT_ID]
    targets, guides = [IGNORE, IGNORE], [-1, -1]
    place: dict[int, int] = {}
    spoken = 0

    def add_text(first: int, last: int) -> None:
        for position in range(first, last):
            place[position] = len(inputs)
            inputs.append(rows + item.text[position])
            targets.append(IGNORE)
            guides.append(-1)

    def expect(target: int, aligned: int | None) -> None:
        targets[-1] = target
        guides[-1] = -1 if aligned is None else place.get(aligned, -1)

    def add_speech(count: int) -> None:
        nonlocal spoken
        for code, aligned in zip(
            item.codes[spoken : spoken + count], item.aligned[spoken : spoken + count], strict=True
        ):
            expect(code, aligned)
            inputs.append(code)
            targets.append(IGNORE)
            guides.append(-1)
        spoken += count

    for block in range(blocks):
        add_text(block * per_text, (block + 1) * per_text)
        add_speech(per_speech)
        expect(config.ids.fill, None)
    add_text(blocks * per_text, len(item.text))
    inputs.append(config.ids.task)
    targets.append(IGNORE)
    guides.append(-1)
    add_speech(len(item.codes) - spoken)
    expect(config.ids.eos, None)
    return Laid(inputs, targets, guides)


class LMStage:
    """Cross-entropy on speech, fill and eos."""

    def __init__(
        self,
        config: LMConfig,
        plan: LMPlan,
        corpus: Corpus,
        parts: Split,
        more: Corpus | None = None,
        *,
        seed: int = 1,
    ) -> None:
        """`more` is a corpus of codes without sound, all of it to be learned from."""
        torch.manual_seed(seed)
        self.config, self.plan = config, plan
        self.held_out = [example(corpus, i) for i in parts.validation]
        self.examples: list[Example] = []
        self.speakers: list[str] = []
        self.by_speaker: dict[str, list[int]] = {}
        sources = (
            [(corpus, parts.train)]
            if more is None
            else [(corpus, parts.train), (more, range(len(more)))]
        )
        for source, indices in sources:
            for index in indices:
                speaker = source.rows[index]["speaker"]
                self.by_speaker.setdefault(speaker, []).append(len(self.examples))
                self.speakers.append(speaker)
                self.examples.append(example(source, index))
        self._model = TrainableSpeechLM(config)

    @property
    def model(self) -> nn.Module:
        """The speech LM."""
        return self._model

    def optimizers(self, peak_lr: float) -> list[torch.optim.Optimizer]:
        """Muon for the layers' matrices, AdamW for the rest."""

        def is_matrix(name: str, weight: Tensor) -> bool:
            return ".layers." in name and weight.ndim == 2

        return matrices_and_rest(self._model, is_matrix, peak_lr, peak_lr)

    def step(self, draw: Draw, optimizers: list[torch.optim.Optimizer]) -> dict[str, float]:
        """One batch."""
        rows = self._rows(draw.numpy)
        ids, targets, guides = self._collate(rows, draw.numpy, self.plan.noise)
        logits, penalty = self._model(ids, Guide(guides))
        loss = functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE
        )
        plan = self.plan
        weight = plan.guide_start + (plan.guide_end - plan.guide_start) * min(1, 2 * draw.progress)
        norm = apply_gradients(loss + weight * penalty, self._model, optimizers, 1.0)
        return {"entropy": float(loss.detach()), "guide": float(penalty.detach()), "gradient": norm}

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Cross-entropy and accuracy on held-out sentences, plain and interleaved."""
        figures: dict[str, float] = {}
        plain = [lay_plain(self.config, item) for item in self.held_out]
        mixed = [laid for laid in (lay_interleaved(self.config, i) for i in self.held_out) if laid]
        for name, rows in (("plain", plain), ("interleaved", mixed)):
            entropy = right = count = 0.0
            for begin in range(0, len(rows), 12):
                rng = np.random.default_rng(0)
                ids, targets, _ = self._collate(rows[begin : begin + 12], rng, 0.0)
                logits, _ = self._model(ids)
                wanted = targets != IGNORE
                entropy += float(
                    functional.cross_entropy(logits[wanted], targets[wanted], reduction="sum")
                )
                right += float((logits[wanted].argmax(-1) == targets[wanted]).sum())
                count += float(wanted.sum())
            figures[name] = entropy / max(count, 1)
            figures[f"{name} accuracy"] = right / max(count, 1)
        return {**figures, "score": figures["plain"] + figures["interleaved"]}

    def _rows(self, rng: np.random.Generator) -> list[Laid]:
        """Rows of similar length: of some candidates, neighbours in the order of length."""
        drawn = sorted((self._row(rng) for _ in range(32)), key=lambda r: len(r.inputs))
        first = int(rng.integers(0, len(drawn)))
        rows = [drawn[first]]
        low, high = first - 1, first + 1
        while (len(rows) + 1) * max(len(row.inputs) for row in rows) < self.plan.positions:
            if high < len(drawn):
                rows.append(drawn[high])
                high += 1
            elif low >= 0:
                rows.append(drawn[low])
                low -= 1
            else:
                break
        return rows

    def _row(self, rng: np.random.Generator) -> Laid:
        index = int(rng.integers(len(self.examples)))
        item = self.examples[index]
        if rng.random() < self.plan.prompted:
            peers = self.by_speaker[self.speakers[index]]
            item = joined(self.examples[int(rng.choice(peers))], item)
        mixed = rng.random() < self.plan.interleaved
        laid = lay_interleaved(self.config, item) if mixed else None
        return laid or lay_plain(self.config, item)

    def _collate(
        self, rows: list[Laid], rng: np.random.Generator, noise: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        length = max(len(row.inputs) for row in rows)
        ids: Ids = np.zeros((len(rows), length), np.int64)
        targets = np.full((len(rows), length), IGNORE, np.int64)
        guides = np.full((len(rows), length), -1, np.int64)
        for number, row in enumerate(rows):
            ids[number, : len(row.inputs)] = row.inputs
            targets[number, : len(row.targets)] = row.targets
            guides[number, : len(row.guides)] = row.guides
        codes = self.config.speech_token_size
        swap = (ids < codes) & (rng.random(ids.shape) < noise)
        ids[swap] = rng.integers(0, codes, int(swap.sum()))
        return torch.from_numpy(ids), torch.from_numpy(targets), torch.from_numpy(guides)
