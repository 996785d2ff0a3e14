"""The names that a piece of syntax reads from its module, and what import statements bind.

    def work(config, output):
        from pack.lazy import late              late -> ("pack.lazy", "late")
        return late(LIMIT, math.pi)             reads ("LIMIT",) and ("math", "pi") of its module

Scopes are Python's: parameters, local variables and comprehension variables hide module-level names; the names of a
class body are not seen by its methods. Annotations are not read. Invariant: a name that may be bound in several ways
(`try: from a import f`, `except ImportError: from b import f`) stands for all of them.
"""

import ast
from typing import Any

Import = tuple[str, str]
"""Where a name comes from: (module, attribute); the attribute is empty for the module itself."""

Bound = dict[str, tuple[Import, ...]]
"""Names of a scope, and the imports that bind each (none for a plain variable)."""


def imported(node: ast.Import | ast.ImportFrom, package: str) -> list[tuple[str, Import]]:
    """Names that an import statement binds, and what they stand for."""
    if isinstance(node, ast.Import):
        return [
            (alias.asname, (alias.name, ""))
            if alias.asname
            else (alias.name.split(".")[0], (alias.name.split(".")[0], ""))
            for alias in node.names
        ]
    module = node.module or ""
    if node.level:
        parts = package.split(".")
        base = ".".join(parts[: len(parts) - node.level + 1])
        module = f"{base}.{module}" if module else base
    return [(alias.asname or alias.name, (module, alias.name)) for alias in node.names]


class References(ast.NodeVisitor):
    """The names that a statement reads from its module, and what it imports inside functions."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.globals: set[tuple[str, ...]] = set()
        self.imports: set[tuple[Import, tuple[str, ...]]] = set()
        self._scopes: list[Bound] = []

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._use(node.id, ())

    def visit_Attribute(self, node: ast.Attribute) -> None:
        names = [node.attr]
        base = node.value
        while isinstance(base, ast.Attribute):
            names.insert(0, base.attr)
            base = base.value
        if isinstance(base, ast.Name):
            self._use(base.id, tuple(names))
        else:
            self.visit(base)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for item in (*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
            self.visit(item)
        self._scope(dict.fromkeys(_parameters(node.args), ()) | _bound(node.body, self.package), node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for item in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
            self.visit(item)
        self._scope(dict.fromkeys(_parameters(node.args), ()), [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for item in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(item)
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        for item in node.body:  # the names of a class body are not seen by its methods
            if isinstance(item, functions):
                self.visit(item)
        self._scope(_bound(node.body, self.package), [item for item in node.body if not isinstance(item, functions)])

    def _comprehension(self, node: Any) -> None:
        self.visit(node.generators[0].iter)
        bound = {part.id for g in node.generators for part in ast.walk(g.target) if isinstance(part, ast.Name)}
        rest = [part for g in node.generators for part in g.ifs] + [g.iter for g in node.generators[1:]]
        inner = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._scope(dict.fromkeys(bound, ()), [*rest, *inner])

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._use(node.target.id, ())
        else:
            self.visit(node.target)
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)

    def _scope(self, bound: Bound, body: list[Any]) -> None:
        self._scopes.append(bound)
        for item in body:
            self.visit(item)
        self._scopes.pop()

    def _use(self, name: str, attributes: tuple[str, ...]) -> None:
        for scope in reversed(self._scopes):
            if name in scope:
                self.imports.update((found, attributes) for found in scope[name])
                return
        self.globals.add((name, *attributes))


def _parameters(arguments: ast.arguments) -> list[str]:
    found = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    found += [item for item in (arguments.vararg, arguments.kwarg) if item is not None]
    return [item.arg for item in found]


def _bound(body: list[ast.stmt], package: str) -> Bound:
    """Names that a function's body binds, not looking into the functions and classes in it."""
    bound: dict[str, list[Import]] = {}
    outer: set[str] = set()
    stack: list[ast.AST] = list(reversed(body))
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name, found in imported(node, package):
                bound.setdefault(name, []).append(found)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.setdefault(node.name, [])
        elif isinstance(node, ast.Lambda):
            continue
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            for name in walrus_targets(node):
                bound.setdefault(name, [])
        elif isinstance(node, ast.Global | ast.Nonlocal):
            outer.update(node.names)
        else:
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                bound.setdefault(node.id, [])
            elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
                bound.setdefault(node.name, [])
            elif isinstance(node, ast.MatchMapping) and node.rest:
                bound.setdefault(node.rest, [])
            stack.extend(ast.iter_child_nodes(node))
    return {name: tuple(found) for name, found in bound.items() if name not in outer}


def walrus_targets(node: ast.AST) -> list[str]:
    """Names that `name := value` binds anywhere in an expression, comprehensions included."""
    return [part.target.id for part in ast.walk(node) if isinstance(part, ast.NamedExpr)]
