"""One run in several processes: the same batches, losses within 1e-5 of one process, any number goes on from another's
checkpoint."""

import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from steps.train.history import History

ROOT = Path(__file__).resolve().parents[3]
DEVICES = 8
RUN = """
import pickle, sys, threading
from executor.context import StepContext, enter
config, context = pickle.load(open(sys.argv[1], "rb"))
enter(StepContext(**context, process=int(sys.argv[2]), processes=int(sys.argv[3]), coordinator=sys.argv[4]))
from steps.train.step import train
train(config, context["output"])
"""


@pytest.fixture
def run_in_processes(tmp_path):
    """Train in so many processes that share 8 virtual devices; the history that process 0 wrote."""

    def run(processes: int, config, output: Path, *, devices: int = DEVICES, **context) -> History:
        output.mkdir(exist_ok=True)
        (tmp_path / "call").write_bytes(pickle.dumps((config, {"name": "t", "output": str(output), **context})))
        with socket.socket() as probe:
            probe.bind(("127.0.0.2", 0))
            address = f"127.0.0.2:{probe.getsockname()[1]}"
        flags = f"--xla_force_host_platform_device_count={devices // processes} --xla_backend_optimization_level=0"
        environment = os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
        started = [
            subprocess.Popen(
                [sys.executable, "-c", RUN, str(tmp_path / "call"), str(process), str(processes), address],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for process in range(processes)
        ]
        said = [process.communicate(timeout=300)[0] for process in started]
        assert [process.returncode for process in started] == [0] * processes, "\n\n".join(said)
        return History.read(str(output / "history.json"))

    return run


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_processes_train_as_one_does(processes, config_of, unbroken, run_in_processes, tmp_path):
    history = run_in_processes(processes, config_of(), tmp_path / "out")
    assert history.losses == pytest.approx(unbroken[1].losses, abs=1e-5)
    assert [one.macro_loss for one in history.evals] == pytest.approx(
        [one.macro_loss for one in unbroken[1].evals], abs=1e-5
    )
    assert history.assignments == unbroken[1].assignments, "the same tokens at every step"
    permanent = sorted(path.name for path in (tmp_path / "out/checkpoints").iterdir())
    assert permanent == ["step-12", "step-4", "step-8"] and not (tmp_path / "out/rolling").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [((1, 8), (2, 8)), ((2, 8), (1, 4)), ((2, 4), (4, 8)), ((1, 2), (1, 8))])
def test_another_number_of_processes_and_devices_goes_on(
    before, after, config_of, unbroken, run_in_processes, tmp_path
):
    """Both given as (processes, devices)."""
    run_in_processes(before[0], config_of(until_step=8), tmp_path / "first", devices=before[1])
    history = run_in_processes(
        after[0], config_of(), tmp_path / "second", devices=after[1], earlier_attempts=(str(tmp_path / "first"),)
    )
    assert history.steps == 12
    assert history.losses == pytest.approx(unbroken[1].losses, abs=1e-5)
    assert history.assignments == unbroken[1].assignments
