"""Rewrites source so that every write that could reach another package goes through the tracer; lines stay as they are.

`X.a = v` becomes `__unpatch__.set(v, X, "a", line)`, likewise deletions, entries, `setattr` and the methods that change
containers. What such a call does when it runs is `trace`'s business. `self.a = v` is left alone: it writes to an instance.
"""

from __future__ import annotations

import ast
from typing import Any

#: What traced modules call; the name ends in underscores so that no class mangles it.
TRACER = "__unpatch__"
#: Counts up whenever the output changes: rewritten code is cached.
VERSION = 4

_CHANGES_MAPPING = ("update", "setdefault", "pop", "popitem", "clear", "move_to_end", "__setitem__", "__delitem__")
_CHANGES_ITEMS = ("append", "extend", "insert", "remove", "add", "discard", "appendleft")
_MUTATORS = frozenset(_CHANGES_MAPPING + _CHANGES_ITEMS)
_SETTERS = frozenset({"__setattr__", "__delattr__"})
_BUILTINS = frozenset({"setattr", "delattr"})
_REGISTERING = frozenset({"pickle", "signal"})
_REGISTERING_PREFIXES = ("register", "set", "add_")
#: Decorators whose functions are compiled from their bytecode by somebody else.
_COMPILED = frozenset({"njit", "vectorize", "guvectorize", "jit"})


def rewrite(source: str, file: str) -> ast.Module | None:
    """The rewritten module; None where nothing is to be traced. Raises SyntaxError as Python does."""
    tree = ast.parse(source, file)
    rewriter = _Rewriter()
    rewriter.visit(tree)
    return ast.fix_missing_locations(tree) if rewriter.sites else None


