"""Every recipe that a revision changes, whichever file was edited; and code as lines, against the last run."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = ROOT / "docs" / "examples" / "words"


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """The project of docs/diff.md as a repository with one commit: two recipes, and one that is none."""
    shutil.copytree(WORDS, tmp_path / "words", ignore=shutil.ignore_patterns("__pycache__", "store"))
    folder = tmp_path / "words"
    recipe = (folder / "recipe.py").read_text()
    (folder / "recipes").mkdir()
    (folder / "recipes" / "counting.py").write_text(recipe.replace("targets=(model,)", "targets=(counts,)"))
    (folder / "recipes" / "other.py").write_text(OTHER)
    (folder / "recipes" / "_shared.py").write_text("")
    shutil.copytree(ROOT / "executor", folder / "executor", ignore=shutil.ignore_patterns("__pycache__"))
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        git(folder, *command)
    return folder


OTHER = """
import dataclasses

from executor import Experiment, Step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    @classmethod
    def at_scale(cls, scale: str) -> "Settings":
        if scale != "laptop":
            raise ValueError("only laptop")
        return cls()


def work(config: Settings, output: str) -> None:
    raise AssertionError("compared, never run")


def build(settings: Settings) -> Experiment:
    return Experiment(targets=(Step("work", work, settings),))
"""


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True)


def changed(folder: Path, *words: str) -> tuple[int, str]:
    code = "import sys; from executor.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "diff", "--changed", *words]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout


def test_a_helper_changes_the_recipes_that_reach_it_and_no_others(words: Path) -> None:
    assert changed(words, "HEAD") == (
        0,
        "HEAD against the working tree at laptop scale: the steps of no recipe differ\n",
    )
    helper = words / "library" / "words.py"
    helper.write_text(helper.read_text().replace("line.split()", "line.lower().split()"))
    before = subprocess.run(["git", "-C", str(words), "status", "--short"], capture_output=True, text=True).stdout
    code, text = changed(words, "HEAD", "--json")
    found = json.loads(text)
    assert code == 1 and [one["recipe"] for one in found["recipes"]] == ["recipes/counting.py"]
    [cause] = found["recipes"][0]["diff"]["causes"]
    assert cause["step"] == "counts" and cause["changes"][0]["path"] == "library.words.split"
    assert "+    words = line.lower().split()" in cause["changes"][0]["code"]["lines"]
    code, text = changed(words, "HEAD", "--markdown")
    assert code == 1 and "```diff" in text and "**1 recipe differs**" in text
    assert "line.lower().split()" in changed(words, "HEAD")[1]
    after = subprocess.run(["git", "-C", str(words), "status", "--short"], capture_output=True, text=True).stdout
    assert after == before
    git(words, "commit", "-qam", "two")
    (words / "recipes" / "other.py").unlink()
    code, text = changed(words, "HEAD~1", "HEAD", "--json")
    assert [one["recipe"] for one in json.loads(text)["recipes"]] == ["recipes/counting.py"]
    code, text = changed(words, "HEAD", "--json")
    [gone] = json.loads(text)["recipes"]
    assert code == 1 and gone["recipe"] == "recipes/other.py" and gone["diff"]["removed"] == ["work"]
    assert changed(words, "HEAD", "--scale", "full")[0] == 0, "a scale that it does not know is no difference"


@pytest.mark.slow
def test_a_recipe_that_cannot_be_built_is_listed_with_the_reason(words: Path) -> None:
    (words / "recipes" / "other.py").write_text("raise ValueError('no good')\n")
    code, text = changed(words, "HEAD")
    assert code == 1 and "recipes/other.py could not be compared" in text and "no good" in text
    code, text = changed(words, "HEAD", "--markdown")
    assert code == 1 and "Could not be compared" in text
