"""The plain flow against the reference implementation's numbers."""

from __future__ import annotations

import pytest
import torch

from antiphon.engine.flow.flow_matching import cosine_times, fixed_noise, noise_slice, plan_solver
from tests import golden
from tests.engine.acoustic import models


def _prompt_ids() -> torch.Tensor:
    return golden.array(3, "frontend", "zero_shot.speech_token").long()


def _solve(count: int, *, final: bool, chunked: bool) -> torch.Tensor:
    mel = models.flow().solve_whole(
        golden.array(3, "flow", "tokens").long()[:, :count],
        _prompt_ids(),
        golden.array(3, "frontend", "zero_shot.prompt_speech_feat"),
        golden.array(3, "frontend", "embedding"),
        models.PLAN,
        final=final,
        chunked=chunked,
    )
    return mel.transpose(1, 2)


def test_speaker_times_and_plan() -> None:
    flow = models.flow()
    golden.assert_close(flow.speaker(golden.array(3, "frontend", "embedding")), 3, "flow", "spk")
    golden.assert_close(cosine_times(10), 3, "flow", "t_span")
    ids = torch.cat([_prompt_ids(), golden.array(3, "flow", "tokens").long()], dim=1)
    planned = flow.pre_lookahead_layer(flow.embed(ids))
    golden.assert_close(planned, 3, "flow", "offline.prelookahead")
    golden.assert_close(flow.plan_mel(ids).transpose(1, 2), 3, "flow", "offline.mu")


def test_look_ahead_uses_the_real_tokens_that_follow() -> None:
    flow = models.flow()
    ids = torch.cat([_prompt_ids(), golden.array(3, "flow", "tokens").long()[:, :52]], dim=1)
    planned = flow.pre_lookahead_layer(flow.embed(ids[:, :-3]), flow.embed(ids[:, -3:]))
    golden.assert_close(planned, 3, "flow", "stream.0.prelookahead")
    mu = flow.plan_mel(ids[:, :-3], ids[:, -3:])
    golden.assert_close(mu.transpose(1, 2), 3, "flow", "stream.0.mu")


def test_noise_is_upstreams_and_begins_again_after_300_seconds() -> None:
    noise = fixed_noise()
    golden.assert_close(noise[:640].t()[None], 3, "flow", "rand_noise_slice")
    wrapped = noise_slice(noise, 14_990, 15_010)
    assert torch.equal(wrapped, torch.cat([noise[14_990:], noise[:10]]))


@pytest.mark.parametrize(("name", "chunked"), [("out_full", False), ("out_chunked", True)])
def test_one_call_of_the_estimator(name: str, chunked: bool) -> None:
    mu = golden.array(3, "flow", "offline.mu").transpose(1, 2)
    cond = golden.array(3, "flow", "offline.cond").transpose(1, 2)
    speaker = golden.array(3, "flow", "spk")
    noise = noise_slice(fixed_noise(), 0, mu.shape[1])[None]
    velocity = models.flow().decoder.estimator(
        noise.expand(2, -1, -1),
        torch.cat([mu, torch.zeros_like(mu)]),
        torch.full((2,), 0.37),
        torch.cat([speaker, torch.zeros_like(speaker)]),
        torch.cat([cond, torch.zeros_like(cond)]),
        chunked=chunked,
    )
    golden.assert_close(velocity.transpose(1, 2), 3, "flow", f"estimator.{name}")


def test_whole_utterances() -> None:
    golden.assert_close(_solve(130, final=True, chunked=False), 3, "flow", "offline.mel")
    chunked = _solve(130, final=True, chunked=True)
    golden.assert_close(chunked, 3, "flow", "streaming_final_reference.mel")


def test_calls_of_upstreams_streaming_schedule() -> None:
    for call, schedule in enumerate(golden.notes(3)["flow_stream_calls"]):
        mel = _solve(
            schedule["n_tokens"], final=schedule["finalize"], chunked=schedule["streaming"]
        )
        golden.assert_close(mel, 3, "flow", f"stream.{call}.mel")


def test_rows_of_a_training_batch_do_not_see_padding() -> None:
    flow = models.flow()
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 6561, (2, 40), generator=generator)
    mask = torch.ones(2, 40, dtype=torch.bool)
    mask[1, 28:] = False
    x = torch.randn(2, 80, 80, generator=generator)
    speaker = torch.randn(2, 80, generator=generator)
    time = torch.tensor([0.2, 0.7])
    chunked = torch.tensor([False, True])
    mu = flow.plan_mel(tokens, mask=mask)
    together = flow.decoder.estimator(
        x, mu, time, speaker, torch.zeros_like(x),
        mask=mask.repeat_interleave(2, dim=1), chunked=chunked,
    )  # fmt: skip
    alone = flow.decoder.estimator(
        x[1:, :56], flow.plan_mel(tokens[1:, :28]), time[1:], speaker[1:],
        torch.zeros_like(x[1:, :56]), chunked=True,
    )  # fmt: skip
    assert (together[1, :56] - alone[0]).abs().max() < 1e-5
    assert together[1, 56:].abs().max() == 0


def test_the_flow_can_be_trained() -> None:
    flow = type(models.flow())(models.checkpoint().flow_config, dropout=0.1)
    mu = flow.plan_mel(torch.arange(24).view(2, 12))
    x = torch.randn(2, 24, 80)
    speaker = flow.speaker(torch.randn(2, 192))
    velocity = flow.decoder.estimator(
        x, mu, torch.rand(2), speaker, torch.zeros_like(x), chunked=True
    )
    velocity.square().mean().backward()
    assert all(parameter.grad is not None for parameter in flow.parameters())


def test_midpoint_takes_two_calls_a_step_and_its_times_lie_between() -> None:
    plan = plan_solver("midpoint", 4, 0.0)
    times = cosine_times(4)
    assert [call.advance for call in plan.evaluations] == [False, True] * 4
    assert plan.guidance_rows == 1
    for step in range(4):
        first, second = plan.evaluations[2 * step : 2 * step + 2]
        assert first.time == pytest.approx(float(times[step]), abs=1e-6)
        assert second.time == pytest.approx(float(times[step : step + 2].mean()), abs=1e-6)
