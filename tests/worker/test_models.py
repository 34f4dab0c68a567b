"""`thinkq models` on caches with the real layout, whole, incomplete and damaged ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from support.hub_cache import add_model
from support.processes import python
from thinkq.client.settings import load_settings
from thinkq.worker.model_files import ModelFacts, read_facts
from thinkq.worker.models import Entry, Memory, inventory, memory, models

THINK = {"added_tokens": [{"id": 1, "content": "<think>"}, {"id": 2, "content": "</think>"}]}
TEMPLATE = {"chat_template": "{{ messages }}"}
QWEN = {"model_type": "qwen3", "quantization": {"group_size": 64, "bits": 4}}

WHOLE: dict[str, Any] = {
    "config.json": QWEN,
    "tokenizer.json": THINK,
    "tokenizer_config.json": TEMPLATE,
    "model.safetensors": b"w" * 1000,
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, which is the one that is used; the settings name `demo`."""
    monkeypatch.setenv("THINKQ_HOME", str(tmp_path / "home"))
    cache = tmp_path / "hub"
    cache.mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    return cache


def listed(**settings: Any) -> dict[str, Entry]:
    """The inventory by name."""
    return {entry.name: entry for entry in inventory(load_settings(**settings))}


def test_a_model_of_the_cache_is_listed_with_its_facts(cache: Path) -> None:
    snapshot = add_model(cache, "mlx-community/Qwen3-8B-4bit", WHOLE)
    entry = listed()["mlx-community/Qwen3-8B-4bit"]
    assert entry.path == str(snapshot)
    assert entry.disk_bytes == sum(path.stat().st_size for path in snapshot.iterdir())
    assert entry.facts == ModelFacts(
        weights_bytes=1000,
        architecture="qwen3",
        quantization="4-bit",
        supported=True,
        family="qwen3",
        budget="token",
    )
    assert entry.fits == "yes"


def test_the_demo_model_is_always_there_and_usable(cache: Path) -> None:
    entry = listed()["demo"]
    assert entry.default
    assert (entry.facts.budget, entry.facts.family, entry.facts.problem) == (
        "token",
        "thinkq-demo",
        None,
    )


@pytest.mark.parametrize(
    ("config", "quantization", "supported"),
    [
        ({"model_type": "gpt_oss", "quantization": {"bits": 4, "mode": "mxfp4"}}, "mxfp4", True),
        ({"model_type": "llama", "quantization_config": {"quant_method": "awq"}}, "awq", True),
        ({"model_type": "llama", "torch_dtype": "bfloat16"}, "bfloat16", True),
        ({"model_type": "qwen3_5", "text_config": {"dtype": "float16"}}, "float16", True),
        ({"model_type": "whisper"}, None, False),
        ({"model_type": "qwen3", "model_file": "own.py"}, None, False),
        ({"model_type": "cache"}, None, False),
        ({"model_type": "llama", "quantization": True}, None, True),
    ],
)
def test_configs_are_read_as_models_have_them(
    cache: Path, config: dict[str, Any], quantization: str | None, supported: bool
) -> None:
    facts = read_facts(add_model(cache, "a/b", WHOLE | {"config.json": config}))
    assert (facts.quantization, facts.supported) == (quantization, supported)
    assert (facts.problem is None) is supported


@pytest.mark.parametrize(
    ("tokenizer", "family", "budget"),
    [
        (THINK, "think", "token"),
        ({"model": {"vocab": {"<think>": 0, "</think>": 1}}}, "think", "token"),
        ({"model": {"type": "Unigram", "vocab": [["a", -1.0], ["</s>", 0.0]]}}, "text", "text"),
        ({"added_tokens": [{"content": "<s>"}]}, "text", "text"),
    ],
)
def test_how_a_budget_is_enforced_goes_by_the_tokenizer(
    cache: Path, tokenizer: dict[str, Any], family: str, budget: str
) -> None:
    """By its control tokens whatever the architecture, else by text."""
    files = WHOLE | {"config.json": {"model_type": "llama"}, "tokenizer.json": tokenizer}
    facts = read_facts(add_model(cache, "a/b", files))
    assert (facts.family, facts.budget) == (family, budget)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"config.json": None}, "no config.json"),
        ({"config.json": b"[]"}, "no config.json"),
        ({"config.json": b"{torn"}, "no config.json"),
        ({"model.safetensors": None}, "weights are missing"),
        ({"tokenizer.json": None}, "no tokenizer.json"),
        ({"tokenizer.json": b"{torn"}, "no tokenizer.json"),
        ({"tokenizer_config.json": {}}, "no chat template"),
        ({"tokenizer_config.json": None}, "no chat template"),
        (
            {"model.safetensors.index.json": {"weight_map": {"a": "model-00002.safetensors"}}},
            "weights are missing",
        ),
        ({"tokenizer_config.json": {}, "chat_template.jinja": b"{{ messages }}"}, None),
    ],
)
def test_what_keeps_a_model_from_use_is_told(
    cache: Path, changed: dict[str, Any], told: str | None
) -> None:
    files = {name: content for name, content in (WHOLE | changed).items() if content is not None}
    problem = read_facts(add_model(cache, "a/b", files)).problem
    assert problem is None if told is None else told in (problem or "")


