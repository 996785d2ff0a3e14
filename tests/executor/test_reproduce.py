"""An artifact's recipe built again as it was, from a clone that has moved on and has changes of its own."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

RECIPE = """
    import dataclasses
    import os
    import time
    from executor import Experiment, Step, adopt, Input, main
    from parts.helper import helper

    @dataclasses.dataclass(frozen=True)
    class Settings:
        rate: float = 0.1
        token: str = "none"
        shuffled: bool = False
        data: str = ""

        @classmethod
        def at_scale(cls, scale):
            return cls()

    @dataclasses.dataclass(frozen=True)
    class Config:
        rate: float
        token: str
        shuffled: bool
        words: Input | None = None

    def count(config: Config, output: str) -> dict:
        os.makedirs(output, exist_ok=True)
        if os.environ.get("TOY_SLOW"):
            print("slow", file=open(os.environ["TOY_SLOW"], "a"), flush=True)
            time.sleep(60)
        with open(output + "/counts.txt", "w") as file:
            file.write(str(helper()) + (str(os.getpid()) if config.shuffled else ""))
        return {"n": helper()}

    def build(settings: Settings) -> Experiment:
        words = adopt(settings.data) if settings.data else None
        first = Step("first", count, Config(settings.rate, settings.token, settings.shuffled, words))
        return Experiment(targets=(Step("second", count, Config(1.0, "", False, first)),))

    if __name__ == "__main__":
        main(build)
"""
FILES = {
    "toy/recipes/words.py": RECIPE,
    "toy/parts/helper.py": "def helper():\n    return 1\n",
    "toy/pyproject.toml": "",
    ".gitignore": "store\n",
}


@pytest.fixture
def repository(tmp_path):
    """A project below the top of its repository: one commit, then a helper edited and a file not added."""
    folder = tmp_path / "theirs"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(textwrap.dedent(text))
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, "first")
    (folder / "toy/parts/helper.py").write_text("from parts.more import two\ndef helper():\n    return two\n")
    (folder / "toy/parts/more.py").write_text("two = 2\n")
    return folder


@pytest.fixture
def clone(repository, tmp_path):
    """A clone whose HEAD is later and which has changes of its own."""

    def make() -> Path:
        (repository / "toy/parts/helper.py").write_text("def helper():\n    return 3\n")
        (repository / "toy/parts/more.py").unlink()
        commit(repository, "later")
        folder = tmp_path / "ours"
        git(tmp_path, "clone", "--quiet", str(repository), str(folder))
        (folder / "toy/parts/helper.py").write_text("def helper():\n    return 4\n")
        (folder / "toy/recipes/words.py").write_text("raise ValueError('unfinished')\n")
        return folder

    return make


def git(folder: Path, *words: str) -> str:
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | own).stdout


def commit(folder: Path, words: str) -> None:
    git(folder, "add", "--all")
    git(folder, "-c", "user.name=n", "-c", "user.email=e@x", "commit", "--quiet", "-m", words)


def marinade(folder: Path, *words: str, code: int | None = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from executor.cli import main; sys.exit(main())", *words],
        cwd=folder, capture_output=True, text=True, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | variables,
    )  # fmt: skip
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done


def ran(repository: Path, *words: str, step: str = "second", **variables: str) -> str:
    """Where the artifact of a step lies after a run."""
    typed = ("run", "recipes/words.py", "--inline", "--prefix", "../store", *words)
    marinade(repository / "toy", *typed, **variables)
    (found,) = (repository / "store").glob(f"{step}-*")
    return str(found)


def test_the_keys_agree_and_a_rerun_writes_the_same(repository, clone):
    """The recorded change is in them: with the commit alone `helper` returns 1."""
    address = ran(repository, "--set", "rate=0.3")
    ours = clone()
    before = git(ours, "status", "--porcelain"), git(ours, "worktree", "list")
    done = marinade(ours / "toy", "reproduce", address, "--run", "--inline", "--to", "../again")
    assert "keys agree: second" in done.stdout and "2 of 2 steps equal" in done.stdout and "DIFFERS" not in done.stdout
    assert "rate=0.3" in done.stdout and "with the recorded changes" in done.stdout
    (written,) = (ours / "again").glob("first-*/*/counts.txt")
    assert written.read_text() == "2"
    shutil.rmtree(ours / "again")
    assert (git(ours, "status", "--porcelain"), git(ours, "worktree", "list")) == before


def test_what_differs_is_named(repository, clone):
    """Half of the recorded change is lost: the key follows, and the cause is the function."""
    address = ran(repository)
    for source in Path(address).parent.glob("*/.step/attempts/*/source.json"):
        data = json.loads(source.read_text())
        assert "+two = 2" in data["patch"]
        source.write_text(json.dumps(data | {"patch": data["patch"].replace("+two = 2", "+two = 5")}))
    done = marinade(clone(), "reproduce", address, "--run", "--json", code=1)
    found = json.loads(done.stdout)
    assert found["keys"]["agree"] is False and found["outputs"] is None, "what is not the same is not run"
    causes = {cause["step"]: [change["path"] for change in cause["changes"]] for cause in found["diff"]["causes"]}
    assert causes == {"first": ["parts.more.two"], "second": ["parts.more.two"]}
    assert any("their digest differs" in note for note in found["notes"])


def test_a_copy_whose_store_is_gone_is_compared_alone(repository, clone, tmp_path):
    address = Path(ran(repository))
    copied = tmp_path / "elsewhere" / "their-model"
    shutil.copytree(address, copied)
    shutil.rmtree(repository / "store")
    ours = clone()
    assert "keys agree" in marinade(ours, "reproduce", str(copied)).stdout
    (source,) = copied.glob(".step/attempts/*/source.json")
    source.write_text(json.dumps(json.loads(source.read_text()) | {"patch": ""}))
    text = marinade(ours, "reproduce", str(copied), code=1).stdout
    assert "keys differ: second" in text and "parts.helper.helper" in text and "no record at" in " ".join(text.split())
    assert "not beside the record" in " ".join(text.split())


def test_other_content_under_equal_keys_is_named(repository, clone):
    """A step that writes its process's number, and raw data that changed since."""
    (repository / "words.txt").write_text("one\n")
    address = ran(repository, "--set", "shuffled=true", "--set", f"data={repository / 'words.txt'}", step="first")
    ours = clone()
    (repository / "words.txt").write_text("one two\n")
    text = marinade(ours, "reproduce", address, "--run", "--inline", "--to", "again", code=1).stdout
    assert "keys agree: first" in text and "DIFFERS  first" in text and "file counts.txt" in text
    assert "read other data: adopt/words.txt" in text


