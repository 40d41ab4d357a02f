"""Which statements of a function run only under a condition: the branches of a patch, found from its source.

A statement is conditional if some path from the function's entry to a normal exit leaves it out. That covers both arms
of an `if`, what follows a guard that returns, bodies of loops that may run no time, and exception handlers. A guard
that raises makes nothing after it conditional. Statements that do nothing of the patch's own are left out (`_idle`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard

Function = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

#: How patches name what they replaced: `original(f)`, `orig_forward`, `_original`, `self.type_raw`.
_ORIGINAL = re.compile(r"_*orig(inal)?(_\w*)?|\w+_(raw|orig|original)")


class Span(NamedTuple):
    """Where a statement's own text lies; of one that holds others (`if …:`), its head."""

    start: tuple[int, int]  #: line (from 1), column (bytes, from 0)
    end: tuple[int, int]  #: exclusive

    def holds(self, position: tuple[int, int]) -> bool:
        return self.start <= position < self.end

    def touches_line_of(self, other: Span) -> bool:
        return self.start[0] <= other.end[0] and other.start[0] <= self.end[0]


@dataclass(frozen=True)
class Branches:
    """The conditional statements of one function."""

    spans: tuple[Span, ...]
    #: Whether one of them shares a line with another statement, so that lines do not tell which ran.
    crowded: bool


