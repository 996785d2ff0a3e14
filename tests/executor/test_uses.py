"""`Step(uses=[...])`: code that static reading cannot see, declared; what counts for nothing is an error."""

import dataclasses
from importlib import metadata

import pytest

from executor import Experiment, IdentityError, Step, fingerprint
from executor.comparing.compare import diff
from executor.comparing.side import Side
from executor.keys import packages
from executor.keys.graph import Graph
from executor.render.diff import diff_text
from executor.render.plan import reason_text
from executor.render.terminal import Terminal


@dataclasses.dataclass(frozen=True)
class Nothing:
    """A config without fields."""


def work(config, output):
    return None


def graph_of(experiment: Experiment) -> Graph:
    return Graph.of(experiment.targets)


RECIPE = """
    import plugins
    import importlib

    @dataclasses.dataclass(frozen=True)
    class Config:
        name: str = "alpha"

    def work(config, output):
        found = importlib.import_module("plugins." + config.name)
        put(f"{output}/a", str(found.value()))

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        pass

    def extra():
        return EXTRA

    EXTRA = 1

    def build(settings: Settings):
        return Experiment(targets=(Step("work", work, Config(), {options}),))
    """


def write(project, options: str, alpha: str = "def value():\n    return 1\n", **edits: str) -> None:
    text = RECIPE.replace("{options}", options)
    for old, new in edits.items():
        text = text.replace(old, new)
    project.write("toy_recipe.py", text)
    project.write("plugins/__init__.py", "", header=False)
    project.write("plugins/alpha.py", alpha, header=False)


@pytest.fixture
def versions(monkeypatch):
    """Installed versions, as this test says."""
    found = {"tenacity": "9.0.1"}
    packages.version.cache_clear()

    def version(name: str) -> str:
        name = name.lower()
        if name not in found:
            raise metadata.PackageNotFoundError(name)
        return found[name]

    monkeypatch.setattr(metadata, "version", version)
    yield found
    packages.version.cache_clear()


def test_a_step_that_uses_nothing_keeps_its_key(project):
    write(project, "")
    plain = project.plan()["work"]
    write(project, "uses=[]")
    assert project.plan()["work"].key == plain.key
    assert set(plain.payload) == {"function", "version", "config", "code"}


def test_a_package_found_by_a_computed_name_counts_once_it_is_declared(project):
    write(project, "")
    project.run()
    write(project, "", alpha="def value():\n    return 2\n")
    assert project.plan()["work"].action == "reuse", "static reading cannot see it"
    write(project, "uses=[plugins]")
    project.run()
    write(project, "uses=[plugins]", alpha="def value():\n    return 3\n")
    step = project.plan()["work"]
    assert (step.action, [reason.path for reason in step.reasons]) == ("run", ["plugins.alpha.value"])
    assert project.run().steps["work"].status == "succeeded", "the worker finds the same code"


@pytest.mark.parametrize("thing", ["extra", "'tenacity', extra", "Holder"])
def test_functions_and_classes_join_with_what_they_reach(project, thing):
    write(project, f"uses=[{thing}]", EXTRA="EXTRA")
    text = (project.root / "toy_recipe.py").read_text()
    holder = "\nclass Holder:\n    def use(self):\n        return EXTRA\n"
    (project.root / "toy_recipe.py").write_text(text + holder)
    project.run()
    (project.root / "toy_recipe.py").write_text(text.replace("EXTRA = 1", "EXTRA = 2") + holder)
    (reason,) = project.plan()["work"].reasons
    assert (reason.kind, reason.path) == ("code", "toy_recipe.EXTRA")


def test_a_package_counts_by_its_version(project, versions):
    write(project, "uses=['Tenacity']")
    a = Side.of_graph("a", graph_of(project.recipe().experiment()))
    project.run()
    assert a.steps["work"].payload["packages"] == {"tenacity": "9.0.1"}
    versions["tenacity"] = "9.1.2"
    step = project.plan()["work"]
    (reason,) = step.reasons
    assert (step.action, reason.kind, reason.path, reason.old, reason.new) == (
        "run", "code", "packages.tenacity", "9.0.1", "9.1.2",
    )  # fmt: skip
    assert reason_text(reason) == "packages.tenacity 9.0.1 -> 9.1.2"
    found = diff(a, Side.of_graph("b", graph_of(project.recipe().experiment())))
    assert [(c.kind, c.path, c.old, c.new) for c in found.causes[0].changes] == [
        ("code", "packages.tenacity", "9.0.1", "9.1.2")
    ]
    assert "packages.tenacity  9.0.1 -> 9.1.2" in diff_text(found, Terminal(width=100, color=False))
    outcome = project.run()
    assert project.store.record(outcome.steps["work"].address).code["packages.tenacity"] == "9.1.2"


def test_a_pinned_step_reports_another_version_and_reruns_nothing(project, versions):
    write(project, "uses=['tenacity'], code='pin'")
    project.run()
    versions["tenacity"] = "9.1.2"
    step = project.plan()["work"]
    assert step.action == "reuse" and "packages" not in step.payload
    assert "packages.tenacity" in step.notes[0]


def test_a_worker_with_another_version_does_not_run_the_step(project, versions, monkeypatch):
    write(project, "uses=['tenacity']")
    recipe = project.recipe()
    from executor.driver.run import RunOptions, run_experiment

    outcome = run_experiment(
        recipe.experiment(), project.store, recipe=recipe, scale="laptop", options=RunOptions(inline=True),
        listener=lambda event: versions.update(tenacity="9.1.2"),
    )  # fmt: skip
    assert "not the code that was planned (packages.tenacity)" in outcome.steps["work"].error


@pytest.mark.parametrize(
    ("uses", "said"),
    [
        (
            "['no-such-thing']",
            r"step work: uses\[0\]: 'no-such-thing' is no distribution that is installed here; install it",
        ),
        ("['yaml']", r"uses\[0\]: 'yaml' is no distribution .* the module yaml comes with the distribution PyYAML"),
        ("'tenacity'", r"uses: 'tenacity' is no list; write uses=\['tenacity'\]"),
        ("[extra, json]", r"uses\[1\]: json is no code of the project: it comes with the interpreter"),
        ("[__import__('yaml')]", 'yaml is no code of the project: write the name of its distribution, "PyYAML"'),
        ("[len]", "len is no code of the project"),
        ("[lambda: 0]", "a lambda has no stable name"),
        ("[3]", "int 3: it holds functions, classes and modules of the project"),
        ("[Experiment]", "is the engine's, which is in no key"),
    ],
)
def test_what_counts_for_nothing_is_an_error_that_names_the_step(project, uses, said):
    write(project, f"uses={uses}", **{"import plugins": "import plugins, json"})
    packages.version.cache_clear()
    with pytest.raises(IdentityError, match=said):
        project.plan()


def test_the_order_of_uses_does_not_count(project):
    keys = set()
    for uses in ("[extra, plugins, 'tenacity']", "('tenacity', plugins, extra, extra)"):
        write(project, f"uses={uses}")
        keys.add(project.plan()["work"].key)
    assert len(keys) == 1


def test_an_input_counts_with_what_its_step_uses(versions):
    one = Step("a", work, Nothing(), uses=["tenacity"])
    before = fingerprint({"x": one})
    versions["tenacity"] = "9.1.2"
    packages.version.cache_clear()
    assert fingerprint({"x": one}) != before
