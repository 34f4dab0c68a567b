"""From a job to ids: start states, switches, histories, and templates that raise."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import to_builtins

from support.rendering import BARE, BOS, CLOSED, OPENED, Rendered, job
from support.scripted import CLOSE, SPECIALS, ask, make_tokenizer, natural, scripted_engine
from support.templates import GEMMA, HARMONY, QWEN, QWEN_UNOPENED, R1
from thinkq.client.errors import InvalidJob, JobFailed
from thinkq.client.job import convert_job
from thinkq.worker.families import resolve
from thinkq.worker.prompt import PromptBuilder

LONE = "\ud800"


@pytest.mark.parametrize(
    ("template", "options", "tail", "thinking"),
    [
        (QWEN_UNOPENED, {}, BARE, False),
        (QWEN, {}, OPENED, True),
        (QWEN, {"enable_thinking": True}, OPENED, True),
        (QWEN, {"enable_thinking": False}, CLOSED, False),
        (QWEN_UNOPENED, {"enable_thinking": False}, CLOSED, False),
        (R1, {}, OPENED, True),
        (GEMMA, {}, BARE, False),
        (HARMONY, {}, BARE, False),
    ],
)
def test_bu_18_the_rendered_tail_decides_the_start_state(
    template: str, options: dict[str, Any], tail: str, thinking: bool
) -> None:
    rendered = Rendered(template, job(**options))
    assert rendered.text.endswith(tail)
    assert rendered.prompt.starts_in_thinking is thinking


HISTORY = [
    ("user", "q1"),
    ("assistant", "<think>old</think>a1"),
    ("user", "explain </think> and <think>"),
]


@pytest.mark.parametrize(
    ("template", "options", "thinking"),
    [
        (QWEN, {}, True),
        (QWEN, {"enable_thinking": False}, False),
        (QWEN_UNOPENED, {}, False),
        (R1, {}, True),
        (GEMMA, {}, False),
    ],
)
def test_tt_01_history_and_user_text_never_decide_the_start_state(
    template: str, options: dict[str, Any], thinking: bool
) -> None:
    assert Rendered(template, job(*HISTORY, **options)).prompt.starts_in_thinking is thinking


@pytest.mark.parametrize("user", ["so <think>", "so <think>\n", "</think>"])
def test_tt_01_the_start_state_of_markers_that_are_text_is_as_safe(user: str) -> None:
    for template, thinking in ((R1, True), (GEMMA, False)):
        rendered = Rendered(template, job(("user", user)), specials=SPECIALS[:2])
        assert rendered.prompt.starts_in_thinking is thinking


def test_a_template_that_always_opens_the_answer_is_read_as_well() -> None:
    always = R1.replace("{%- if add_generation_prompt %}", "{%- if true %}")
    assert Rendered(always, job(("user", "a </think>"))).prompt.starts_in_thinking


def test_a_template_that_ends_a_history_differently_is_read_as_well() -> None:
    ended = R1 + "{%- if not add_generation_prompt %}{{ '<|im_end|> the end' }}{%- endif %}"
    assert Rendered(ended, job()).prompt.starts_in_thinking


ADVICE = "{{ 'Begin with <think>.' }}"
"""What a template may say of its own accord, which opens nothing."""


@pytest.mark.parametrize("end", ["", "{%- if not add_generation_prompt %}{{ 'END' }}{%- endif %}"])
def test_what_the_template_says_before_the_answer_decides_nothing(end: str) -> None:
    assert Rendered(ADVICE + GEMMA + end, job()).prompt.starts_in_thinking is False


def test_a_marker_that_is_text_is_found_where_it_merged_with_its_neighbour() -> None:
    colon = R1.replace("assistant\n<think>", "assistant:<think>")
    rendered = Rendered(colon, job(), specials=SPECIALS[:2], words=(":<",))
    assert rendered.tokenizer.convert_tokens_to_ids(":<") in rendered.prompt.ids
    assert rendered.prompt.starts_in_thinking


@pytest.mark.parametrize("template", [R1, GEMMA])
def test_there_is_one_beginning_of_sequence(template: str) -> None:
    rendered = Rendered(template, job())
    assert rendered.count(BOS) == 1
    assert rendered.prompt.ids[0] == rendered.tokenizer.bos_token_id


def test_tt_08_a_model_without_a_template_is_named_as_such() -> None:
    with pytest.raises(JobFailed, match="has no chat template; use an instruct") as caught:
        Rendered(None, job())
    assert caught.value.kind == "no_chat_template"


def test_tt_08_so_is_one_with_several_templates_and_no_default() -> None:
    tokenizer = make_tokenizer(None)
    tokenizer.chat_template = {"one": GEMMA, "two": R1}
    with pytest.raises(JobFailed, match="has no chat template"):
        PromptBuilder(tokenizer, resolve(tokenizer, None)).build(job())


@pytest.mark.parametrize(
    ("template", "messages", "reason"),
    [
        (GEMMA, [("system", "s"), ("user", "q")], "System role not supported"),
        (QWEN, [("system", "s")], "No user query found in messages."),
        (QWEN, [("user", "q"), ("system", "s")], "System message must be at the beginning."),
        (GEMMA, [("user", "q"), ("user", "r")], "Conversation roles must alternate"),
        ("{{ 1 / 0 }}", [("user", "q")], "division by zero"),
        ("{{ messages[9].role.x }}", [("user", "q")], "has no element 9"),
        ("{% if %}", [("user", "q")], "Expected an expression"),
    ],
)
def test_tt_09_a_template_that_raises_is_one_clear_error(
    template: str, messages: list[tuple[str, str]], reason: str
) -> None:
    with pytest.raises(JobFailed) as caught:
        Rendered(template, job(*messages))
    assert caught.value.kind == "template_error"
    assert str(caught.value).startswith("the model's chat template refuses this job: ")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [{}, {"tools": [{"type": "function", "function": {"name": LONE}}]}],
)
def test_a_lone_surrogate_is_refused_since_it_has_no_ids(options: dict[str, Any]) -> None:
    text = "q" if options else LONE
    with pytest.raises(
        JobFailed, match="a lone surrogate, which is no character; remove"
    ) as caught:
        Rendered(QWEN, job(("user", text), **options))
    assert caught.value.kind == "bad_payload"


def test_tt_09_no_messages_are_refused_before_any_template() -> None:
    with pytest.raises(InvalidJob, match="messages"):
        convert_job({"messages": []})


def test_tt_09_a_template_that_refuses_one_job_lets_the_others_run() -> None:
    """As Qwen3.5 with a system message alone, and with one that is not the first."""
    engine = scripted_engine(natural(["A", CLOSE], "X"), template=QWEN)
    bad = [job(("system", "s")), job(("user", "q0"), ("system", "s"))]
    results = engine.run([bad[0], ask(), bad[1]])
    assert [each.status for each in results] == ["failed", "done", "failed"]
    assert [each.error.kind if each.error else None for each in results] == [
        "template_error",
        None,
        "template_error",
    ]
    assert results[1].answer == "X"


def test_tt_11_a_prefill_with_thinking_on_is_refused() -> None:
    for options in ({}, {"enable_thinking": True}, {"reasoning_effort": "high"}):
        with pytest.raises(InvalidJob) as caught:
            job(("user", "write JSON"), ("assistant", "{"), **options)
        assert caught.value.code == "prefill_with_thinking"


def test_tt_11_a_prefill_with_thinking_off_is_gone_on_with() -> None:
    rendered = Rendered(
        QWEN, job(("user", "write JSON"), ("assistant", "{"), enable_thinking=False)
    )
    assert rendered.text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n{")
    assert rendered.prompt.starts_in_thinking is False


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
@pytest.mark.parametrize("template", [QWEN, HARMONY])
def test_tt_12_old_thinking_is_one_field_under_any_name(template: str, field: str) -> None:
    answer = {"role": "assistant", field: "R", "content": "The tag </think> closes."}
    rendered = Rendered(
        template,
        job(("user", "q"), answer, ("user", "r"), chat_template_kwargs={"keep_reasoning": True}),
    )
    assert "The tag </think> closes." in rendered.text
    assert "R" in rendered.text.partition("The tag")[0]
    assert rendered.count("</think>") == 1


def test_tt_12_old_thinking_is_sent_only_if_the_template_wants_it() -> None:
    answer = {"role": "assistant", "reasoning": "RRR", "content": "The tag </think> closes."}
    rendered = Rendered(QWEN, job(("user", "q"), answer, ("user", "r")))
    assert "RRR" not in rendered.text
    assert "The tag </think> closes." in rendered.text


def test_tt_12_a_result_row_can_be_pasted_back_as_history() -> None:
    (result,) = scripted_engine(natural([*"RRR", CLOSE], "The tag </think> closes.")).run([ask()])
    row = to_builtins(result)
    answer = {"role": "assistant", "content": row["answer"], "thinking": row["thinking"]}
    keep = {"chat_template_kwargs": {"keep_reasoning": True}}
    text = Rendered(QWEN, job(("user", "q"), answer, ("user", "r"), **keep)).text
    assert "<think>\nRRR\n</think>\n\nThe tag </think> closes.<|im_end|>" in text


EFFORTS: list[tuple[dict[str, Any], str]] = [
    ({"reasoning_effort": "none"}, CLOSED),
    ({"reasoning_effort": "minimal"}, CLOSED),
    ({"reasoning_effort": "low"}, CLOSED),
    ({"reasoning_effort": "medium"}, OPENED),
    ({"reasoning_effort": "high"}, OPENED),
    ({"reasoning_effort": "xhigh"}, OPENED),
    ({"enable_thinking": False}, CLOSED),
    ({"chat_template_kwargs": {"enable_thinking": False}}, CLOSED),
    ({}, OPENED),
]


@pytest.mark.parametrize(("options", "tail"), EFFORTS)
@pytest.mark.parametrize("switch", ["enable_thinking", "thinking"])
def test_bu_19_every_spelling_of_off_reaches_the_prompt(
    switch: str, options: dict[str, Any], tail: str
) -> None:
    """Whatever the template calls its switch."""
    prompt = Rendered(QWEN.replace("enable_thinking", switch), job(**options))
    assert prompt.text.endswith(tail)
    assert prompt.prompt.thinking_off is (tail == CLOSED)
    assert prompt.prompt.must_close is False


def test_bu_19_a_contradiction_is_an_error() -> None:
    with pytest.raises(InvalidJob, match="contradict each other"):
        job(reasoning_effort="high", enable_thinking=False)


def test_an_effort_is_passed_to_a_template_that_reads_it() -> None:
    rendered = Rendered(HARMONY, job(reasoning_effort="low"))
    assert "Reasoning: low" in rendered.text
    assert (rendered.prompt.thinking_off, rendered.prompt.must_close) == (False, False)


@pytest.mark.parametrize("template", [R1, GEMMA])
@pytest.mark.parametrize(
    "options",
    [
        {"reasoning_effort": "low"},
        {"enable_thinking": False},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ],
)
def test_where_the_template_has_no_switch_the_budget_has_to_close(
    template: str, options: dict[str, Any]
) -> None:
    prompt = Rendered(template, job(**options)).prompt
    assert (prompt.thinking_off, prompt.must_close) == (False, True)


def test_a_switch_that_the_template_does_not_read_is_not_taken_for_obeyed() -> None:
    prompt = Rendered(HARMONY, job(enable_thinking=False)).prompt
    assert (prompt.thinking_off, prompt.must_close) == (False, True)


def test_tools_and_their_results_render() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": "é"}'}}
    rendered = Rendered(
        QWEN,
        job(
            ("user", "q"),
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "7"},
            tools=[{"type": "function", "function": {"name": "f"}}],
        ),
    )
    assert '"name": "f"' in rendered.text
    assert "<function=f><parameter=x>é</parameter></function>" in rendered.text
    assert "<tool_response>7</tool_response>" in rendered.text
    assert rendered.prompt.starts_in_thinking


@pytest.mark.parametrize("written", ["{not JSON", None])
def test_arguments_of_an_old_call_that_are_no_json_go_to_the_template_as_they_are(
    written: str | None,
) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": written}}
    template = "{{ messages[1].tool_calls[0].function.arguments }}"
    history = job(("user", "q"), {"role": "assistant", "tool_calls": [call]}, ("user", "r"))
    assert Rendered(template, history).text == str(written)


def test_tool_choice_none_keeps_the_tools_from_the_model() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert "Tools:" in Rendered(QWEN, job(tools=tools)).text
    assert "Tools:" not in Rendered(QWEN, job(tools=tools, tool_choice="none")).text


def test_a_developer_is_the_system_where_the_template_knows_none() -> None:
    assert (
        "<|im_start|>system\nbe brief"
        in Rendered(QWEN, job(("developer", "be brief"), ("user", "q"))).text
    )
