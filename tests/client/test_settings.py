"""Settings: three sources, checked where they are read, and tables for single models."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from thinkq.client.errors import SettingsError
from thinkq.client.settings import (
    LIMITS,
    SAMPLING,
    ModelSettings,
    Settings,
    load_settings,
    sourced_settings,
)

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "settings.md").read_text()

QWEN = "mlx-community/Qwen3.5-9B-4bit"


def write(home: Path, text: str) -> Path:
    """The settings file of a data directory."""
    path = home / "settings.toml"
    path.write_text(text)
    return path


def refusal(home: Path, text: str) -> str:
    """What is said of a settings file that is refused."""
    write(home, text)
    with pytest.raises(SettingsError) as refused:
        load_settings({}, home=str(home))
    return str(refused.value)


def test_a_later_source_wins_and_is_named(tmp_path: Path) -> None:
    """Default, file, variable, in this order."""
    path = write(tmp_path, "max_batch = 2\nmax_tokens = 100")
    environ = {"THINKQ_HOME": str(tmp_path), "THINKQ_MAX_TOKENS": "200"}
    found = sourced_settings(environ)
    assert found["coalesce_ms"] == (30.0, "default")
    assert found["max_batch"] == (2, str(path))
    assert found["max_tokens"] == (200, "THINKQ_MAX_TOKENS")
    assert found["home"] == (str(tmp_path), "THINKQ_HOME")
    assert load_settings(environ, max_tokens=300).max_tokens == 300
    assert set(found) == set(Settings.__struct_fields__)


def test_the_defaults_need_no_file_and_pass_their_own_checks(tmp_path: Path) -> None:
    defaults = load_settings({}, home=str(tmp_path))
    values = msgspec.structs.asdict(defaults)
    values.pop("home")
    assert load_settings({}, home=str(tmp_path), **values) == defaults


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("max_bach = 3", "unknown setting `max_bach`; did you mean `max_batch`?"),
        ("max_batch = 3.5", "max_batch must be a whole number, not 3.5"),
        ("max_batch = true", "max_batch must be a whole number"),
        ("max_batch = 0", "max_batch must be between 1 and 1024, not 0"),
        ("temperature = nan", "temperature must be a finite number"),
        ("temperature = 101", "temperature must be between 0 and 100"),
        ("repetition_penalty = 0", "repetition_penalty must be between 0.01 and 100"),
        ("top_p = -0.1", "top_p must be between 0 and 1"),
        ("pause_when_hot = 'yes'", "pause_when_hot must be true or false, not 'yes'"),
        ("pause_on_battery_below = 101", "pause_on_battery_below must be between 1 and 100"),
        ("model = 3", "model must be a text in quotes, not 3"),
        ("home = '/x'", "set THINKQ_HOME instead"),
        ("models = 3", 'models needs a table for each model, as [models."demo"]'),
        ("[models]\ndemo = 3", "models needs a table for each model"),
        (
            "[models.demo]\nbudget_medum = 3",
            '[models."demo"]: unknown setting `budget_medum`; did you mean `budget_medium`?',
        ),
        ("[models.demo]\nmax_batch = 3", '[models."demo"]: unknown setting `max_batch`'),
        ("[models.demo]\nmin_p = 2", '[models."demo"]: min_p must be between 0 and 1, not 2.0'),
        ("max_batch = 2\nmodel = demo", "is not TOML: Invalid value (at line 2, column 9)"),
    ],
)
def test_a_bad_file_is_told_in_one_sentence(tmp_path: Path, text: str, told: str) -> None:
    """With the file, the name, what is expected, and the line where it is not TOML."""
    message = refusal(tmp_path, text)
    assert message.startswith(f"{tmp_path}/settings.toml")
    assert told in message
    assert "\n" not in message


def test_a_file_that_cannot_be_read_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").mkdir()
    with pytest.raises(SettingsError, match=r"settings.toml cannot be read: Is a directory"):
        load_settings({}, home=str(tmp_path))
    (tmp_path / "settings.toml").rmdir()
    (tmp_path / "settings.toml").write_bytes(b"model = '\xff'")
    with pytest.raises(SettingsError, match="save it as UTF-8"):
        load_settings({}, home=str(tmp_path))


@pytest.mark.parametrize(
    ("variable", "text", "told"),
    [
        ("THINKQ_MAX_BACH", "3", "did you mean `max_batch`?"),
        ("THINKQ_MAX_BATCH", "many", "max_batch must be a whole number, not 'many'"),
        ("THINKQ_MAX_BATCH", "0", "max_batch must be between 1 and 1024"),
        ("THINKQ_KEEP_AWAKE", "perhaps", "keep_awake must be true or false"),
        ("THINKQ_HANG_S", "nan", "hang_s must be a finite number"),
        ("THINKQ_MODELS", "{}", "models must be a table of the settings file"),
    ],
)
def test_a_bad_variable_is_told_in_one_sentence(
    tmp_path: Path, variable: str, text: str, told: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({variable: text}, home=str(tmp_path))
    assert str(refused.value).startswith(f"{variable}: ")
    assert told in str(refused.value)


def test_variables_are_read_as_their_settings_types(tmp_path: Path) -> None:
    environ = {
        "THINKQ_KEEP_AWAKE": "false",
        "THINKQ_HANG_S": "5",
        "THINKQ_BUDGET_MEDIUM": "-1",
        "THINKQ_RETENTION_S": "null",
    }
    found = load_settings(environ, home=str(tmp_path))
    assert found.keep_awake is False
    assert found.hang_s == 5.0
    assert found.budget_medium == -1
    assert found.retention_s is None


def test_an_empty_variable_is_one_that_is_not_set(tmp_path: Path) -> None:
    """An empty THINKQ_REDIS_URL must not switch the embedded server off."""
    environ = {"THINKQ_REDIS_URL": "", "THINKQ_MAX_BATCH": ""}
    assert load_settings(environ, home=str(tmp_path)).embedded_redis


def test_a_models_table_wins_for_that_model_only(tmp_path: Path) -> None:
    write(
        tmp_path,
        f'max_tokens = 100\ntemperature = 1\n[models."{QWEN}"]\nmax_tokens = 50\n'
        'thinking_transition = ""\ntop_k = 20',
    )
    general = load_settings({}, home=str(tmp_path))
    own = general.for_model(QWEN)
    assert general.for_model("demo") is general
    assert (own.max_tokens, own.thinking_transition, own.home) == (50, "", general.home)
    assert own.sampling == {"temperature": 1.0, "top_k": 20}
    assert general.sampling == {"temperature": 1.0}
    assert general.models == {QWEN: ModelSettings(max_tokens=50, thinking_transition="", top_k=20)}


def test_every_setting_of_a_model_is_a_general_one_too() -> None:
    assert set(ModelSettings.__struct_fields__) < set(Settings.__struct_fields__)
    assert set(LIMITS) < set(Settings.__struct_fields__)


@pytest.mark.parametrize("name", Settings.__struct_fields__)
def test_every_setting_is_in_the_docs_with_its_default(name: str) -> None:
    rows = [line for line in DOCS.splitlines() if line.startswith(f"| `{name}` |")]
    assert len(rows) == 1, "one row for each setting"
    default = getattr(load_settings({}, home="/x"), name)
    cell = rows[0].split("|")[2].strip()
    if name not in ("home", "models"):
        shown = "none" if default is None else f"`{msgspec.json.encode(default).decode()}`"
        assert cell == shown


def test_the_docs_name_no_setting_that_is_not_there() -> None:
    named = [line.split("`")[1] for line in DOCS.splitlines() if line.startswith("| `")]
    assert set(named) == set(Settings.__struct_fields__)


def test_the_docs_list_the_settings_that_a_model_can_have() -> None:
    section = DOCS.partition("## Single models")[2].partition("\n## ")[0]
    assert all(f"`{name}`" in section for name in ModelSettings.__struct_fields__)
    assert set(SAMPLING) < set(ModelSettings.__struct_fields__)


def test_the_example_in_the_docs_is_accepted(tmp_path: Path) -> None:
    example = DOCS.partition("```toml\n")[2].partition("```")[0]
    write(tmp_path, example)
    assert load_settings({}, home=str(tmp_path)).models
