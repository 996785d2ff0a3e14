"""From an artifact back: in its store, copied elsewhere with the store gone, and as a crate that other tools read."""

import json
import shutil

import pytest

from executor import UsageError
from executor.commands.finding import trace_artifact
from executor.comparing.reproduction import compare_outputs
from executor.history.crate import PROFILE, write_crate
from executor.history.lineage import why

RECIPE = """
@dataclasses.dataclass(frozen=True)
class C:
    number: float
    words: Input | None = None
    other: Input | None = None

@dataclasses.dataclass(frozen=True)
class Settings(Scales):
    data: str = ""

def make(config, output):
    put(output + "/train/part.txt", str(config.number))
    return {"n": config.number}

def build(settings: Settings) -> Experiment:
    raw = adopt(settings.data)
    a = Step("a", make, C(1.0, raw))
    b = Step("b", make, C(2.0, a / "train", raw))
    return Experiment(targets=[Step("c", make, C(3.0, a, b))])
"""


@pytest.fixture
def ran(project):
    """The address of `c`, which reads `b` and `a`; `b` reads `a`; both read a raw file."""
    project.write("toy_recipe.py", RECIPE)
    raw = project.write("words.txt", "some words", header=False)
    outcome = project.run("data=" + str(raw))
    assert outcome.exit_code == 0
    return outcome.steps["c"].address


def edges(lineage):
    return {(item.record.name, found.step) for item in lineage.ancestors for found, _ in item.inputs}


def test_every_input_is_an_edge_and_why_finds_the_shortest_path(project, ran):
    found = trace_artifact(ran, project.prefix)
    raw = next(found for item in found.ancestors for found, number in item.inputs if number is None)
    assert edges(found) == {("c", "b"), ("c", "a"), ("b", "a"), ("a", raw.step), ("b", raw.step)}
    assert [step.record.name for step in why(found, "a")] == ["c", "a"]
    with pytest.raises(UsageError, match=r"nothing is not among the ancestors of c .*; they are: a, b"):
        why(found, "nothing")


def test_an_artifact_copied_with_its_step_folder_knows_what_it_was_made_from(project, ran, tmp_path):
    """Its store is gone: its own record is whole, and each input that cannot be followed is named with its digest."""
    before = trace_artifact(ran, project.prefix)
    copied = tmp_path / "elsewhere" / "their-model"
    shutil.copytree(f"{project.prefix}/{ran}", copied)
    shutil.rmtree(project.prefix)
    (part,) = copied.glob("*/train/part.txt")
    for place in (copied, part):
        found = trace_artifact(str(place), None)
        assert len(found.ancestors) == 1 and found.root == before.root
        assert found.root.source, "the code that it ran came along"
        assert {(i.step, i.digest) for i in found.root.inputs} == {(i.step, i.digest) for i in before.root.inputs}
        assert {location for location, _ in found.missing} == {i.location for i in found.root.inputs}


def test_outputs_are_compared_inputs_first(project, ran):
    """`c` reads `a` before `b`, which reads `a` too."""
    lineage = trace_artifact(ran, project.prefix)
    outputs = compare_outputs(lineage, lineage)
    assert [(output.step, output.equal) for output in outputs] == [("a", True), ("b", True), ("c", True)]


def graph_of(folder):
    data = json.loads((folder / "ro-crate-metadata.json").read_text())
    return {entity["@id"]: entity for entity in data["@graph"]}


def references(value):
    if isinstance(value, dict) and set(value) == {"@id"}:
        yield value["@id"]
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from references(item)


def test_a_crate_has_the_same_edges_and_all_records(project, ran, tmp_path):
    from rocrate.rocrate import ROCrate

    lineage = trace_artifact(ran, project.prefix)
    write_crate(lineage, str(tmp_path / "crate"))
    crate = ROCrate(str(tmp_path / "crate"))  # the library reads what it wrote
    assert {entity.id for entity in crate.data_entities} >= {
        f"records/{item.record.address}/{item.record.attempt}.json" for item in lineage.ancestors
    }
    graph = graph_of(tmp_path / "crate")
    assert graph["./"]["conformsTo"] == {"@id": PROFILE}
    dangling = {found for entity in graph.values() for found in references(entity)} - set(graph)
    assert dangling == {graph["ro-crate-metadata.json"]["conformsTo"]["@id"]}, "all but the specification is in it"

    actions = {entity["name"]: entity for entity in graph.values() if entity["@type"] == "CreateAction"}
    assert {one["@id"] for one in graph["./"]["mentions"]} == {action["@id"] for action in actions.values()}
    read = {
        (name, graph[one["@id"]]["name"])
        for name, action in actions.items()
        for one in action["object"]
        if graph[one["@id"]]["@type"] == "Dataset"
    }
    assert read == edges(lineage)
    assert graph[actions["c"]["result"]["@id"]]["identifier"] == [lineage.root.recipe_key, lineage.root.digest]
    assert graph[actions["c"]["instrument"]["@id"]]["name"] == "toy_recipe.make"
    values = {graph[one["@id"]]["name"]: graph[one["@id"]].get("value") for one in actions["c"]["object"]}
    assert values["number"] == 3.0
    record = (tmp_path / "crate" / actions["c"]["subjectOf"]["@id"]).read_text()
    assert json.loads(record) == json.loads(lineage.root.to_json()) and lineage.root.source, "its code is with it"

    with pytest.raises(UsageError, match="there is something already"):
        write_crate(lineage, str(tmp_path / "crate"))
