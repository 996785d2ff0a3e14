"""What records say of where an artifact came from, and that no secret is in anything that is written."""

import subprocess

import pytest

from executor import secrets
from executor.history import git
from executor.secrets import redact, redact_document, reveal_environment
from executor.storage.source import Source


@pytest.fixture
def checkout(tmp_path):
    """One commit, then a change, a file never added, one that is ignored and one that is too large."""
    run(tmp_path, "init", "--quiet", "--initial-branch=trunk")
    (tmp_path / "kept.py").write_text("x = 1\n")
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    run(tmp_path, "add", "--all")
    run(tmp_path, "-c", "user.name=n", "-c", "user.email=e@x", "commit", "--quiet", "-m", "first")
    (tmp_path / "kept.py").write_text("x = 2\n")
    (tmp_path / "new.py").write_text("y = 1\n")
    (tmp_path / "ignored.py").write_text("z = 1\n")
    (tmp_path / "large.bin").write_bytes(bytes(5000))
    return tmp_path


def run(folder, *words):
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    """What one test makes known as secret is hidden in no other."""
    monkeypatch.setattr(secrets, "_revealed", set())


def test_a_patch_turns_the_commit_into_what_lies_there(checkout, tmp_path_factory):
    index = (checkout / ".git/index").read_bytes()
    objects = sorted((checkout / ".git/objects").rglob("*"))
    patch = git.patch(checkout, most_bytes=4000)
    assert patch.left_out == ("large.bin",)
    assert (checkout / ".git/index").read_bytes() == index, "the user's index is left alone"
    assert sorted((checkout / ".git/objects").rglob("*")) == objects

    clone = tmp_path_factory.mktemp("clone")
    run(clone, "clone", "--quiet", str(checkout), ".")
    subprocess.run(["git", "-C", str(clone), "apply", "-"], input=patch.text.encode(), check=True)
    assert (clone / "kept.py").read_text() == "x = 2\n" and (clone / "new.py").read_text() == "y = 1\n"
    assert not (clone / "ignored.py").exists() and not (clone / "large.bin").exists()


def test_a_store_that_git_ignores_is_no_problem(checkout):
    (checkout / "store").mkdir()
    (checkout / "store/artifact").write_text("not source\n")
    with (checkout / ".gitignore").open("a") as file:
        file.write("store/\n")
    (checkout / "[odd] *.py").write_text("odd = 1\n")
    found = git.patch(checkout, without=checkout / "store")
    assert "x = 2" in found.text and "odd = 1" in found.text and "not source" not in found.text


def test_a_patch_has_a_limit_and_leaves_the_store_out(checkout, monkeypatch):
    (checkout / "store").mkdir()
    (checkout / "store/artifact").write_text("not source\n")
    monkeypatch.setattr(git, "MOST_PATCH_BYTES", 10)
    found = git.patch(checkout, without=checkout / "store")
    assert found.left_out == ("new.py", "large.bin"), "6 bytes each: the first fits"
    assert "x = 2" in found.text and "not source" not in found.text
    assert "not source" not in git.patch(checkout, without=checkout / "store").text
    monkeypatch.undo()
    assert "not source" in git.patch(checkout, without=checkout.parent / "elsewhere").text


def test_commit_branch_and_revisions(checkout, tmp_path_factory):
    head = git.commit(checkout)
    assert len(head) == 40 and git.branch(checkout) == "trunk"
    assert git.resolve(checkout, "trunk") == head
    with pytest.raises(git.GitFailed, match="nope: there is no such revision"):
        git.resolve(checkout, "nope")
    with pytest.raises(git.GitFailed, match="--all: there is no such revision"):
        git.resolve(checkout, "--all")
    nowhere = tmp_path_factory.mktemp("nowhere")
    assert (git.commit(nowhere), git.branch(nowhere), git.patch(nowhere)) == ("", "", git.Patch())


RECIPE = """
@dataclasses.dataclass(frozen=True)
class C:
    url: str
    token: str

@dataclasses.dataclass(frozen=True)
class Settings(Scales):
    token: str = "none"
    fails: bool = False

def work(config, output):
    import subprocess, sys
    put(output + "/f", "x")
    print("said", os.environ["PLANTED_TOKEN"], config.url)
    subprocess.run(["sh", "-c", "echo child $PLANTED_TOKEN"])
    current().progress(1, 1, "steps", metrics={"key": os.environ["PLANTED_TOKEN"]})
    if os.environ.get("PLANTED_FAILURE"):
        raise ValueError("no good: " + os.environ["PLANTED_TOKEN"])
    return {"where": "https://user:planted-in-url@host/" + os.environ["PLANTED_TOKEN"]}

def build(settings: Settings) -> Experiment:
    first = Step("first", work, C(url="https://me:planted-in-url@host/x?token=planted-in-query", token=settings.token))
    return Experiment(targets=(first,))
"""
PLANTED = ("planted-9f8e7d", "planted-in-url", "planted-in-query", "hf_" + "q1" * 15)


