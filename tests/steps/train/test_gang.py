# ruff: noqa: E501 - a recipe as text
"""Training as a gang on Ray: a process on each of two hosts, one of them killed in the middle."""

import os
import pickle
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from executor.storage.processes import start_time
from steps.train.history import History

RECIPE = """
    import pickle, signal
    from executor import Resources
    from executor.context import enter
    from steps.train.step import train

    def work(config, output):
        here = current()

        def progress(done, *rest):
            here.on_progress(done, *rest)
            if (done, here.process) == (6, PROCESS) and not os.path.exists("FOLDER/killed"):
                put("FOLDER/killed", str(os.getpid()))
                os.kill(os.getpid(), SIGNAL)

        enter(dataclasses.replace(here, on_progress=progress))
        return train(config, output)

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        pass

    def build(settings: Settings):
        with open("FOLDER/config", "rb") as file:
            config = pickle.load(file)
        environment = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0", "JAX_PLATFORMS": "cpu"}
        return Experiment(targets=(Step("pretrain", work, config, resources=Resources(hosts=2, environment=environment)),))
    """

DRIVER = """
    import sys
    from executor.recipe import load
    from executor.driver.run import RunOptions, run_experiment
    from executor.storage.store import Store
    recipe = load("toy_recipe.py")
    def tell(event):
        print(event.__class__.__name__, getattr(event, "error", ""), getattr(event, "traceback", ""), flush=True)
    outcome = run_experiment(recipe.experiment("laptop", []), Store(sys.argv[1]), recipe=recipe, scale="laptop",
                             options=RunOptions(address=sys.argv[2]), listener=tell)
    sys.exit(outcome.exit_code)
    """


@pytest.fixture(scope="module")
def hosts(start_cluster):
    """Two hosts of one core each."""
    return start_cluster(1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("process", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_one_process_of_two_is_killed_and_both_go_on_from_the_last_checkpoint(
    process, number, project, hosts, config_of, unbroken, monkeypatch
):
    """SIGKILL: from step 4, which was published; SIGTERM: from the step that it was at."""
    changes = {"FOLDER": str(project.root), "PROCESS": str(process), "SIGNAL": str(int(number))}
    recipe = RECIPE
    for word, value in changes.items():
        recipe = recipe.replace(word, value)
    project.write("toy_recipe.py", recipe)
    (project.root / "config").write_bytes(pickle.dumps(config_of()))
    address, settings = hosts
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    driver = project.python(DRIVER, project.prefix, address, start_new_session=True, stderr=subprocess.STDOUT)
    try:
        said = driver.communicate(timeout=400)[0]
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        driver.stdout.close()
    assert driver.returncode == 0, said
    assert "starting it again" in said
    (step,) = project.plan().values()
    last, first = project.store.attempts(step.address)
    assert (first.status, last.status) == ("interrupted", "succeeded")
    folder = Path(project.prefix) / last.address
    history = History.read(str(folder / last.attempt / "history.json"))
    assert history.losses == pytest.approx(unbroken[1].losses, abs=1e-5)
    assert history.assignments == unbroken[1].assignments
    log = (folder / ".step/attempts" / last.attempt / "log.txt").read_text()
    begins = int(re.search(r"steps (\d+) to 12 of 12", log)[1])
    assert begins == 5 if number == signal.SIGKILL else begins > 6, log
    until = time.monotonic() + 20
    while start_time(int((project.root / "killed").read_text())) is not None:
        assert time.monotonic() < until, "a process is left"
        time.sleep(0.1)
