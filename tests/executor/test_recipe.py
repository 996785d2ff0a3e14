"""Recipes are imported under one name; settings are overridden by path."""

import subprocess
import sys

import pytest

from executor import UsageError, fingerprint
from executor.recipe import load, of

RECIPE = """
    @dataclasses.dataclass(frozen=True)
    class Phase:
        rate: float | None = None
        steps: int = 1
        name: str = "x"

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        phases: tuple[Phase, ...] = (Phase(), Phase())
        by_name: dict[str, Phase] = dataclasses.field(default_factory=lambda: {"a": Phase()})
        flag: bool = False

        def __post_init__(self):
            if len(self.phases) != 2:
                raise ValueError("two phases")

    @dataclasses.dataclass(frozen=True)
    class Config:
        settings: Settings

    def work(config, output):
        return None

    def build(settings: Settings):
        return Experiment(targets=(Step("a", work, Config(settings)),))

    if __name__ == "__main__":
        KEYS = [Step("a", work, Config(Settings()))]
    """


@pytest.fixture
def recipe(project):
    project.write("toy_recipe.py", RECIPE)
    return project.recipe()


def test_overrides_are_decoded_for_their_field(recipe):
    settings = recipe.settings(
        "laptop", ["phases.1.rate=1e-3", "by_name.a.steps=7", "flag=true", "phases.0.name=1e3", "phases.0.rate=2"]
    )
    assert settings.phases[1].rate == 0.001 and settings.by_name["a"].steps == 7 and settings.flag is True
    assert settings.phases[0].name == "1e3" and type(settings.phases[0].rate) is float
    assert recipe.settings("laptop", ["phases.1.rate=0.5", "phases.1.rate=null"]).phases[1].rate is None


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("phases.1.nothing=1", "phases.1 has no field nothing; it has rate, steps, name"),
        ("phases.7.rate=1", "phases has items 0 to 1, not 7"),
        ("by_name.z.rate=1", "by_name has no key z; it has a"),
        ("phases.0.steps=many", "not a value for a field of type int"),
        ("phases.0.steps.x=1", "has no fields to set"),
        ("phases", "write it as path=value"),
    ],
)
def test_a_wrong_override_says_what_there_is(recipe, override, said):
    with pytest.raises(UsageError, match="--set") as error:
        recipe.settings("laptop", [override])
    assert said in str(error.value)


def test_an_unknown_scale_and_a_missing_file(recipe):
    with pytest.raises(UsageError, match="the scales are laptop and full"):
        recipe.settings("huge")
    with pytest.raises(UsageError, match="there is no such recipe"):
        load("recipes/nothing.py")
    with pytest.raises(UsageError):
        load("no.such.module")


def test_run_as_a_script_it_has_the_names_it_has_when_imported(project, recipe):
    imported = fingerprint(recipe.experiment().targets[0])
    line = "    from executor.recipe import of; print(fingerprint(KEYS[0]), of(build).module)\n"
    project.write("toy_recipe.py", RECIPE.rstrip() + "\n    " + line)
    script = project.root / "toy_recipe.py"
    said = subprocess.run([sys.executable, str(script)], cwd="/", capture_output=True, text=True, check=True)
    assert said.stdout.split() == [imported, "toy_recipe"]


def test_a_name_that_is_taken_is_an_error(project):
    project.write("json.py", RECIPE)
    with pytest.raises(UsageError, match="its name json is taken"):
        load(str(project.root / "json.py"))


def test_of_a_build_function(recipe):
    assert of(recipe.build) == recipe
