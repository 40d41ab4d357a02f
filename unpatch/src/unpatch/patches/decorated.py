"""Which packages a function was decorated from where it is defined, as its own source says.

`functools.wraps` makes a decorator's wrapper and a stranger's look the same: module and name are those of the function. The
source of the definition tells them apart.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from types import CodeType


def decorated_from(code: CodeType, names: Mapping[str, object]) -> list[str]:
    """The top-level packages of the decorators of a definition, the outermost first; none where it cannot be read.

    Args:
        code: of the function that is decorated.
        names: the globals of its module.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):
        return []
    definition = tree.body[0] if tree.body else None
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        return []
    return list(filter(None, (_package(decorator, names) for decorator in definition.decorator_list)))


def _package(decorator: ast.expr, names: Mapping[str, object]) -> str:
    """Where a decorator comes from; empty where that is not known."""
    path = list(_path(decorator))
    if not path:
        return ""
    value = names.get(path[0])
    for name in path[1:]:
        value = inspect.getattr_static(value, name, None)
    module = getattr(value, "__module__", None)
    return module.partition(".")[0] if isinstance(module, str) else ""


def _path(expression: ast.expr) -> Iterator[str]:
    """`a`, `b` of `@a.b`, `@a.b(…)` and `@a.b(…)(…)`; nothing for another expression."""
    while isinstance(expression, ast.Call):
        expression = expression.func
    if isinstance(expression, ast.Name):
        yield expression.id
    elif isinstance(expression, ast.Attribute) and (before := list(_path(expression.value))):
        yield from (*before, expression.attr)
