"""Tool calls: out of the answer where they parse, in it where they do not."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.tool_parsers import glm47, json_tools, kimi_k2, longcat, mistral, qwen3_coder

from support.scripted import CLOSE, EOS, ask, make_tokenizer, natural, scripted_engine
from thinkq.client.job import Job, Message
from thinkq.client.result import Result
from thinkq.worker.tools import JSON_SYNTAX, ToolCalls, ToolSyntax, offered, syntax_of

START, END = "<tool_call>", "</tool_call>"
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def of(module: Any) -> ToolSyntax:
    return ToolSyntax(module.tool_call_start, module.tool_call_end, module.parse_tool_call)


def taken(calls: ToolCalls, text: str, size: int = 1) -> str:
    """The answer that is left when the text comes in pieces of this size."""
    shown = [calls.push(text[i : i + size]) for i in range(0, len(text), size)]
    return "".join(shown) + calls.finish()


def run(answer: str, **options: Any) -> tuple[Result, str]:
    """A job whose model thinks one token, then writes this answer; and what was streamed of it."""
    pieces = [START, END]
    tokens: list[str] = []
    while answer:
        token = next((each for each in pieces if answer.startswith(each)), answer[0])
        tokens.append(token)
        answer = answer[len(token) :]
    engine = scripted_engine(natural(["A", CLOSE], tokens))
    streamed: list[str] = []
    job = ask(**{"tools": TOOLS, **options})
    engine.add(job, job_id="j", sink=lambda text, side: None if side else streamed.append(text))
    ended = [row for _ in range(300) for row in engine.turn()]
    assert ended[0].result is not None
    return ended[0].result, "".join(streamed)


WRITTEN = {
    glm47: "f<arg_key>x</arg_key><arg_value>a b</arg_value>"
    "<arg_key>y</arg_key><arg_value>c</arg_value>",
    longcat: "f<longcat_arg_key>x</longcat_arg_key><longcat_arg_value>a b</longcat_arg_value>"
    "<longcat_arg_key>y</longcat_arg_key><longcat_arg_value>c</longcat_arg_value>",
    qwen3_coder: "\n<function=f>\n<parameter=x>\na b\n</parameter>\n"
    "<parameter=y>\nc\n</parameter>\n</function>\n",
    kimi_k2: "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
    '{"x": "a b", "y": "c"}<|tool_call_end|>',
    json_tools: '{"name": "f", "arguments": {"x": "a b", "y": "c"}}',
}
"""One call as different models write it."""

CALL = f'{START}{{"name": "f", "arguments": {{"x": "y"}}}}{END}'


def test_a_call_is_taken_out_of_the_answer_and_the_text_before_it_stays() -> None:
    result, streamed = run(f"Let me see.\n{CALL}")
    assert result.answer == streamed == "Let me see.\n"
    assert result.finish_reason == "tool_calls"
    assert result.tool_calls == [
        {"id": "call_j_0", "type": "function", "function": {"name": "f", "arguments": '{"x": "y"}'}}
    ]
    assert result.warnings == []


def test_an_answer_of_calls_alone_is_no_empty_answer() -> None:
    """The sequence may end right after a call, and newlines between calls are leading ones."""
    result, streamed = run(f"\n\n{CALL}\n{CALL}")
    assert (result.answer, streamed, result.finish_reason) == ("", "", "tool_calls")
    assert [call["id"] for call in result.tool_calls or []] == ["call_j_0", "call_j_1"]
    assert result.warnings == []


@pytest.mark.parametrize(
    "text",
    [
        f'{START}{{"name": "f", "arguments": {{"x": 1}}{END} end',
        f"{START}[]{END}",
        f'{START}{{"arguments": {{}}}}{END}',
        f'{START}{{"name": "", "arguments": {{}}}}{END}',
        f'{START}{{"name": "f", "arguments": [1]}}{END}',
        f'{START}{{"name": "f", "arguments": {{"x": NaN}}}}{END}',
        f'{START}{{"name": "f", "argum',
        f'{START}"f"{END}',
    ],
)
def test_a_malformed_call_stays_in_the_answer_to_the_letter(text: str) -> None:
    result, streamed = run(f"So: {text}")
    assert result.answer == streamed == f"So: {text}"
    assert (result.finish_reason, result.tool_calls) == ("stop", None)
    assert result.warnings == ["malformed_tool_call"]


def test_a_call_cut_by_max_tokens_is_text_and_the_reason_is_length() -> None:
    result, streamed = run(CALL, max_tokens=30, thinking_token_budget=2)
    assert result.answer == streamed
    assert CALL.startswith(result.answer)
    assert result.finish_reason == "length"
    assert result.warnings == ["malformed_tool_call"]


def test_a_call_that_lacks_only_its_end_marker_is_a_call() -> None:
    result, _ = run(CALL.removesuffix(END))
    assert (result.finish_reason, result.answer) == ("tool_calls", "")


def test_wherever_max_tokens_cuts_a_call_its_text_is_shown_or_it_is_whole() -> None:
    for room in range(16, 45):
        result, streamed = run(f"So {CALL}", max_tokens=2 + room, thinking_token_budget=2)
        assert result.answer == streamed
        if result.tool_calls:
            assert result.answer == "So "
            assert result.tool_calls[0]["function"]["arguments"] == '{"x": "y"}'
        else:
            assert f"So {CALL}".startswith(result.answer)
            assert len(result.answer) == result.usage.answer_tokens + len(START) - 1


@pytest.mark.parametrize("module", [glm47, longcat, qwen3_coder, kimi_k2, json_tools])
def test_a_call_that_is_cut_off_is_never_taken_for_a_shorter_one(module: Any) -> None:
    """Some parsers make do with the arguments that are there; a call with half of them is none."""
    text = WRITTEN[module]
    for size in range(len(text)):
        calls = ToolCalls(of(module), TOOLS)
        assert taken(calls, module.tool_call_start + text[:size]) == (
            module.tool_call_start + text[:size]
        )
        assert (calls.calls, calls.malformed) == ([], True)
    calls = ToolCalls(of(module), TOOLS)
    assert taken(calls, module.tool_call_start + text + module.tool_call_end) == ""
    (call,) = calls.calls
    assert json.loads(call["function"]["arguments"]) == {"x": "a b", "y": "c"}


@pytest.mark.parametrize("options", [{"tools": None}, {"tool_choice": "none"}])
def test_without_tools_a_call_is_text(options: dict[str, Any]) -> None:
    result, streamed = run(CALL, **options)
    assert result.answer == streamed == CALL
    assert (result.finish_reason, result.warnings) == ("stop", [])


def test_stop_strings_do_not_look_into_calls() -> None:
    result, _ = run(f"Look {CALL}. Then more", stop=["y", " more"])
    assert result.answer == "Look . Then"
    assert (result.finish_reason, len(result.tool_calls or [])) == ("tool_calls", 1)


@pytest.mark.parametrize(
    ("stop", "text", "answer", "calls"),
    [
        ("<tool_call>", f"So {CALL} end", "So  end", 1),
        ("<", f"So {CALL}a<b", "So a", 1),
        (" <tool", f"So {CALL} <tools", "So ", 1),
        ("o <tool_call>", f"So {CALL}", "So ", 1),
        ('"f"', f"So {START}bad {CALL}", f'So {START}bad {START}{{"name": ', 0),
        ("</tool_call>", f"So {START}bad{END} end", f"So {START}bad", 0),
    ],
)
def test_a_stop_string_like_a_tool_marker_sees_only_what_is_shown(
    stop: str, text: str, answer: str, calls: int
) -> None:
    """A call that parses is shown nowhere, so nothing in it can stop; one that does not is text."""
    result, streamed = run(text, stop=stop)
    assert result.answer == streamed == answer
    assert len(result.tool_calls or []) == calls
    assert stop not in streamed


def test_without_its_thinking_a_job_has_its_calls_all_the_same() -> None:
    result, streamed = run(f"So {CALL}", include_reasoning=False)
    assert (result.thinking, result.answer, streamed) == (None, "So ", "So ")
    assert (result.finish_reason, len(result.tool_calls or [])) == ("tool_calls", 1)


def test_sp_37_a_call_in_thinking_stays_thinking_with_a_warning() -> None:
    script = natural([*"maybe ", START, *'{"name":"f"}', END, CLOSE], "No call needed.")
    (result,) = scripted_engine(script).run([ask(tools=TOOLS)])
    assert result.thinking == f'maybe {START}{{"name":"f"}}{END}'
    assert (result.answer, result.tool_calls) == ("No call needed.", None)
    assert result.warnings == ["tool_call_in_thinking"]
    assert result.finish_reason == "stop"


def test_bu_14_a_budget_cuts_a_call_in_thinking_and_says_so() -> None:
    engine = scripted_engine(natural(["A", START, *'{"q": "b'], "X"))
    (result,) = engine.run([ask(thinking_token_budget=3, max_tokens=50)])
    assert engine.model.written() == ["A", START, "{", CLOSE, "X", EOS]
    assert (result.thinking, result.answer) == (f"A{START}{{", "X")
    assert (result.close_reason, result.warnings) == ("budget", ["tool_call_in_thinking"])


def test_the_warning_does_not_need_the_thinking_to_be_kept() -> None:
    script = natural(["A", START, CLOSE], "X")
    (result,) = scripted_engine(script).run([ask(include_reasoning=False)])
    assert (result.thinking, result.warnings) == (None, ["tool_call_in_thinking"])


def test_tools_for_a_model_that_has_no_way_to_call_them_are_warned_of() -> None:
    engine = scripted_engine(
        natural(["A", CLOSE], "X"), specials=(EOS, "<|im_start|>", "<think>", CLOSE)
    )
    (result,) = engine.run([ask(tools=TOOLS)])
    assert result.warnings == ["tools_unsupported"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_cutting_the_text_anywhere_changes_nothing(size: int) -> None:
    text = f"a <tool b{CALL}c{START}no{END}<tool_call"
    calls = ToolCalls(JSON_SYNTAX, TOOLS)
    assert taken(calls, text, size) == f"a <tool bc{START}no{END}<tool_call"
    assert (len(calls.calls), calls.malformed) == (1, True)


CALL_PIECES = st.sampled_from(
    [START, END, '{"name": "f"}', CALL, "<tool", "_call>", "</", "<", "{", "a ", "🔥", "\n"]
)


@given(text=st.lists(CALL_PIECES).map("".join), data=st.data())
def test_any_text_cut_anywhere_gives_the_same_calls_and_loses_nothing(
    text: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    whole, parts = ToolCalls(JSON_SYNTAX, TOOLS), ToolCalls(JSON_SYNTAX, TOOLS)
    shown = [parts.push(text[a:b]) for a, b in pairwise([0, *cuts, len(text)])]
    assert "".join(shown) + parts.finish() == taken(whole, text, max(1, len(text)))
    assert (parts.calls, parts.malformed) == (whole.calls, whole.malformed)
    none = ToolCalls(ToolSyntax(START, END, lambda body, tools: None), TOOLS)
    assert taken(none, text, 3) == text


def test_text_that_cannot_be_a_call_is_not_held_back() -> None:
    calls = ToolCalls(JSON_SYNTAX, TOOLS)
    assert [calls.push(piece) for piece in ("word", " a <", "b", " <tool_", "x")] == [
        *("word", " a ", "<b", " ", "<tool_x")
    ]


@pytest.mark.parametrize(
    ("module", "text", "expected"),
    [
        (json_tools, '{"name": "f", "arguments": {"x": 1}}', [("f", {"x": 1})]),
        (json_tools, '{"name": "f", "arguments": "{\\"x\\": 1}"}', [("f", {"x": 1})]),
        (
            qwen3_coder,
            "\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n",
            [("f", {"x": "1"})],
        ),
        (
            kimi_k2,
            "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
            '<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{"x": 1}<|tool_call_end|>',
            [("f", {}), ("g", {"x": 1})],
        ),
        (mistral, '[{"name": "f", "arguments": {"x": 1}}]', [("f", {"x": 1})]),
    ],
    ids=["json", "json-in-json", "qwen3_coder", "kimi_k2", "mistral"],
)
def test_mlx_lm_parsers_give_calls(
    module: Any, text: str, expected: list[tuple[str, dict[str, Any]]]
) -> None:
    """Mistral's calls have no end marker: they go on to the end of the answer."""
    syntax = of(module)
    calls = ToolCalls(syntax, TOOLS)
    assert taken(calls, f"So {syntax.start}{text}{syntax.end}") == "So "
    functions = [call["function"] for call in calls.calls]
    assert [(each["name"], json.loads(each["arguments"])) for each in functions] == expected


def test_a_parser_that_crashes_makes_text() -> None:
    def crash(text: str, tools: Any) -> Any:
        raise RecursionError

    calls = ToolCalls(ToolSyntax("[", "]", crash), TOOLS)
    assert taken(calls, "a[b]c") == "a[b]c"
    assert calls.malformed


def test_the_tokenizer_says_how_calls_are_written() -> None:
    bare = make_tokenizer()
    wrapped = TokenizerWrapper(
        bare,
        tool_call_start=mistral.tool_call_start,
        tool_call_end=mistral.tool_call_end,
        tool_parser=mistral.parse_tool_call,
    )
    assert syntax_of(wrapped) == of(mistral)
    assert syntax_of(TokenizerWrapper(bare)) is JSON_SYNTAX
    assert syntax_of(TokenizerWrapper(make_tokenizer(specials=(EOS,)))) is None


def test_tools_are_offered_unless_the_job_forbids_them() -> None:
    question = [Message(role="user", content="q")]
    assert offered(Job(messages=question, tools=TOOLS)) == TOOLS
    assert offered(Job(messages=question, tools=TOOLS, tool_choice="none")) is None
    assert offered(Job(messages=question, tools=[])) is None
