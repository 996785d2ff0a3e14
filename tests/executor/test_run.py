# ruff: noqa: E501 - recipes and tables as text
"""What a run keeps of failures, milestones, secrets and raw inputs; all in this process."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from executor import MarinadeError, ResourcesMissing, Store
from executor.storage.lease import holder
from executor.storage.locate import read_record

FAILING = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        mode: str = ""
        source: Input | None = None

    class Odd(Exception):
        def __reduce__(self):
            raise TypeError("cannot be pickled")

    def work(config, output):
        print("working", config.mode)
        put(f"{output}/a", "x")
        if config.mode == "fail" and not os.environ.get("MARINADE_TEST_FIXED"):
            raise Odd("it broke")
        if config.mode == "exit":
            raise SystemExit(3)
        if config.mode == "halt":
            raise __import__("executor").StepHalted("the loss left its band")
        if config.mode == "full":
            with open("/dev/full", "w") as file:
                file.write("x")
        if config.mode == "result":
            return {"x": object()}

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        mode: str = "fail"
        part: str = ""
        gpus: int = 0

    def build(settings: Settings):
        bad = Step("bad", work, Config(mode=settings.mode), resources=Resources(gpus=settings.gpus, hosts=1 + settings.gpus))
        source = bad / settings.part if settings.part else bad
        good = Step("good", work, Config())
        return Experiment(targets=(Step("after", work, Config(source=source)), Step("end", work, Config(mode="e", source=good))))
    """


def actions(plan) -> dict[str, str]:
    return {name: step.action for name, step in plan.items()}


def statuses(outcome) -> dict[str, str]:
    return {name: step.status for name, step in outcome.steps.items()}


@pytest.fixture
def failing(project):
    project.write("toy_recipe.py", FAILING)
    return project


@pytest.mark.parametrize(
    ("mode", "said"),
    [("fail", "Odd: it broke"), ("exit", "SystemExit"), ("result", "not JSON"), ("full", "no space left on device")],
)
def test_a_failure_stops_its_dependents_only_and_is_kept(failing, mode, said):
    outcome = failing.run(f"mode={mode}")
    assert statuses(outcome) == {"bad": "failed", "after": "not_run", "good": "succeeded", "end": "succeeded"}
    assert outcome.exit_code == 1
    bad = outcome.steps["bad"]
    assert said in bad.error and "bad" in bad.error
    assert "toy_recipe.py" in bad.traceback or mode == "result"
    assert "working" in Path(bad.log).read_text() and bad.log_tail
    (attempt,) = failing.store.attempts(bad.address)
    assert attempt.status == "failed" and said in attempt.error and attempt.ended
    assert outcome.steps["after"].error == "needs bad"
    plan = failing.plan(f"mode={mode}")
    assert plan["bad"].reasons[0].kind == "failed" and said in plan["bad"].reasons[0].new


def test_a_failure_is_raised_once_then_fixed_then_runs(failing, monkeypatch):
    failing.run()
    monkeypatch.setenv("MARINADE_TEST_FIXED", "1")
    assert statuses(failing.run()) == {"bad": "succeeded", "after": "succeeded", "good": "reused", "end": "reused"}


def test_fail_fast(failing):
    outcome = failing.run(fail_fast=True)
    assert outcome.steps["bad"].status == "failed"
    assert "succeeded" not in statuses(outcome).values()


def test_a_part_that_was_not_written_fails_its_writer(failing):
    outcome = failing.run("mode=", "part=train")
    assert outcome.steps["bad"].status == "failed"
    assert "without writing 'train', which step after reads; it wrote a" in outcome.steps["bad"].error


def test_a_halted_step_waits_for_an_acknowledgement(failing):
    outcome = failing.run("mode=halt")
    assert outcome.steps["bad"].status == "halted" and outcome.exit_code == 1
    plan = failing.plan("mode=halt")
    assert actions(plan) == {"bad": "halted", "after": "blocked", "good": "reuse", "end": "reuse"}
    outcome = failing.run("mode=halt")
    assert "loss left its band; go on with --acknowledge bad" in outcome.steps["bad"].error
    assert failing.plan("mode=halt", acknowledge=("bad",))["bad"].action == "resume"


def test_a_halted_step_is_not_said_to_have_other_inputs(failing):
    for _ in range(2):
        failing.run("mode=halt")
        plan = failing.plan("mode=halt")
        assert "content" not in {reason.path for reason in plan["bad"].reasons}


