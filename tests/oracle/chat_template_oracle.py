"""Relay's template engine against Python's jinja2, set up as HF's apply_chat_template does.

  chat_template_oracle.py --render PROGRAM [--templates FOLDER]... [--conversations N] [--programs N] [--seed N]

PROGRAM is bazel-bin/tests/tokenizer_svc/render_chat. Compared, text for text and error for error:
  - the small cases of tests/data/chat_templates, whose expected texts must be jinja2's;
  - generated conversations, each rendered with every template of tests/data/chat_templates and of the folders;
  - generated templates: expressions over all filters, tests and methods, and statements that fight over few names.
Origins are checked with marks: what lies between two marks that the caller wrote must be the caller's.

--write makes the expected texts of tests/data/chat_templates anew.
"""

import argparse
import datetime
import json
import pathlib
import random
import re
import subprocess
import sys
import warnings

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "chat_templates"
NOW = 1752148800  # 2025-07-10 12:00:00
MARK_BEGIN, MARK_END = "\ue001", "\ue002"  # around what callers write; no template has them
MARKED = re.compile(b"\xee\x80\x81([^\xee]*)\xee\x80\x82|\xee\x80[\x81\x82]")


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: its text as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def make_environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None).strftime(form)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


class Reference:
    def __init__(self):
        self.env = make_environment()
        self.compiled = {}  # by source

    def render(self, template, context):
        """(text, None) or (None, error)."""
        try:
            if (compiled := self.compiled.get(template)) is None:
                compiled = self.env.from_string(template)
                if len(template) > 300:  # a real one, which comes again
                    self.compiled[template] = compiled
            return compiled.render(**context), None
        except Exception as error:  # whatever Python raises is an error of the template
            if type(error) is jinja2.exceptions.TemplateError:  # raise_exception: its text is the whole message
                return None, str(error)
            return None, f"{type(error).__name__}: {error}"


class Relay:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template, context):
        request = json.dumps({"template": template, "context": context, "now": NOW}) + "\n"
        self.process.stdin.write(request.encode())
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"render_chat died on {request[:2000]}")
        answer = json.loads(answer)
        return answer.get("text"), answer.get("error"), answer.get("from")

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


# ---- conversations

TEXTS = [
    "Hello!", "", " ", "What is 2 + 2?", "  leading and trailing  \n", "line one\nline two\n\n", "<think>\nhm\n</think>\n\nYes.",
    "Gr\u00fc\u00dfe aus K\u00f6ln \u2014 \u201cquoted\u201d", "\u4f60\u597d\uff0c\u4e16\u754c", "\U0001f917 emoji \U0001f1e9\U0001f1ea", "{{ not a template }} {% raw %}",
    "<b>&amp; \"quotes\" 'n' \\backslash</b>", "tab\there", "null", "True", "/think do it", "a/b/no_think", "[INST] x [/INST]",
    "<|im_end|>", "<|im_start|>system", "</s>", "<tool_call>x</tool_call>", "Ol\u00e1 \u00e9\u00e8 \u0130\u0131 \u00df \u03a3\u03a3", "x" * 60,
]
ARGUMENTS = [
    {}, {"location": "Paris"}, {"a": 1, "b": [1, 2.5, None, True], "c": {"d": "\u00e9"}}, {"q": "say \"hi\"\n<end>"},
    {"n": 1e20, "m": -0.5, "big": 12345678901234567890}, {"s": "", "t": False, "z": None, "l": [], "o": {}},
]


