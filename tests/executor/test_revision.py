"""Recipes at git revisions: that revision's modules are the ones that count, and nothing of the user's is touched."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

FILES = {
    "recipes/words.py": """
        import dataclasses
        from executor import Experiment, Step, main
        from parts.count import count, CountConfig

        @dataclasses.dataclass(frozen=True)
        class Settings:
            rate: float = 0.1

            @classmethod
            def at_scale(cls, scale):
                return cls()

        def build(settings: Settings) -> Experiment:
            print("a recipe may print")
            first = Step("first", count, CountConfig(rate=settings.rate))
            return Experiment(targets=(first, Step("second", count, CountConfig(rate=1.0, words=first))))

        if __name__ == "__main__":
            main(build)
    """,
    "parts/count.py": """
        import dataclasses
        from executor import Input
        from parts.helper import helper

        @dataclasses.dataclass(frozen=True)
        class CountConfig:
            rate: float
            words: Input | None = None

        def count(config: CountConfig, output: str) -> dict:
            return {"n": helper()}
    """,
    "parts/helper.py": "def helper():\n    return 1\n",
    "pyproject.toml": "",
}


@pytest.fixture
def repository(tmp_path):
    """A project of its own in git, one commit, then a helper two modules away edited and not committed."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    commit(tmp_path, "first")
    (tmp_path / "parts/helper.py").write_text("def helper():\n    return 2\n")
    return tmp_path


def git(folder: Path, *words: str) -> str:
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_OPTIONAL_LOCKS": "0"}
    return subprocess.run(
        ["git", "-C", str(folder), *words], check=True, capture_output=True, text=True, env=os.environ | own
    ).stdout


def commit(folder: Path, words: str) -> None:
    git(folder, "add", "--all")
    git(folder, "-c", "user.name=n", "-c", "user.email=e@x", "commit", "--quiet", "-m", words)


def marinade(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "import sys; from executor.cli import main; sys.exit(main())", *words],
        cwd=folder, capture_output=True, text=True, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip


def test_a_revision_against_the_working_tree_and_another(repository):
    alone = marinade(repository, "diff", "recipes/words.py@HEAD", "--json")
    assert alone.returncode == 1, alone.stderr
    found = json.loads(alone.stdout)
    assert {cause["step"]: [c["path"] for c in cause["changes"]] for cause in found["causes"]} == {
        "first": ["parts.helper.helper"], "second": ["parts.helper.helper"],
    }  # fmt: skip
    commit(repository, "second")
    same = marinade(repository, "diff", "recipes/words.py@HEAD")
    assert same.returncode == 0, same.stdout + same.stderr
    both = marinade(repository, "diff", "recipes/words.py@HEAD~1", "recipes/words.py@main", "--json")
    assert both.returncode == 1 and [c["step"] for c in json.loads(both.stdout)["causes"]] == ["first", "second"]


def test_nothing_of_the_users_is_touched(repository):
    def state():
        files = {path: path.stat().st_mtime_ns for path in sorted(repository.rglob("*")) if path.is_file()}
        return git(repository, "status", "--porcelain"), files

    before = state()
    assert marinade(repository, "diff", "recipes/words.py@HEAD", "recipes/words.py@HEAD").returncode == 0
    assert state() == before


def test_what_is_not_there_is_said(repository, tmp_path_factory):
    nope = marinade(repository, "diff", "recipes/words.py@nope")
    assert nope.returncode == 2 and "nope: there is no such revision" in nope.stderr
    file = marinade(repository, "diff", "recipes/other.py@HEAD")
    assert file.returncode == 2 and "no recipes/other.py at HEAD; beside it there words.py" in file.stderr
    (repository / "recipes/words.py").write_text("raise ValueError('unfinished')\n")
    commit(repository, "broken")
    broken = marinade(repository, "diff", "recipes/words.py@HEAD", "recipes/words.py@HEAD~1")
    assert broken.returncode == 2 and "recipes/words.py@HEAD" in broken.stderr and "unfinished" in broken.stderr
    outside = tmp_path_factory.mktemp("outside")
    assert "in no git repository" in marinade(outside, "diff", "x.py@HEAD").stderr
