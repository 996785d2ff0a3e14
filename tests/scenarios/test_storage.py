"""Failures of storage that users of other pipeline tools reported; each test names its source."""

import time

import pytest

from executor.storage.places import open_files
from executor.storage.store import Store

RECIPE = """
    import fsspec

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TextConfig:
        text: str
        source: Input | None = None

    def text(config, output):
        fs, path = fsspec.core.url_to_fs(output)
        before = fsspec.core.url_to_fs(config.source)[0].cat_file(config.source).decode() if config.source else ""
        fs.makedirs(f"{path}/out", exist_ok=True)
        fs.pipe_file(f"{path}/out/text", (before + config.text).encode())

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Settings(Scales):
        pass

    def build(settings: Settings) -> Experiment:
        a = Step("a", text, TextConfig(text="one"))
        return Experiment(targets=[Step("b", text, TextConfig(text="two", source=a / "out/text"))])
"""

TRAINING = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TrainConfig:
        steps: int

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class EvalConfig:
        model: Input

    def train(config, output):
        context, begin = current(), 0
        for folder in context.earlier_attempts:
            found = [int(name) for name in os.listdir(folder) if name.isdigit()]
            begin = max([begin, *found])
        put("./begun", str(begin))
        for at in range(begin + 1, config.steps + 1):
            put(f"{output}/{at}/weights", f"weights {at}")
            if at in context.milestones:
                context.publish(at, str(at))
            if at == 2 and os.path.exists("fail"):
                raise RuntimeError("lost the machine")

    def evaluate(config, output):
        put(f"{output}/loss", "loss of " + get(f"{resolved(config.model)}/weights"))

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Settings(Scales):
        pass

    def build(settings: Settings) -> Experiment:
        run = Step("run", train, TrainConfig(steps=3), digest="opaque")
        return Experiment(targets=[run, Step("eval", evaluate, EvalConfig(model=run.at_step(1)))])
"""


def shift_clock(monkeypatch, seconds: float) -> None:
    """What this process takes for the time, as on another host whose clock is off."""
    real_time, real_gmtime = time.time, time.gmtime
    monkeypatch.setattr(time, "time", lambda: real_time() + seconds)
    monkeypatch.setattr(time, "gmtime", lambda at=None: real_gmtime(real_time() + seconds if at is None else at))


def statuses(outcome) -> dict[str, str]:
    return {name: step.status for name, step in outcome.steps.items()}


def test_a_listing_cache_does_not_hide_another_writer(gcs):
    """gcsfs#562: files written elsewhere stay invisible until the cache of listings is dropped."""
    import gcsfs

    other = gcsfs.GCSFileSystem(token="anon", project="emulated", skip_instance_cache=True)
    store = Store(f"{gcs}/store")
    store.files.write("a-x/.step/attempts/1/log.txt", b"")
    assert store.files.names("a-x/.step/attempts") == ["1"] and store.run_ids() == ()
    assert store.files.fs.ls(f"{gcs}/store/a-x/.step/attempts")
    other.pipe_file(f"{gcs}/store/a-x/.step/attempts/2/log.txt", b"")
    other.pipe_file(f"{gcs}/store/.runs/1-r_laptop.json", b"{}")
    assert store.files.names("a-x/.step/attempts") == ["1", "2"]
    assert store.run_ids() == ("1-r_laptop",)
    assert sorted(store.files.find("a-x")) == [".step/attempts/1/log.txt", ".step/attempts/2/log.txt"]


def test_a_cache_that_lies_does_not_hide_another_writer(faults):
    """gcsfs#562, on a file system that serves what it remembers until it is told to forget."""
    first, other = Store(faults.url), Store(faults.url)
    first.files.write(".runs/1-r_laptop.json", b"{}")
    faults.set({"kind": "stale"})
    assert first.run_ids() == ("1-r_laptop",)
    other.files.write(".runs/2-r_laptop.json", b"{}")
    assert first.run_ids() == ("1-r_laptop", "2-r_laptop")


@pytest.mark.parametrize("hours", [-1.0, 1 / 6])
def test_clocks_apart_forced_milestones_and_resume(project, monkeypatch, hours):
    """snakemake#3261: hosts' clocks ten minutes (or an hour) apart; nothing compares them."""
    project.write("toy_recipe.py", TRAINING)
    (project.root / "fail").write_text("")
    assert statuses(project.run()) == {"run": "failed", "eval": "succeeded"}
    with monkeypatch.context() as patch:
        shift_clock(patch, hours * 3600)
        (project.root / "fail").unlink()
        assert project.plan()["run"].action == "resume"
        resumed = project.run()
        assert statuses(resumed) == {"run": "succeeded", "eval": "reused"}
        assert (project.root / "begun").read_text() == "2", "it went on from the checkpoint of the other host"
        assert statuses(project.run()) == {"run": "reused", "eval": "reused"}
    with monkeypatch.context() as patch:
        shift_clock(patch, -hours * 3600)
        forced = project.run(force=("run",))
        assert forced.steps["run"].status == "succeeded" and forced.steps["eval"].status == "succeeded"
        assert (project.root / "begun").read_text() == "0", "forced, so it began anew"
    assert forced.steps["run"].attempt != resumed.steps["run"].attempt
    last = project.run()
    assert statuses(last) == {"run": "reused", "eval": "reused"}
    assert last.steps["run"].attempt == forced.steps["run"].attempt, "the forced attempt counts"
    assert project.store.last_run("toy_recipe.py", "laptop").id == last.run_id


@pytest.mark.parametrize("kind", ["local", "gs"])
def test_a_prefix_with_a_space_a_colon_and_an_accent(project, request, kind):
    """snakemake#3235, snakemake#780: such a prefix works, and with or without a trailing slash it is one place."""
    base = str(project.root) if kind == "local" else request.getfixturevalue("gcs")
    project.write("toy_recipe.py", RECIPE)
    project.prefix = f"{base}/dir with space:é/x"
    first = project.run()
    assert statuses(first) == {"a": "succeeded", "b": "succeeded"}
    assert first.steps["b"].location.startswith(f"{base}/dir with space:é/x/b-")
    project.prefix = f"{base}/dir with space:é/x/"
    second = project.run()
    assert statuses(second) == {"a": "reused", "b": "reused"}
    assert second.steps["b"].location == first.steps["b"].location


def test_a_rewrite_of_the_same_size_is_seen(project, gcs):
    """redun compares sizes of objects on gs://; the checksum of the store tells."""
    import gcsfs

    project.write("toy_recipe.py", RECIPE)
    project.prefix = f"{gcs}/x"
    location = project.run().steps["b"].location
    gcsfs.GCSFileSystem(token="anon", project="emulated").pipe_file(f"{location}/out/text", b"ONETWO")
    plan = project.plan()
    assert plan["a"].action == "reuse" and plan["b"].action == "run"
    assert "other content than was written" in plan["b"].reasons[0].new
    assert open_files(project.run().steps["b"].location).read("out/text") == b"onetwo"


def test_the_adopted_object_is_known_by_more_than_its_size(gcs):
    """The same for data that no step made."""
    import gcsfs

    from executor.external import adopt, look

    fs = gcsfs.GCSFileSystem(token="anon", project="emulated")
    fs.pipe_file(f"{gcs}/raw/text", b"one")
    before = look(adopt(f"{gcs}/raw")).digest
    fs.pipe_file(f"{gcs}/raw/text", b"two")
    assert look(adopt(f"{gcs}/raw")).digest not in ("", before)
