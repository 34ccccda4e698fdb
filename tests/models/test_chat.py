"""Roles of the characters that chat templates write: checked word by word, with words that occur once."""

from __future__ import annotations

import pytest
import tiny
from chat_templates import TEMPLATES

from probekit.errors import ModelError, UsageError
from probekit.models.chat import ChatTemplate, load_template
from probekit.tasks.chat import ROLES, as_chat, contents, conversation, transcript

TALK = [
    {"role": "system", "content": "  Answer briefly. \n"},
    {"role": "user", "content": "Who wrote Emma?"},
    {"role": "assistant", "content": " <think>\nA novel, 1815.\n</think>\n\nJane Austen did. "},
    {"role": "user", "content": "And Persuasion?\n"},
]
ANSWERED = [*TALK, {"role": "assistant", "content": "<think>\nPublished 1817.\n</think>\n\nAusten, too."}]
TOOLS = [
    {"role": "user", "content": "Weather in Lyon?"},
    {
        "role": "assistant",
        "content": "Let me look.",
        "reasoning_content": "I need a forecast.",
        "tool_calls": [
            {"type": "function", "function": {"name": "forecast", "arguments": {"city": "Lyon", "days": 3}}}
        ],
    },
    {"role": "tool", "content": '{"sky": "rain"}'},
]


@pytest.fixture(scope="module")
def tokenizer():
    return tiny.tiny_tokenizer("gpt2")


def read(tokenizer, name, messages, tools=None, **variables):
    return ChatTemplate(tokenizer, name, TEMPLATES[name]).read(messages, tools, variables, ROLES)


def texts(chat, role):
    return [chat.text[p.start : p.end].strip() for p in chat.parts if p.role == role]


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("messages", [TALK, ANSWERED], ids=["asked", "answered"])
def test_roles(name, messages, tokenizer, monkeypatch):
    chat = read(tokenizer, name, messages)
    with monkeypatch.context() as patch:  # the same, one text at a time
        patch.setattr("probekit.models.chat._all_at_once", lambda *_: None)
        assert read(tokenizer, name, messages) == chat
    without_system = name == "r1" or (name == "mistral" and messages is ANSWERED)
    assert texts(chat, "system") == ([] if without_system else ["Answer briefly."])
    assert ("system" in chat.left_out) == without_system
    assert chat.left_out.count("thinking") == sum(m["role"] == "assistant" for m in messages) - len(
        texts(chat, "thinking")
    )
    assert texts(chat, "user") == ["Who wrote Emma?", "And Persuasion?"]
    answers = ["Jane Austen did.", "Austen, too."][: messages.count(ANSWERED[-1]) + 1]
    assert texts(chat, "assistant") == answers
    kept = {"r1": [], "qwen3": ["Published 1817."]}.get(name, ["A novel, 1815.", "Published 1817."])
    assert texts(chat, "thinking") == [t for t in kept if t != "Published 1817." or messages is ANSWERED]
    ends = [part.end for part in chat.parts]
    assert all(a.end <= b.start for a, b in zip(chat.parts, chat.parts[1:], strict=False))
    after = chat.text[max(ends) :]
    assert ("assistant" in after or "model" in after or "Assistant" in after) == (
        messages is TALK and name != "mistral"
    )
    for part in chat.parts:  # places in the content are places in the render
        if part.origin >= 0:
            content = messages[part.message]["content"]
            assert content[part.origin : part.origin + part.end - part.start] == chat.text[part.start : part.end]


def test_white_space_that_a_template_keeps_belongs_to_the_message(tokenizer):
    kept, trimmed = (read(tokenizer, name, TALK).parts[0] for name in ("chatml", "llama3"))
    assert (kept.end - kept.start, trimmed.end - trimmed.start) == (len(TALK[0]["content"]), len("Answer briefly."))


def test_tools_and_thinking_in_their_own_fields(tokenizer):
    described = [{"type": "function", "function": {"name": "forecast", "parameters": {"city": "string"}}}]
    chat = read(tokenizer, "qwen3", TOOLS, described)
    assert texts(chat, "thinking") == ["I need a forecast."]
    assert texts(chat, "assistant") == ["Let me look."]
    assert texts(chat, "tool") == ['forecast", "arguments": {"city": "Lyon', '{"sky": "rain"}']
    assert '"parameters": {"city": "string"}' in chat.text