def test_a_hidden_setting_has_to_be_given_again(repository, clone):
    word = "correct-horse-battery"
    address = ran(repository, "--set", f"token={word}", TOY_SECRET=word)
    assert word not in "".join(file.read_text() for file in Path(address).rglob("*.json"))
    ours = clone()
    refused = marinade(ours, "reproduce", address, code=2)
    assert "--set token was secret" in refused.stderr
    assert "keys agree" in marinade(ours, "reproduce", address, "--set", f"token={word}", TOY_SECRET=word).stdout


def test_stopped_half_way_it_leaves_nothing_behind_and_goes_on_from_there(repository, clone, tmp_path):
    address = ran(repository)
    ours, seen = clone(), tmp_path / "seen"
    words = ("reproduce", address, "--run", "--inline", "--to", "again")
    driver = subprocess.Popen(
        [sys.executable, "-c", "import sys; from executor.cli import main; sys.exit(main())", *words],
        cwd=ours, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | {"TOY_SLOW": str(seen)},
    )  # fmt: skip
    until = time.monotonic() + 60
    while not seen.exists() and time.monotonic() < until:
        time.sleep(0.05)
    driver.terminate()
    said, _ = driver.communicate(timeout=30)
    assert driver.returncode == 130, said
    assert "checkout" not in git(ours, "worktree", "list")
    (attempt,) = (ours / "again").glob("first-*/.step/attempts/*/record.json")
    assert json.loads(attempt.read_text())["status"] == "interrupted"
    assert "2 of 2 steps equal" in marinade(ours, *words).stdout


def test_what_is_missing_is_said(repository, clone, tmp_path):
    address = ran(repository)
    ours = clone()
    assert "--repository names a clone" in marinade(tmp_path, "reproduce", address, code=2).stderr
    assert "keys agree" in marinade(tmp_path, "reproduce", address, "--repository", str(ours)).stdout
    other = tmp_path / "other"
    git(tmp_path, "init", "--quiet", str(other))
    (other / "a").write_text("a")
    commit(other, "unrelated")
    refused = marinade(other, "reproduce", address, code=2).stderr
    assert "is not in" in refused and "git fetch" in refused
    same = marinade(repository, "reproduce", address, "--run", "--to", str(Path(address).parent), code=2).stderr
    assert "name another one" in same


def test_what_was_made_outside_of_a_repository_cannot_be_built_again(repository):
    shutil.rmtree(repository / ".git")
    address = ran(repository)
    assert "outside of a git repository" in marinade(repository, "reproduce", address, code=2).stderr