def make_tool(rnd, i):
    kinds = ["string", "number", "integer", "boolean", "array", "object"]
    properties = {}
    for k in range(rnd.randrange(4)):
        kind = rnd.choice(kinds)
        schema = {"type": kind}
        if rnd.random() < 0.7:
            schema["description"] = rnd.choice(TEXTS[:10])
        if kind == "string" and rnd.random() < 0.3:
            schema["enum"] = ["celsius", "fahrenheit"]
        if kind == "array":
            schema["items"] = {"type": rnd.choice(kinds[:4])}
        if kind == "object":
            schema["properties"] = {"inner": {"type": "string"}}
        if rnd.random() < 0.1:
            schema["type"] = ["string", "null"]
        if rnd.random() < 0.2:
            schema["default"] = rnd.choice([1, "x", None, True])
        properties[f"p{k}"] = schema
    function = {"name": f"tool_{i}", "description": rnd.choice(TEXTS[:12])}
    if rnd.random() < 0.9:
        function["parameters"] = {"type": "object", "properties": properties}
        if rnd.random() < 0.7:
            function["parameters"]["required"] = [p for p in properties if rnd.random() < 0.6]
    if rnd.random() < 0.2:
        function["return"] = {"type": "string", "description": "what it gives"}
    if rnd.random() < 0.1:
        return function  # some callers leave the wrapping out
    return {"type": "function", "function": function}


class Style:
    """What one caller always does, so that templates which are strict about it get their share."""

    def __init__(self, rnd):
        self.rnd = rnd
        self.is_plain = rnd.random() < 0.35  # user and assistant in turns, nothing else
        self.has_parts = rnd.random() < 0.12
        self.has_string_arguments = rnd.random() < 0.3
        self.has_short_ids = rnd.random() < 0.5

    def content(self):
        rnd = self.rnd
        text = rnd.choice(TEXTS)
        if rnd.random() < 0.5:
            text = MARK_BEGIN + text + MARK_END
        if self.has_parts and rnd.random() < 0.8:
            return [{"type": "text", "text": text}] + ([{"type": "text", "text": "more"}] if rnd.random() < 0.5 else [])
        return text

    def tool_calls(self, turn):
        calls = []
        for k in range(self.rnd.choice([1, 1, 1, 2, 3])):
            arguments = self.rnd.choice(ARGUMENTS)
            if self.has_string_arguments:
                arguments = json.dumps(arguments)
            ids = ["abcdefghi", f"{turn}{k}".zfill(9)] if self.has_short_ids else [f"call_{turn}", f"functions.tool_{k}:{k}", None]
            call = {"type": "function", "function": {"name": f"tool_{k}", "arguments": arguments}}
            if identifier := self.rnd.choice(ids):
                call["id"] = identifier
            calls.append(call)
        return calls

    def tool_turn(self, turn):
        rnd = self.rnd
        message = {"role": "assistant", "tool_calls": self.tool_calls(turn)}
        choice = rnd.random()
        if choice < 0.4:
            message["content"] = None
        elif choice < 0.8:
            message["content"] = self.content()
        if rnd.random() < 0.3:
            message["reasoning_content"] = rnd.choice(TEXTS)
        yield message
        for call in message["tool_calls"]:
            reply = {"role": "tool", "content": self.content()}
            if rnd.random() < 0.9:
                reply["tool_call_id"] = call.get("id", "none")
            if rnd.random() < 0.6:
                reply["name"] = call["function"]["name"]
            yield reply


def make_messages(rnd):
    style, messages = Style(rnd), []
    if rnd.random() < (0.3 if style.is_plain else 0.6):
        role = "system" if style.is_plain else rnd.choice(["system", "system", "system", "developer"])
        messages.append({"role": role, "content": style.content()})
    for turn in range(rnd.choice([1, 1, 2, 2, 3, 4])):
        messages.append({"role": "user", "content": style.content()})
        if not style.is_plain and rnd.random() < 0.05:
            messages.append({"role": rnd.choice(["user", "critic", "ipython"]), "content": style.content()})
        if not style.is_plain and rnd.random() < 0.4:
            messages.extend(style.tool_turn(turn))
        message = {"role": "assistant", "content": style.content()}
        if rnd.random() < 0.2:
            message[rnd.choice(["reasoning_content", "reasoning", "thinking"])] = rnd.choice(TEXTS)
        messages.append(message)
    if rnd.random() < 0.6:
        messages.append({"role": "user", "content": style.content()})
    return messages


