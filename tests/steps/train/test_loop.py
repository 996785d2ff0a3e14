"""Training as a user sees it: resumed, split into phases, forked; always the same run.

Each case trains a two-layer model for a few steps on a few kilobytes.
"""

import dataclasses
import json
import math
import os
from fnmatch import fnmatchcase
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from executor.comparing.metrics import Description
from steps.train.advance import compile_step
from steps.train.checkpoint import RunCheckpoints
from steps.train.config import EvaluationConfig, OptimizerConfig, TrackerConfig
from steps.train.history import History
from steps.train.metrics import training_row
from steps.train.schedule import ScheduleConfig


def test_it_learns_and_measures(unbroken):
    output, history = unbroken
    assert history.losses[-1] < history.losses[0] - 0.25
    assert [evaluation.step for evaluation in history.evals] == [4, 8, 12]
    assert [evaluation.progress for evaluation in history.evals] == pytest.approx([1 / 3, 2 / 3, 1])
    assert set(history.evals[-1].losses) == {"letters", "numbers"}
    assert history.assignments == [8 * 32 * 2 * 2] * 12  # sequences x tokens x top_k x layers
    rows = [json.loads(line) for line in (output / "log" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 13))
    named = {"train/loss", "grad/norm/total", "moe/drop_fraction", "train/router/bias_max", "mixture/weight/letters"}
    assert named <= set(rows[0])
    assert [row["grad/norm/total"] for row in rows] == history.gradient_norms
    loads = [(row["moe/largest_device"], row["moe/largest_pair"]) for row in rows]
    assert loads == list(zip(history.largest_device, history.largest_pair, strict=True))
    # Two devices: a device's rows are 1 to 2 times the mean, and so are one sender's for it, of which it is half.
    assert all(1 <= device <= pair <= 2 for device, pair in loads) and len(set(loads)) > 1
    assert [row["mixture/stage"] for row in rows] == [0] * 8 + [1] * 4
    assert (rows[0]["mixture/weight/letters"], rows[-1]["mixture/weight/letters"]) == (0.75, 0.25)


def test_growth_of_the_gradient_norm():
    """16 steps: the second quarter is steps 5 to 8, the last eighth steps 15 and 16."""
    norms = [9.0] * 4 + [1.0, 2.0, 3.0, 2.0] + [7.0] * 6 + [3.0, 5.0]
    history = History(losses=[1.0] * 16, gradient_norms=norms)
    assert history.gradient_norm() == {"second_quarter": 2.0, "end": 4.0, "growth": 2.0}
    history.losses.append(1.0)  # continues a run that did not keep them
    assert history.gradient_norm() is None


