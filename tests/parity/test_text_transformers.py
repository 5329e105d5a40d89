"""Folders and chat templates give what transformers gives."""

# ruff: noqa: E501  templates keep the lines that models have

import json

import pytest
from recorded_tokenizers import RECORDED, metadata

from tercet.base.errors import Invalid
from tercet.text.chat import open_chat_template
from tercet.text.gguf_source import read_gguf
from tercet.text.load import load_codec

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": True,
    "use_regex": True,
}
SENTENCEPIECE = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}
LLAMA3 = """{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not date_string is defined %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: " + date_string + "\\n\\n" }}
{{- system_message }}{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("one call only") }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", "parameters": ' }}{{- call.arguments | tojson }}{{- "}" }}
    {%- elif message.role == "tool" %}
        {{- "<|ipython|>" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}{{- message.content }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""
QWEN3 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "<|im_end|>\\n" }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}
    {%- else %}{%- set content = '' %}{%- endif %}
    {%- if message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""
MISTRAL = """{{ bos_token }}{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{% endif %}
{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}
{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}
{% endif %}{% endfor %}"""
TEMPLATES = {"llama3": LLAMA3, "qwen3": QWEN3, "mistral": MISTRAL}

SYSTEM = {"role": "system", "content": " Be brief. "}
USER = {"role": "user", "content": 'Hi <é> & "you"\n'}
ASSISTANT = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello"}
CHATS = [[USER], [USER, ASSISTANT], [USER, ASSISTANT, USER], [SYSTEM, USER], [ASSISTANT]]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"a": ["é<"]}}}


def folder_of(path, name, decoder):
    definition = json.loads(read_gguf(metadata(name)).definition)
    definition["decoder"] = decoder
    end, begin = ("</s>", "<s>") if "spm" in name else ("<|im_end|>", "<|im_start|>")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": end,
        "bos_token": begin,
        "clean_up_tokenization_spaces": False,
    }
    (path / "tokenizer.json").write_text(json.dumps(definition))
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("name", "decoder"),
    [("qwen2", BYTE_LEVEL), ("llama-bpe", BYTE_LEVEL), ("llama-spm", SENTENCEPIECE)],
)
def test_a_folder_encodes_and_decodes_as_transformers_does(tmp_path, name, decoder):
    folder = folder_of(tmp_path, name, decoder)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    ours = load_codec(folder)
    assert ours.eos_id == theirs.eos_token_id
    for case in json.loads((RECORDED / f"{name}.json").read_text())["cases"]:
        text = case["text"]
        ids = theirs.encode(text)
        assert ours.encode(text) == ids
        assert ours.encode(text, add_bos=False) == theirs.encode(text, add_special_tokens=False)
        for skip in (True, False):
            assert ours.decode(ids, skip_special=skip) == theirs.decode(
                ids, skip_special_tokens=skip
            )


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = folder_of(tmp_path_factory.mktemp("spm"), "llama-spm", SENTENCEPIECE)
    return load_codec(folder), transformers.PreTrainedTokenizerFast.from_pretrained(folder)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize(
    "options",
    [
        {"add_generation_prompt": True},
        {"add_generation_prompt": False},
        {"add_generation_prompt": True, "tools": [TOOL]},
        {"add_generation_prompt": True, "enable_thinking": False},
        {"add_generation_prompt": False, "continue_final_message": True},
    ],
)
def test_templates_render_as_in_transformers(pair, name, options):
    codec, theirs = pair
    template = open_chat_template(codec, override=TEMPLATES[name])
    ours = {key: value for key, value in options.items() if key != "enable_thinking"}
    further = {key: value for key, value in options.items() if key == "enable_thinking"}
    for chat in CHATS:
        try:
            expected = theirs.apply_chat_template(
                chat, chat_template=TEMPLATES[name], tokenize=False, **options
            )
        except Exception:  # noqa: BLE001  whatever it raises, we refuse too
            with pytest.raises(Invalid):
                template.render(chat, template_kwargs=further, **ours)
        else:
            assert template.render(chat, template_kwargs=further, **ours) == expected
