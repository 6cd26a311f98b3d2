"""Configuration: strict, resolved once, refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from antiphon.engine.errors import InvalidConfiguration
from antiphon.server.config import CosyVoiceEngineSection, load_config

CONFIGS = Path(__file__).parents[2] / "configs"


def load(text: str, tmp_path: Path, **environment: str) -> Any:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return load_config(path, environment=environment)


def refusal(text: str, tmp_path: Path, **environment: str) -> InvalidConfiguration:
    with pytest.raises(InvalidConfiguration) as refused:
        load(text, tmp_path, **environment)
    return refused.value


def test_the_defaults_speak_with_a_preset_voice_on_loopback() -> None:
    config = load_config(environment={})
    assert (config.model, config.voice, config.watermark.name) == ("preset", "heart", "perth")
    assert config.server.host == "127.0.0.1"


@pytest.mark.parametrize("name", ["preset.yaml", "nano.yaml"])
def test_shipped_files_load(name: str) -> None:
    assert load_config(CONFIGS / name, environment={}).engines


def test_the_open_file_needs_keys_from_the_environment() -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        load_config(CONFIGS / "open.yaml", environment={})
    assert refused.value.field == "server.host"
    config = load_config(
        CONFIGS / "open.yaml",
        environment={"ANTIPHON__SERVER__API_KEYS": "[first-long-key, second-long-key]"},
    )
    assert [key.get_secret_value() for key in config.server.api_keys] == [
        "first-long-key",
        "second-long-key",
    ]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("prot: 1", "prot"),
        ("server: {prot: 1}", "server.prot"),
        ("server: {port: high}", "server.port"),
        ("server: {port: 70000}", "server.port"),
        ("server: {limits: {max_sessions: 0}}", "server.limits.max_sessions"),
        ("server: {host: 0.0.0.0}", "server.host"),
        ("server: {host: example.org}", "server.host"),
        ("server: {api_keys: [short]}", "server.api_keys.0"),
        ("engines: []", "engines"),
        ("model: other", "model"),
        ("engines: [{name: a, kind: other}]", "engines.0"),
        ("engines: [{name: a b, kind: preset}]\nmodel: a b", "engines.0.name"),
        ("engines: [{name: a, kind: preset, device: cpu}]\nmodel: a", "engines.0.device"),
        ("engines: [{name: a, kind: preset}, {name: a, kind: preset}]\nmodel: a", "engines"),
        (
            "engines: [{name: a, kind: cosyvoice, model_dir: /no/such/place}]\nmodel: a",
            "engines.0.model_dir",
        ),
        (
            "engines: [{name: a, kind: cosyvoice, first_hop: 9, max_hop: 5}]\nmodel: a",
            "engines.0.max_hop",
        ),
        *(
            (
                f"engines: [{{name: a, kind: cosyvoice, {name}: {value}}}]\nmodel: a",
                f"engines.0.{name}",
            )
            for name, value in [
                *(("first_hop", hop) for hop in (0, -3, 4, 201)),
                ("max_hop", 201),
                ("hop_growth", 9),
                ("hop_margin_s", -1),
                ("solver", "heun"),
                *(("solver_steps", steps) for steps in (0, 65)),
                *(("cfg_rate", rate) for rate in (-0.1, 11, ".nan")),
                *(("left_context_chunks", chunks) for chunks in (0, -1)),
                ("acoustic_hang_s", 0),
                ("cache_mib", 0),
                ("precision", "float64"),
            ]
        ),
        ("calls: {lead_s: 61}", "calls.lead_s"),
        ("watermark: {name: invisible}", "watermark.name"),
        ("watermark: {name: audioseal}", "watermark.weights"),
        ("watermark: {name: perth, payload: 5}", "watermark.payload"),
        ("watermark: {name: perth, weights: a.pt}", "watermark.weights"),
    ],
)
def test_wrong_values_and_combinations_are_refused_by_name(
    text: str, field: str, tmp_path: Path
) -> None:
    assert refusal(text, tmp_path).field == field


@pytest.mark.parametrize("text", ["a: [", "- 1", "\x00", "5"])
def test_files_that_are_no_configuration_are_refused(text: str, tmp_path: Path) -> None:
    refusal(text, tmp_path)
    with pytest.raises(InvalidConfiguration):
        load_config(tmp_path / "missing.yaml", environment={})


def test_the_environment_overrides_single_values(tmp_path: Path) -> None:
    config = load(
        "engines: [{name: a, kind: cosyvoice}]\nmodel: a\nserver: {port: 1}",
        tmp_path,
        ANTIPHON__SERVER__PORT="9000",
        ANTIPHON__SERVER__LIMITS__IDLE_S="12.5",
        ANTIPHON__ENGINES__0__FIRST_HOP="7",
        ANTIPHON__WATERMARK__NAME="none",
        ANTIPHON_API_KEY="not ours to read",
        PATH="/bin",
    )
    assert config.server.port == 9000
    assert config.server.limits.idle_s == 12.5
    assert config.engines[0].first_hop == 7
    assert config.watermark.name == "none"
    # The built-in default voice belongs to the built-in engine.
    assert config.voice is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ANTIPHON__SERVER__PROT", "1"),
        ("ANTIPHON__SERVER__PORT__X", "1"),
        ("ANTIPHON__ENGINES__5__NAME", "a"),
        ("ANTIPHON__SERVER__PORT", "["),
    ],
)
def test_overrides_that_lead_nowhere_are_refused(name: str, value: str, tmp_path: Path) -> None:
    refusal("server: {port: 1}\nengines: [{name: preset, kind: preset}]", tmp_path, **{name: value})


def test_the_resolved_form_has_a_hash_and_no_keys() -> None:
    secret = "a-secret-of-ours"
    one = load_config(environment={}, overrides={"server.api_keys": [secret]})
    same = load_config(environment={}, overrides={"server.api_keys": [secret]})
    other = load_config(environment={}, overrides={"server.port": 1})
    described = one.describe()
    assert secret not in described
    assert one.digest in described.splitlines()[0]
    assert one.digest == same.digest != other.digest
    assert yaml.safe_load(described)["server"]["limits"]["max_sessions"] == 32
    assert load_config(environment={}).resolved() == yaml.safe_load(
        load_config(environment={}).describe()
    )


def test_a_model_directory_takes_the_place_of_the_configured_one(tmp_path: Path) -> None:
    given = tmp_path / "mine"
    given.mkdir()
    nano = load_config(CONFIGS / "nano.yaml", environment={}, model_dir=given)
    assert nano.model == "nano"
    assert [engine.name for engine in nano.engines] == ["nano", "preset"]
    first = nano.engines[0]
    assert isinstance(first, CosyVoiceEngineSection)
    assert (first.model_dir, first.top_p, first.solver_steps) == (given, 0.3, 5)

    preset = load_config(CONFIGS / "preset.yaml", environment={}, model_dir=given)
    assert (preset.model, preset.voice) == ("mine", None)
    assert [engine.kind for engine in preset.engines] == ["cosyvoice"]