def test_a_damaged_place_is_listed_with_its_remedy_and_hides_no_other(cache: Path) -> None:
    """A blob is gone; a reference names a version that is not there; an empty directory."""
    add_model(cache, "good/model", WHOLE)
    snapshot = add_model(cache, "bad/blob", WHOLE)
    (snapshot / "model.safetensors").resolve().unlink()
    add_model(cache, "bad/ref", WHOLE)
    (cache / "models--bad--ref" / "refs" / "main").write_text("f" * 40)
    (cache / "models--bad--empty").mkdir()
    found = listed()
    assert found["good/model"].facts.problem is None
    for name in ("bad/blob", "bad/ref", "bad/empty"):
        assert f"remove {cache}/models--{name.replace('/', '--')}" in str(found[name].facts.problem)


def test_data_sets_and_strange_files_are_no_models(cache: Path) -> None:
    (cache / "datasets--a--b" / "snapshots").mkdir(parents=True)
    (cache / "version.txt").write_text("1")
    assert set(listed()) == {"demo"}


@pytest.mark.parametrize("missing", [True, False])
def test_without_a_cache_there_is_still_the_demo(cache: Path, missing: bool) -> None:
    if missing:
        cache.rmdir()
    assert set(listed()) == {"demo"}


def test_the_model_of_the_settings_is_listed_wherever_it_is(cache: Path, tmp_path: Path) -> None:
    """In the cache, as a path, not downloaded yet, and as a path that is not there."""
    snapshot = add_model(cache, "in/cache", WHOLE)
    assert listed(model="in/cache")["in/cache"].default
    assert listed(model=str(snapshot))[str(snapshot)].facts.problem is None
    assert "first job downloads it" in str(listed(model="not/yet")["not/yet"].facts.problem)
    gone = str(tmp_path / "gone")
    assert "correct the setting" in str(listed(model=gone)[gone].facts.problem)


def test_weights_are_judged_against_the_memory_that_the_engine_goes_by() -> None:
    limit = Memory(1000, "test")
    assert [limit.fit(size) for size in (900, 901, 1000, 1001)] == ["yes", "tight", "tight", "no"]


def test_memory_limit_gb_comes_before_what_the_device_says(tmp_path: Path) -> None:
    own = memory(load_settings({}, home=str(tmp_path), memory_limit_gb=2))
    assert own == Memory(2_000_000_000, "memory_limit_gb")
    found = memory(load_settings({}, home=str(tmp_path)))
    assert 0 < found.limit_bytes < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_the_list_says_what_a_user_wants_to_know(cache: Path) -> None:
    add_model(cache, "mlx-community/Qwen3-8B-4bit", WHOLE)
    shown = CliRunner().invoke(models, [], catch_exceptions=False)
    head, first, second, *_, last = shown.output.splitlines()
    assert head.split() == ["MODEL", "DISK", "WEIGHTS", "ARCHITECTURE", "THINKING", "FITS"]
    assert first.startswith("demo * ")
    assert "qwen3, by token" in second
    assert "4-bit" in second
    assert "Fits: the weights against" in last


def test_hf_home_is_honoured_and_no_network_needed(tmp_path: Path) -> None:
    """In a process of its own, since the library reads the variable when it is imported."""
    add_model(tmp_path / "hf" / "hub", "a/b", WHOLE)
    variables = {"THINKQ_HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf")}
    unreachable = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    with python("-m", "thinkq.client", "models", "--json", **variables, **unreachable) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    found = {entry["name"]: entry for entry in json.loads(out)["models"]}
    assert found["a/b"]["facts"]["budget"] == "token"
    assert found["demo"]["default"]
