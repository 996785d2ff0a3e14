"""A key does not change though it should: each report of another tool, and what is rerun or refused here."""

import dataclasses
import functools

import pytest

from executor import IdentityError, MarinadeError, Step, fingerprint
from executor.keys.graph import Graph

RECIPE = """
    import dataclasses
    from lib.near import helper

    LIMIT = 3

    @dataclasses.dataclass(frozen=True)
    class Config:
        source: Input | None = None

    def work(config, output):
        put(f"{output}/a", f"{helper(LIMIT)}")
        if os.environ.get("MARINADE_TEST_BREAK"):
            raise ValueError("broken")

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        pass

    def build(settings: Settings):
        return Experiment(targets=(Step("second", work, Config(source=Step("first", work, Config()))),))
    """
NEAR = "from lib.far import deep\ndef helper(x):\n    return deep(x)\n"
FAR = "def deep(x):\n    return x + 1\n"


@pytest.fixture
def toy(project):
    project.write("toy_recipe.py", RECIPE)
    project.write("lib/__init__.py", "", header=False)
    project.write("lib/near.py", NEAR, header=False)
    project.write("lib/far.py", FAR, header=False)
    return project


def reasons(project, name: str = "first") -> list[tuple[str, str]]:
    step = project.plan()[name]
    assert step.action == "run"
    return [(reason.kind, reason.path) for reason in step.reasons]


def test_a_module_constant_that_the_function_reads(toy):
    """redun#99."""
    toy.run()
    toy.write("toy_recipe.py", RECIPE.replace("LIMIT = 3", "LIMIT = 4"))
    assert reasons(toy) == [("code", "toy_recipe.LIMIT")]
    assert toy.run().steps["first"].status == "succeeded"


@pytest.mark.parametrize(
    ("file", "old", "new", "name"),
    [
        pytest.param("near", "deep(x)", "deep(x) + 1", "lib.near.helper", id="redun#23"),
        pytest.param("far", "x + 1", "x + 2", "lib.far.deep", id="zenml#1011, datasets#3297"),
    ],
)
def test_a_helper_in_another_file(toy, file, old, new, name):
    toy.run()
    text = {"near": NEAR, "far": FAR}[file]
    toy.write(f"lib/{file}.py", text.replace(old, new), header=False)
    assert reasons(toy) == [("code", name)]
    assert toy.run().steps["first"].status == "succeeded"


@dataclasses.dataclass(frozen=True)
class Config:
    value: object = None
    other: object = None


@dataclasses.dataclass(frozen=True)
class Adam:
    lr: float = 0.1


@dataclasses.dataclass(frozen=True)
class Lion:
    lr: float = 0.1


def work(config, output):
    return None


def play(config, output):
    return None


def test_one_value_that_has_no_hash_is_an_error_never_a_partial_key():
    """prefect#15861."""
    with pytest.raises(IdentityError, match=r"step a: other\.deep\.1: .* has no stable form"):
        Graph.of([Step("a", work, Config(value=1, other={"deep": [1, object()]}))])


def test_a_failed_result_is_not_served(toy, monkeypatch):
    """prefect#15658: raise once, fix, rerun."""
    monkeypatch.setenv("MARINADE_TEST_BREAK", "1")
    assert {step.status for step in toy.run().steps.values()} == {"failed", "not_run"}
    assert toy.plan()["first"].action in ("run", "resume")
    monkeypatch.delenv("MARINADE_TEST_BREAK")
    assert {step.status for step in toy.run().steps.values()} == {"succeeded"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(["fg", "bg"], ["bg", "fg"], id="genblaze#141"),
        pytest.param(("fg", "bg"), ("bg", "fg"), id="genblaze#141: tuple"),
        pytest.param(Adam(), Lion(), id="Marin: Adam(lr) and Lion(lr)"),
        pytest.param(Adam, Lion, id="Marin: two classes"),
        pytest.param(functools.partial(work, 1), functools.partial(work, 2), id="Marin: two partials"),
        pytest.param(functools.partial(work, 1), functools.partial(play, 1), id="Marin: partials of two functions"),
    ],
)
def test_different_things_differ(first, second):
    assert fingerprint(Config(first)) != fingerprint(Config(second))


def test_two_functions_of_one_name(toy):
    """joblib#1096: in two modules they are two; two in one module are an error."""
    keys = set()
    for number in (1, 2):
        toy.write(f"lib/one{number}.py", "def work(config, output):\n    return None\n", header=False)
        text = RECIPE.replace("def work(", "def own(").replace(
            "from lib.near", f"from lib.one{number} import work\n    from lib.near"
        )
        toy.write("toy_recipe.py", text)
        keys.add(toy.plan()["first"].key)
    assert len(keys) == 2

    shadowed = type(work)(work.__code__, {**globals(), "x": 1}, "work")
    shadowed.__module__, shadowed.__qualname__ = __name__, "play"
    with pytest.raises(IdentityError, match=r"play now names something else than this object"):
        Graph.of([Step("a", shadowed, Config())])


def test_a_lambda_is_an_error_that_says_what_to_write():
    """Measured in Marin: two lambdas had one hash."""
    with pytest.raises(IdentityError, match=r"value: a lambda has no stable name; define a function at module level"):
        fingerprint(Config(lambda x: x + 1))


def test_two_recipes_for_one_address_in_one_graph():
    """Measured in Marin."""
    one, other = Step("data", work, Config(1)), Step("data", work, Config(2))
    with pytest.raises(
        MarinadeError, match=r"(?s)two different steps are named data: one from a: value.*from b: value"
    ):
        Graph.of([Step("a", work, Config(one)), Step("b", work, Config(other))])


def test_upstream_changed_under_a_reused_version():
    """Measured in Marin: the version of a step says nothing about what it reads."""

    def key(rate: float) -> str:
        upstream = Step("up", work, Adam(rate), code="pin", version="1")
        return Graph.of([Step("down", work, Config(upstream), code="pin", version="1")]).keys["down"]

    assert key(0.1) != key(0.2)
