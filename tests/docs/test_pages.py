"""The pages of docs/identity and docs/experiments.md, run from top to bottom as a reader would.

A block names the file it shows (```python run.py), edits it (```diff run.py, unchanged lines around the change), or
shows commands and lines of their output (```console; `…` stands for anything). Recipes on the pages leave out the
lines in `PRELUDE`.
"""

import re
from pathlib import Path

import pytest

from executor.cli import main
from executor.keys import names
from executor.keys.code import forget

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs/experiments.md", ROOT / "docs/identity.md", *sorted((ROOT / "docs/identity").glob("*.md"))]
PRELUDE = """
from dataclasses import dataclass
from pathlib import Path

from executor import Criterion, Experiment, Input, Secret, Step, added, adopt, execution, external, identity, resolved

@dataclass(frozen=True)
class Settings:
    @classmethod
    def at_scale(cls, scale):
        return cls()

"""
BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUNS = {"run": ["--inline"]}


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_page_does_what_it_says(page, project, monkeypatch, capsys):
    monkeypatch.setenv("MARINADE_PREFIX", project.prefix)
    monkeypatch.setenv("HF_TOKEN", "hf_value-of-a-token")
    blocks = BLOCK.findall(page.read_text())
    assert any(kind == "console" for kind, _, _ in blocks)
    for kind, name, body in blocks:
        if kind == "diff":
            edit(project.root / name, body)
        elif kind == "console":
            run(body, project, monkeypatch, capsys)
        else:
            text = PRELUDE + body if "def build(" in body else body
            project.write(name, text, header=False)
    stored = "".join(path.read_text() for path in Path(project.prefix).rglob("*") if path.is_file())
    assert "hf_value" not in stored and ("HF_TOKEN" in stored) is (page.stem == "secret")


def edit(file: Path, change: str) -> None:
    lines = change.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if line[0] in " -")
    new = "".join(line[1:] for line in lines if line[0] in " +")
    assert file.read_text().count(old) == 1, f"{file.name} has no\n{old}"
    file.write_text(file.read_text().replace(old, new))


def run(session: str, project, monkeypatch, capsys) -> None:
    """Run each `$` line; the lines under it must all be in its output, in order."""
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, *expected = part.splitlines()
        words = re.findall(r'"[^"]*"|\S+', command)
        tool, verb, *rest = (word.strip('"') for word in words)
        assert tool == "marinade"
        project.forget()
        forget()
        monkeypatch.setattr(names, "_pins", {})
        main([verb, *rest, *RUNS.get(verb, [])])
        captured = capsys.readouterr()
        output = re.sub(r"\s+", " ", captured.out + captured.err)
        pattern = ".*?".join(
            ".*?".join(re.escape(part) for part in " ".join(line.split()).split("…")) for line in expected
        )
        assert re.search(pattern, output), (
            f"{command}\nexpected\n" + "\n".join(expected) + f"\nfound\n{captured.out}{captured.err}"
        )
