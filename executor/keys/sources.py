"""Where the source of a project's module lies, found without importing it.

    sources = Sources([Path("/home/me/run/recipes/ladder.py")])
    sources.file("recipes._settings")      /home/me/run/recipes/_settings.py
    sources.file("numpy")                  None: not of this project

The project is the folder with `pyproject.toml` (or `.git`) around the file a search starts from, else the folder that
holds its outermost package. Installed packages are no code of a project, wherever they lie; neither is the engine. A
search that starts inside an installed package follows that package and no other.
"""

import functools
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from executor.keys.names import project_of_file, root_of_file

ENGINE = Path(__file__).resolve().parent.parent
_APART = frozenset({"site-packages", "dist-packages", ".venv", "node_modules"})


class Sources:
    """The modules that a search from some files can reach.

    Attributes:
        roots: folders to look for modules in, in order.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self.roots, self._projects, self._packages = _places(tuple(files), tuple(sys.path))
        self._found: dict[str, Path | None] = {}

    def file(self, module: str) -> Path | None:
        """The file of a module of the project, None for every other."""
        if module not in self._found:
            self._found[module] = self._find(module)
        return self._found[module]

    def below(self, package: str) -> list[str]:
        """Names of the modules inside a package, those of packages in it, too; none for a plain module."""
        names = []
        for folder in self._folders(package):
            for file in sorted(folder.rglob("*.py")):
                parts = file.relative_to(folder).with_suffix("").parts
                parts = parts[:-1] if parts[-1] == "__init__" else parts
                if parts and all(part.isidentifier() for part in parts):
                    names.append(".".join((package, *parts)))
        return names

    def _folders(self, package: str) -> list[Path]:
        file = self.file(package)
        if file is not None:
            return [file.parent] if file.name == "__init__.py" else []
        path = getattr(sys.modules.get(package), "__path__", ())
        return [folder for folder in map(Path, path) if self._is_ours(folder.resolve(), package)]

    def _find(self, module: str) -> Path | None:
        loaded = sys.modules.get(module)
        if loaded is not None:
            name = getattr(loaded, "__file__", None)
            if name is None or not name.endswith(".py"):
                return None
            file = Path(name).resolve()
            return file if self._is_ours(file, module) else None
        for root in self.roots:
            base = root.joinpath(*module.split("."))
            for file in (base.with_suffix(".py"), base / "__init__.py"):
                if file.is_file() and self._is_ours(file, module):
                    return file
        return None

    def _is_ours(self, file: Path, module: str) -> bool:
        if file.is_relative_to(ENGINE):
            return False
        if is_installed(file):
            return module.split(".")[0] in self._packages
        return any(file.is_relative_to(folder) for folder in (*self._projects, *self.roots))


@functools.cache
def _places(
    files: tuple[Path, ...], import_path: tuple[str, ...]
) -> tuple[tuple[Path, ...], tuple[Path, ...], frozenset[str]]:
    """Folders to look for modules in, in order; the projects among them; installed packages that are followed."""
    roots: dict[Path, None] = {}
    projects: dict[Path, None] = {}
    packages: set[str] = set()
    for file in files:
        root = root_of_file(file)
        roots.setdefault(root)
        if is_installed(file):
            packages.add(file.relative_to(root).parts[0].removesuffix(".py"))
        else:
            projects.setdefault(project_of_file(file))
    for project in projects:
        roots.setdefault(project)
        roots.setdefault(project / "src")
    for entry in import_path:
        folder = Path(entry).resolve()
        if any(folder.is_relative_to(project) for project in projects) and not is_installed(folder):
            roots.setdefault(folder)
    return tuple(roots), tuple(projects), frozenset(packages)


def is_installed(file: Path) -> bool:
    """True for what lies among the interpreter's own or the installed packages."""
    return any(file.is_relative_to(folder) for folder in _installed()) or not _APART.isdisjoint(file.parts)


@functools.cache
def _installed() -> tuple[Path, ...]:
    return tuple(dict.fromkeys(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")))