def make_context(rnd):
    context = {"messages": make_messages(rnd), "add_generation_prompt": rnd.random() < 0.7, "tools": None, "documents": None}
    for token, text in (("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")):
        if rnd.random() < 0.9:
            context[token] = text
    if rnd.random() < 0.4:
        context["tools"] = [make_tool(rnd, i) for i in range(rnd.randrange(4))]
    if rnd.random() < 0.1:
        context["documents"] = [{"title": "T", "text": rnd.choice(TEXTS), "doc_id": i} for i in range(2)]
    if rnd.random() < 0.4:
        context["enable_thinking"] = rnd.choice([True, False])
    if rnd.random() < 0.3:
        context["functions"] = json.dumps([make_tool(rnd, 0)])
        context["datetime"] = "2025-07-10"
    for name, values in (
        ("reasoning_effort", ["low", "medium", "high", "max"]), ("thinking", [True, False]), ("thinking_mode", ["enabled", "disabled"]),
        ("thinking_budget", [0, 512, -1]), ("builtin_tools", [["python"], ["browser", "python"]]), ("keep_past_thinking", [True, False]),
        ("preserve_thinking", [True]), ("date_string", ["1 Jan 2024"]), ("add_vision_id", [True]), ("custom_tools", [None]),
        ("tools_in_user_message", [False, True]), ("skip_thinking", [True]), ("xml_tools", [[]]), ("low_effort", [True]),
    ):
        if rnd.random() < 0.08:
            context[name] = rnd.choice(values)
    return context


# ---- templates

VALUES = {
    "s": "Hello World", "e": "", "u": "Gr\u00f6\u00dfe \u0130 \u03a3\u03a3 \ufb01 \u4e2d", "w": "  a b\n\tc ", "n": 3, "k": -2, "f": 2.5, "t": True, "o": None,
    "l": [3, 1, 2], "d": {"b": 1, "a": "x", "c": None}, "q": ["b", "A", "a", ""], "m": [{"r": "x", "v": 1}, {"r": "Y", "v": 2}, {"r": "x"}],
    "h": "<b>&'\"", "c": "a,b,,c", "p": "%s|%d", "g": {"x": {"y": [1, {"z": "deep"}]}},
}
LITERALS = ["0", "1", "2", "-1", "1.5", "''", "'a'", "' '", "'l'", "'%s'", "'{}'", "','", "[]", "[1, 2]", "['a', 'b']", "{}", "{'a': 1}", "(1, 'x')",
            "none", "true", "false", "undef", "range(3)", "'H'", "'r'", "'v'", "10", "'x.y'", "1e3"]
LAZY = ["batch", "items", "map", "reject", "rejectattr", "select", "selectattr", "slice", "unique", "reverse"]
FILTERS = ["abs", "attr(@)", "batch(@)", "batch(2, @)", "capitalize", "center(7)", "default(@)", "default(@, true)", "dictsort", "dictsort(by='value')", "escape",
           "first", "float", "float(@)", "forceescape", "format(@)", "format(@, @)", "groupby(@)", "indent", "indent(@, true)", "int", "int(@)", "items",
           "join", "join(@)", "last", "length", "list", "lower", "map(@)", "map(attribute=@)", "map('upper')", "map('int')", "max", "min", "reject", "reject(@)",
           "rejectattr(@)", "replace(@, @)", "replace(@, @, @)", "reverse", "round", "round(@)", "safe", "select", "select('string')", "select('in', @)", "selectattr(@)",
           "selectattr(@, 'defined')", "selectattr(@, 'eq', @)", "slice(@)", "sort", "sort(reverse=true)", "sort(attribute=@)", "string", "sum", "sum(start=@)", "title",
           "tojson", "tojson(indent=@)", "trim", "trim(@)", "truncate(@)", "truncate(8, true, @, 0)", "unique", "upper", "urlencode", "wordcount"]
TESTS = ["boolean", "callable", "defined", "divisibleby(@)", "eq(@)", "escaped", "even", "false", "float", "ge(@)", "gt(@)", "in(@)", "integer", "iterable", "le(@)",
         "lower", "lt(@)", "mapping", "ne(@)", "none", "number", "odd", "sequence", "string", "true", "undefined", "upper"]
