"""One source file as units of code: what each defines, a fingerprint of its syntax, and the names it reads.

A unit is a function, a method, the rest of a class, or the statements that bind a constant. Its fingerprint is over
the normalised syntax tree: no comments, docstrings, formatting or annotations, and no fields of dataclasses.
Nothing is imported or run: modules that would take seconds to import are only parsed.
"""

import ast
import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

Import = tuple[str, str]
"""Where a name comes from: (module, attribute); the attribute is empty for the module itself."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unit:
    """One piece of code.

    Attributes:
        name: qualified within the module (`Class.method`).
        print: fingerprint of the normalised syntax.
        lines: first and last line of each statement, from 1.
        globals: module-level names read, with the attributes read from them (`("np", "sum")`).
        imports: names imported inside the function, with the attributes read from them.
    """

    name: str
    print: str
    lines: tuple[tuple[int, int], ...]
    globals: tuple[tuple[str, ...], ...]
    imports: tuple[tuple[Import, tuple[str, ...]], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModuleCode:
    """Module-level names of a file: units by the name that reaches them, imports, star imports, and pinned names."""

    units: dict[str, tuple[Unit, ...]]
    imports: dict[str, tuple[Import, ...]]
    stars: tuple[str, ...]
    pins: dict[str, str]


def parse_module(text: str, module: str, is_package: bool) -> ModuleCode:
    """Split a file's source into units."""
    package = module if is_package else module.rpartition(".")[0]
    reader = _ModuleReader(package)
    reader.read(ast.parse(text).body)
    units: dict[str, tuple[Unit, ...]] = {}
    for name, nodes in reader.definitions.items():
        found: list[Unit] = []
        for node in nodes:
            found += _class_units(node, package) if isinstance(node, ast.ClassDef) else []
        plain = [node for node in nodes if not isinstance(node, ast.ClassDef)]
        if plain:
            found.append(_unit(name, plain, package))
        units[name] = tuple(found)
    return ModuleCode(
        units=units,
        imports={name: tuple(found) for name, found in reader.imports.items()},
        stars=tuple(reader.stars),
        pins={name: pin for name, nodes in reader.definitions.items() if (pin := _pin(nodes[-1], reader))},
    )


def source_of(path: Path, unit: Unit) -> str:
    """The unit's text as it stands in the file."""
    lines = path.read_text().splitlines()
    return "\n".join("\n".join(lines[first - 1 : last]) for first, last in unit.lines)


def _pin(node: ast.stmt, reader: "_ModuleReader") -> str:
    """The name that `@identity("name")` gives a function or class; read from the text, as nothing is imported here."""
    for decorator in getattr(node, "decorator_list", []):
        match decorator:
            case ast.Call(func=ast.Name(id=called), args=[ast.Constant(value=str(name))]):
                found = [*reader.imports.get(called, ()), *((star, called) for star in reader.stars)]
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=module), attr=called), args=[ast.Constant(value=str(name))]
            ):
                found = [(target, called) for target, attribute in reader.imports.get(module, ()) if not attribute]
            case _:
                continue
        if any(target in (("executor", "identity"), ("executor.names", "identity")) for target in found):
            return name
    return ""