NAMED_AGAIN = """{% for m in messages %}<{{ m.role }}>{% for c in m.tool_calls or [] %}{{ c.function.name }}\
({{ c.function.arguments.city }}, {{ c.function.arguments.type }}){% endfor %}{{ m.content }}\
{% if m.tool_calls %}</>{% for c in m.tool_calls %}<from {{ c.function.name }}>{% endfor %}{% endif %}</>{% endfor %}"""
"""As gpt-oss: the name of the function stands in the call, and again in the head of the answer."""


def test_a_call_that_is_rendered_twice_is_two_parts(tokenizer):
    def call(name, city):
        return {"type": "function", "function": {"name": name, "arguments": {"city": city, "type": "hourly"}}}

    calls = [call("forecast", "Lyon"), call("radar", "Metz")]
    messages = [TOOLS[0], {"role": "assistant", "content": "Wait.", "tool_calls": calls}, TOOLS[2]]
    chat = ChatTemplate(tokenizer, "again", NAMED_AGAIN).read(messages, None, {}, ROLES)
    assert texts(chat, "tool") == [
        "forecast(Lyon, hourly",
        "radar(Metz, hourly",
        "forecast",
        "radar",
        '{"sky": "rain"}',
    ]
    assert texts(chat, "assistant") == ["Wait."]
    assert all(a.end <= b.start for a, b in zip(chat.parts, chat.parts[1:], strict=False))


def test_a_template_that_looks_at_what_is_said(tokenizer):
    """Qwen3 takes this user message for a tool's answer, so that a marker in its place moves the last question."""
    said = "<tool_response>\nrain\n</tool_response>"
    messages = [
        TOOLS[0],
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nWait."},
        {"role": "user", "content": said},
    ]
    chat = read(tokenizer, "qwen3", messages)
    assert texts(chat, "user") == ["Weather in Lyon?", said]
    assert texts(chat, "thinking") == ["hm"]
    shouting = ChatTemplate(tokenizer, "loud", "{% for m in messages %}{{ m['content'] | length }};{% endfor %}")
    with pytest.raises(UsageError, match=r"the chat template of loud depends on what message 1 says"):
        shouting.read(messages, None, {}, ROLES)


def test_variables_and_the_date(tokenizer):
    assert "26 Jul 2024" in read(tokenizer, "llama3", TALK).text
    assert "1 May" in read(tokenizer, "llama3", TALK, date_string="1 May").text
    assert read(tokenizer, "qwen3", TALK, enable_thinking=False).text.endswith("<think>\n\n</think>\n\n")
    assert read(tokenizer, "chatml", ANSWERED, add_generation_prompt=True).text.endswith("<|im_start|>assistant\n")


def test_places_of_spans(tokenizer):
    chat, stored = read(tokenizer, "llama3", ANSWERED), as_chat(ANSWERED)
    shown, bounds = transcript(stored), contents(stored)
    assert [shown[a:b] for a, b in bounds] == [m["content"] for m in ANSWERED]
    for message, word in ((0, "briefly"), (2, "1815"), (2, "Austen"), (4, "too")):
        start = ANSWERED[message]["content"].index(word)
        a, b = chat.place(message, start, start + len(word))
        assert chat.text[a:b] == word
    assert chat.place(0, 0, 5) is None  # white space that the template strips
    assert read(tokenizer, "r1", ANSWERED).place(2, 12, 17) is None  # thinking that it drops
    assert conversation(stored)[0] == ANSWERED


def test_bad_input(tokenizer, tmp_path):
    with pytest.raises(
        UsageError, match=r"the chat template of gemma cannot render it: Conversation roles must alternate"
    ):
        read(tokenizer, "gemma", [TALK[1], TALK[1]])
    with pytest.raises(UsageError, match=r"the chat template of x cannot render it: Expected an expression"):
        ChatTemplate(tokenizer, "x", "{% for m in %}").read(TALK, None, {}, ROLES)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"tiny has no chat template, .* Give a Jinja file with --chat-template FILE"):
        load_template(tmp_path, "tiny")
    with pytest.raises(UsageError, match=r"--chat-template .*none.jinja cannot be read"):
        load_template(tmp_path, "tiny", tmp_path / "none.jinja")
    (tmp_path / "own.jinja").write_text(TEMPLATES["chatml"])
    own = load_template(tmp_path, "tiny", tmp_path / "own.jinja")
    assert own.digest() != ChatTemplate(tokenizer, "x", TEMPLATES["gemma"]).digest()
    assert own.read(TALK, None, {}, ROLES).text.startswith("<|im_start|>system")
