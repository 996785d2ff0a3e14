"""Records of real attempts, milestones and runs against the schemas that ship, and records of the first schema."""

import dataclasses
import json
from pathlib import Path

import jsonschema
import pytest

import executor
from executor.storage.record import MilestoneRecord, Record, RunRecord
from executor.storage.source import Source

SCHEMAS = {file.stem: json.loads(file.read_text()) for file in (Path(executor.__file__).parent / "schemas").iterdir()}
SCHEMA = SCHEMAS["record"]
RECIPE = """
@dataclasses.dataclass(frozen=True)
class C:
    of: Input | None = None
    fails: bool = False

@dataclasses.dataclass(frozen=True)
class Settings(Scales):
    fails: bool = False

def work(config, output):
    if config.of is not None:
        put(output + "/checkpoints/step-2/w", "x")
        current().publish(2, "checkpoints/step-2", {"loss": 1.0})
    if config.fails:
        raise ValueError("no good")
    put(output + "/f", "x")
    return {"n": 1}

def build(settings: Settings) -> Experiment:
    first = Step("first", work, C())
    return Experiment(targets=(Step("second", work, C(of=first, fails=settings.fails)),))
"""


@pytest.mark.parametrize(
    "name, kind", [("record", Record), ("milestone", MilestoneRecord), ("run", RunRecord), ("source", Source)]
)
def test_a_schema_names_every_field_and_no_other(name, kind):
    assert set(SCHEMAS[name]["properties"]) == {field.name for field in dataclasses.fields(kind)}


@pytest.mark.parametrize("fails", [False, True])
def test_what_lies_beside_the_records_is_valid(project, fails):
    project.write("toy_recipe.py", RECIPE)
    project.run(f"fails={fails}")
    places = {"milestone": ".step/milestones/*.json", "run": ".runs/*.json", "source": ".step/attempts/*/source.json"}
    for name, place in places.items():
        files = list(project.root.rglob(place))
        assert files, name
        for file in files:
            jsonschema.validate(json.loads(file.read_text()), SCHEMAS[name])
    (run,) = project.store.runs()
    broken = json.loads(run.to_json())
    broken["outcome"]["second"]["seconds"] = "long"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, SCHEMAS["run"])


@pytest.mark.parametrize("fails", [False, True])
def test_records_of_attempts_are_valid(project, fails):
    project.write("toy_recipe.py", RECIPE)
    project.run(f"fails={fails}")
    plan = project.plan(f"fails={fails}")
    files = list((project.root).rglob(".step/attempts/*/record.json")) + list(project.root.rglob(".step/record.json"))
    assert len(files) >= 3
    for file in files:
        jsonschema.validate(json.loads(file.read_text()), SCHEMA)
    [record] = project.store.attempts(plan["second"].address) or project.store.attempts(plan["first"].address)
    assert record.schema == 2
    broken = json.loads(record.to_json()) | {"number": 0}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, SCHEMA)


def test_a_record_of_the_first_schema_is_read():
    """What version 1 wrote, with fewer fields and a provenance without branch and patch."""
    old = {
        "schema": 1, "name": "corpus", "address": "corpus-abc", "attempt": "20260101T000000000000", "number": 1,
        "status": "succeeded", "recipe_key": "sha256:1", "content_key": "sha256:2", "digest": "sha256:3",
        "payload": {"function": "steps.corpus.collect", "config": {"$type": "C", "n": 1}, "version": ""},
        "inputs": [{"path": "raw", "step": "raw", "part": "", "recipe_key": "k", "digest": "d", "location": "/x",
                    "execution_only": False}],
        "files": [{"path": "a", "size": 1, "digest": "sha256:4"}], "result": {"n": 1}, "milestones": [], "events": [],
        "code": {}, "source": {}, "execution_only": {}, "error": "", "started": "s", "ended": "e", "wall_seconds": 1.0,
        "resources": {"cpus": 1}, "provenance": {"recipe": "recipes/x.py", "commit": "0123", "modified": False},
    }  # fmt: skip
    record = Record.from_json(json.dumps(old))
    assert (record.schema, record.amends, record.finished, record.inputs[0].step) == (1, "", True, "raw")