METHODS = ["upper()", "lower()", "title()", "capitalize()", "swapcase()", "casefold()", "strip()", "strip(@)", "lstrip(@)", "rstrip(@)", "split()", "split(@)",
           "split(@, @)", "rsplit(@, 1)", "splitlines()", "partition(@)", "rpartition(@)", "replace(@, @)", "replace(@, @, 1)", "join(@)", "startswith(@)",
           "endswith(@)", "find(@)", "rfind(@)", "find(@, @)", "index(@)", "count(@)", "count(@, @)", "center(9, '*')", "ljust(9)", "rjust(9)", "zfill(9)", "format(@)",
           "format(@, @)", "removeprefix(@)", "removesuffix(@)", "expandtabs()", "isalpha()", "isdigit()", "isupper()", "islower()", "isspace()", "istitle()",
           "isidentifier()", "items()", "keys()", "values()", "get(@)", "get(@, @)", "copy()", "append(@)", "pop()"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]


def make_expression(rnd, depth):
    if depth == 0 or rnd.random() < 0.15:
        return rnd.choice(list(VALUES)) if rnd.random() < 0.6 else rnd.choice(LITERALS)

    def sub():
        return make_expression(rnd, depth - 1)

    def fill(pattern):
        while "@" in pattern:
            pattern = pattern.replace("@", make_expression(rnd, 0 if rnd.random() < 0.8 else depth - 1), 1)
        return pattern

    kind = rnd.randrange(12)
    if kind < 3:
        name = fill(rnd.choice(FILTERS))
        # What is lazy prints its address: something reads it first.
        reader = rnd.choice(["list", "list", "first", "join('-')", "list | length"]) if name.split("(")[0] in LAZY else ""
        value = f"({sub()} | safe)" if rnd.random() < 0.1 else sub()
        return f"({value} | {name}{' | ' + reader if reader else ''})"
    if kind < 5:
        return f"({sub()}).{fill(rnd.choice(METHODS))}"
    if kind < 7:
        # Large powers are integers beyond 64 bits and roots of negative numbers complex ones: Relay refuses both.
        operator = rnd.choice(OPERATORS)
        return f"({sub()} {operator} {rnd.choice(['2', '-1']) if operator == '**' else sub()})"
    if kind == 7:
        return f"({sub()} is {rnd.choice(['', 'not '])}{fill(rnd.choice(TESTS))})"
    if kind == 8:
        return f"({sub()})[{sub()}]"
    if kind == 9:
        bounds = [rnd.choice(["", "1", "-1", "2", "0", "-3"]) for _ in range(rnd.choice([2, 2, 3]))]
        # Of names only: jinja2 folds constants, and a slice of what has none is an error only at run time.
        return f"{rnd.choice(list(VALUES))}[{':'.join(bounds)}]"
    if kind == 10:
        return f"({sub()} if {sub()} else {sub()})"
    return rnd.choice(["(not {})", "(-{})", "[{}, 1]", "{{'k': {}}}", "({},)", "({}).r", "({}).nothing", "dict(a={})"]).format(sub())


