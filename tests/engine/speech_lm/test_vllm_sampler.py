"""The logits processor alone, driven as vLLM's batch drives it. Needs vLLM, not its engine."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from antiphon.engine.speech_lm.layout import Constraint
from antiphon.engine.speech_lm.request import Sampling
from antiphon.engine.speech_lm.sampling import Draw, ras_distribution, sample

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (extra `vllm`)"
    ),
]
ROWS, CODES = 40, 30
RAS = Sampling(0.8, 25, 10, 0.1)


def sampler(size: int) -> Any:
    from antiphon.engine.speech_lm.vllm_sampling import SpeechSampler

    config = SimpleNamespace(
        speech_rows=ROWS, speech_first_stop=CODES, speech_eos=31, speech_fill=33, speech_fault=30
    )
    return SpeechSampler(
        SimpleNamespace(
            model_config=SimpleNamespace(hf_config=config),
            scheduler_config=SimpleNamespace(max_num_seqs=size),
        ),
        torch.device("cpu"),
        False,
    )


def row(**changes: Any) -> Any:
    from vllm import SamplingParams

    from antiphon.engine.speech_lm.vllm_sampling import RowSettings

    values: dict[str, Any] = {
        "sampling": RAS,
        "constraint": Constraint.ANY,
        "run": 1000,
        "then": Constraint.ANY,
        "seed": 0,
        "step": 0,
        "history": (),
    }
    return SamplingParams(extra_args=RowSettings(**(values | changes)).packed())


def update(size: int, **changes: Any) -> Any:
    from vllm.v1.sample.logits_processor import BatchUpdate

    return BatchUpdate(size, **{"removed": [], "added": [], "moved": [], **changes})


def test_draws_follow_the_exact_distribution() -> None:
    count = 4000
    processor = sampler(count)
    logits = torch.randn(ROWS, generator=torch.Generator().manual_seed(4)) * 2
    history = (int(logits.argmax()), 3, 5)
    added = [(i, row(seed=i, history=history), None, []) for i in range(count)]
    processor.update_state(update(count, added=added))
    found = torch.bincount(processor.apply(logits.repeat(count, 1)).argmax(-1), minlength=ROWS)
    expected = ras_distribution(logits, history, RAS) * count
    common = expected >= 5
    statistic = float(((found - expected)[common] ** 2 / expected[common]).sum())
    freedom = int(common.sum())
    assert statistic <= freedom + 5 * (2 * freedom) ** 0.5
    assert not found[expected == 0].any()


def test_it_draws_what_the_torch_backend_draws_while_rows_come_go_and_move() -> None:
    from vllm.v1.sample.logits_processor import MoveDirectionality

    processor = sampler(4)
    random = torch.Generator().manual_seed(9)
    outputs: list[list[int]] = [[], [], []]
    history = [[1, 2], [], [7]]
    at = [0, 1, 2]
    processor.update_state(
        update(3, added=[(i, row(seed=i, history=history[i]), None, outputs[i]) for i in at])
    )
    changes = {
        3: update(3, moved=[(0, 2, MoveDirectionality.SWAP)]),
        6: update(2, removed=[0], moved=[(2, 0, MoveDirectionality.UNIDIRECTIONAL)]),
    }
    for step in range(12):
        if step in changes:
            processor.update_state(changes[step])
            at = [2, 1, 0] if step == 3 else [0, 1]
        else:
            processor.update_state(None)
        logits = torch.randn(len(at), ROWS, generator=random) * 3
        draws = [Draw(RAS, history[i] + outputs[i], seed=i, step=len(outputs[i])) for i in at]
        expected = sample(logits.clone(), draws)
        found = processor.apply(logits).argmax(-1).tolist()
        assert found == expected
        for place, i in enumerate(at):
            # Now and then vLLM throws a draw away (a prompt that was only half computed).
            if (step + i) % 5:
                outputs[i].append(found[place])


def test_constraints_change_within_a_run_and_strangers_pass_through() -> None:
    from vllm import SamplingParams

    processor = sampler(2)
    outputs: list[int] = []
    greedy = Sampling(0.8, 25, 10, 0.1, greedy=True)
    ours = row(sampling=greedy, constraint=Constraint.SPEECH, run=2, then=Constraint.SPEECH_OR_EOS)
    processor.update_state(
        update(2, added=[(0, ours, None, outputs), (1, SamplingParams(), None, [])])
    )
    for step in range(4):
        logits = torch.zeros(2, ROWS)
        logits[:, 31] = 50.0
        found = processor.apply(logits.clone())
        assert torch.equal(found[1], logits[1])
        assert (int(found[0].argmax()) == 31) is (step >= 2)
        outputs.append(int(found[0].argmax()))
        processor.update_state(None)


def test_numbers_that_are_not_finite_report_a_fault() -> None:
    processor = sampler(2)
    processor.update_state(update(2, added=[(i, row(seed=i), None, []) for i in range(2)]))
    logits = torch.zeros(2, ROWS)
    logits[0, 3] = torch.nan
    logits[1, 4] = 90.0
    assert processor.apply(logits).argmax(-1).tolist() == [30, 4]


def test_malformed_arguments_are_refused_where_the_request_is_made() -> None:
    from vllm import SamplingParams

    from antiphon.engine.speech_lm.vllm_sampling import EXTRA_ARGS_KEY, SpeechSampler

    SpeechSampler.validate_params(SamplingParams())
    SpeechSampler.validate_params(row())
    for extra in ({}, {"sampling": {}}, {"sampling": {"top_p": 1}, "run": "x"}):
        with pytest.raises(ValueError, match="malformed"):
            SpeechSampler.validate_params(SamplingParams(extra_args={EXTRA_ARGS_KEY: extra}))
    with pytest.raises(ValueError, match="window"):
        SpeechSampler.validate_params(row(sampling=Sampling(0.8, 25, 1000, 0.1)))
