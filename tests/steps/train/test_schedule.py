import pytest

from steps.train.schedule import ScheduleConfig


def test_warmup_rises_to_the_peak_and_decay_ends_at_the_minimum():
    schedule = ScheduleConfig(horizon_steps=1000, warmup_fraction=0.01, min_ratio=0.05)
    factors = [schedule.factor(step, 1.0) for step in range(1001)]
    assert factors[0] == pytest.approx(1 / 11)
    assert factors[10] == pytest.approx(1.0)
    assert max(factors) == factors[10]
    assert factors[505] == pytest.approx(1 + (0.05 - 1) * 495 / 990)
    assert factors[1000] == pytest.approx(0.05)


def test_pretrain_and_midtrain_share_one_schedule():
    """The phase is not in the schedule: step 800 has one rate, whichever step trains it."""
    hero = ScheduleConfig(horizon_steps=390_251)
    assert hero.warmup_steps == 3902
    assert hero.factor(312_192, 1.0) == pytest.approx(1 - 0.95 * (312_192 - 3902) / (390_251 - 3902))


def test_an_overriding_rate_starts_there_and_ends_where_the_schedule_ends():
    schedule = ScheduleConfig(horizon_steps=1000, learning_rate=0.001, phase_start=800)
    peak = 0.01
    assert peak * schedule.factor(800, peak) == pytest.approx(0.001)
    assert peak * schedule.factor(1000, peak) == pytest.approx(0.05 * peak)
    assert peak * schedule.factor(900, peak) == pytest.approx((0.001 + 0.05 * peak) / 2)


@pytest.mark.parametrize("wrong", [{"horizon_steps": 0}, {"horizon_steps": 10, "learning_rate": -1.0}])
def test_wrong_values_are_refused(wrong):
    with pytest.raises(ValueError, match=r"horizon_steps|learning_rate"):
        ScheduleConfig(**wrong)