class _Rewriter(ast.NodeTransformer):
    def __init__(self) -> None:
        self.sites = 0
        self._classes: list[str] = []
        self._temporaries = 0

    # -------------------------------------------------------------------------------------- scopes
    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._classes.append(node.name)
        self.generic_visit(node)
        self._classes.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if any(_last_name(decorator) in _COMPILED for decorator in node.decorator_list):
            return node
        return self.generic_visit(node)

    # -------------------------------------------------------------------------------------- statements
    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        if not any(map(self._traced_in, node.targets)):
            return node
        if len(node.targets) == 1 and self._traced(node.targets[0]):
            return self._store(node.targets[0], node.value)
        return self._unpacked(node.targets, node.value, node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        self.generic_visit(node)
        if node.value is None or not self._traced(node.target):
            return node
        # The annotation is evaluated after the store, or not at all: that is left to Python.
        owner = self._temporary()
        annotated = ast.copy_location(ast.Attribute(_load(owner), "_", ast.Store()), node.target)
        return [
            self._store(node.target, node.value),
            _assign(owner, ast.Constant(None), node),
            ast.copy_location(ast.AnnAssign(annotated, node.annotation, None, 0), node),
            _forget([owner], node),
        ]

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        target = node.target
        if not self._traced(target):
            return node
        assert isinstance(target, ast.Attribute | ast.Subscript)
        owner, result = self._temporary(), self._temporary()
        before = [_assign(owner, target.value, node)]
        if isinstance(target, ast.Attribute):
            read: ast.expr = ast.Attribute(_load(owner), target.attr, ast.Load())
            write: ast.expr = ast.Attribute(_load(owner), target.attr, ast.Store())
            used = [owner, result]
        else:
            key = self._temporary()
            before.append(_assign(key, target.slice, node))
            read = ast.Subscript(_load(owner), _load(key), ast.Load())
            write = ast.Subscript(_load(owner), _load(key), ast.Store())
            used = [owner, key, result]
        ast.copy_location(write, target)
        changed = ast.AugAssign(ast.Name(result, ast.Store()), node.op, node.value)
        # Of a class's own attribute, the name is already mangled by Python itself in `read`.
        return [
            *before,
            _assign(result, read, node),
            ast.copy_location(changed, node),
            self._store(write, _load(result)),
            _forget(used, node),
        ]

    def visit_Delete(self, node: ast.Delete) -> Any:
        self.generic_visit(node)
        if not any(map(self._traced, node.targets)):
            return node
        return [
            self._deletion(target) if self._traced(target) else ast.copy_location(ast.Delete([target]), node)
            for target in node.targets
        ]

    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        if self._traced_in(node.target):
            name = self._temporary()
            node.body = [*self._unpacked([node.target], _load(name), node), _forget([name], node), *node.body]
            node.target = ast.copy_location(ast.Name(name, ast.Store()), node.target)
        return node

    def visit_With(self, node: ast.With) -> Any:
        self.generic_visit(node)
        before: list[list[ast.stmt]] = []
        for item in node.items:
            if item.optional_vars is not None and self._traced_in(item.optional_vars):
                name = self._temporary()
                stored = [*self._unpacked([item.optional_vars], _load(name), node), _forget([name], node)]
                before.append(stored)
                item.optional_vars = ast.copy_location(ast.Name(name, ast.Store()), item.optional_vars)
        node.body = [*(statement for stored in before for statement in stored), *node.body]
        return node

    # -------------------------------------------------------------------------------------- calls
    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        name = _last_name(node.func)
        if isinstance(node.func, ast.Attribute) and name in _MUTATORS | _SETTERS:
            node.func = self._call("method" if name in _MUTATORS else "setter", [node.func], node.func)
        elif isinstance(node.func, ast.Name) and name in _BUILTINS:
            node.func = self._call("setter", [node.func], node.func)
        elif name.lstrip("_").startswith(_REGISTERING_PREFIXES) or name in _REGISTERING:
            node.func = self._call("registering", [node.func], node.func)
            node.args = [
                arg if isinstance(arg, ast.Starred | ast.Constant) else self._call("note", [arg], arg)
                for arg in node.args
            ]
            for keyword in node.keywords:
                if keyword.arg is not None and not isinstance(keyword.value, ast.Constant):
                    keyword.value = self._call("note", [keyword.value], keyword.value)
        return node

    # -------------------------------------------------------------------------------------- pieces
    def _traced(self, target: ast.expr) -> bool:
        if isinstance(target, ast.Attribute):
            return not (isinstance(target.value, ast.Name) and target.value.id == "self")
        return isinstance(target, ast.Subscript) and not _is_slice(target.slice)

    def _traced_in(self, target: ast.expr) -> bool:
        if isinstance(target, ast.Tuple | ast.List):
            return any(map(self._traced_in, target.elts))
        return self._traced_in(target.value) if isinstance(target, ast.Starred) else self._traced(target)

    def _unpacked(self, targets: list[ast.expr], value: ast.expr, at: ast.AST) -> list[ast.stmt]:
        """Assignments to names, and then from these to what is traced."""
        whole = self._temporary()
        made = [whole]
        before: list[ast.stmt] = [_assign(whole, value, at)]
        for target in targets:
            after: list[ast.stmt] = []
            if self._traced(target):
                after.append(self._store(target, _load(whole)))
            elif self._traced_in(target):
                named = self._named(target, after, made)
                before.append(ast.copy_location(ast.Assign([named], _load(whole)), at))
            else:
                before.append(ast.copy_location(ast.Assign([target], _load(whole)), at))
            before += after
        return [*before, _forget(made, at)]

    def _named(self, target: ast.expr, after: list[ast.stmt], made: list[str]) -> ast.expr:
        """`target` with a name in the place of each part; the stores to the parts go to `after`, in Python's order.

        Also for parts that are not traced: `node.next, node = …` stores to the old node.
        """
        if isinstance(target, ast.Tuple | ast.List):
            target.elts = [self._named(item, after, made) for item in target.elts]
            return target
        if isinstance(target, ast.Starred):
            target.value = self._named(target.value, after, made)
            return target
        name = self._temporary()
        made.append(name)
        if self._traced(target):
            after.append(self._store(target, _load(name)))
        else:
            after.append(ast.copy_location(ast.Assign([target], _load(name)), target))
        return ast.copy_location(ast.Name(name, ast.Store()), target)

    def _store(self, target: ast.expr, value: ast.expr) -> ast.stmt:
        if isinstance(target, ast.Attribute):
            return self._statement("set", [value, target.value, ast.Constant(self._mangled(target.attr))], target)
        assert isinstance(target, ast.Subscript)
        return self._statement("set_item", [value, target.value, target.slice], target)

    def _deletion(self, target: ast.expr) -> ast.stmt:
        if isinstance(target, ast.Attribute):
            return self._statement("delete", [target.value, ast.Constant(self._mangled(target.attr))], target)
        assert isinstance(target, ast.Subscript)
        return self._statement("delete_item", [target.value, target.slice], target)

    def _statement(self, method: str, arguments: list[ast.expr], at: ast.expr) -> ast.stmt:
        return ast.copy_location(ast.Expr(self._call(method, arguments, at)), at)

    def _call(self, method: str, arguments: list[ast.expr], at: ast.expr) -> ast.Call:
        self.sites += 1
        function = ast.Attribute(ast.Name(TRACER, ast.Load()), method, ast.Load())
        return ast.copy_location(ast.Call(function, [*arguments, ast.Constant(at.lineno)], []), at)

    def _mangled(self, name: str) -> str:
        if self._classes and name.startswith("__") and not name.endswith("__"):
            owner = self._classes[-1].lstrip("_")
            return f"_{owner}{name}" if owner else name
        return name

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"__unpatch_{self._temporaries}__"


def _assign(name: str, value: ast.expr, at: ast.AST) -> ast.stmt:
    return ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), at)


def _forget(names: list[str], at: ast.AST) -> ast.stmt:
    return ast.copy_location(ast.Delete([ast.Name(name, ast.Del()) for name in names]), at)


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _is_slice(index: ast.expr) -> bool:
    """An index that no mapping has."""
    return isinstance(index, ast.Slice) or (isinstance(index, ast.Tuple) and any(map(_is_slice, index.elts)))


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
