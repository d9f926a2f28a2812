#!/usr/bin/env python3
"""Writes the reference of the task API from its sources: python.md from the docstrings of `sluice`, cpp.md from the comments of the headers.

  tools/api-reference.py docs/reference

python/tests/test_reference.py compares the committed pages. Both languages are read as text, so nothing has to be built or imported.
"""

import ast
import pathlib
import re
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
PYTHON, HEADERS = REPOSITORY / "python" / "sluice", REPOSITORY / "hook" / "include" / "sluice"
NOTE = "<!-- Made by tools/api-reference.py: change the sources and run it again. -->\n"


def prose(text):
    """A docstring or comment as Markdown: examples become code."""
    lines, inside = [], False
    for line in (text or "").strip().splitlines():
        starts = line.startswith(">>>")
        if starts and not inside:
            lines.append("```python")
        elif inside and not line.strip():
            lines.append("```")
        inside = (inside or starts) and bool(line.strip())
        lines.append(line)
    return "\n".join([*lines, *["```"] * inside]) + "\n"


def signature(function, name, skip_self):
    """A call as Python writes it."""
    arguments = ast.parse(ast.unparse(function)).body[0].args
    if skip_self:
        (arguments.posonlyargs or arguments.args).pop(0)
    result = f" -> {ast.unparse(function.returns)}" if function.returns and function.name != "__init__" else ""
    return f"{'async ' * isinstance(function, ast.AsyncFunctionDef)}{name}({ast.unparse(arguments)}){result}"


def is_decorated(function, name):
    """Whether a function has this decorator, from whichever module."""
    return any(getattr(each, "id", getattr(each, "attr", None)) == name for each in function.decorator_list)


def python_call(function, name, skip_self):
    """The signature and the description of a function or method."""
    text = f"```python\n{signature(function, name, skip_self)}\n```\n\n"
    if is_decorated(function, "contextmanager"):
        text = f"```python\nwith {signature(function, name, skip_self).partition(' -> ')[0]}: ...\n```\n\nA context manager. "
    return f"{text}{'A class method. ' * is_decorated(function, 'classmethod')}{prose(ast.get_docstring(function))}"


def described_fields(node, source):
    """The fields of a dataclass and the members of an enumeration, with the comment above each."""
    for each in node.body:
        if isinstance(each, (ast.AnnAssign, ast.Assign)):
            above, line = [], each.lineno - 2
            while source[line].strip().startswith("#:"):
                above.insert(0, source[line].strip()[2:].strip())
                line -= 1
            yield ast.unparse(each), " ".join(above)


def python_class(name, node, source):
    """A class with its public methods."""
    functions = {each.name: each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}
    bases = f"({', '.join(map(ast.unparse, node.bases))})" if node.bases else ""
    yield f"## class `{name}{bases}`\n\n{prose(ast.get_docstring(node))}"
    for number, (text, comment) in enumerate(described_fields(node, source)):
        yield "\n" * (number == 0) + f"* `{name}.{text}`{f': {comment}' if comment else ''}\n"
    # A task is made by a decorator, and an error by the package.
    if "__init__" in functions and name == "GPUScheduler":
        yield f"\n```python\n{signature(functions['__init__'], name, True)}\n```\n"
    for method, function in functions.items():
        if not method.startswith("_"):
            yield f"\n### `{name}.{method}`\n\n{python_call(function, f'{name}.{method}', True)}"


def python_page():
    """All names of `sluice.__all__`."""
    package = ast.parse((PYTHON / "__init__.py").read_text())
    modules = {alias.name: each.module.rpartition(".")[2] for each in package.body if isinstance(each, ast.ImportFrom) for alias in each.names}
    parts = [f"{NOTE}\n# Python package `sluice`\n\n{prose(ast.get_docstring(package))}\nThe guide is [the task API](python-api.md).\n"]
    for name, module in sorted(modules.items(), key=lambda item: item[0].lower()):
        text = (PYTHON / f"{module}.py").read_text()
        node = next(each for each in ast.parse(text).body if getattr(each, "name", None) == name)
        if isinstance(node, ast.ClassDef):
            parts.append("".join(python_class(name, node, text.splitlines())))
        else:
            parts.append(f"## `{name}`\n\n{python_call(node, name, False)}")
    return "\n".join(parts)


