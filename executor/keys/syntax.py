"""One source file as units of code: what each defines, a fingerprint of its syntax, and the names it reads.

A unit is a function, a method, the rest of a class, or the statements that bind a constant. Its fingerprint is over
the normalised syntax tree: no comments, docstrings, formatting or annotations. The fields of a dataclass are a unit
of their own: where values of the class stand in a config they count as values, not as code.
Nothing is imported or run: modules that would take seconds to import are only parsed.
"""

import ast
import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from executor.keys.references import Import, References, imported, walrus_targets

FIELDS = "__dataclass_fields__"
"""Name of the unit that holds the field declarations of a dataclass."""


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

    def defines(self, name: str) -> bool:
        """True where the module binds the name itself, other than by a star import."""
        return name in self.units or name in self.imports


def parse_module(text: str, module: str, is_package: bool) -> ModuleCode:
    """Split a file's source into units."""
    package = module if is_package else module.rpartition(".")[0]
    reader = _ModuleReader(package, text)
    reader.read(ast.parse(text).body)
    reader.register()
    units: dict[str, tuple[Unit, ...]] = {}
    pins: dict[str, str] = {}
    for name, nodes in reader.definitions.items():
        pin = _taken_pin(nodes[-1], reader)
        if pin:
            pins[name] = pin
        found: list[Unit] = []
        for node in nodes:
            found += _class_units(node, package) if isinstance(node, ast.ClassDef) else []
        plain = [node for node in nodes if not isinstance(node, ast.ClassDef)]
        if plain:
            found.append(_unit(name, plain, package))
        units[name] = _merged(found)
    return ModuleCode(
        units=units,
        imports={name: tuple(found) for name, found in reader.imports.items()},
        stars=tuple(reader.stars),
        pins=pins,
    )


def source_of(path: Path, unit: Unit) -> str:
    """The unit's text as it stands in the file."""
    lines = path.read_text().splitlines()
    return "\n".join("\n".join(lines[first - 1 : last]) for first, last in unit.lines)


def _taken_pin(node: ast.stmt, reader: "_ModuleReader") -> str:
    """The name that `@identity("name")` gives a function or class; read from the text, as nothing is imported here.

    The decorator is taken off: it says what the thing is called, and pinning the name it has changes nothing.
    """
    decorators = getattr(node, "decorator_list", [])
    for number, decorator in enumerate(decorators):
        match decorator:
            case ast.Call(func=ast.Name(id=called), args=[ast.Constant(value=str(name))]):
                found = [*reader.imports.get(called, ()), *((star, called) for star in reader.stars)]
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=module), attr=called), args=[ast.Constant(value=str(name))]
            ):
                found = [(target, called) for target, attribute in reader.imports.get(module, ()) if not attribute]
            case _:
                continue
        if any(target in (("executor", "identity"), ("executor.keys.names", "identity")) for target in found):
            del decorators[number]
            return name
    return ""


class _ModuleReader:
    """Collects what binds each module-level name."""

    def __init__(self, package: str, text: str) -> None:
        self.package = package
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, list[Import]] = {}
        self.stars: list[str] = []
        self.has_globals = "global " in text
        self._registered: list[tuple[str, ast.stmt]] = []

    def read(self, body: list[ast.stmt], whole: ast.stmt | None = None) -> None:
        """`whole` is the outermost `if`, `try`, ... around these statements: it decides what they bind."""
        for node in body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node, whole)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._define(node.name, whole or node)
                self._registered += [(name, whole or node) for name in _registries(node)]
                for name in _global_names(node) if self.has_globals else ():
                    self._define(name, whole or node)
            elif isinstance(node, ast.If) and (_is_type_checking(node.test) or _is_main(node.test)):
                self.read(node.orelse, whole)
            else:
                for target in _targets(node):
                    self._define(target, whole or node)
                for inner in _bodies(node):
                    self.read(inner, whole or node)

    def _import(self, node: ast.Import | ast.ImportFrom, whole: ast.stmt | None) -> None:
        for name, found in imported(node, self.package):
            if name == "*":
                self.stars.append(found[0])
                continue
            self.imports.setdefault(name, []).append(found)
            if whole is not None and not isinstance(whole, ast.Try | ast.TryStar):
                self._define(name, whole)  # what it imports depends on a condition, which may be code, too

    def register(self) -> None:
        """What a decorator of a table enters in it (`@TABLE.add`, `@f.register`) is a part of the table."""
        for name, node in self._registered:
            if name in self.definitions and name not in self.imports:
                self._define(name, node)

    def _define(self, name: str, node: ast.stmt) -> None:
        nodes = self.definitions.setdefault(name, [])
        if node not in nodes:
            nodes.append(node)