@pytest.mark.parametrize("fails", ["", "yes"])
def test_no_planted_secret_is_written_or_said(project, monkeypatch, capsys, fails):
    """In the environment, a config's URL, --set, a result, an exception, stdout, a child's output and a dirty file."""
    from executor.cli import main

    monkeypatch.setenv("PLANTED_TOKEN", PLANTED[0])
    monkeypatch.setenv("PLANTED_FAILURE", fails)
    monkeypatch.chdir(project.root)
    file = project.write("toy_secrets.py", RECIPE)
    run(project.root, "init", "--quiet")
    run(project.root, "-c", "user.name=n", "-c", "user.email=e@x", "commit", "--quiet", "--allow-empty", "-m", "first")
    (project.root / "notes.txt").write_text(f"the token is {PLANTED[0]} or {PLANTED[3]}\n")
    words = ["--prefix", str(project.root / "store"), "--set", f"token={PLANTED[3]}"]
    assert main(["run", str(file), "--inline", *words]) == (1 if fails else 0)
    main(["plan", str(file), *words, "--json"])
    main(["status", str(file), *words])
    main(["diff", str(file), "--json", *words])
    said = capsys.readouterr()
    written = {path: path.read_bytes() for path in (project.root / "store").rglob("*") if path.is_file()}
    assert any("notes.txt" in data.decode() for data in written.values()), "the patch is kept"
    for secret in PLANTED:
        assert secret not in said.out + said.err
        assert not [path for path, data in written.items() if secret.encode() in data]
    assert main(["plan", str(file), *words, "--exit-code"]) == (3 if fails else 0), "hiding changes no key"
    if not fails:
        main(["diff", str(file), *words])
        assert "Nothing differs" in capsys.readouterr().out or main(["diff", str(file), *words]) == 0


def test_records_say_where_they_come_from(project):
    project.write("toy_recipe.py", RECIPE.replace('os.environ["PLANTED_TOKEN"]', '"t"'))
    outcome = project.run("token=abc")
    assert outcome.exit_code == 0
    step = project.plan("token=abc")["first"]
    [record] = project.store.attempts(step.address)
    assert record.schema == 2 and record.provenance["arguments"] is not None
    assert {"recipe", "scale", "command", "commit", "branch", "modified", "patch", "python", "host", "versions"} <= set(
        record.provenance
    )
    assert "devices" in record.provenance
    source = project.store.source(step.address, record.attempt)
    assert "def work" in "".join(source.functions.values()) and "jax" in source.packages


def test_source_of_the_first_schema_is_read():
    assert Source.from_json('{"a.b": "def b(): pass"}') == Source(functions={"a.b": "def b(): pass"})
    source = Source(functions={"a.b": "text"}, patch="diff", packages={"jax": "1"})
    assert Source.from_json(source.to_json()) == source


def test_secrets_of_the_environment_are_guessed_by_name():
    reveal_environment(
        {"WANDB_API_KEY": "0a1b2c3d4e", "DB_PASSWORD": 'pa"ssw\\9', "MONKEY": "banana12", "TOKEN_FILE_KEY": "/etc/key1",
         "SECRET": "short1", "SOME_TOKEN": "ordinary"}
    )  # fmt: skip
    assert redact("0a1b2c3d4e banana12 /etc/key1 short1 ordinary") == "*** banana12 /etc/key1 short1 ordinary"
    assert redact_document('{"a": "pa\\"ssw\\\\9"}') == '{"a": "***"}'


@pytest.mark.parametrize(
    "token",
    ["hf_" + "a1" * 12, "sk-" + "b2" * 12, "ghp_" + "c3" * 18, "AKIA" + "D4" * 8, "github_pat_" + "e5" * 20],
)
def test_tokens_are_known_by_their_shape(token):
    assert redact(f"login {token}!") == "login ***!"
    assert redact("task-force-of-twenty-letters-and-more") == "task-force-of-twenty-letters-and-more"
