"""Remakes the output shown in docs/diff.md, from this checkout.

    python docs/examples/diff_page.py

A block of the page that begins with `$ marinade` is run again and its output put in; the flagship's pairs as they
stand here, the small project (docs/examples/words) in a copy in a temporary folder. A comment before a block,
`<!-- before: ... -->`, says what happens first: `run` runs the recipe, `accept ...` is that command,
`edit FILE: OLD => NEW` edits the copy,
`fresh` takes a new copy and a new store.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "diff.md"
_BLOCK = re.compile(r"(?:<!-- before: (.*?) -->\n)?```console\n\$ marinade (.*?)\n(.*?)```", re.DOTALL)


def main() -> None:
    PAGE.write_text(remade(PAGE.read_text()))


def remade(text: str) -> str:
    """The page with every output put in anew."""
    with tempfile.TemporaryDirectory(prefix="diff-page-") as folder:
        return _BLOCK.sub(lambda found: _remade(found, Path(folder)), text)


def _remade(found: re.Match[str], folder: Path) -> str:
    before, command = found[1] or "", found[2]
    project = folder / "words"
    for action in filter(None, before.split("; ")):
        if action == "fresh":
            shutil.rmtree(folder)
            shutil.copytree(ROOT / "docs" / "examples" / "words", project)
        elif action == "run":
            _marinade("run recipe.py --inline", project)
        elif action.startswith("accept "):
            _marinade(action, project)
        else:
            file, _, change = action.removeprefix("edit ").partition(": ")
            old, _, new = change.partition(" => ")
            text = (project / file).read_text()
            assert text.count(old) == 1, f"{file}: {old}"
            (project / file).write_text(text.replace(old, new.replace("\\n", "\n")))
    where = ROOT if "recipes/" in command else project
    head = f"<!-- before: {before} -->\n" if before else ""
    return f"{head}```console\n$ marinade {command}\n{_marinade(command, where)}```"


def _marinade(words: str, folder: Path) -> str:
    code = "import sys; from executor.cli import main; sys.exit(main())"
    store = Path(tempfile.gettempdir()) / "none" if folder == ROOT else folder / "store"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MARINADE_PREFIX": str(store)}
    command = [sys.executable, "-c", code, *shlex.split(words)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"marinade {words}: {done.stderr}")
    return re.sub(r"run \d{8}T\w+-", "run …-", done.stdout.replace(str(folder), "…"))


if __name__ == "__main__":
    main()