def _bodies(node: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a compound statement."""
    found = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
    found += [part.body for name in ("handlers", "cases") for part in getattr(node, name, [])]
    return found


def _is_type_checking(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Name | ast.Attribute) and getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"
    )


def _is_main(test: ast.expr) -> bool:
    """`__name__ == "__main__"`: what stands there is not run when a recipe is imported, as it always is."""
    match test:
        case ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")]):
            return True
    return False


def _registries(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[str]:
    """Names whose methods decorate a function or class."""
    called = [decorator.func if isinstance(decorator, ast.Call) else decorator for decorator in node.decorator_list]
    return [name for function in called if isinstance(function, ast.Attribute) for name in _roots(function)]


def _global_names(node: ast.stmt) -> list[str]:
    """Module-level names that a function may rebind."""
    return [name for part in ast.walk(node) if isinstance(part, ast.Global) for name in part.names]


def _targets(node: ast.stmt) -> list[str]:
    """Names that a statement binds or changes: `A = ...`, `A["x"] = ...`, `A.update(...)`, `fill(A)`."""
    headers: list[ast.AST] = [node]
    roots: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        roots = list(node.targets)
    elif isinstance(node, ast.AnnAssign):
        roots = [node.target] if node.value is not None else []
    elif isinstance(node, ast.AugAssign):
        roots = [node.target]
    elif isinstance(node, ast.Delete):
        roots = list(node.targets)
    elif isinstance(node, ast.For):
        roots, headers = [node.target], [node.iter]
    elif isinstance(node, ast.With):
        roots = [item.optional_vars for item in node.items if item.optional_vars is not None]
        headers = list(node.items)
    elif isinstance(node, ast.If | ast.While):
        headers = [node.test]
    elif isinstance(node, ast.Match):
        headers = [node.subject, *(case.pattern for case in node.cases)]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = node.value
        roots = [*called.args, *(keyword.value for keyword in called.keywords)]
        roots += [called.func] if isinstance(called.func, ast.Attribute) else []
    elif isinstance(node, ast.Try | ast.TryStar | ast.TypeAlias):
        return []
    names = [name for root in roots for name in _roots(root)]
    return names + [name for header in headers for name in _captured(header)]


def _roots(root: ast.expr) -> list[str]:
    """The names at the bottom of `A`, `A.b["c"]`, `(A, *B)`."""
    names = []
    for part in ast.walk(root) if isinstance(root, ast.Tuple | ast.List) else [root]:
        while isinstance(part, ast.Attribute | ast.Subscript | ast.Starred):
            part = part.value
        if isinstance(part, ast.Name):
            names.append(part.id)
    return names


def _captured(node: ast.AST) -> list[str]:
    """Names that an expression or a pattern binds on the way: `name := value`, `case [first, *rest]`."""
    names = walrus_targets(node)
    if isinstance(node, ast.pattern):
        for part in ast.walk(node):
            name = getattr(part, "rest" if isinstance(part, ast.MatchMapping) else "name", None)
            names += [name] if name else []
    return names


def _class_units(node: ast.ClassDef, package: str, outer: str = "") -> list[Unit]:
    """A class as one unit for each method, one for the fields of a dataclass, and one for the rest."""
    name = outer + node.name
    is_dataclass = any("dataclass" in ast.dump(decorator) for decorator in node.decorator_list)
    rest: list[ast.stmt] = []
    fields: list[ast.stmt] = []
    inner: list[Unit] = []
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            inner.append(_unit(f"{name}.{item.name}", [item], package))
        elif isinstance(item, ast.ClassDef):
            inner += _class_units(item, package, f"{name}.")
        elif is_dataclass and isinstance(item, ast.AnnAssign) and "ClassVar" not in ast.dump(item.annotation):
            fields += [] if _is_no_code(item) else [item]
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
    units = [dataclasses.replace(_unit(name, [shell], package, located=False), lines=(_shell_lines(node, rest),))]
    if fields:
        units.append(_unit(f"{name}.{FIELDS}", fields, package))
    return [*units, *inner]


def _is_no_code(field: ast.AnnAssign) -> bool:
    """Fields by declaration without an effect: `execution(...)`, and `added(...)` at the value it was born with."""
    call = field.value
    if not isinstance(call, ast.Call):
        return False
    called = getattr(call.func, "id", getattr(call.func, "attr", ""))
    values = {keyword.arg: ast.dump(keyword.value) for keyword in call.keywords}
    default = ast.dump(call.args[0]) if call.args else values.get("default")
    return called == "execution" or (called == "added" and default is not None and default == values.get("born"))


def _shell_lines(node: ast.ClassDef, rest: list[ast.stmt]) -> tuple[int, int]:
    """First and last line of a class without the methods that follow its own statements."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    apart = [item.lineno for item in node.body if item not in rest and not isinstance(item, ast.AnnAssign)]
    if not apart:
        return first, node.end_lineno or node.lineno
    last = max([node.lineno, *(item.end_lineno or 0 for item in rest)])
    return first, min(last, min(apart) - 1) if not rest or rest[-1].lineno < min(apart) else last


def _merged(units: list[Unit]) -> tuple[Unit, ...]:
    """One unit for each name: a property and its setter, a class and what is assigned to it later, are one."""
    by_name: dict[str, list[Unit]] = {}
    for unit in units:
        by_name.setdefault(unit.name, []).append(unit)
    return tuple(_merge(found) for found in by_name.values())


def _merge(units: list[Unit]) -> Unit:
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
    references = References(package)
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
        if node.value is None:  # in a class: a field, whose name and place count
            return ["Field", _shape(node.target)]
        return ["Assign", ["targets", [_shape(node.target)]], ["value", _shape(node.value)]]
    shape: list[Any] = [type(node).__name__]
    for name in node._fields:
        if name in _DROPPED:
            continue
        value = getattr(node, name, None)
        if isinstance(value, list):
            value = [
                _shape(item) if isinstance(item, ast.AST) else item for item in value if not _is_remark(item, node)
            ]
        elif isinstance(value, ast.AST):
            value = _shape(value)
        if value not in (None, []):
            shape.append([name, value])
    return shape


def _is_remark(node: Any, parent: ast.AST) -> bool:
    """Docstrings, other strings standing alone, `pass`, and declarations of local variables: they do nothing."""
    if isinstance(node, ast.AnnAssign):
        return node.value is None and not isinstance(parent, ast.ClassDef)
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