def make_statements(rnd, depth, in_loop):
    """Statements that store and load few names in scopes of all kinds."""
    names, parts = ["a", "b", "c", "n"], []

    def name():
        return rnd.choice(names)

    for _ in range(rnd.randrange(1, 5)):
        kind = rnd.randrange(14 if depth > 0 else 4)
        inner = make_statements(rnd, depth - 1, in_loop) if depth > 0 else ""
        if kind < 2:
            parts.append(f"{{{{ {name()} }}}};")
        elif kind == 2:
            parts.append(f"{{% set {name()} = ({name()} ~ '{rnd.choice('xyz')}') %}}")
        elif kind == 3:
            parts.append(f"{{% set {name()} = {name()} %}}")
        elif kind < 6:
            loop = rnd.choice(["{{ loop.index }}", "{{ loop.last }}", "{{ loop.nextitem }}", ""])
            test = rnd.choice(["", "", f" if {name()}", " if x != 2"]).replace("x", "v")
            target = rnd.choice(["v", name()])
            test = test.replace("v", target)
            body = make_statements(rnd, depth - 1, True)
            otherwise = rnd.choice(["", "{% else %}" + inner])
            parts.append(f"{{% for {target} in [1, 2, 3][:{rnd.randrange(4)}]{test} %}}{loop}{body}{otherwise}{{% endfor %}}")
        elif kind < 8:
            parts.append(f"{{% if {name()} %}}{inner}{{% else %}}{make_statements(rnd, depth - 1, in_loop)}{{% endif %}}")
        elif kind == 8:
            body = make_statements(rnd, depth - 1, False)
            macro, default = rnd.choice(["f", "g"]), rnd.choice(["", f"={name()}"])
            parts.append(f"{{% macro {macro}({name()}{default}) %}}{body}{rnd.choice(['', '{{ caller() }}', '{{ varargs }}'])}{{% endmacro %}}{{{{ {macro}({name()}) }}}}")
        elif kind == 9:
            parts.append(f"{{% set {name()} %}}{inner}{{% endset %}}")
        elif kind == 10:
            parts.append(f"{{% with {name()} = {name()}, d = 1 %}}{inner}{{% endwith %}}")
        elif kind == 11:
            body = make_statements(rnd, depth - 1, False)
            parts.append(f"{{% macro h(a) %}}<{{{{ caller(a) }}}}>{{% endmacro %}}{{% call({name()}) h({name()}) %}}{body}{{% endcall %}}")
        elif kind == 12:
            parts.append(f"{{% filter replace({name()} | string, '_') %}}{inner}{{% endfilter %}}")
        elif in_loop:
            parts.append(f"{{% if {name()} == 2 %}}{{% {rnd.choice(['break', 'continue'])} %}}{{% endif %}}")
        else:
            parts.append(f"{{% generation %}}{make_statements(rnd, depth - 1, False)}{{% endgeneration %}}")
    return "".join(parts)


def make_layout(rnd):
    """Text and tags with all signs: what white space is left."""
    parts, depth = [], 0
    for _ in range(rnd.randrange(2, 14)):
        left, right = rnd.choice(["", "", "-", "+"]), rnd.choice(["", "", "-", "+"])
        kind = rnd.randrange(9)
        if kind < 4:
            parts.append("".join(rnd.choice([" ", "\n", "\t", "x", "\r\n", "\n\n", "  ", "\u00a0", "{", "%}"]) for _ in range(rnd.randrange(4))))
        elif kind == 4:
            parts.append(f"{{{{{left.replace('+', '')} 1 {right.replace('+', '')}}}}}")
        elif kind == 5:
            parts.append(f"{{#{left} c {right}#}}")
        elif kind == 6:
            parts.append(f"{{%{left} if true {right}%}}")
            depth += 1
        elif kind == 7 and depth > 0:
            parts.append(f"{{%{left} endif {right}%}}")
            depth -= 1
        elif kind == 8:
            inner = rnd.choice(["", " ", "\n a {{ x }} \n", "  "])
            parts.append(f"{{%{left} raw {right.replace('+', '')}%}}{inner}{{%{rnd.choice(['', '-', '+'])} endraw {right}%}}")
    return "".join(parts) + "".join(f"{{%{rnd.choice(['', '-'])} endif %}}" for _ in range(depth)) + rnd.choice(["", "\n", "\n\n", " \n "])


def make_program(rnd):
    if rnd.random() < 0.2:
        return make_layout(rnd)
    if rnd.random() < 0.5:
        return " ".join(f"{{{{ {make_expression(rnd, 3)} }}}}" for _ in range(rnd.choice([1, 1, 2])))
    return make_statements(rnd, 3, False)


# ---- comparing

