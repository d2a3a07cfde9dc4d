#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes cases.json: templates, and what Jinja2 makes of them.

The templates are of our own writing. Some have the structure of those that
families of models bring. Jinja2 is set up as transformers does it.

    python3 tests/template/make_cases.py        (needs jinja2 3.1)
"""
import datetime
import json
import pathlib

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Refused(Exception):
    pass


def raise_exception(message):
    raise Refused(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                    extensions=[Generation, loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
now = datetime.datetime(2024, 7, 26, 14, 5, 9)
env.globals["strftime_now"] = now.strftime

VARIABLES = {
    "n": 7, "x": -3, "f": 2.5, "yes": True, "no": None, "empty": "",
    "s": "Hello, World", "u": "Ünïcödé ǆ ﬁ ß ΑΣ ΣΑΣ İ 日本",
    "pad": "  \n padded\t ",
    "lines": "one\ntwo\n\n three\r\nfour", "quoted": "it's \"quoted\" \\ \x01 \x7f\u200b",
    "list": [3, 1, 2, 2], "words": ["b", "A", "c", "a", ""],
    "mix": [1, "a", None, 2.0, [1], {"k": "v"}],
    "d": {"b": 1, "a": "two", "C": [1, 2]},
    "people": [{"name": "Ann", "age": 31, "at": {"town": "Ulm"}}, {"name": "bob", "age": 7},
               {"name": "Cid", "age": 31, "at": {"town": "Bonn"}}],
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"town": {"type": "string", "enum": ["Ulm", "Köln"]}},
        "required": ["town"]}}}],
}

EXPRESSIONS = [
    '1 + 2 * 3 - 4 // 3 % 2', '7 / 2', '-7 // 2', '-7 % 3', '7 % -3', '2 ** 10', '-2 ** 2',
    '1.5 + 1', '1e3', '1e16', '1e-5', '0.0001', '1.0e22', '-0.0', '0.1 + 0.2',
    '100000000000000000.0', '123456789.125', '1_000 + 0x1f + 0b11 + 0o17', "3 * 'ab'", '[1] * 3',
    '\'a\' \'b\' "c"', "'a' ~ 1 ~ none ~ true", '[1, 2] + [3]', '(1, 2) + (3,)', '()', '(1,)',
    '1, 2', "{'a': 1, 'b': [none, true]}", '{}', '1 < 2 < 3', '1 < 3 < 2', '1 == 1.0 == true',
    "'a' in 'cat'", "'x' not in 'cat'", '2 in list', "'b' in d", '[1] == [1]',
    "{'a': 1} == {'a': 1.0}", 'none == false', "'a' < 'b'", '[1, 2] < [1, 3]', 'not 1 == 2',
    'not true or true', '1 and 2', "0 or 'x'", "'' and 1", 'none or no or 3',
    "'y' if yes else 'n'", "'y' if no", '1 if 0 else 2 if 0 else 3', 'missing',
    'missing is defined', 'missing == other_missing', "missing or 'no such name'", 's[0]',
    's[-1]', 's[1:4]', 's[::-1]', 's[5:1:-2]', 's[:-3]', 's[100:]', 'list[1:]', 'list[::2]',
    'list[9]', "d['a']", 'd.a', 'd.zz', "d['zz']", 'd.C.0', 'd.C[-1]', 'people[0].at.town',
    'people[1].at', 'people[1].at is defined', 'u[2]', 'u[::-1]',
    # The ends of 64 bits.
    "'a'.ljust(-9223372036854775807 - 1)", "'ab'.rjust(-9223372036854775807 - 1)",
    "'ab'.center(-9223372036854775807 - 1)", "'-7'.zfill(-9223372036854775807 - 1)",
    "'ab' | center(-9223372036854775807 - 1)",
    "'a b c'.split(none, -9223372036854775807 - 1)",
    "'a b c'.rsplit(none, -9223372036854775807 - 1)",
    "'a,b,c'.split(',', -9223372036854775807 - 1)",
    "'a,b,c'.rsplit(',', -9223372036854775807 - 1)",
    "'aaa'.replace('a', 'b', -9223372036854775807 - 1)",
    "s | truncate(9, true, '...', 9223372036854775807)", "s | truncate(9223372036854775807)",
    '(-9223372036854775807 - 1) % 3', '9223372036854775807 % -2',
    '(-9223372036854775807 - 1) // 3', '9223372036854775807 // -2',
    's[9223372036854775807:]', 's[-9223372036854775807 - 1:2]',
    's[::9223372036854775807]', 's[::-9223372036854775807 - 1]',
    'd.items() | list', 'd.keys() | list',
    'd.values() | list', "d.get('a')", "d.get('zz')", "d.get('zz', 5)", 's.upper()', 'u.upper()',
    'u.lower()', 'u.title()', 'u.capitalize()', "s.strip('Hd')", 'pad.strip()', 'pad.lstrip()',
    'pad.rstrip()', "s.split(', ')", 's.split()', "lines.split('\\n')", 'pad.split()',
    "s.split('l', 1)", "s.rsplit('o', 1)", "'a,,b'.split(',')", 'lines.splitlines()',
    "s.startswith('He')", "s.startswith(('x', 'H'))", "s.endswith('d')", "s.replace('l', 'L')",
    "s.replace('l', 'L', 2)", "s.replace('', '-')", "s.find('o')", "s.rfind('o')", "s.find('zz')",
    "s.count('l')", "'-'.join(['a', 'b'])", "'12'.isdigit()", "'ab'.isalpha()", "' '.isspace()",
    "'AB'.isupper()", "'a1'.isalnum()", "s.partition(', ')", "s.rpartition('o')",
    "s.removeprefix('Hello')", "s.removesuffix('World')", "'7'.zfill(3)", "'-7'.zfill(4)",
    "'a'.center(6, '*')", "'a'.rjust(3)", "'a'.ljust(3) ~ '.'",
    "'{} and {1}'.format('a', 'b') if 0 else '{0} {1} {0}'.format('a', 'b')",
    "'{x}{{}}'.format(x=1)", "'%s is %d' % ('a', 3)", "'%r' % s", "'100%%' % ()",
    "'%s' | format('q')", 'pad | trim', "'xxhixx' | trim('x')", 's | length', 'u | length',
    'list | length', 'd | length', 'missing | length', 's | upper', 's | lower',
    "'hello wORLD' | capitalize", "'hello-wORLD (in) here' | title", 'u | title',
    "s | replace('l', 'L', 1)", "words | join(', ')", 'list | join',
    "people | join('/', attribute='name')", 'words | first', 'words | last', 'list | sort',
    'words | sort', 'words | sort(case_sensitive=true)', 'list | sort(reverse=true)',
    "people | sort(attribute='age') | map(attribute='name') | list",
    "people | sort(attribute='age,name', reverse=true) | map(attribute='name') | join(' ')",
    'words | unique | list', 'list | unique | list', 'list | reverse | list', 's | reverse',
    'list | sum', "people | sum(attribute='age')", 'list | min', 'list | max', 'words | min',
    '[] | max', "people | selectattr('age', 'equalto', 31) | map(attribute='name') | list",
    "people | selectattr('at') | list | length",
    "people | selectattr('at', 'defined') | map(attribute='at.town') | join(',')",
    "people | rejectattr('name', 'in', ['bob']) | list | length",
    "people | map(attribute='at.town', default='?') | list", "mix | select('string') | list",
    "mix | reject('none') | list | length", "list | select('gt', 1) | list",
    "list | select('odd') | list", 'words | select | list', "words | map('upper') | join",
    "words | map('replace', 'a', 'o') | list", 'd | items | list', 'd | dictsort',
    'd | dictsort(true)', 'd | dictsort(reverse=true)', 'list | batch(3) | list',
    'list | batch(3, 0) | list', "missing | default('D')", "empty | default('D')",
    "empty | default('D', true)", 'no | d(1)', "'42' | int", "'4.7' | int", "'x' | int",
    "'x' | int(-1)", "'ff' | int(base=16)", "'1e3' | float", "'.5' | float", "'-1.25' | float",
    "'x' | float(9)", '3 | float', '2.5 | round', '3.5 | round', '2.675 | round(2)',
    "2.1 | round(0, 'ceil')", '-5 | abs', '-2.5 | abs', '\'<a href="x">&\\\'\' | escape',
    'lines | indent', 'lines | indent(2, true)', "lines | indent('> ', blank=true)",
    "'a b c' | wordcount", "'foo bar baz qux' | truncate(9)",
    "'foo bar baz qux' | truncate(9, true)", "'x' | center(5) ~ '.'", '12 | string | length',
    'mix | string', 'quoted | string', '[quoted]', 'mix | tojson', 'quoted | tojson',
    'u | tojson', 'tools | tojson', 'tools | tojson(indent=2)', 'tools[0] | tojson(indent=4)',
    'd | tojson(sort_keys=true)', "d | tojson(separators=(',', ':'))", '[] | tojson(indent=2)',
    '1e16 | tojson', "'é' | tojson", 'none | tojson', 's is string', 'n is number',
    'yes is number', 'yes is boolean', 'n is integer', 'f is float', 'd is mapping',
    'list is sequence', 's is sequence', 's is iterable', 'n is iterable', 'no is none',
    'missing is undefined', 'yes is true', '1 is true', 'no is false', '4 is even', '3 is odd',
    '9 is divisibleby 3', '9 is divisibleby(2)', 'n is eq 7', 'n is equalto(8)', 'n is ne 7',
    'n is gt 3', 'n is lt 3', 'n is ge 7', 'n is le 7', 'n in [7]', 'n is in [7]', "'a' is lower",
    "'A' is upper", 'range is callable', "'trim' is filter", "'none' is test",
    'none is sameas none', 'n is not none', 'not n is none', 'n is not string and yes',
    'range(5) | list', 'range(2, 10, 3) | list', 'range(3, 0, -1) | list', "dict(a=1, b='x')",
    "dict({'z': 0}, a=1)", 'namespace(a=1).a', "strftime_now('%Y-%m-%d')",
    "strftime_now('%d %B %Y, %H:%M:%S %p')", "strftime_now('%A %b %a %j %I %%')",
    '\'\\n\\t\\x41\\u00e9\\\'\' ~ "\\""', "'a\\\nb'", "'\\q'", "'\\101'",
    'true ~ True ~ none ~ None', "[true, none, 1.0, 'a']", "{1: 'a', none: 2} | tojson",
    '[[1, [2, [3]]], ()]', "s.split(',')[0].strip().lower()",
    "(s | lower).split('o') | map('trim') | join('+') | replace(' ', '_')",
    "d.C | map('string') | join if d.C else 'none'",
    "people | map(attribute='name') | map('lower') | sort | join",
]

STATEMENTS = [
    "{% for i in list %}{{ loop.index }}/{{ loop.length }}:{{ i }}{{ ', ' if not loop.last "
    '}}{% endfor %}',
    '{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}',
    '{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}',
    "{% for i in [] %}x{% else %}nothing{% endfor %}{% for c in 'añb' %}<{{ c }}>{% endfor %}",
    '{% for p in people if p.age > 10 %}{{ loop.index }}{{ p.name }} {% endfor %}',
    '{% for i in list %}{{ loop.first }} {{ loop.revindex }} {{ loop.revindex0 }} {{ '
    'loop.depth }}\n{% endfor %}',
    "{% for i in list %}{{ loop.previtem if loop.previtem is defined else '-' }}{{ "
    'loop.nextitem }} {% endfor %}',
    "{% for i in list %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i) }} {% endfor %}",
    '{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break '
    '%}{% endif %}{{ i }}{% endfor %}',
    '{% for i in [1, [2, [3, 4]]] recursive %}{% if i is sequence %}({{ loop(i) }}){% else '
    '%}{{ i }}@{{ loop.depth0 }}{% endif %}{% endfor %}',
    '{% for a in [1, 2] %}{% for b in [1, 2] %}{{ loop.index }}{% endfor %}{{ loop.index '
    '}}{% endfor %}',
    '{% for m in missing %}x{% else %}no {% endfor %}{% for i in d %}{{ i }}{% endfor %}',
    "{% set a = list | select('odd') %}{% for i in a %}{{ i }}{% endfor %}.{% for i in a "
    '%}{{ i }}{% endfor %}',
    "{{ 'true' if list | select('gt', 99) else 'false' }}",
    '{% set x = 1 %}{% for i in list %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}',
    '{% set ns = namespace(total=0, seen=[]) %}{% for i in list %}{% set ns.total = ns.total '
    '+ i %}{% set ns.seen = ns.seen + [i] %}{% endfor %}{{ ns.total }}{{ ns.seen }}',
    '{% set a, b = 1, 2 %}{{ a }}{{ b }}{% if yes %}{% set a = 3 %}{% endif %}{{ a }}',
    '{% set text %} some {{ n }} text {% endset %}[{{ text }}]{% set t2 | trim | upper %} x '
    '{% endset %}[{{ t2 }}]',
    '{% with a = 1, b = n + 1 %}{{ a }}{{ b }}{% endwith %}{{ a }}{{ b }}',
    '{% if missing %}a{% elif no %}b{% elif n == 7 %}c{% else %}d{% endif %}',
    '{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, c=9) '
    '}}{{ m(b=5, a=4) }}{{ m() }}',
    '{% macro fac(k) %}{% if k > 1 %}{{ k }}*{{ fac(k - 1) }}{% else %}1{% endif %}{% '
    'endmacro %}{{ fac(5) }}',
    '{% set x = 1 %}{% macro m() %}{{ x }}{% set x = 5 %}{{ x }}{% endmacro %}{{ m() }}{% '
    'set x = 2 %}{{ m() }}{{ x }}',
    "{% macro box(w) %}<{{ w }}>{{ caller() }}</{{ w }}>{% endmacro %}{% call box('b') "
    '%}in{{ n }}{% endcall %}',
    '{% macro each(l) %}{% for i in l %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(v) '
    'each(list) %}[{{ v }}]{% endcall %}',
    "{% filter upper | replace('L', '_') %}hello {{ s }}{% endfilter %}",
    '{% generation %}{{ n }}{% set q = 1 %}{% endgeneration %}{{ q is defined }}',
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current "
    "}}{% set j = joiner('|') %}{{ j() }}a{{ j() }}b{{ j() }}",
    "{% set c = cycler('a', 'b') %}{{ c.current }}{{ c.pos }}{{ c['next']() }}{{ c.pos }}"
    "{{ c.items }}{{ c.reset() }}{{ c.next() }}{{ c.current }}{{ c == c }}"
    "{{ c == cycler('a', 'b') }}{{ c is callable }}{{ c is iterable }}{{ c is mapping }}",
    'a\n  {% if yes %}\n  b\n  {% endif %}\nc\n',
    'a {%- if yes -%} b {%- endif -%} c',
    'a\n  {%+ if yes +%}\n  b\n{% endif +%}\nc',
    '  {{ n }}  \n  {{- n -}}  \n x',
    '{# note #}\na{#- note -#} b {# x #}\n c',
    'a  {# in line #}\nb\n   {# own line #}   \nc',
    '{% raw %}{{ n }}{% if %}{% endraw %}\n!',
    'a {%- raw -%} {{ x }} {%- endraw -%} b',
    'x\r\ny\rz\n\n',
    '{{ n }}\n',
    '{{ n }}\n\n',
    '\n{% if yes %}\n\n{% endif %}\n\nz',
    '{% for i in list %}\n  {{ i }}\n{% endfor %}\nend',
    "{% set a = 'x' %}   \n{{ a }}",
    '{% if yes %}a{% endif %}\n{% if yes -%}\n\n b{% endif %}',
    "{{ '{{' }}{{ {'a': {}} }}{{ '%}' }}",
    '  {% set q = 1 %}  {% set r = 2 %}\n  x',
    '\t{%- set q = 1 %}\n\t x',
]

# Structures that families of models use, with markers of our own choice.
FAMILIES = {
    "simple":
        "{% for m in messages %}{{ '<|begin|>' + m['role'] + '\n"
        "' + m['content'] + '<|finish|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
        "'<|begin|>assistant\n' }}{% endif %}",
    "alternating":
        "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set sys = "
        "messages[0]['content'] %}{% else %}{% set rest = messages %}{% set sys = false %}{% "
        "endif %}{% for m in rest %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) "
        "%}{{ raise_exception('turns must alternate') }}{% endif %}{% if loop.index0 == 0 "
        "and sys != false %}{% set text = '<<' + sys + '>>\n"
        "' + m['content'] %}{% else %}{% set text = m['content'] %}{% endif %}{% if "
        "m['role'] == 'user' %}{{ bos_token + '[Q] ' + text.strip() + ' [/Q]' }}{% else %}{{ "
        "' ' + text.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    "headers":
        "{{- bos_token }}\n{%- if messages[0].role == 'system' %}\n"
        '    {%- set sys = messages[0].content | trim %}\n'
        "    {%- set messages = messages[1:] %}\n{%- else %}\n    {%- set sys = '' %}\n"
        "{%- endif %}\n{{- '<h>system</h>\n\nToday: ' + strftime_now('%d %b %Y') + '\n\n"
        "' }}\n{{- sys }}\n{{- '<eot>' }}\n{%- for m in messages %}\n"
        "    {%- if 'tool_calls' in m %}\n        {{- m.tool_calls[0].function | tojson }}\n"
        "    {%- else %}\n        {{- '<h>' + m['role'] + '</h>\n\n"
        "' + m['content'] | trim + '<eot>' }}\n    {%- endif %}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n    {{- '<h>assistant</h>\n\n' }}\n{%- endif %}\n",
    "model role":
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'assistant' %}{% set role "
        "= 'model' %}{% else %}{% set role = m['role'] %}{% endif %}{{ '<start>' + role + '\n"
        "' + m['content'] | trim + '<end>\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
        "'<start>model\n' }}{% endif %}",
    "lines":
        "{% for m in messages %}\n{% if m['role'] == 'user' %}\n{{ '<|user|>\n"
        "' + m['content'] + eos_token }}\n{% elif m['role'] == 'system' %}\n{{ '<|system|>\n"
        "' + m['content'] + eos_token }}\n{% else %}\n{{ '<|assistant|>\n"
        "' + m['content'] + eos_token }}\n{% endif %}\n"
        "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n"
        '{% endfor %}',
    "thinking":
        '{%- set ns = namespace(last=messages | length - 1, open=true) %}\n'
        '{%- for m in messages[::-1] %}\n    {%- set i = (messages | length - 1) - '
        "loop.index0 %}\n    {%- if ns.open and m.role == 'user' %}\n"
        '        {%- set ns.open = false %}\n        {%- set ns.last = i %}\n'
        '    {%- endif %}\n{%- endfor %}\n{%- for m in messages %}\n'
        "    {%- set text = m.content %}\n    {%- if m.role == 'assistant' and '</t>' in "
        "text %}\n        {%- set thought = text.split('</t>')[0].rstrip('\n"
        "').split('<t>')[-1].lstrip('\n') %}\n        {%- set text = "
        "text.split('</t>')[-1].lstrip('\n') %}\n        {%- if loop.index0 > ns.last %}\n"
        "            {{- '(' + thought + ')' }}\n        {%- endif %}\n    {%- endif %}\n"
        "    {{- '<' + m.role + '>' + text + '\n' }}\n{%- endfor %}\n",
    "parts":
        '{%- macro show(c) %}\n{%- if c is string %}{{ c }}{%- elif c is iterable and c is '
        "not mapping %}{%- for p in c %}{%- if p.type == 'text' %}{{ p.text }}{%- else %}[{{ "
        'p.type }}]{%- endif %}{%- endfor %}{%- endif %}\n{%- endmacro %}\n'
        '{%- for m in messages %}{{ m.role | capitalize }}: {{ show(m.content) | trim }}{{ '
        "'\n' if not loop.last }}{%- endfor %}",
    "tools":
        "{%- if tools %}\n    {{- 'Tools:' }}\n    {%- for tool in tools %}\n        {{- '\n"
        "' + (tool | tojson) }}\n    {%- endfor %}\n{%- endif %}\n{%- for m in messages %}\n"
        "    {{- '\n' + m.role + ': ' + (m.content or '') }}\n"
        "    {%- for c in m.tool_calls or [] %}\n        {{- '\n"
        "' + c.function.name + '(' }}\n        {%- for k, v in c.function.arguments | items "
        "%}\n            {{- k + '=' + (v if v is string else v | tojson) }}\n"
        "            {{- ', ' if not loop.last }}\n        {%- endfor %}\n"
        "        {{- ')' }}\n    {%- endfor %}\n{%- endfor %}\n",
    "merged":
        '{%- for m in messages %}{% if not loop.first and loop.previtem.role == m.role %}\n\n'
        "{% else %}{{ eos_token if not loop.first }}{{ '\n### ' + m.role | title + ':\n"
        "' }}{% endif %}{{ m.content }}{%- endfor %}{{ '\n### Assistant:\n"
        "' if add_generation_prompt }}",
}

CONVERSATIONS = [
    [("user", "Hello, how are you?")],
    [("system", "Be brief.\n"), ("user", "2 + 2?")],
    [("user", "Hi!"), ("assistant", "<t>\nA greeting.\n</t>\n\nHello."),
     ("user", "  Grüße, 日本 \t\n")],
    [("system", "S"), ("user", "a"), ("assistant", " b "), ("user", "c"),
     ("assistant", "<t>why</t>d")],
    [("assistant", "first"), ("user", "odd"), ("user", "twice")],
]


def case(template, variables, prompt=True):
    result = {"template": template, "variables": variables, "add_generation_prompt": prompt}
    try:
        result["expected"] = env.from_string(template).render(
            bos_token="<s>", eos_token="</s>", add_generation_prompt=prompt, **variables)
    except Refused as e:
        result["refused"] = str(e)
    return result


def used(template):
    return {k: v for k, v in VARIABLES.items() if k in template}


def main():
    cases = []
    for expression in EXPRESSIONS:
        template = "{{ " + expression + " }}"
        cases.append(case(template, used(template)))
    cases += [case(t, used(t)) for t in STATEMENTS]
    for template in FAMILIES.values():
        for turns in CONVERSATIONS:
            messages = [{"role": r, "content": c} for r, c in turns]
            cases += [case(template, {"messages": messages}, p) for p in (True, False)]
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {
        "name": "weather", "arguments": {"town": "Köln", "days": [1, 2.5], "now": True}}}]}
    parts = {"role": "user", "content": [{"type": "text", "text": "see "}, {"type": "image"}]}
    cases.append(case(FAMILIES["tools"], {"messages": [call], "tools": VARIABLES["tools"]}))
    answer = {"role": "assistant", "content": "ok"}
    cases.append(case(FAMILIES["parts"], {"messages": [parts, answer]}))
    cases.append(case(FAMILIES["headers"], {"messages": [parts | {"content": "x"}, call]}))
    path = pathlib.Path(__file__).with_name("cases.json")
    lines = [json.dumps(c, ensure_ascii=False) for c in cases]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(len(cases), "cases,", sum("refused" in c for c in cases), "refused")


main()
