"""Templates that attack: each must end soon, in little memory, with a refusal."""

import pytest
from recorded_tokenizers import codec

from tercet.base.errors import Invalid
from tercet.text.chat import open_chat_template

GROWING = (
    "{%% set ns = namespace(x=%s) %%}{%% for i in range(64) %%}{%% set ns.x = %s %%}{%% endfor %%}"
)
USER = [{"role": "user", "content": "hi"}]


def render(source):
    return open_chat_template(codec("bytes"), override=source).render(USER)


def refused(source):
    with pytest.raises(Invalid) as refusal:
        render(source)
    assert refusal.value.code == "template_error"
    return refusal.value.sentence


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(40) }}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% for i in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
        "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{{ range(10 ** 9) }}",
    ],
)
def test_loops_without_an_end(source):
    refused(source)


@pytest.mark.parametrize(
    ("start", "step"),
    [
        ("'ab'", "ns.x ~ ns.x"),
        ("'ab'", "ns.x + ns.x"),
        ("'ab'", "ns.x * 3"),
        ("'ab'", "ns.x | replace('a', 'aaaa')"),
        ("'ab'", "ns.x.replace('a', 'aaaa')"),
        ("'ab'", "'%s%s' % (ns.x, ns.x)"),
        ("'ab'", "'{0}{0}'.format(ns.x)"),
        ("'ab'", "'%(a)s%(a)s' % {'a': ns.x}"),
        ("'ab'", "'%s%s' | format(ns.x, ns.x)"),
        ("'ab'", "[ns.x, ns.x] | string"),
        ("'ab'", "[[ns.x, ns.x]] | sum(start=[]) | string"),
        ("'ab'", "[ns.x, ns.x] | join"),
        ("'ab'", "''.join([ns.x, ns.x])"),
        ("[1]", "ns.x + ns.x"),
        ("[1]", "ns.x * 2"),
        ("3", "ns.x * ns.x"),
    ],
)
def test_values_that_double(start, step):
    refused(GROWING % (start, step))


@pytest.mark.parametrize("shown", ["ns.x", "ns.x | tojson", "ns.x | string", "'%s' % ns.x"])
@pytest.mark.parametrize("step", ["[ns.x, ns.x]", "{'a': ns.x, 'b': ns.x}", "(ns.x, ns.x)"])
def test_lists_of_lists_that_share(shown, step):
    """Little memory, but an endless text."""
    refused(GROWING % ("[1]", step) + "{{ " + shown + " }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10 ** 10 }}",
        "{{ [0] * 10 ** 8 }}",
        "{{ 2 ** (10 ** 6) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ '{:>{}}'.format(1, 1000000000) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ 'a'.center(10 ** 10) }}",
        "{{ 'a'.ljust(1000000000) }}",
        "{{ 'a' | center(1000000000) }}",
        "{{ 'a\nb' | indent(1000000000) }}",
        "{{ messages | tojson(indent=1000000000) }}",
        "{{ ('ab' * 2000000) | list | join('x' * 1000000) }}",
    ],
)
def test_one_step_that_explodes(source):
    refused(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_ways_out_of_the_sandbox(source):
    refused(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.format.__self__ }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{{ self.__init__ }}",
        "{{ messages | map(attribute='__class__') | list | length * 0 }}",
    ],
)
def test_what_the_sandbox_hides_is_nothing(source):
    assert render(source) in {"", "0"}


def test_ordinary_operations_are_untouched():
    source = (
        "{{ 'x' * -5 }}|{{ (1, 2) + (3,) }}|{{ 2 ** 10 }}|{{ '%s and %d' % ('a', 2) }}|"
        "{{ '{}-{:>3}'.format(3, 4) }}|{{ ['a', 'b'] | join(', ') }}|{{ 'abc'[::-1] }}|"
        "{{ 'a' ~ 1 ~ none }}|{{ 7 % 4 }}|{{ {'a': 1}.items() | list }}|{{ 'a,b'.split(',')[-1] }}|"
        "{% for k, v in {'x': 1} | items %}{{ k }}{{ v }}{{ loop.length }}{% endfor %}|"
        "{% for c in 'hi' if c != 'h' %}{{ c }}{{ loop.first }}{% endfor %}"
    )
    assert render(source) == (
        "|(1, 2, 3)|1024|a and 2|3-  4|a, b|cba|a1None|3|[('a', 1)]|b|x11|iTrue"
    )


def test_many_messages_stay_within_the_bounds():
    source = (
        "{% for m in messages %}{{ m.role ~ ': ' ~ m.content | trim }}"
        "{% if 'x' in m.content.split('</think>')[-1].lstrip('\n') %}!{% endif %}{% endfor %}"
    )
    chat = [{"role": "user", "content": f"message {n} " * 50} for n in range(3000)]
    text = open_chat_template(codec("bytes"), override=source).render(chat)
    assert text.count("user: ") == 3000
    everything = open_chat_template(codec("bytes"), override="{{ messages | tojson }}")
    assert everything.render(chat).count('"role"') == 3000
