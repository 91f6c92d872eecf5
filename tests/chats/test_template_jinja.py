"""Any jinja template: rendered as transformers does, followed to the letter, and never trusted."""

from __future__ import annotations

import time
from datetime import date
from typing import Any

import pytest

from millstream import ChatTemplate, TemplateError
from millstream.chats import Kind, Rendered
from millstream.records.chat import Conversation, Message, ToolCall

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHAT = Conversation(
    (Message("user", " u "), Message("assistant", " a\n"), Message("user", ""), Message("assistant", "b"))
)

NESTED = "{% set n = namespace(x=[1]) %}{% for i in range(64) %}{% set n.x = [n.x, n.x] %}{% endfor %}"


def joined(pieces: Rendered) -> str:
    return "".join(piece.text for piece in pieces)


def render(template: str, chat: Conversation = CHAT, **settings: Any) -> Rendered:
    return ChatTemplate.of(template, **settings).render(chat)


def one(expression: str, content: str = " Content here ") -> Rendered:
    """A template that does something to the content of a message."""
    return render(
        "{% for m in messages %}[{{ " + expression + " }}]{% endfor %}", Conversation((Message("user", content),))
    )


def test_a_template_without_marks_is_cut_as_the_built_in_format() -> None:
    """The same kinds for the same characters; scaffold may be cut elsewhere."""

    def letters(pieces: Rendered) -> list[tuple[str, Kind, bool]]:
        return [(letter, piece.kind, piece.given) for piece in pieces for letter in piece.text]

    for asked in (False, True):
        own = ChatTemplate.of(CHATML).render(CHAT, add_generation_prompt=asked)

        assert letters(own) == letters(ChatTemplate.of("chatml").render(CHAT, add_generation_prompt=asked))


def test_the_end_of_a_turn_belongs_to_the_message_that_it_ends() -> None:
    """Also that of a question: each character is of the message that it is of in the built-in format."""
    roles = ("system", "user", "assistant", "user", "assistant")
    chat = Conversation(tuple(Message(role, f"text {at}") for at, role in enumerate(roles)))

    def letters(pieces: Rendered) -> list[tuple[str, int]]:
        return [(letter, piece.message) for piece in pieces for letter in piece.text]

    own, built_in = (ChatTemplate.of(each).render(chat) for each in (CHATML, "chatml"))
    assert letters(own) == letters(built_in)
    marked = CHATML.replace(
        "{{ m.content }}<|im_end|>",
        "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
        "{% else %}{{ m.content }}<|im_end|>{% endif %}",
    )
    assert [each for each in letters(render(marked, chat)) if each[0] != "\n"] == [
        each for each in letters(built_in) if each[0] != "\n"
    ]


@pytest.mark.parametrize(
    ("expression", "given"),
    [
        ("m.content", [" Content here "]),
        ("m['content'] | trim", ["Content here"]),
        ("m.content.strip()", ["Content here"]),
        ("m.content.split('t')[-1]", [" here "]),
        ("m.content.split()[0] + '-' + m.content.split()[1]", ["Content", "here"]),
        ("m.content | upper", [" CONTENT HERE "]),
        ("m.content | tojson", ['" Content here "']),
        ("m | tojson", ['{"role": "user", "content": " Content here "}']),
        ("m.content.replace('e', 'EE')", [" Cont", "nt h", "r", " "]),
        ("m.content ~ '!' ~ 1", [" Content here "]),
        ("'<' ~ (m.content | trim) ~ '>'", ["Content here"]),
        ("', '.join([m.content, 'x'])", [" Content here "]),
        ("[m.content, 'x'] | join(', ')", [" Content here "]),
        ("m.content[1:4]", ["Con"]),
        ("m.content | first", [" "]),
        ("m.content.partition('ten')[2]", ["t here "]),
        ("m.content if 'here' in m.content else ''", [" Content here "]),
        ("'x' if m.content.startswith(' C') else m.content", []),
        ("m.content | length", []),
    ],
)
def test_texts_are_followed_through_what_a_template_does_to_them(expression: str, given: list[str]) -> None:
    assert [piece.text for piece in one(expression) if piece.given] == given


def test_texts_are_followed_through_macros_and_variables() -> None:
    template = (
        "{% macro show(x) %}<{{ x | trim }}>{% endmacro %}{% set ns = namespace(all='') %}"
        "{% for m in messages %}{% set kept %}{{ show(m.content) }}{% endset %}"
        "{% set ns.all = ns.all + kept %}{% endfor %}{{ ns.all }}"
    )
    pieces = render(template, Conversation((Message("user", " u "), Message("system", "s"))))

    assert [(piece.text, piece.message, piece.given) for piece in pieces] == [
        ("<", 0, False),
        ("u", 0, True),
        ("><", 1, False),
        ("s", 1, True),
        (">", -1, False),
    ]


@pytest.mark.parametrize(
    "expression", ["'%s' % m.content", "'{}'.format(m.content)", "m.content * 2", "messages | tojson"]
)
def test_a_text_that_cannot_be_followed_is_an_error_and_not_taken_for_the_template(expression: str) -> None:
    chat = Conversation((Message("user", "u"), Message("assistant", "a")))
    with pytest.raises(TemplateError, match="formats or repeats a text"):
        render("{% for m in messages %}{{ " + expression + " }}{% endfor %}", chat)


def test_generation_blocks_say_what_is_learned() -> None:
    template = (
        "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}"
        "{% generation %}{{ m.content }}</s>{% endgeneration %}{% else %}{{ m.content }}</s>{% endif %}{% endfor %}"
    )
    pieces = render(template, variant="training")
    learned = [
        (piece.text, piece.kind) for piece in pieces if piece.role == "assistant" and piece.kind != Kind.scaffold
    ]

    assert learned == [(" a\n", Kind.content), ("</s>", Kind.stop), ("b", Kind.content), ("</s>", Kind.stop)]
    assert joined(pieces) == "<user> u </s><assistant> a\n</s><user></s><assistant>b</s>"