def origin_error(text, origins):
    """Marks are the caller's, and so is a text between two of them that the template left whole."""
    raw = text.encode()
    if len(raw) != len(origins):
        return f"{len(raw)} bytes, {len(origins)} origins"
    for mark in MARKED.finditer(raw):
        between = mark.group(1)
        if between is None:
            if "1" in origins[mark.start() : mark.end()]:
                return f"a mark of the caller's at byte {mark.start()} counts as the template's"
        elif between.decode() in TEXTS and "1" in origins[mark.start() : mark.end()]:
            return f"a text of the caller's at byte {mark.start()} counts as the template's: {between!r}"
    return None


def difference(a, b):
    """The place where two texts begin to differ."""
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    begin = max(at - 60, 0)
    return f"from character {at}\n  relay:  {a[begin:at + 100]!r}\n  jinja2: {b[begin:at + 100]!r}"


class Comparison:
    def __init__(self, relay):
        self.relay, self.reference = relay, Reference()
        self.same = self.errors = self.different = 0

    def check(self, name, template, context):
        expected, expected_error = self.reference.render(template, context)
        if " at 0x" in (expected or ""):  # the address of an object
            return expected
        text, error, origins = self.relay.render(template, context)
        problem = None
        if text != expected or (expected_error and ": " not in expected_error and error != expected_error):
            problem = difference(error or text, expected_error or expected)
        elif text is not None:
            problem = origin_error(text, origins)
        if problem is None:
            self.same += 1
            self.errors += text is None
            return expected
        self.different += 1
        if self.different <= 20:
            print(f"{name}: {problem}", file=sys.stderr)
        return expected


def small_cases(comparison, write):
    unit = json.loads((DATA / "unit.json").read_text())
    path = DATA / "unit_jinja2.json"
    texts = {c["name"]: comparison.check(c["name"], c["template"], c["context"]) for c in unit}
    language_path = DATA / "language.json"
    language = json.loads(language_path.read_text())
    wrong = 0
    for case in language["cases"]:
        text = comparison.check(case["template"], case["template"], language["context"])
        if not write and (text is None) != ("text" not in case) or (text is not None and not write and text != case["text"]):
            wrong += 1
            print(f"language.json: {case['template']!r} is {text!r} to jinja2", file=sys.stderr)
        case.pop("text", None)
        if text is not None:
            case["text"] = text
    if write:
        path.write_text(json.dumps(texts, indent=1, ensure_ascii=False) + "\n")
        lines = ",\n".join(json.dumps(c, ensure_ascii=False) for c in language["cases"])
        context = json.dumps(language["context"], ensure_ascii=False)
        language_path.write_text(f'{{"context": {context}, "cases": [\n{lines}\n]}}\n')
    elif texts != json.loads(path.read_text()):
        wrong += 1
        print("unit_jinja2.json is not what jinja2 says", file=sys.stderr)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--render", required=True)
    parser.add_argument("--templates", action="append", default=[])
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--programs", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()

    warnings.simplefilter("ignore", SyntaxWarning)  # of the Python code that jinja2 makes
    relay = Relay(args.render)
    comparison = Comparison(relay)
    wrong = small_cases(comparison, args.write)
    templates = {c["name"]: c["chat_template"] for c in json.loads((DATA / "rendered.json").read_text())}
    for folder in [DATA, *map(pathlib.Path, args.templates)]:
        templates.update({p.stem: p.read_text() for p in sorted(folder.glob("*.jinja"))})
    for i in range(args.conversations):
        context = make_context(random.Random(args.seed * 1000003 + i))
        for name, template in templates.items():
            comparison.check(f"{name}, conversation {i}", template, context)
    for i in range(args.programs):
        template = make_program(random.Random(f"{args.seed}/{i}"))
        comparison.check(f"program {i} {template!r}", template, VALUES)
    wrong += relay.close() != 0
    print(
        f"{len(templates)} templates, {args.conversations} conversations, {args.programs} programs: {comparison.same} the same"
        f" ({comparison.errors} errors on both sides), {comparison.different + wrong} different"
    )
    return 1 if comparison.different or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