def test_a_step_that_failed_keeps_its_content_key_where_it_has_one(failing):
    failing.run("mode=halt")
    outcome = failing.store.last_run("toy_recipe.py", "laptop").outcome
    assert outcome["bad"]["content_key"] == failing.plan("mode=halt")["bad"].content_key != ""
    assert outcome["after"]["content_key"] == ""


def test_missing_machines_stop_the_run_before_anything_starts(failing):
    with pytest.raises(
        ResourcesMissing, match=r"(?s)bad needs 10000 hosts, each with 9999 GPUs.*there is this machine"
    ):
        failing.run("mode=", "gpus=9999")
    assert not Path(failing.prefix).exists()


def test_a_full_disk_names_the_step_and_the_rerun_goes_on(failing, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(small)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system can be mounted by root only")
    try:
        text = FAILING.replace(
            'put(f"{output}/a", "x")', 'put(f"{output}/a", "x" * (1 << 20 if config.mode == "" else 10))'
        )
        failing.write("toy_recipe.py", text)
        failing.prefix = str(small / "store")
        outcome = failing.run("mode=ok")
        assert outcome.steps["bad"].status == "succeeded"
        assert outcome.steps["good"].status == "failed"
        assert "step good: no space left on device" in outcome.steps["good"].error
        subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
        assert statuses(failing.run("mode=ok")) == {
            "bad": "reused", "after": "succeeded", "good": "succeeded", "end": "succeeded",
        }  # fmt: skip
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


MILESTONES = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TrainConfig:
        steps: int
        start: Input | None = None

    def train(config, output):
        context, begin = current(), 0
        for folder in context.earlier_attempts:
            found = sorted(os.listdir(f"{folder}/checkpoints")) if os.path.isdir(f"{folder}/checkpoints") else []
            if found:
                begin = int(found[-1])
                break
        for step in range(begin + 1, config.steps + 1):
            put(f"{output}/checkpoints/{step:03}/state", f"{step}")
            if step in context.milestones or step == config.steps:
                context.publish(at=step, part=f"checkpoints/{step:03}")
            if step == context.stop_at:
                return {"begin": begin, "end": step}
        return {"begin": begin, "end": config.steps}

    def read(config, output):
        put(f"{output}/text", get(f"{resolved(config.start)}/state"))

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        whole: bool = False
        at: int = 4

    def build(settings: Settings):
        base = Step("base", train, TrainConfig(steps=10), digest="opaque")
        fork = Step("fork", read, TrainConfig(steps=0, start=base.at_step(settings.at)))
        return Experiment(targets=(fork, base) if settings.whole else (fork,))
    """


def test_a_step_runs_as_far_as_its_furthest_wanted_milestone_and_resumes_from_there(project):
    project.write("toy_recipe.py", MILESTONES)
    plan = project.plan()
    assert (plan["base"].action, plan["base"].stop_at) == ("run", 4)
    outcome = project.run()
    assert statuses(outcome) == {"base": "stopped_at_milestone", "fork": "succeeded"}
    assert outcome.exit_code == 0
    base = outcome.steps["base"]
    assert base.result == {"begin": 0, "end": 4}
    assert project.store.record(base.address) is None, "it is not the whole artifact"
    (read,) = project.store.record(outcome.steps["fork"].address).inputs
    assert read.part == "@4" and read.digest == project.store.milestones(base.address)[4].digest
    assert read_record(read.location).attempt == base.attempt
    assert statuses(project.run()) == {"base": "reused", "fork": "reused"}
    plan = project.plan("whole=true")
    assert (plan["base"].action, plan["base"].stop_at, plan["fork"].action) == ("resume", None, "reuse")
    outcome = project.run("whole=true")
    assert outcome.steps["base"].result == {"begin": 4, "end": 10}
    assert statuses(outcome) == {"base": "succeeded", "fork": "reused"}
    assert set(project.store.milestones(base.address)) == {4, 10}
    plan = project.plan("at=6")
    assert (plan["base"].action, plan["base"].stop_at, plan["base"].reasons[0].path) == ("resume", 6, "@6")


def test_a_milestone_that_was_not_published_fails_its_writer(project):
    project.write("toy_recipe.py", MILESTONES.replace("if step in context.milestones or", "if"))
    outcome = project.run()
    assert outcome.steps["base"].status == "failed"
    assert "without publishing milestone 4" in outcome.steps["base"].error


RAW = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        source: Input
        touch: str = execution("")

    def work(config, output):
        text = get(resolved(config.source)) if os.path.isfile(config.source) else "folder"
        if config.touch:
            put(config.touch, "moved while read")
        put(f"{output}/a", text)

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        url: str = ""
        digest: str = ""
        touch: str = ""

    def build(settings: Settings):
        raw = external(settings.url, digest=settings.digest) if settings.digest else adopt(settings.url)
        return Experiment(targets=(Step("work", work, Config(source=raw, touch=settings.touch)),))
    """


def test_adopted_data_is_known_by_its_listing(project):
    project.write("toy_recipe.py", RAW)
    data = project.root / "data.txt"
    unreachable = project.plan(f"url={data}")
    assert [step.action for step in unreachable.values()] == ["maybe", "maybe"]
    assert unreachable["work"].reasons[0].kind == "unreachable"
    outcome = project.run(f"url={data}")
    assert outcome.exit_code == 1 and "there is no such file" in "".join(s.error for s in outcome.steps.values())
    assert outcome.steps["work"].status == "not_run"
    data.write_text("one")
    assert project.run(f"url={data}").steps["work"].status == "succeeded"
    assert set(actions(project.plan(f"url={data}")).values()) == {"reuse"}
    data.write_text("two")
    assert project.plan(f"url={data}")["work"].action == "run"
    moved = project.run(f"url={data}", f"touch={data}")
    assert "changed while it was read" in moved.steps["work"].error
    assert project.store.record(moved.steps["work"].address) is None


def test_external_data_must_have_its_digest(project):
    import hashlib

    project.write("toy_recipe.py", RAW)
    for name in ("data.txt", "moved.txt"):
        (project.root / name).write_text("content")
    digest = "sha256:" + hashlib.sha256(b"content").hexdigest()
    assert project.run(f"url={project.root}/data.txt", f"digest={digest}").exit_code == 0
    assert project.plan(f"url={project.root}/moved.txt", f"digest={digest}")["work"].action == "reuse"
    wrong = project.run(f"url={project.root}/data.txt", f"digest=sha256:{'0' * 64}")
    assert "declared was sha256:0000" in wrong.steps["work"].error


SECRET = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        token: Secret = Secret("MARINADE_TEST_TOKEN")

    def work(config, output):
        value = config.token.value()
        print("token", value, "https://me:hunter2@host/x")
        import logging
        logging.getLogger("x").warning("again %s", value)
        put(f"{output}/a", str(len(value)))
        if os.environ.get("MARINADE_TEST_FAIL"):
            raise ValueError(f"refused {value} at https://me:hunter2@host/x")
        return {"seen": value}

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        pass

    def build(settings: Settings):
        return Experiment(targets=(Step("work", work, Config()),))
    """


@pytest.mark.parametrize("fail", ["", "1"])
def test_a_secret_is_written_nowhere(project, monkeypatch, fail):
    monkeypatch.setenv("MARINADE_TEST_TOKEN", "s3cr3t-value-of-a-token")
    monkeypatch.setenv("MARINADE_TEST_FAIL", fail)
    project.write("toy_recipe.py", SECRET)
    outcome = project.run()
    assert outcome.steps["work"].status == ("failed" if fail else "succeeded")
    assert "token ***" in Path(outcome.steps["work"].log).read_text()
    everything = "".join(path.read_text() for path in Path(project.prefix).rglob("*") if path.is_file())
    for hidden in ("s3cr3t-value", "hunter2"):
        assert hidden not in everything + repr(outcome) + repr(project.events)
    assert "MARINADE_TEST_TOKEN" in everything


def test_code_edited_after_the_plan_is_an_error(project, monkeypatch):
    project.write("toy_recipe.py", SECRET)
    monkeypatch.setenv("MARINADE_TEST_TOKEN", "s3cr3t-value-of-a-token")
    recipe = project.recipe()
    from executor.driver.run import RunOptions, run_experiment

    def edit(event):
        project.write("toy_recipe.py", SECRET.replace('print("token"', 'print("tokens"'))

    outcome = run_experiment(
        recipe.experiment(),
        project.store,
        recipe=recipe,
        scale="laptop",
        options=RunOptions(inline=True),
        listener=edit,
    )
    assert "not the code that was planned (toy_recipe.work)" in outcome.steps["work"].error


def test_inline_steps_that_need_different_environments_are_an_error(project):
    text = FAILING.replace(
        "resources=Resources(gpus=settings.gpus, hosts=1 + settings.gpus)",
        'resources=Resources(environment={"A_B": "1"})',
    )
    text = text.replace(
        'Step("good", work, Config())', 'Step("good", work, Config(), resources=Resources(environment={"A_B": "2"}))'
    )
    project.write("toy_recipe.py", text)
    with pytest.raises(MarinadeError, match="bad needs A_B=1 and good needs A_B=2"):
        project.run("mode=")


TWO = """
    import sys
    from executor.recipe import load
    from executor.driver.run import RunOptions, run_experiment
    from executor.storage.store import Store
    recipe = load("toy_recipe.py")
    outcome = run_experiment(recipe.experiment(), Store(sys.argv[1]), recipe=recipe, scale="laptop",
                             options=RunOptions(inline=True), listener=lambda event: print(event.__class__.__name__, flush=True))
    sys.exit(outcome.exit_code)
    """
COUNTED = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        number: int
        source: Input | None = None

    def work(config, output):
        begin = 0
        for folder in current().earlier_attempts:
            begin = max(begin, len(os.listdir(folder)))
        for part in range(begin, 10):
            put(f"{output}/{part}", "x")
            time.sleep(0.1)
        with open("calls.txt", "a") as file:
            file.write(f"{config.number} {begin}\\n")

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        pass

    def build(settings: Settings):
        step = None
        for number in range(3):
            step = Step(f"s{number}", work, Config(number=number, source=step))
        return Experiment(targets=(step,))
    """


def test_two_drivers_on_one_prefix_run_each_step_once(project):
    project.write("toy_recipe.py", COUNTED)
    drivers = [project.python(TWO, project.prefix) for _ in range(2)]
    said = [driver.communicate(timeout=60)[0] for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0]
    assert sorted((project.root / "calls.txt").read_text().split("\n")) == ["", "0 0", "1 0", "2 0"]
    assert "StepWaiting" in said[0] + said[1]


def test_a_killed_driver_loses_nothing_finished_and_resumes_the_rest(project):
    project.write("toy_recipe.py", COUNTED)
    driver = project.python(TWO, project.prefix)
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.strip() == "StepFinished":
            break
    while not any(path.name == "2" for path in Path(project.prefix).glob("s1-*/*/*")):
        pass
    driver.kill()
    driver.wait()
    driver.stdout.close()
    plan = project.plan()
    assert [step.action for step in plan.values()] == ["reuse", "resume", "run"]
    again = project.python(TWO, project.prefix)
    assert again.communicate(timeout=60) and again.returncode == 0
    calls = dict(line.split() for line in (project.root / "calls.txt").read_text().splitlines())
    assert int(calls["1"]) >= 2 and calls["0"] == calls["2"] == "0"
    last, killed = Store(project.prefix).attempts(plan["s1"].address)
    assert (last.status, killed.status) == ("succeeded", "interrupted") and "ended without a word" in killed.error


def test_interrupting_is_recorded_and_frees_the_lease(project):
    import signal

    project.write("toy_recipe.py", COUNTED)
    driver = project.python(TWO, project.prefix)
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.strip() == "StepStarted":
            break
    driver.send_signal(signal.SIGINT)
    assert driver.wait(timeout=30) == 130
    driver.stdout.close()
    plan = project.plan()
    (attempt,) = project.store.attempts(plan["s0"].address)
    assert attempt.status == "interrupted" and attempt.ended
    assert holder(project.store, plan["s0"].content_key) is None


def test_a_cached_run_imports_nothing_heavy(project):
    project.write("toy_recipe.py", COUNTED.replace("time.sleep(0.1)", "pass"))
    project.run()
    code = TWO.replace(
        "sys.exit(outcome.exit_code)",
        "import json\n"
        "    heavy = [n for n in ('jax', 'numpy', 'ray', 'fsspec', 'gcsfs', 'draccus', 'tenacity', 'levanter') if n in sys.modules]\n"
        "    print(json.dumps([outcome.exit_code, heavy]))",
    )
    said = project.python(code, project.prefix).communicate(timeout=60)[0]
    assert json.loads(said.splitlines()[-1]) == [0, []]
    assert os.path.isdir(project.prefix)