def functions_by_position(source: str) -> dict[tuple[str, int], Function]:
    """Every function of a module, by what its code object knows: name and first line (that of the first decorator).

    Raises SyntaxError where `source` is not Python.
    """
    return {
        (node.name, _first_line(node)): node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def conditional_statements(function: Function, is_replacement: bool = True) -> Branches:
    """The conditional statements of `function` itself; functions and classes inside it are functions of their own.

    `is_replacement`: the function stands in for the original. In a helper a bare `return` is like falling off the end;
    in the replacement it keeps the original from being called.
    """
    statements = list(_own_statements(function.body))
    graph = _graph(function, endless_loops=True)
    if not graph.leads_out(without=None):
        # Every loop without an end has one after all (a generator that is closed, say).
        graph = _graph(function, endless_loops=False)
    reachable = graph.reachable()
    kept = [
        _span(statement)
        for statement in statements
        if id(statement) in reachable and graph.leads_out(without=statement) and not _idle(statement, is_replacement)
    ]
    spans = [_span(statement) for statement in statements]
    crowded = any(own.touches_line_of(other) for own in kept for other in spans if other != own)
    return Branches(tuple(kept), crowded)


# ------------------------------------------------------------------------------------------ statements
def _own_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if not isinstance(statement, _SCOPES):
            for block in _blocks(statement):
                yield from _own_statements(block)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The statement lists that `statement` holds, in the order of the source."""
    for _, value in ast.iter_fields(statement):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield value
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, ast.ExceptHandler | ast.match_case):
                    yield item.body


def _first_line(statement: ast.stmt) -> int:
    return min([statement.lineno, *(node.lineno for node in getattr(statement, "decorator_list", ()))])


def _span(statement: ast.stmt) -> Span:
    blocks = [*_blocks(statement)]
    if not blocks:
        end = (statement.end_lineno or statement.lineno, statement.end_col_offset or 0)
        return Span((statement.lineno, statement.col_offset), end)
    inside = (ast.stmt, ast.ExceptHandler, ast.match_case)
    header = [child for child in ast.iter_child_nodes(statement) if not isinstance(child, inside)]
    ends = [
        (node.end_lineno or 0, node.end_col_offset or 0)
        for child in header
        for node in ast.walk(child)
        if _placed(node)
    ]
    return Span(
        (_first_line(statement), statement.col_offset), max([(statement.lineno, statement.col_offset + 1), *ends])
    )


def _placed(node: ast.AST) -> TypeGuard[ast.expr]:
    return hasattr(node, "end_lineno")


def _idle(statement: ast.stmt, is_replacement: bool) -> bool:
    """Whether running `statement` does nothing of the patch's own."""
    match statement:
        case ast.Pass() | ast.Continue() | ast.Raise(exc=None) | ast.Expr(value=ast.Constant()):
            return True
        case ast.Global() | ast.Nonlocal() | ast.AnnAssign(value=None):
            return True  # no code at all
        case ast.Return(value=None):
            return not is_replacement
        case ast.Return(value=value) | ast.Expr(value=value) if value is not None:
            return _hands_on(value)
    return False


def _hands_on(value: ast.expr) -> bool:
    """Whether `value` only calls the original, with names as they are: nothing computed, converted or added."""
    if isinstance(value, ast.Await):
        value = value.value
    if not isinstance(value, ast.Call) or not _is_original(value.func):
        return False
    arguments = [*value.args, *(keyword.value for keyword in value.keywords)]
    plain = [argument.value if isinstance(argument, ast.Starred) else argument for argument in arguments]
    return all(isinstance(argument, ast.Name) for argument in plain)


def _is_original(function: ast.expr) -> bool:
    match function:
        case ast.Call(func=ast.Name(id="original") | ast.Attribute(attr="original")):
            return True  # original(replacement)(…)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _ORIGINAL.fullmatch(name) is not None
    return False


# ------------------------------------------------------------------------------------------ paths
_EXIT, _ERROR = -1, -2


@dataclass
class _Graph:
    """Nodes are numbered; a statement of a `finally` has one for each way into it."""

    statement: list[ast.stmt] = field(default_factory=list)
    after: list[list[int]] = field(default_factory=list)
    handlers: list[list[int]] = field(default_factory=list)  #: where an error raised in a `try` may lead
    entry: int = _EXIT

    def add(self, statement: ast.stmt) -> int:
        self.statement.append(statement)
        self.after.append([])
        self.handlers.append([])
        return len(self.statement) - 1

    def _walk(self, without: ast.stmt | None, handlers: bool) -> set[int]:
        seen: set[int] = set()
        waiting = [self.entry]
        while waiting:
            node = waiting.pop()
            if node in seen or (node >= 0 and self.statement[node] is without):
                continue
            seen.add(node)
            if node >= 0:
                waiting += self.after[node] + (self.handlers[node] if handlers else [])
        return seen

    def reachable(self) -> set[int]:
        """Identities of the statements that can run at all, be it by an error."""
        return {id(self.statement[node]) for node in self._walk(None, handlers=True) if node >= 0}

    def leads_out(self, without: ast.stmt | None) -> bool:
        """Whether a path that leaves out `without` ends normally (if no path does: whether it ends by an error)."""
        goal = _EXIT if _EXIT in self._walk(None, handlers=False) else _ERROR
        return goal in self._walk(without, handlers=False)


@dataclass(frozen=True)
class _Jumps:
    """Where the statements that leave a block lead."""

    returns: int
    raises: int
    breaks: int = _ERROR
    continues: int = _ERROR


def _graph(function: Function, endless_loops: bool) -> _Graph:
    graph = _Graph()
    builder = _Builder(graph, endless_loops)
    graph.entry = builder.block(function.body, _EXIT, _Jumps(_EXIT, _ERROR))
    return graph


@dataclass(frozen=True)
class _Builder:
    graph: _Graph
    endless_loops: bool

    def block(self, body: list[ast.stmt], follow: int, jumps: _Jumps) -> int:
        """Add `body`, after which `follow` comes; returns its first node."""
        for statement in reversed(body):
            follow = self._add(statement, follow, jumps)
        return follow

    def _add(self, statement: ast.stmt, follow: int, jumps: _Jumps) -> int:
        if isinstance(statement, ast.Try | ast.TryStar):
            return self._add_try(statement, follow, jumps)
        node = self.graph.add(statement)
        after = self.graph.after[node]
        match statement:
            case ast.Return():
                after.append(jumps.returns)
            case ast.Raise():
                after.append(jumps.raises)
            case ast.Break():
                after.append(jumps.breaks)
            case ast.Continue():
                after.append(jumps.continues)
            case ast.If(body=body, orelse=orelse):
                after += [self.block(body, follow, jumps), self.block(orelse, follow, jumps)]
            case ast.With(body=body) | ast.AsyncWith(body=body):
                after.append(self.block(body, follow, jumps))
            case ast.Match(cases=cases):
                after += [self.block(case.body, follow, jumps) for case in cases]
                if not _is_wildcard(cases[-1]):
                    after.append(follow)
            case ast.For(body=body, orelse=orelse) | ast.AsyncFor(body=body, orelse=orelse):
                after += self._loop(node, body, orelse, follow, jumps)
            case ast.While(body=body, orelse=orelse, test=test):
                ways = self._loop(node, body, orelse, follow, jumps)
                endless = self.endless_loops and isinstance(test, ast.Constant) and bool(test.value)
                after += ways[:1] if endless else ways
            case _:
                after.append(follow)
        return node

    def _loop(self, node: int, body: list[ast.stmt], orelse: list[ast.stmt], follow: int, jumps: _Jumps) -> list[int]:
        inside = _Jumps(jumps.returns, jumps.raises, breaks=follow, continues=node)
        return [self.block(body, node, inside), self.block(orelse, follow, jumps)]

    def _add_try(self, statement: ast.Try | ast.TryStar, follow: int, jumps: _Jumps) -> int:
        """An error may come from any statement of the body, yet the body is what runs when nothing is amiss.

        So the ways into the handlers count for what can run, not for what a normal path leaves out.
        """
        final = statement.finalbody
        if final:
            follow = self.block(final, follow, jumps)
            ways = {way: self.block(final, way, jumps) for way in {*vars(jumps).values()}}
            jumps = _Jumps(**{name: ways[way] for name, way in vars(jumps).items()})
        handlers = [self.block(handler.body, follow, jumps) for handler in statement.handlers]
        start, caught = self.graph.add(statement), self.graph.add(statement)
        self.graph.after[caught] += [*handlers, jumps.raises]  # a `raise` in the body is a way of its own
        body_jumps = _Jumps(jumps.returns, caught, jumps.breaks, jumps.continues)
        otherwise = self.block(statement.orelse, follow, jumps)
        self.graph.after[start].append(self.block(statement.body, otherwise, body_jumps))
        self.graph.handlers[start] += [*handlers, jumps.raises]
        return start


def _is_wildcard(case: ast.match_case) -> bool:
    return case.guard is None and isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
