"""A recipe: a file with `build(settings) -> Experiment`, and settings with scales and overrides.

    recipe = load("recipes/hero_535b.py")
    experiment = recipe.experiment("laptop", ["midtrain.learning_rate=0.001"])

However it is started (script, `-m`, console script, test), a recipe is imported under one module name, so that what it
defines has one identity.
"""

import dataclasses
import importlib
import importlib.util
import os
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from executor.errors import UsageError
from executor.keys.names import name_of_file, project_of_file, root_of_file
from executor.keys.typehints import choose, field_hints, item_hint, mapping_hints
from executor.step import Experiment

DEFAULT_SCALE = "laptop"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """A recipe's file, imported.

    Attributes:
        name: its path from the project's root, for people and for finding its earlier runs.
        module: name it is imported under; is_loose: the file is in no package, so only the file leads to it.
        root: folder that its project's packages lie in.
    """

    name: str
    module: str
    file: str
    root: str
    is_loose: bool
    build: Callable[[Any], Experiment]

    @property
    def settings_type(self) -> type:
        """The class of `build`'s one parameter."""
        hints = typing.get_type_hints(self.build)
        hints.pop("return", None)
        found = list(hints.values())
        if len(found) != 1 or not dataclasses.is_dataclass(found[0]) or not hasattr(found[0], "at_scale"):
            raise UsageError(
                f"{self.name}: build takes one settings dataclass with a classmethod at_scale(scale), "
                f"as in `def build(settings: Settings) -> Experiment`; found {hints or 'no annotated parameter'}"
            )
        return typing.cast(type, found[0])

    def settings(self, scale: str = DEFAULT_SCALE, overrides: Sequence[str] = ()) -> Any:
        """The settings of a scale, with `path=value` overrides applied in order."""
        try:
            settings = self.settings_type.at_scale(scale)  # type: ignore[attr-defined]
        except ValueError as error:
            raise UsageError(f"{self.name}: --scale {scale}: {error}") from error
        for override in overrides:
            settings = override_setting(settings, override)
        return settings

    def experiment(self, scale: str = DEFAULT_SCALE, overrides: Sequence[str] = ()) -> Experiment:
        experiment = self.build(self.settings(scale, overrides))
        if not isinstance(experiment, Experiment):
            raise UsageError(f"{self.name}: build returned {type(experiment).__name__}, not an Experiment")
        return experiment


def load(target: str) -> Recipe:
    """Import a recipe by path (`recipes/x.py`) or module name (`recipes.x`)."""
    if target.endswith(".py") or os.sep in target or Path(target).exists():
        file = Path(target)
        if not file.is_file():
            raise UsageError(f"{target}: there is no such recipe (looked in {Path.cwd()})")
    else:
        try:
            spec = importlib.util.find_spec(target)
        except ModuleNotFoundError as error:
            raise UsageError(f"{target}: no module of that name: {error}") from error
        if spec is None or spec.origin is None:
            raise UsageError(f"{target}: neither a file nor a module that can be imported")
        file = Path(spec.origin)
    return _from_file(file)


def of(build: Callable[[Any], Experiment]) -> Recipe:
    """The recipe that a `build` function belongs to, imported under its own name when it runs as `__main__`."""
    module = sys.modules[build.__module__]
    file = getattr(module, "__file__", None)
    if file is None:
        raise UsageError(f"build of {build.__module__} is in no file; put the recipe in one")
    return _from_file(Path(file))


def _from_file(file: Path) -> Recipe:
    file = file.resolve()
    name, root = name_of_file(file), root_of_file(file)
    is_loose = "." not in name
    module = load_module(name, str(file))
    build = getattr(module, "build", None)
    if not callable(build):
        raise UsageError(f"{file}: no function build(settings) -> Experiment in it")
    shown = project_of_file(file)
    return Recipe(
        name=file.relative_to(shown).as_posix(),
        module=name,
        file=str(file),
        root=str(root),
        is_loose=is_loose,
        build=typing.cast(Callable[[Any], Experiment], build),
    )


def load_module(name: str, file: str) -> Any:
    """Import a file under a module name; what is imported already under that name must be that file."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        at = getattr(loaded, "__file__", None)
        if at is None or Path(at).resolve() != Path(file):
            raise UsageError(f"{file}: its name {name} is taken by {at or 'a built-in module'}; rename the recipe")
        return loaded
    root = str(root_of_file(Path(file)))
    if root not in sys.path:
        sys.path.append(root)
    found = _find(name)
    if found is not None and found.origin is not None and Path(found.origin).resolve() == Path(file):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _find(name: str) -> Any:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def override_setting(settings: Any, override: str) -> Any:
    """`a.b.0.c=value`: the settings with one field set; the value is decoded by draccus for the field's type."""
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise UsageError(f"--set {override}: write it as path=value, for example training.steps=100")
    return _set(settings, path.strip().split("."), text, type(settings), path.strip(), "")


def _set(value: Any, path: list[str], text: str, hint: Any, whole: str, walked: str) -> Any:
    if not path:
        return _decode(text, hint, value, whole)
    name, rest = path[0], path[1:]
    here = f"{walked}.{name}" if walked else name
    hint = choose(hint, type(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        hints = field_hints(type(value))
        if name not in hints:
            raise UsageError(
                f"--set {whole}: {walked or 'the settings'} has no field {name}; it has {', '.join(hints)}"
            )
        changed = _set(getattr(value, name), rest, text, hints[name], whole, here)
        try:
            return dataclasses.replace(value, **{name: changed})
        except (ValueError, TypeError) as error:
            raise UsageError(f"--set {whole}={text}: {error}") from error
    if isinstance(value, Mapping):
        keys = {str(key): key for key in value}
        if name not in keys:
            raise UsageError(f"--set {whole}: {walked} has no key {name}; it has {', '.join(keys) or 'none'}")
        changed = _set(value[keys[name]], rest, text, mapping_hints(hint)[1], whole, here)
        return {**value, keys[name]: changed}
    if isinstance(value, list | tuple):
        if not name.isdigit() or int(name) >= len(value):
            raise UsageError(f"--set {whole}: {walked} has items 0 to {len(value) - 1}, not {name}")
        number = int(name)
        changed = _set(value[number], rest, text, item_hint(hint, number), whole, here)
        return type(value)([*value[:number], changed, *value[number + 1 :]])
    raise UsageError(f"--set {whole}: {walked} is {value!r} and has no fields to set")


def _decode(text: str, hint: Any, before: Any, whole: str) -> Any:
    if hint is str:
        return text  # as typed: no YAML surprises such as 1e3 or yes
    import draccus
    import yaml

    if hint is Any and before is not None:
        hint = type(before)
    try:
        raw = yaml.safe_load(text)
        # YAML reads 1e-3 as a string, people as a number.
        return draccus.decode(hint, text if isinstance(raw, str) else raw) if hint is not Any else raw
    except Exception as error:
        kind = getattr(hint, "__name__", str(hint))
        raise UsageError(f"--set {whole}={text}: not a value for a field of type {kind}: {error}") from error
