"""The stages in order, in one folder: what has been done is found there and not done again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from antiphon.engine.vocoder.f0 import F0Predictor
from antiphon.training import sizes
from antiphon.training.data.corpus import Corpus
from antiphon.training.data.features import Mels
from antiphon.training.data.hibari import Array
from antiphon.training.data.kokoro import KokoroPlan, make_kokoro
from antiphon.training.data.make import make_corpus
from antiphon.training.data.recordings import import_recordings
from antiphon.training.data.split import Split, split
from antiphon.training.export import Trained, export, origin
from antiphon.training.loop import Loop, Stage
from antiphon.training.recipe import Recipe
from antiphon.training.stages.adversarial import AdversarialStage
from antiphon.training.stages.f0 import F0Stage
from antiphon.training.stages.flow import FlowStage
from antiphon.training.stages.lm import LMStage
from antiphon.training.stages.student import StudentStage
from antiphon.training.stages.tokenizer import Recogniser, TokenizerStage
from antiphon.training.stages.vocoder import VocoderStage
from antiphon.training.stages.xvector import SpeakerEncoder, SpeakerStage, embed_corpus


@dataclass(frozen=True)
class Run:
    """One training run: its folder and its recipe."""

    folder: Path
    recipe: Recipe

    @cached_property
    def corpus(self) -> Corpus:
        """The corpus in `corpus/`, which must have been made."""
        return Corpus(self.folder.glob("corpus/*.npz"))

    @cached_property
    def codes(self) -> Corpus | None:
        """The corpus of codes without sound in `codes/`; None if there is none."""
        shards = sorted(self.folder.glob("codes/*.npz"))
        return Corpus(shards) if shards else None

    @cached_property
    def parts(self) -> Split:
        """What is trained on and what is held out."""
        return split(self.corpus)

    @cached_property
    def mels(self) -> Mels:
        """The corpus as mels."""
        return Mels(self.corpus, self.folder / "corpus" / "mel.npy")

    @cached_property
    def embeddings(self) -> Array:
        """Speaker embeddings of all utterances, by the trained encoder."""
        stage = SpeakerStage(self.corpus, self.parts)
        stage.model.load_state_dict(self.best("xvector"))
        encoder = cast(SpeakerEncoder, stage.model.get_submodule("encoder"))
        return embed_corpus(encoder, self.corpus, self.folder / "corpus" / "embeddings.npy")

    def best(self, stage: str) -> dict[str, Tensor]:
        """Averaged weights of a stage's best evaluation.

        Raises:
            FileNotFoundError: the stage has not run yet.
        """
        state: dict[str, Tensor] = torch.load(self.folder / stage / "best.pt", weights_only=True)
        return state

    def has(self, stage: str) -> bool:
        """Whether a stage has weights to use."""
        return (self.folder / stage / "best.pt").exists()

    def data(self, part: int = 0, parts: int = 1) -> None:
        """Make what is missing of the corpus."""
        folder = self.folder / "corpus"
        before = len(list(folder.glob("*.npz")))
        make_corpus(folder, self.recipe.corpus, part, parts)
        if len(list(folder.glob("*.npz"))) != before:
            self._forget_features()
        make_corpus(self.folder / "codes", self.recipe.codes, part, parts)

    def kokoro(self, plan: KokoroPlan | None = None) -> None:
        """Add the second teacher's shards to the corpus."""
        make_kokoro(self.folder / "corpus", plan or KokoroPlan())
        self._forget_features()

    def recordings(self, manifest: Path) -> int:
        """Add consented recordings to the corpus, aligned by the trained tokenizer."""
        recogniser = Recogniser()
        recogniser.load_state_dict(self.best("tokenizer"))
        f0 = F0Stage(sizes.HIFT, self.corpus, self.mels, self.parts)
        f0.model.load_state_dict(self.best("f0"))
        shard = self.folder / "corpus" / f"recordings-{manifest.stem}.npz"
        net = cast(F0Predictor, f0.model)
        count = import_recordings(manifest, shard, recogniser.eval(), net.eval())
        self._forget_features()
        return count

    def _forget_features(self) -> None:
        for name in ("mel.npy", "embeddings.npy"):
            (self.folder / "corpus" / name).unlink(missing_ok=True)

    def train(self, name: str) -> dict[str, float]:
        """Run one stage to the end of its plan, from where it stands."""
        plan = self.recipe.stages[name]
        return Loop(STAGES[name](self), plan, self.folder / name).run()

    def vocoder_weights(self) -> Mapping[str, Tensor]:
        """The adversarial stage's generator if there is one, else the spectral stage's."""
        return self.generator("adversarial" if self.has("adversarial") else "vocoder")

    def generator(self, stage: str) -> dict[str, Tensor]:
        """The vocoder among a stage's weights."""
        prefix = "generator."
        state = self.best(stage)
        return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}

    def export(self, folder: Path, *, student: bool = False, figures: Path | None = None) -> None:
        """Write the checkpoint directory; see `antiphon.training.export`."""
        trained = Trained(
            lm=self.best("lm"),
            flow=self.best("student" if student else "flow"),
            vocoder=self.vocoder_weights(),
            f0=self.best("f0"),
            tokenizer=self.best("tokenizer"),
            xvector=self.best("xvector"),
        )
        metadata = origin(self.recipe, self.corpus, self.codes)
        export(
            folder,
            trained,
            self.corpus,
            self.mels,
            self.embeddings,
            metadata,
            student=student,
            figures=figures,
        )


def _flow(run: Run) -> FlowStage:
    return FlowStage(
        sizes.FLOW, run.recipe.flow_rows, run.corpus, run.mels, run.embeddings, run.parts
    )


def _student(run: Run) -> StudentStage:
    return StudentStage(_flow(run), run.best("flow"))


def _adversarial(run: Run) -> AdversarialStage:
    return AdversarialStage(_vocoder(run), run.generator("vocoder"))


def _vocoder(run: Run) -> VocoderStage:
    return VocoderStage(sizes.HIFT, run.corpus, run.mels, run.parts)


STAGES: Mapping[str, Callable[[Run], Stage]] = {
    "xvector": lambda run: SpeakerStage(run.corpus, run.parts),
    "tokenizer": lambda run: TokenizerStage(run.corpus, run.parts),
    "lm": lambda run: LMStage(sizes.LM, run.recipe.lm_rows, run.corpus, run.parts, run.codes),
    "f0": lambda run: F0Stage(sizes.HIFT, run.corpus, run.mels, run.parts),
    "flow": _flow,
    "vocoder": _vocoder,
    "adversarial": _adversarial,
    "student": _student,
}
"""In the order in which they run."""
