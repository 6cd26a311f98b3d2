"""Equality with the reference implementation, id by id, in its own behaviour (`compat`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cache

import pytest
import torch
from torch import Tensor

from antiphon.engine.errors import SynthesisFailed
from antiphon.engine.speech_lm.batch_plan import Row
from antiphon.engine.speech_lm.compat import UpstreamBistream, UpstreamPlain
from antiphon.engine.speech_lm.interleave import Lengths
from antiphon.engine.speech_lm.layout import End, Sample, Sequence, Wait
from antiphon.engine.speech_lm.qwen2 import KVCache, Qwen2SpeechLM
from antiphon.engine.speech_lm.request import SpeechLMRequest
from antiphon.engine.speech_lm.sampling import ConstraintMasks, Draw
from antiphon.engine.speech_lm.torch_backend import TorchSpeechLM
from antiphon.engine.voice.voice import LMPrompt
from tests import golden
from tests.engine.speech_lm.cases import GREEDY, MEETING, NAMES, Case, cases, checkpoint

ALL = [(version, name) for version in (3, 2) for name in NAMES[version]]


@cache
def model_of(version: int) -> Qwen2SpeechLM:
    opened = checkpoint(version)
    return Qwen2SpeechLM(opened.lm_config, opened.lm_state_dict(), positions=1024)


def sequence_of(case: Case, model: Qwen2SpeechLM) -> Sequence:
    if case.pieces is None:
        return UpstreamPlain(model.vocabulary, case.prompt, case.text, Lengths(2, 20))
    end_of_prompt = checkpoint(case.version).tokenizer.end_of_prompt
    return UpstreamBistream(model.vocabulary, case.prompt, end_of_prompt)


@cache
def run(
    version: int, name: str
) -> tuple[list[int], list[int], str | None, list[tuple[int, ...]], list[Tensor]]:
    """Run a case by hand: heard ids, history, error, inputs of each call, logits of each call."""
    case, model = cases(version)[name], model_of(version)
    sequence = sequence_of(case, model)
    cache = KVCache.allocate(model.config.backbone, 1, 1024, torch.float32, "cpu")
    masks = ConstraintMasks(model.vocabulary, model.device)
    pieces: Iterator[tuple[int, ...]] = iter(case.in_pieces() if case.pieces else ())
    script = iter(case.script) if case.script else None
    length, heard, inputs, logits = 0, [], [], []
    while not isinstance(step := sequence.advance(), End):
        if isinstance(step, Wait):
            piece = next(pieces, None)
            sequence.end_text() if piece is None else sequence.push_text(piece)
            continue
        assert isinstance(step, Sample)
        inputs.append(step.inputs)
        logits.append(model.step(cache, [Row(0, length, step.inputs)]))
        length += len(step.inputs)
        allowed = masks.apply(logits[-1].clone(), [step.constraint])
        try:
            token = sequence.accept(next(script) if script else int(allowed.argmax()))
        except SynthesisFailed as error:
            return heard, sequence.history, error.message, inputs, logits
        if token is not None:
            heard.append(token)
    return heard, sequence.history, None, inputs, logits


@pytest.mark.parametrize(("version", "name"), ALL)
def test_ids_equal_the_reference(version: int, name: str) -> None:
    case = cases(version)[name]
    heard, history, error, _, _ = run(version, name)
    assert heard == case.expected()
    assert error == case.error
    if case.pieces is not None:
        assert history == case.expected("out_tokens")


@pytest.mark.parametrize(("version", "name"), ALL)
def test_first_inputs_equal_the_reference(version: int, name: str) -> None:
    model = model_of(version)
    inputs = run(version, name)[3]
    table = model.embedding_table
    golden.assert_close(table[list(inputs[0])][None], version, "lm", f"{name}.prefill")


@pytest.mark.parametrize(
    ("version", "name", "calls"),
    [
        (version, name, 8 if name in ("plain", "zero_shot", "bistream_prompt_uneven") else 2)
        for version, name in ALL
        if "scripted" not in name
    ],
)
def test_log_probabilities_equal_the_reference(version: int, name: str, calls: int) -> None:
    """The reference also calls the network before a forced fill; our row there is read teacher
    forced, after the same ids."""
    case, model = cases(version)[name], model_of(version)
    _, history, _, inputs, _ = run(version, name)
    cache = KVCache.allocate(model.config.backbone, 1, 1024, torch.float32, "cpu")
    fed = [token for call in inputs for token in call]
    every = model.step(cache, [Row(0, 0, fed)], logits_of_all=True)
    # Each reference call yields one id of its history, so call n ends right before history[n].
    speech_calls, position, rows = iter(inputs), -1, []
    fill = model.config.ids.fill
    for n in range(calls):
        forced = case.pieces is not None and n > 0 and _forced_fill(history, n, fill, case)
        position += 1 if forced else len(next(speech_calls)) - _already(history, n, fill, case)
        rows.append(position)
    expected = f"{name}.logp{calls}"
    golden.assert_close(every[rows].log_softmax(-1), version, "lm", expected)


def _forced_fill(history: list[int], n: int, fill: int, case: Case) -> bool:
    """Whether entry n of the history is a fill that nobody sampled."""
    return history[n] == fill and n in golden.notes(case.version)["lm"][case.name]["fill_positions"]


def _already(history: list[int], n: int, fill: int, case: Case) -> int:
    """Return how many inputs of call n the reference had fed in the call before a forced fill."""
    return int(n > 0 and case.pieces is not None and history[n - 1] == fill)


@pytest.mark.parametrize("version", [3, 2])
async def test_backend_equals_the_reference(version: int) -> None:
    """The golden runs again, through threads, batch and streams, several at once."""
    runs = [cases(version)[n] for n in NAMES[version] if cases(version)[n].script is None]
    lm = TorchSpeechLM.load(checkpoint(version), slots=6, positions=512, compat=True)
    try:
        found = await asyncio.gather(*(collect(lm, case.request()) for case in runs))
    finally:
        await lm.close()
    assert found == [(case.expected(), case.error) for case in runs]


@pytest.mark.parametrize("version", [3, 2])
async def test_scripted_runs_through_the_backend(version: int) -> None:
    for name in ("bistream_scripted", "plain_scripted_stop"):
        case = cases(version)[name]
        script = iter(case.script or ())

        def pick(_: Tensor, draws: list[Draw], script: Iterator[int] = script) -> list[int]:
            return [next(script) for _ in draws]

        lm = TorchSpeechLM.load(checkpoint(version), slots=1, positions=512, compat=True, pick=pick)
        try:
            assert await collect(lm, case.request()) == (case.expected(), None)
        finally:
            await lm.close()


async def collect(lm: TorchSpeechLM, request: SpeechLMRequest) -> tuple[list[int], str | None]:
    heard = []
    try:
        async for token in lm.generate(request):
            heard.append(token)
    except SynthesisFailed as error:
        return heard, error.message
    return heard, None


def mode_requests(version: int) -> dict[str, tuple[str, LMPrompt]]:
    """The requests behind the `modes` arrays: text and prompt of each."""
    encode = checkpoint(version).tokenizer.encode
    system = "You are a helpful assistant." if version == 3 else ""
    mark = "<|endofprompt|>"
    happy = "Please read in a happy voice."
    instruct = f"{system} {happy}{mark}" if version == 3 else f"{happy}{mark}"
    start = f"{system}{mark}" if version == 3 else ""
    speech = cases(version)["zero_shot"].prompt.speech_ids
    return {
        "instruct2": (MEETING, LMPrompt(tuple(encode(instruct)))),
        "cross_lingual": (f"{start}{MEETING}", LMPrompt()),
        "sft": (f"{start}{MEETING}", LMPrompt()),
        "stored_speaker": (
            MEETING,
            LMPrompt(tuple(encode(f"{start}The quick brown fox.")), speech),
        ),
    }


@pytest.mark.parametrize("version", [3, 2])
@pytest.mark.parametrize("mode", ["instruct2", "cross_lingual", "sft", "stored_speaker"])
async def test_modes_equal_the_reference(version: int, mode: str) -> None:
    text, prompt = mode_requests(version)[mode]
    ids = tuple(checkpoint(version).tokenizer.encode(text))
    expected = golden.array(version, "modes", f"{mode}.tokens").tolist()
    lm = TorchSpeechLM.load(checkpoint(version), slots=1, positions=512, compat=True)
    try:
        heard, error = await collect(lm, SpeechLMRequest(prompt, ids, GREEDY))
    finally:
        await lm.close()
    assert error is None
    assert heard == expected