def test_metrics_say_how_they_are_read(unbroken):
    said = json.loads((unbroken[0] / "log" / "metrics.json").read_text())
    description = Description.of(said)
    assert (description.axis_name, description.begins) == ("tokens", 0)
    rows = [json.loads(line) for line in (unbroken[0] / "log" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1][description.axis] == 12 * 8 * 32
    for item in (*description.final, *description.drawn):
        assert any(fnmatchcase(column, item.column) for column in rows[-1]), item


def test_a_killed_run_resumes_bit_for_bit(run, config_of, unbroken, tmp_path, monkeypatch):
    """The first attempt stops at a milestone and leaves its folder; the second finds the checkpoint in it.

    Rows are written with every rolling checkpoint: what was logged before it must not be lost with a killed process.
    """
    logs = tmp_path / "logs"
    is_written = []

    def save(self, state, step, history):
        is_written.append((logs / "1" / "metrics.jsonl").exists())

    with monkeypatch.context() as patched:
        patched.setattr(RunCheckpoints, "is_due", property(lambda self: True))
        patched.setattr(RunCheckpoints, "save_rolling", save)
        first = run(config_of(), tmp_path / "first", stop_at=4, log_dir=str(logs / "1"))
    assert first.steps == 4 and is_written == [False, True, True]
    second = run(config_of(), tmp_path / "second", earlier_attempts=(str(tmp_path / "first"),), log_dir=str(logs / "2"))
    assert second == unbroken[1]
    assert json.loads((logs / "2" / "metrics.json").read_text())["begins"] == 4 * 8 * 32


def test_a_half_written_checkpoint_is_never_chosen(run, config_of, unbroken, tmp_path):
    run(config_of(), tmp_path / "first", stop_at=8)
    (tmp_path / "first" / "checkpoints" / "step-8" / "metadata.json").unlink()
    second = run(config_of(), tmp_path / "second", earlier_attempts=(str(tmp_path / "first"),))
    assert second == unbroken[1]


@pytest.mark.slow
def test_a_milestone_behind_the_newest_checkpoint_is_reached_and_published(run, config_of, unbroken, tmp_path):
    """An attempt got to step 8 and never published step 4: the next one publishes that, then goes on from it."""
    run(config_of(), tmp_path / "first", stop_at=8)
    published: list[int] = []
    history = run(
        config_of(),
        tmp_path / "second",
        earlier_attempts=(str(tmp_path / "first"),),
        milestones=(4,),
        unpublished=(4,),
        on_publish=lambda at, part, result: published.append(at),
    )
    assert published == [4, 8, 12]
    assert history == unbroken[1]


def test_phases_are_one_run(run, config_of, unbroken, tmp_path):
    """Pretrain to step 8 and midtrain from there equal the run in one step: data, schedule, moments, router bias."""
    whole = config_of()
    pretrain = dataclasses.replace(
        whole, until_step=8, data=dataclasses.replace(whole.data, stages=whole.data.stages[:1])
    )
    run(pretrain, tmp_path / "pretrain")
    midtrain = dataclasses.replace(
        whole,
        start=str(tmp_path / "pretrain" / "checkpoints" / "step-8"),
        start_step=8,
        data=dataclasses.replace(whole.data, stages=whole.data.stages[1:]),
    )
    assert run(midtrain, tmp_path / "midtrain") == unbroken[1]


def test_midtrain_with_its_own_rate_shares_the_past_and_not_the_future(run, config_of, unbroken, tmp_path):
    whole = config_of()
    changed = dataclasses.replace(
        whole,
        start=str(unbroken[0] / "checkpoints" / "step-8"),
        start_step=8,
        data=dataclasses.replace(whole.data, stages=whole.data.stages[1:]),
        schedule=dataclasses.replace(whole.schedule, learning_rate=0.001, phase_start=8),
    )
    history = run(changed, tmp_path)
    assert history.losses[:9] == unbroken[1].losses[:9]
    assert history.losses[9:] != unbroken[1].losses[9:]


def test_fine_tuning_takes_weights_and_begins_anew(run, config_of, unbroken, tmp_path):
    tuning = config_of(
        conversations=True,
        schedule=ScheduleConfig(horizon_steps=6),
        until_step=6,
        initial=str(unbroken[0] / "checkpoints" / "step-12"),
        evaluation=EvaluationConfig(marks=1, sequences_per_domain=8),
    )
    history = run(tuning, tmp_path)
    assert history.steps == 6
    assert history.losses[-1] < history.losses[0]
    assert set(history.evals[-1].losses) == {"answers"}


def test_a_loss_that_is_not_finite_stops_and_says_where(run, config_of, tmp_path):
    wild = config_of(optimizer=OptimizerConfig(learning_rate=1e30, adam_learning_rate=1e30))
    with pytest.raises(FloatingPointError, match=r"guard non_finite: step \d+: the loss is (nan|inf)"):
        run(wild, tmp_path / "out", log_dir=str(tmp_path / "log"))
    rows = [json.loads(line) for line in (tmp_path / "log" / "metrics.jsonl").read_text().splitlines()]
    assert not math.isfinite(rows[-1]["train/cross_entropy_loss"])


def test_a_start_at_another_step_than_declared_is_refused(run, config_of, unbroken, tmp_path):
    wrong = config_of(start=str(unbroken[0] / "checkpoints" / "step-4"), start_step=8)
    with pytest.raises(ValueError, match="start_step is 8"):
        run(wrong, tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"until_step": 13}, "within the horizon"),
        ({"start_step": 4}, "belong together"),
        ({"batch_size": 7}, r"batch_size\(7\) % expert_parallel\(2\) = 1"),
    ],
)
def test_wrong_configs_are_refused(config_of, changes, message):
    with pytest.raises(ValueError, match=message):
        config_of(**changes)


