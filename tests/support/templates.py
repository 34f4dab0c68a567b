"""Small chat templates that behave like those of real families where a job can notice it."""

from __future__ import annotations

_HEAD = "{{ '<|im_start|>' + m.role + '\n' "

QWEN = (
    "{%- if tools %}"
    "{{ '<|im_start|>system\nTools: ' + (tools | tojson) + '<|im_end|>\n' }}{%- endif %}"
    "{%- if not messages | selectattr('role', 'equalto', 'user') | list %}"
    "{{ raise_exception('No user query found in messages.') }}{%- endif %}"
    "{%- for m in messages %}"
    "{%- if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}"
    "{%- elif m.role == 'assistant' %}"
    "{%- set content = m.content %}{%- set reasoning = '' %}"
    "{%- if m.reasoning_content is string %}{%- set reasoning = m.reasoning_content %}"
    "{%- elif '</think>' in content %}"
    "{%- set reasoning = content.split('</think>')[0].split('<think>')[-1] %}"
    "{%- set content = content.split('</think>')[-1] %}{%- endif %}" + _HEAD + "}}"
    "{%- if loop.last or keep_reasoning %}"
    "{{ '<think>\n' + reasoning.strip() + '\n</think>\n\n' }}{%- endif %}{{ content }}"
    "{%- for call in m.tool_calls or [] %}"
    "{{ '<tool_call>\n<function=' + call.function.name + '>' }}"
    "{%- for name, value in call.function.arguments | items %}"
    "{{ '<parameter=' + name + '>' + (value | string) + '</parameter>' }}{%- endfor %}"
    "{{ '</function>\n</tool_call>' }}{%- endfor %}{{ '<|im_end|>\n' }}"
    "{%- elif m.role == 'tool' %}{{ '<|im_start|>user\n' }}"
    "{{ '<tool_response>' + m.content + '</tool_response><|im_end|>\n' }}"
    "{%- elif m.role in ('system', 'user') %}" + _HEAD + "+ m.content + '<|im_end|>\n' }}"
    "{%- else %}{{ raise_exception('Unexpected message role.') }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{ '<think>\n\n</think>\n\n' }}"
    "{%- else %}{{ '<think>\n' }}{%- endif %}{%- endif %}"
)
"""As Qwen3.5: opens the block unless switched off, splits old answers, iterates over arguments."""

QWEN_UNOPENED = QWEN.replace("{%- else %}{{ '<think>\n' }}{%- endif %}", "{%- endif %}")
"""As Qwen3: leaves it to the model to open the block."""

R1 = (
    "{{ bos_token }}{%- for m in messages %}"
    "{%- if m.role == 'assistant' %}"
    "{{ '<|im_start|>assistant\n' + m.content.split('</think>')[-1] + '<|im_end|>' }}"
    "{%- else %}" + _HEAD + "+ m.content + '<|im_end|>' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{%- endif %}"
)
"""As DeepSeek-R1: no switch, always opens the block, writes its own beginning of sequence."""

GEMMA = (
    "{{ bos_token }}{%- if messages[0].role == 'system' %}"
    "{{ raise_exception('System role not supported') }}{%- endif %}"
    "{%- for m in messages %}"
    "{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{%- endif %}" + _HEAD + "+ m.content | trim + '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
)
"""As Gemma-2: knows no system role, wants roles to alternate, does not think."""

HARMONY = (
    "{{ '<|im_start|>system\nReasoning: ' + (reasoning_effort or 'medium') + '<|im_end|>\n' }}"
    "{%- for m in messages %}" + _HEAD + "}}"
    "{%- if m.thinking %}{{ '<think>' + m.thinking + '</think>' }}{%- endif %}"
    "{{ m.content + '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
)
"""As gpt-oss: reads reasoning_effort, and old thinking from `thinking`."""
