"""What the tests of the flows of CosyVoice 1 and 2 share: the golden voice, comparisons, sizes."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor, nn

from antiphon.engine.checkpoint.unet_config import ConformerFlowConfig, RegulatedFlowConfig
from antiphon.engine.flow.cosyvoice1 import RegulatedFlow
from antiphon.engine.flow.cosyvoice2 import ConformerFlow
from antiphon.engine.flow.flow_matching import plan_solver
from tests import golden

PLAN = plan_solver("euler", 10, 0.7)


@cache
def voice(version: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, mel (version 1: upstream's, of the wrong rate) and embedding of the golden prompt."""
    return (
        golden.array(version, "frontend", "zero_shot.speech_token").long(),
        golden.array(version, "frontend", "zero_shot.prompt_speech_feat"),
        golden.array(version, "frontend", "embedding"),
    )


def tokens(version: int) -> Tensor:
    """Speech tokens of the golden runs."""
    return golden.array(version, "flow", "tokens").long()


def check(version: int, actual: Tensor, name: str) -> None:
    """Compare (batch, frames, mel) with a golden array of (batch, mel, frames)."""
    golden.assert_close(actual.transpose(1, 2), version, "flow", name)


def velocity(
    version: int, flow: RegulatedFlow | ConformerFlow, noise: Tensor, **options: bool
) -> Tensor:
    """One call of the estimator on both guidance rows, as the golden one was made."""
    mu, cond = (
        golden.array(version, "flow", f"offline.{name}").transpose(1, 2) for name in ("mu", "cond")
    )
    speaker = golden.array(version, "flow", "spk")
    result: Tensor = flow.decoder.estimator(
        noise[:, : mu.shape[1]].expand(2, -1, -1),
        torch.cat([mu, torch.zeros_like(mu)]),
        torch.full((2,), 0.37),
        torch.cat([speaker, torch.zeros_like(speaker)]),
        torch.cat([cond, torch.zeros_like(cond)]),
        **options,
    )
    return result


def check_full_size(
    version: int, kind: type[nn.Module], tiny: RegulatedFlowConfig | ConformerFlowConfig
) -> None:
    """At published size the module has the published keys and shapes; nothing is allocated."""
    manifest = json.loads(golden.golden_path(f"manifest/cosyvoice{version}.json").read_text())
    expected = {k: tuple(v["shape"]) for k, v in manifest["modules"]["flow"]["keys"].items()}
    encoder = replace(
        tiny.encoder,
        input_size=512,
        output_size=512,
        attention_heads=8,
        linear_units=2048,
        num_blocks=6,
    )
    estimator = replace(
        tiny.estimator,
        channels=(256, 256) if version == 1 else (256,),
        attention_head_dim=64,
        n_blocks=4,
        num_mid_blocks=12,
        num_heads=8,
    )
    full = replace(tiny, input_size=512, encoder=encoder, estimator=estimator)
    with torch.device("meta"):
        flow = kind(full)
    assert {k: tuple(v.shape) for k, v in flow.state_dict().items()} == expected