class _ModuleReader:
    """Collects what binds each module-level name."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, list[Import]] = {}
        self.stars: list[str] = []

    def read(self, body: list[ast.stmt], whole: ast.stmt | None = None) -> None:
        for node in body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                for name, found in imported(node, self.package):
                    if name == "*":
                        self.stars.append(found[0])
                    else:
                        self.imports.setdefault(name, []).append(found)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._define(node.name, whole or node)
            elif isinstance(node, ast.If) and _is_type_checking(node.test):
                self.read(node.orelse, whole)
            elif isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
                for name in ("body", "orelse", "finalbody"):
                    self.read(getattr(node, name, []), whole or node)
                for handler in getattr(node, "handlers", []):
                    self.read(handler.body, whole or node)
                for target in _targets(node):
                    self._define(target, whole or node)
            elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                for target in _targets(node):
                    self._define(target, whole or node)

    def _define(self, name: str, node: ast.stmt) -> None:
        nodes = self.definitions.setdefault(name, [])
        if node not in nodes:
            nodes.append(node)


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


def _is_type_checking(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Name | ast.Attribute) and getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"
    )


def _targets(node: ast.stmt) -> list[str]:
    """Names that a statement binds or changes: `A = ...`, `A["x"] = ...`, `A.update(...)`."""
    if isinstance(node, ast.Assign):
        roots: list[ast.expr] = list(node.targets)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For):
        roots = [node.target]
    elif isinstance(node, ast.With):
        roots = [item.optional_vars for item in node.items if item.optional_vars is not None]
    elif isinstance(node, ast.TypeAlias):
        return []
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        roots = [node.value.func] if isinstance(node.value.func, ast.Attribute) else []
    else:
        return []
    names = []
    for root in roots:
        for part in ast.walk(root) if isinstance(root, ast.Tuple | ast.List) else [root]:
            while isinstance(part, ast.Attribute | ast.Subscript | ast.Starred):
                part = part.value
            if isinstance(part, ast.Name):
                names.append(part.id)
    return names


def _class_units(node: ast.ClassDef, package: str) -> list[Unit]:
    """A class as one unit for each method and one for the rest."""
    is_dataclass = any("dataclass" in ast.dump(decorator) for decorator in node.decorator_list)
    rest: list[ast.stmt] = []
    units = []
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            units.append(_unit(f"{node.name}.{item.name}", [item], package))
        elif is_dataclass and isinstance(item, ast.AnnAssign) and "ClassVar" not in ast.dump(item.annotation):
            continue
        else:
            rest.append(item)
    shell = ast.ClassDef(
        name=node.name,
        bases=node.bases,
        keywords=node.keywords,
        body=rest,
        decorator_list=node.decorator_list,
        type_params=[],
    )
    last = max([node.lineno, *(item.end_lineno or 0 for item in rest)])
    if units:
        methods = [item.lineno for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
        last = min(last, min(methods) - 1) if rest == [] or rest[-1].lineno < min(methods) else last
    else:
        last = node.end_lineno or last
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    by_name: dict[str, list[Unit]] = {}
    for unit in units:
        by_name.setdefault(unit.name, []).append(unit)
    merged = [_merge(found) for found in by_name.values()]
    return [dataclasses.replace(_unit(node.name, [shell], package, located=False), lines=((first, last),)), *merged]


def _merge(units: list[Unit]) -> Unit:
    """Several definitions of one name (a property and its setter) as one unit."""
    if len(units) == 1:
        return units[0]
    return Unit(
        name=units[0].name,
        print=_digest([unit.print for unit in units]),
        lines=tuple(line for unit in units for line in unit.lines),
        globals=tuple(name for unit in units for name in unit.globals),
        imports=tuple(name for unit in units for name in unit.imports),
    )


def _unit(name: str, nodes: list[ast.stmt], package: str, *, located: bool = True) -> Unit:
    references = _References(package)
    for node in nodes:
        references.visit(node)
    lines = []
    for node in nodes if located else []:
        decorators = getattr(node, "decorator_list", [])
        lines.append((min([node.lineno, *(d.lineno for d in decorators)]), node.end_lineno or node.lineno))
    return Unit(
        name=name,
        print=_digest([_shape(node) for node in nodes]),
        lines=tuple(lines),
        globals=tuple(sorted(references.globals)),
        imports=tuple(sorted(references.imports)),
    )


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()[:32]


_DROPPED = frozenset({"annotation", "returns", "ctx", "type_comment", "kind", "type_params", "simple"})


def _shape(node: Any) -> Any:
    """The syntax tree as nested lists, stable over Python versions: empty fields are left out."""
    if isinstance(node, ast.Constant):
        return ["Constant", type(node.value).__name__, repr(node.value)]
    if isinstance(node, ast.AnnAssign):
        if node.value is None:
            return ["Pass"]
        return ["Assign", ["targets", [_shape(node.target)]], ["value", _shape(node.value)]]
    shape: list[Any] = [type(node).__name__]
    for name in node._fields:
        if name in _DROPPED:
            continue
        value = getattr(node, name, None)
        if isinstance(value, list):
            value = [_shape(item) if isinstance(item, ast.AST) else item for item in value if not _is_remark(item)]
        elif isinstance(value, ast.AST):
            value = _shape(value)
        if value not in (None, []):
            shape.append([name, value])
    return shape


def _is_remark(node: Any) -> bool:
    """Docstrings, other strings standing alone, and `pass`: they do nothing."""
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


class _References(ast.NodeVisitor):
    """The names that a statement reads from its module, and what it imports inside functions."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.globals: set[tuple[str, ...]] = set()
        self.imports: set[tuple[Import, tuple[str, ...]]] = set()
        self._scopes: list[dict[str, Import | None]] = []

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
        self._scope(_bound(node.body, self.package) | dict.fromkeys(_parameters(node.args)), node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for item in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
            self.visit(item)
        self._scope(dict.fromkeys(_parameters(node.args)), [node.body])

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
        self._scope(dict.fromkeys(bound), [*rest, *inner])

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)

    def _scope(self, bound: dict[str, Import | None], body: list[Any]) -> None:
        self._scopes.append(bound)
        for item in body:
            self.visit(item)
        self._scopes.pop()

    def _use(self, name: str, attributes: tuple[str, ...]) -> None:
        for scope in reversed(self._scopes):
            if name in scope:
                found = scope[name]
                if found is not None:
                    self.imports.add((found, attributes))
                return
        self.globals.add((name, *attributes))


def _parameters(arguments: ast.arguments) -> list[str]:
    found = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    found += [item for item in (arguments.vararg, arguments.kwarg) if item is not None]
    return [item.arg for item in found]


def _bound(body: list[ast.stmt], package: str) -> dict[str, Import | None]:
    """Names that a function's body binds, not looking into the functions and classes in it."""
    bound: dict[str, Import | None] = {}
    outer: set[str] = set()
    stack: list[ast.AST] = list(reversed(body))
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound.update(imported(node, package))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.setdefault(node.name, None)
        elif isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            continue
        elif isinstance(node, ast.Global | ast.Nonlocal):
            outer.update(node.names)
        else:
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                bound.setdefault(node.id, None)
            elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
                bound.setdefault(node.name, None)
            elif isinstance(node, ast.MatchMapping) and node.rest:
                bound.setdefault(node.rest, None)
            stack.extend(ast.iter_child_nodes(node))
    return {name: found for name, found in bound.items() if name not in outer}