@pytest.mark.slow
def test_weights_and_biases_without_a_key_is_kept_offline(run, config_of, tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    config = config_of(until_step=2, trackers=TrackerConfig(wandb_project="marinade-test", every=1))
    noted = []
    for attempt in ("first", "second"):
        run(config, tmp_path / attempt, log_dir=str(tmp_path / f"log-{attempt}"), on_note=noted.append)
        assert list((tmp_path / f"log-{attempt}" / "wandb").glob("offline-run-*/run-*.wandb"))
        assert len((tmp_path / f"log-{attempt}" / "metrics.jsonl").read_text().splitlines()) == 2
    first, second = (note["wandb"] for note in noted)
    assert first == second and first["project"] == "marinade-test" and len(first["id"]) == 16


def test_a_tokenizer_larger_than_the_model_is_refused(run, config_of, tmp_path):
    small = dataclasses.replace(config_of().model, vocab_size=260)
    with pytest.raises(ValueError, match=r"letters: the tokenizer has 270 entries, the model's vocab_size is 260"):
        run(config_of(model=small), tmp_path)


def test_a_stage_inside_a_block_is_refused_before_anything_runs(config_of):
    whole = config_of()
    late = (
        dataclasses.replace(whole.data.stages[0], start_step=0),
        dataclasses.replace(whole.data.stages[1], start_step=7),
    )
    with pytest.raises(ValueError, match="begins inside a block"):
        config_of(data=dataclasses.replace(whole.data, stages=late, block_size=16))


def test_a_program_from_the_cache_trains_as_one_that_was_compiled(config_of, run, unbroken, tmp_path):
    jax.clear_caches()
    compile_step.cache_clear()
    config = config_of()
    assert run(config, tmp_path, log_dir=str(tmp_path / "log")) == unbroken[1]
    kept = os.listdir(os.environ["JAX_COMPILATION_CACHE_DIR"])
    assert any(name.startswith("jit_advance") for name in kept), kept


def test_rows_carry_the_names_of_the_real_run(unbroken, config_of):
    """docs/hero.md, section 7; what it calls eval/paloma is the mean over this run's own domains."""
    rows = [json.loads(line) for line in (unbroken[0] / "log" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 13))
    router = ("routing_entropy_mean", "load_balancing_loss", "router_z_loss", "capacity_overflow_rate_mean", "bias_min",
              "bias_max", "margin_min", "margin_max")  # fmt: skip
    names = {
        "train/loss", "train/cross_entropy_loss", "grad/norm/total", "params/norm/embedding", "params/norm/lm_head",
        "optim/learning_rate", "optim/adam_lr", "optim/weight_decay", "moe/dropped_assignments", "moe/drop_fraction",
        "moe/sender_drop_fraction", "moe/receiver_drop_fraction", "mixture/stage", "mixture/weight/letters",
        *(f"throughput/{name}" for name in ("tokens_per_second", "duration", "iteration_time", "total_tokens")),
        *(f"throughput/{name}" for name in ("checkpoint_time", "gc_time")),
        *(f"train/router/{name}" for name in router),
        *(f"train/router/layer_{layer}/{name}" for layer in range(2) for name in ("routing_entropy", "bias_max")),
    }  # fmt: skip
    for row in rows:
        assert names <= set(row), names - set(row)
        assert row["throughput/iteration_time"] >= row["throughput/duration"] > 0
        assert row["train/router/capacity_overflow_rate_mean"] == pytest.approx(row["moe/drop_fraction"])
    assert any(row["throughput/checkpoint_time"] > 0 for row in rows), "three checkpoints were saved"
    assert all(f"eval/{name}" in rows[-1] for name in ("macro_loss", "letters/loss", "numbers/bpb"))


def test_utilization_is_model_flops_over_what_the_devices_could(config_of):
    config = config_of(trackers=TrackerConfig(peak_flops=2e12))
    history = History(losses=[1.0], assignments=[1], sender_dropped=[0], receiver_dropped=[0], router_entropy=[1.0],
                      largest_device=[1.0], largest_pair=[1.0])  # fmt: skip
    layers = np.ones(2)
    router = SimpleNamespace(
        sender_dropped=0 * layers, receiver_dropped=0 * layers, assignments=layers, z_loss=layers, balance_loss=layers,
        next_bias=np.ones((2, 4)), margin_min=layers, margin_max=layers, entropy=layers,
    )  # fmt: skip
    aux = SimpleNamespace(cross_entropy=1.0, z_loss=0.0, router=router)
    rates = {"learning_rate": 0.1, "adam_learning_rate": 0.1, "weight_decay": 0.0}
    measured = {"aux": aux, "gradient_norm": 1.0, "parameter_norms": {}, **rates}
    row = training_row(config, history, measured, seconds=0.5)
    assert row["throughput/mfu"] == config.model.training_flops(config.tokens_per_step) / 0.5 / 2e12
