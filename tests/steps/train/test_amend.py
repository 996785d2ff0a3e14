"""Amendments: what they keep of the run they fork from, and the control window beside it."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from executor import Step
from executor.errors import UsageError
from steps.baseline import BaselineConfig, measure_baselines
from steps.train.config import WeightDecayConfig
from steps.train.history import Evaluation, History
from steps.train.schedule import ScheduleConfig
from steps.train.step import train
from steps.window import WindowConfig, compare_arms, control_window


@pytest.fixture(scope="session")
def pretrain(config_of) -> Step:
    return Step("pretrain", train, config_of(), code="pin")


def test_an_amendment_forks_from_a_milestone_and_says_what_it_amends(pretrain):
    swapped = pretrain.amend(at_step=4, data={"letters": 0.5, "numbers": 0.5})
    config = swapped.config
    assert (swapped.name, swapped.amends, swapped.code) == ("pretrain-from-4", pretrain, "pin")
    assert (config.start.step, config.start.at, config.start_step) == (pretrain, 4, 4)
    assert [(stage.start_step, dict(stage.weights)) for stage in config.data.stages] == [
        (4, {"letters": 0.5, "numbers": 0.5})
    ]
    assert config.until_step == 12 and config.schedule == pretrain.config.schedule


def test_another_horizon_keeps_the_rate_at_the_fork_and_at_the_end(pretrain):
    old = pretrain.config
    new = pretrain.amend(at_step=6, horizon=9).config
    peak = old.optimizer.learning_rate
    assert new.until_step == new.schedule.horizon_steps == 9
    assert new.schedule.factor(6, peak) == pytest.approx(old.schedule.factor(6, peak), rel=1e-12)
    assert new.schedule.factor(9, peak) == pytest.approx(0.05, rel=1e-12)
    halfway = (old.schedule.factor(6, peak) + 0.05) / 2
    assert new.schedule.factor(7.5, peak) == pytest.approx(halfway, rel=1e-12)
    assert new.forecast is None


def test_the_real_runs_horizon(config_of):
    """Shortened by a quarter at 40%: at the fork 1 - 0.95 (156,100 - 3,902) / (390,251 - 3,902) of the peak."""
    whole = config_of(schedule=ScheduleConfig(horizon_steps=390_251), until_step=390_251)
    schedule = whole.amended(start="checkpoint", at_step=156_100, horizon=292_688).schedule
    peak = whole.optimizer.learning_rate
    assert schedule.factor(156_100, peak) == pytest.approx(0.625758, abs=1e-6)
    assert schedule.factor(224_394, peak) == pytest.approx((0.625758 + 0.05) / 2, abs=1e-6)
    assert schedule.factor(292_688, peak) == pytest.approx(0.05, abs=1e-12)


def test_a_longer_context_keeps_tokens_a_step_and_scales_queries(pretrain):
    old, new = pretrain.config, pretrain.amend(at_step=8, sequence_length=64).config
    assert new.tokens_per_step == old.tokens_per_step
    assert (new.batch_size, new.data.block_size, new.model.sequence_length) == (4, 4, 64)
    assert new.model.qk_mult == pytest.approx(1.3 * (0.1 * math.log(2) + 1))  # 1.3901
    with pytest.raises(ValueError, match="a length that divides 8 x 32 and 8 x 32 tokens, found 48"):
        pretrain.amend(at_step=8, sequence_length=48)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"at_step": 12}, "expected 0 < at_step < 12, found 12"),
        ({"at_step": 4, "learning_rate": 1.0}, "a training step has no learning_rate"),
        ({"at_step": 4, "horizon": 3}, "start_step < until_step"),
        ({"at_step": 3, "batch_size": 12, "data": {"letters": 1, "numbers": 0}}, "begins inside a block"),
        ({"at_step": 4, "data": {"letters": 1}}, r"missing: \['numbers'\]"),
    ],
)
def test_amendments_that_do_not_fit_are_refused(pretrain, changes, message):
    with pytest.raises(ValueError, match=message):
        pretrain.amend(**changes)


def test_only_runs_can_be_amended():
    step = Step("baselines", measure_baselines, BaselineConfig(documents={}, tokenizer="t"))
    with pytest.raises(UsageError, match="step baselines: only a run with checkpoints can be amended"):
        step.amend(at_step=1)


def test_an_amendment_without_changes_is_the_rest_of_the_run(pretrain, run, unbroken, tmp_path):
    """Fork, data order, schedule, moments and router bias: all as if nobody had looked."""
    start = str(unbroken[0] / "checkpoints" / "step-4")
    config = dataclasses.replace(pretrain.amend(at_step=4).config, start=start)
    assert run(config, tmp_path) == unbroken[1]


@pytest.mark.slow
def test_weight_decay_from_the_fork_on(pretrain, run, unbroken, tmp_path):
    optimizer = dataclasses.replace(
        pretrain.config.optimizer, weight_decay=WeightDecayConfig(coefficient_at_start=20.0, start_step=4)
    )
    amended = pretrain.amend(at_step=4, optimizer=optimizer).config
    config = dataclasses.replace(amended, start=str(unbroken[0] / "checkpoints" / "step-4"), until_step=6)
    losses = run(config, tmp_path).losses
    assert losses[:5] == unbroken[1].losses[:5]  # the first decayed step is seen by the loss after it
    assert losses[5] != unbroken[1].losses[5]


@pytest.mark.slow
def test_a_longer_context_trains_on(pretrain, run, unbroken, tmp_path):
    config = pretrain.amend(at_step=8, sequence_length=64).config
    config = dataclasses.replace(config, start=str(unbroken[0] / "checkpoints" / "step-8"), until_step=10)
    # On as many devices as batches have sequences; the test process has eight.
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, expert_parallel=4), batch_size=8)
    history = run(config, tmp_path)
    assert history.losses[:8] == unbroken[1].losses[:8] and history.steps == 10


def test_a_control_window_is_a_step_for_each_arm_and_a_table(pretrain):
    base = dataclasses.replace(pretrain, config=dataclasses.replace(
        pretrain.config, schedule=dataclasses.replace(pretrain.config.schedule, horizon_steps=400), until_step=400
    ))  # fmt: skip
    model = dataclasses.replace(base.config.model, capacity_factor=1.1)
    roomy = base.amend(at_step=4, name="hero/less-room", model=model)
    swapped = base.amend(at_step=4, name="swap", data={"letters": 1, "numbers": 1})
    window = control_window(base, roomy, swapped, steps=200)
    control, amended = window.config.control.step, window.config.amended["less-room"].step
    assert (control.name, amended.name) == ("window/control-4-to-204", "window/less-room-4-to-204")
    assert window.config.same_batches == ("less-room",) and amended.amends is control.amends is base
    assert 204 in control.config.evaluation_steps()
    with pytest.raises(ValueError, match="a window has at least 10 steps and ends by step 400, found 4 to 404"):
        control_window(base, swapped, steps=400)
    with pytest.raises(ValueError, match=r"at one step, .* found steps \[4\] and no amendments of it: swap"):
        control_window(pretrain, swapped, steps=20)
    with pytest.raises(ValueError, match=r"at one step, .* found steps \[4, 8\]"):
        control_window(base, swapped, base.amend(at_step=8), steps=20)


@pytest.fixture
def arms(tmp_path):
    """Two artifacts of 40 steps with the fork at 20; `amended` is shifted by what the test says."""

    def write(shift: float, wobble: float = 0.01) -> dict[str, str]:
        for arm, offset in (("control", 0.0), ("amended", shift)):
            losses = [5 - 0.01 * step for step in range(20)]
            losses += [
                4.8 + 0.1 * (step % 3) + offset + (wobble * (step % 7 - 3) if offset else 0) for step in range(20)
            ]
            last = Evaluation(step=40, progress=0.1, tokens=1, macro_loss=4.7 + offset, losses={}, bits_per_byte={})
            history = History(
                losses=losses, gradient_norms=[1.0] * 40, router_entropy=[2.0] * 40, router_bias=[0.0] * 40,
                largest_device=[1.5] * 40, largest_pair=[2.0] * 40, sender_dropped=[0] * 40,
                receiver_dropped=[50] * 20 + [2 if offset else 1] * 20, assignments=[100] * 40,
                evals=[last],
            )  # fmt: skip
            (tmp_path / arm).mkdir()
            (tmp_path / arm / "history.json").write_text(history.to_json({}))
            rate = {"steps": 20, "step_seconds": 1.0, "tokens_per_second": 100.0 - 10 * bool(offset)}
            (tmp_path / arm / "throughput.json").write_text(json.dumps(rate))
        return {arm: str(tmp_path / arm) for arm in ("control", "amended")}

    return write


def window_of(arms, at_step=20, same_batches=("amended",)):
    return WindowConfig(
        control=arms["control"], amended={"amended": arms["amended"]}, at_step=at_step, same_batches=same_batches
    )


def test_the_window_compares_what_lies_behind_the_fork(arms, tmp_path):
    amended = compare_arms(window_of(arms(0.05)), str(tmp_path))["amended"]["amended"]
    difference = amended["loss_difference"]
    assert difference["mean"] == pytest.approx(0.05 + 0.01 * (-3) / 20, abs=1e-9)
    assert 0 < difference["low"] < difference["mean"] < difference["high"]
    assert amended["verdict"].startswith("the loss is higher: +0.04")
    table = (tmp_path / "window.md").read_text()
    assert "| drop fraction | of assignments | 0.01 | 0.02 (+100.0%) |" in table
    assert "| throughput | tokens per second, median | 100 | 90 (-10.0%) |" in table
    assert "20 steps from step 20" in table and "- amended: the loss is higher" in table


def test_a_difference_within_the_noise_is_none(arms, tmp_path):
    amended = compare_arms(window_of(arms(1e-4)), str(tmp_path))["amended"]["amended"]
    assert amended["verdict"].startswith("no difference seen in the loss")


def test_other_batches_are_compared_by_validation(arms, tmp_path):
    amended = compare_arms(window_of(arms(-0.05), same_batches=()), str(tmp_path))["amended"]["amended"]
    assert amended["loss_difference"] is None
    assert amended["verdict"] == "other batches; validation loss -0.0500 nats per token at the end"


def test_arms_of_different_length_are_refused(arms, tmp_path):
    artifacts = arms(0.1)
    path = Path(artifacts["amended"]) / "history.json"
    history = History.read(str(path))
    history.losses.append(4.0)
    path.write_text(history.to_json({}))
    with pytest.raises(ValueError, match="20 steps of the control, 21 of amended"):
        compare_arms(window_of(artifacts), str(tmp_path))
