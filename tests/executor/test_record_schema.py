"""Records of real attempts against the schema that ships, and records of the first schema."""

import dataclasses
import json
from pathlib import Path

import jsonschema
import pytest

import executor
from executor.storage.record import Record

SCHEMA = json.loads((Path(executor.__file__).parent / "schemas" / "record.json").read_text())
RECIPE = """
@dataclasses.dataclass(frozen=True)
class C:
    of: Input | None = None
    fails: bool = False

@dataclasses.dataclass(frozen=True)
class Settings(Scales):
    fails: bool = False

def work(config, output):
    if config.fails:
        raise ValueError("no good")
    put(output + "/f", "x")
    return {"n": 1}

def build(settings: Settings) -> Experiment:
    first = Step("first", work, C())
    return Experiment(targets=(Step("second", work, C(of=first, fails=settings.fails)),))
"""


def test_the_schema_names_every_field_and_no_other():
    assert set(SCHEMA["properties"]) == {field.name for field in dataclasses.fields(Record)}


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
