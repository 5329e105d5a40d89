"""Chats rendered with templates of models."""

import pytest
from recorded_tokenizers import codec

from tercet.base.errors import Invalid
from tercet.text.chat import open_chat_template

USER = [{"role": "user", "content": "hi"}]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PARTS = (
    "{% for m in messages %}{% for part in m['content'] %}"
    "[{{ part['type'] }}:{{ part['text'] }}]{% endfor %}{% endfor %}"
)
BOTH = (
    "{% for m in messages %}{% if m.content is string %}S{{ m.content }}"
    "{% else %}{% set parts = m.content %}{% for p in parts %}P{{ p.text }}{% endfor %}"
    "{% endif %}{% endfor %}"
)


def render(source, messages=USER, **options):
    template = open_chat_template(codec("bytes"), override=source)
    options.setdefault("add_generation_prompt", not options.get("continue_final_message"))
    return template.render(messages, **options)


def refusal_of(source, messages=USER, **options):
    with pytest.raises(Invalid) as refusal:
        render(source, messages, **options)
    return refusal.value


def test_the_template_of_smollm2():
    template = open_chat_template(codec("smollm2"))
    assert template.render(USER) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    chat = [{"role": "system", "content": "S"}, *USER]
    assert template.render(chat, add_generation_prompt=False) == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
    )


def test_a_rendered_chat_becomes_control_tokens():
    """The rule of the field: also those that a user wrote into a message."""
    made = codec("bytes")
    text = open_chat_template(made).render([{"role": "user", "content": "x<|im_end|>"}])
    assert made.encode(text, add_bos=False).count(259) == 2


def test_blocks_are_trimmed_as_templates_of_the_hub_expect():
    assert render("{% if true %}\n  a\n    {% endif %}\nb\n") == "  a\nb"


def test_names_that_templates_use():
    source = "{{ bos_token }}{{ messages|length }}{{ tools is none }}{{ {'a': ['é<']}|tojson }}"
    assert render(source) == '<|bos|>1True{"a": ["é<"]}'
    assert render("{{ messages|tojson(indent=2) }}").startswith('[\n  {\n    "role": "user"')
    assert render("{{ x }}{{ enable_thinking }}", template_kwargs={"x": 1}) == "1"
    assert render("{{ tools[0].a }}", tools=[{"a": "b"}]) == "b"
    assert render("{% generation %}a{% endgeneration %}") == "a"
    loops = "{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{{ loop.last }}"
    assert render(loops + "{% endfor %}") == "0False1False"


def test_the_clock_is_given_from_outside():
    source = "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}none{% endif %}"
    assert render(source) == "none"
    template = open_chat_template(codec("bytes"), override=source, strftime_now=lambda f: f"<{f}>")
    assert template.render(USER) == "<%Y>"


def test_tools_choose_the_template_made_for_them():
    made = codec("bytes")
    template = open_chat_template(made)
    assert template.render(USER, tools=[{"x": 1}]) == template.render(USER)


@pytest.mark.parametrize(
    ("source", "text", "parts"),
    [
        (CHATML, "<|im_start|>user\na<|im_end|>\n", "<|im_start|>user\na\nb<|im_end|>\n"),
        (PARTS, "[text:a]", "[text:a][text:b]"),
        (BOTH, "Sa", "PaPb"),
    ],
)
def test_content_has_the_form_that_the_template_takes(source, text, parts):
    off = {"add_generation_prompt": False}
    list_of_parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert render(source, [{"role": "user", "content": "a"}], **off) == text
    assert render(source, [{"role": "user", "content": list_of_parts}], **off) == parts


@pytest.mark.parametrize("source", [CHATML, PARTS, BOTH])
def test_absent_content_is_no_text(source):
    assert "None" not in render(source, [{"role": "assistant", "content": None}])
    assert "None" not in render(source, [{"role": "assistant", "tool_calls": []}])


@pytest.mark.parametrize("part", [{"type": "image_url", "image_url": {}}, {"type": "text"}, 7])
def test_other_parts_are_refused(part):
    refusal = refusal_of(CHATML, [{"role": "user", "content": [part]}])
    assert refusal.code == "unsupported_content"


@pytest.mark.parametrize("source", [CHATML, BOTH, CHATML.replace(" | trim", "")])
@pytest.mark.parametrize("text", ["Sure", "Sure:", "multi\nline", ""])
def test_the_last_message_is_continued(source, text):
    chat = [*USER, {"role": "assistant", "content": text}]
    rendered = render(source, chat, continue_final_message=True)
    assert rendered.endswith(text)
    assert "<|im_end|>" not in rendered[len(rendered) - len(text) :]
    assert "\ue000" not in rendered


def test_trailing_spaces_go_where_the_template_trims_them():
    chat = [*USER, {"role": "assistant", "content": "Sure: "}]
    assert render(CHATML, chat, continue_final_message=True).endswith("Sure:")
    kept = render(CHATML.replace(" | trim", ""), chat, continue_final_message=True)
    assert kept.endswith("Sure: ")


def test_what_cannot_be_continued_is_refused():
    assert "cannot be continued" in refusal_of("x", continue_final_message=True).sentence
    both = {"continue_final_message": True, "add_generation_prompt": True}
    assert "both" in refusal_of(CHATML, **both).sentence
    assert "no message" in refusal_of(CHATML, [], continue_final_message=True).sentence


def test_a_template_that_refuses_says_why():
    refusal = refusal_of("{{ raise_exception('System role not supported') }}")
    assert refusal.code == "template_error"
    assert "System role not supported" in refusal.sentence


@pytest.mark.parametrize(
    "source", ["{{ x.y.z }}", "{{ 1 / 0 }}", "{{ messages[9].role }}", "{{ 'a' + 1 }}"]
)
def test_errors_in_a_template_are_the_requests(source):
    assert refusal_of(source).code == "template_error"


@pytest.mark.parametrize("source", ["{% if %}", "{{ x", "{% nope %}", "{{ x|random }}"])
def test_a_template_that_is_not_jinja_is_refused_at_once(source):
    assert "not valid Jinja" in refusal_of(source).sentence


def test_a_model_without_template_says_so():
    made = codec("qwen2")
    assert made.templates == {}
    with pytest.raises(Invalid) as refusal:
        open_chat_template(made).render(USER)
    assert refusal.value.code == "no_chat_template"


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt"])
def test_variables_of_ours_cannot_be_replaced(name):
    assert name in refusal_of(CHATML, template_kwargs={name: 1}).sentence


def test_messages_are_left_as_they_were():
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    render(CHATML, messages)
    assert messages == [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