def braced(text, begin):
    """The position behind the bracket that closes the one at `begin`."""
    depth = 0
    for position in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position + 1
    raise ValueError("a bracket is not closed")


def items(text):
    """(comment, declaration, body) of each declaration in C++; labels such as `public:` are declarations too."""
    position, comment = 0, ""
    while True:
        position = re.compile(r"\s*").match(text, position).end()
        if position == len(text):
            return
        if found := re.compile(r"/\*(.*?)\*/|//[^\n]*|#(?:[^\n]*\\\n)*[^\n]*", re.S).match(text, position):
            comment, position = found[1] or "", found.end()
            continue
        if found := re.compile(r"(public|private|protected):").match(text, position):
            yield "", found[0], None
            position = found.end()
            continue
        end, depth = position, 0
        while not (depth == 0 and text[end] in ";{"):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        head, body = text[position:end], None
        if text[end] == "{" and re.search(r"\w(\[\d*\])?$| =\s*$", head) and not re.match(r"(template <.*?> )?(class|struct|enum|namespace)\b", head) and not head.endswith("const"):
            # A member with a value in brackets.
            end = text.index(";", braced(text, end))
            head = re.sub(r"( = )?\{[^}]*\}", "", text[position:end])
        elif text[end] == "{":
            stop = braced(text, end)
            body, end = text[end + 1:stop - 1], stop - 1
        position = end + 1
        if body is not None and (found := re.compile(r"\s*;").match(text, position)):
            position = found.end()
        if found := re.compile(r"[ \t]*/\*(.*?)\*/").match(text, position):
            comment, position = found[1], found.end()
        yield re.sub(r"\n \* ?|\n\s+", "\n", comment).strip(), re.sub(r"\s+", " ", head).strip(), body
        comment = ""


def cpp_members(is_public, body):
    """The public declarations in a class."""
    for comment, head, inner in items(body):
        if head.endswith(":"):
            is_public = head == "public:"
        elif is_public and not re.search(r"= delete|^friend|^static_assert", head) and (comment or not head.startswith("~")):
            call = re.sub(r"\) : .*", ")", head)
            if comment or not re.match(r"[A-Z]\w*\(", call):
                yield f"* `{call}`{f': {comment}' if comment else ''}\n".replace("\n", " ").rstrip() + "\n"


def cpp_page():
    """What the namespace `sluice` has for programs."""
    parts = [f"{NOTE}\n# C++: `sluice/scheduler.hpp`\n"]
    for name in ("scheduler.hpp", "task_queue.hpp", "gpu_streams.hpp"):
        text = (HEADERS / name).read_text()
        if name == "scheduler.hpp":
            parts.append(prose(re.sub(r"\n \* ?", "\n", text[2:text.index("*/")])).replace("  c++", "    c++") + "\nThe guide is [the task API](python-api.md#c).\n")
        for _, space, body in items(text):
            if space != "namespace sluice":
                continue
            for comment, head, inner in items(body):
                if head.startswith("namespace") or inner is None and not head.startswith("using"):
                    continue
                parts.append(f"## `{head}`\n\n{prose(comment)}" if comment else f"## `{head}`\n")
                if head.startswith("enum"):
                    parts.append(f"```cpp\n{re.sub(r'(?m)^ +', '', inner).strip()}\n```\n")
                elif inner is not None:
                    parts.append("".join(cpp_members(head.startswith("struct"), inner)))
    return "\n".join(filter(str.strip, parts))


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    (folder / "python.md").write_text(python_page())
    (folder / "cpp.md").write_text(cpp_page())