def test_a_training_variant_needs_generation_blocks() -> None:
    with pytest.raises(TemplateError, match="marks no answers"):
        ChatTemplate.of(CHATML, variant="training")


def test_ends_that_differ_are_an_error_and_not_a_guess() -> None:
    template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ '<end>' if loop.last else '<more>' }}{% endfor %}"
    )

    with pytest.raises(TemplateError, match="message 1: where its turn ends cannot be told") as caught:
        render(template)
    assert "generation" in str(caught.value.hint)


def test_tool_calls_and_reasoning_are_kinds_of_their_own() -> None:
    template = (
        "{% for m in messages %}<{{ m.role }}>"
        "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }} {{ c.function.arguments | tojson }}</call>"
        "{% endfor %}<end>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    answer = Message("assistant", "a", "why", (ToolCall("f", {"x": 1}),))
    pieces = render(template, Conversation((Message("user", "u"), answer, Message("user", "v"))))
    learned = [(piece.text, piece.kind.name, piece.given) for piece in pieces if piece.message == 1]

    assert learned == [
        ("<assistant>", "scaffold", False),
        ("<think>", "reasoning", False),
        ("why", "reasoning", True),
        ("</think>", "reasoning", False),
        ("a", "content", True),
        ("<call>", "tool_call", False),
        ("f", "tool_call", True),
        (" ", "tool_call", False),
        ('{"x": 1}', "tool_call", True),
        ("</call>", "tool_call", False),
        ("<end>", "stop", False),
    ]


def test_the_date_is_given_or_asked_for() -> None:
    template = "{{ strftime_now('%d %b %Y') }}" + CHATML

    assert joined(render(template, date=date(2026, 3, 9))).startswith("09 Mar 2026<|im_start|>")
    with pytest.raises(TemplateError, match="prints today's date"):
        render(template)


def test_blocks_are_trimmed_and_loops_can_be_left() -> None:
    template = (
        "{% for m in messages %}\n    {% if loop.index > 1 %}\n{% break %}\n{% endif %}\n{{ m.content }}\n{% endfor %}"
    )

    assert joined(render(template, Conversation((Message("user", "u"), Message("user", "v"))))) == "u\n"


def test_json_is_written_plainly() -> None:
    tools = ({"b": "<é>", "a": 1},)
    chat = Conversation((Message("user", "u"),), tools)

    assert joined(render("{{ tools | tojson }}{{ messages[0].content }}", chat)) == '[{"b": "<é>", "a": 1}]u'
    assert joined(render("{{ tools[0] | tojson(separators=(',', ':'), sort_keys=true) }}", chat)) == '{"a":1,"b":"<é>"}'


def test_what_a_row_says_to_its_template_cannot_replace_its_messages() -> None:
    chat = Conversation(
        CHAT.messages, template_kwargs={"messages": [], "add_generation_prompt": True, "flavour": "mint"}
    )

    assert joined(render(CHATML + "{{ flavour }}", chat)) == joined(render(CHATML)) + "mint"


def test_what_a_template_refuses_is_said() -> None:
    with pytest.raises(TemplateError, match="the template refused: no such role"):
        render("{% for m in messages %}{{ raise_exception('no such role') }}{% endfor %}")


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages[0].content.__class__.__base__ }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__['os'] }}",
        "{{ namespace(__class__=1) }}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{{ (messages | map(attribute='__class__') | list)[0].mro() }}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% for i in range(999999999) %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ '' }}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for a in range(99999) %}{{ 'x' * 60000 }}{% endfor %}",
        "{{ 'x' * 9999999999 }}",
        "{{ 9 ** 99999999 }}",
        "{% set ns = namespace(x='x') %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x='x') %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{{ '%999999999d' % 1 }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ 'x'.ljust(999999999) }}",
        "{{ 'x' | indent(999999999, true) }}",
        "{{ messages | tojson(indent=999999999) }}",
        "{{ messages | batch(999999999, 0) | list }}",
        "{% set ns = namespace(x='xx') %}{% for i in range(64) %}{% set ns.x = ns.x.replace('x', ns.x) %}{% endfor %}",
        "{% set n = namespace(x='xx') %}{% for i in range(64) %}{% set n.x = n.x | replace('x', n.x) %}{% endfor %}",
        "{% set x = 'x' * 60000 %}{{ x.join(range(9999) | map('string')) }}",
        NESTED + "{{ n.x }}",
        NESTED + "{{ n.x | tojson }}",
        NESTED + "{{ n.x | string }}",
        NESTED + "{{ n.x ~ 1 }}",
        NESTED + "{{ '%s' % n.x }}",
        "{{ '%999999999d' | format(1) }}",
        "{{ ('\\n' * 60000) | indent('x' * 60000) }}",
        "{{ ('\\t' * 60000).expandtabs(tabsize=9999) }}",
        "{{ [[1] * 99999] * 9999 | sum(start=[]) }}",
        "{{ " + "(" * 2000 + "1" + ")" * 2000 + " }}",
        "{% for m in messages %}",
        "{{ nothing.at.all }}",
        "{% include 'file' %}",
        "{% import 'os' as os %}",
    ],
)
def test_a_hostile_or_broken_template_ends_in_our_error_soon(template: str) -> None:
    started = time.monotonic()
    with pytest.raises(TemplateError) as caught:
        render(template)

    assert caught.value.hint
    assert time.monotonic() - started < 10
