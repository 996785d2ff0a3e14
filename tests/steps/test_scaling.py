"""The law behind the forecast: the published ladder gives the published prediction, to the stated digits."""

import numpy as np
import pytest

from steps.model.config import ModelConfig
from steps.published import (
    ASYMPTOTE,
    COMPLETE_RUNGS,
    HERO_FLOPS,
    OFFICIAL_PREDICTION,
    PARTIAL_RUNG,
    PARTIAL_RUNG_LAST_LOSS,
)
from steps.scaling import fit, fit_free, laws, loss_at_marks, predict

FLOPS = [rung.flops for rung in COMPLETE_RUNGS]
LOSSES = [rung.loss for rung in COMPLETE_RUNGS]


def test_three_complete_rungs_predict_2_0415() -> None:
    law = fit(FLOPS, LOSSES, asymptote=ASYMPTOTE)
    assert law.loss(HERO_FLOPS) == pytest.approx(2.0415, abs=5e-5)
    assert np.exp(law.log_amplitude) == pytest.approx(82.9, abs=0.05)
    assert law.exponent == pytest.approx(0.0895, abs=5e-5)


def test_with_the_fourth_rung_2_040_beside_the_official_2_039() -> None:
    law = fit([*FLOPS, PARTIAL_RUNG.flops], [*LOSSES, PARTIAL_RUNG.loss], asymptote=ASYMPTOTE)
    assert law.loss(HERO_FLOPS) == pytest.approx(2.040, abs=5e-4)
    assert law.exponent == pytest.approx(0.0898, abs=5e-5)
    assert law.loss(HERO_FLOPS) == pytest.approx(OFFICIAL_PREDICTION, abs=0.002)


def test_a_partial_loss_taken_for_a_final_one_would_mislead() -> None:
    law = fit([*FLOPS, PARTIAL_RUNG.flops], [*LOSSES, PARTIAL_RUNG_LAST_LOSS], asymptote=ASYMPTOTE)
    assert law.loss(HERO_FLOPS) > 2.07


def test_published_compute_is_what_the_shapes_give() -> None:
    shapes = {768: (8, 11_420, 1024), 1024: (12, 15_276, 2048), 1536: (16, 15_128, 6144), 2048: (22, 20_072, 11_264)}
    for rung, (hidden, (layers, steps, batch)) in zip((*COMPLETE_RUNGS, PARTIAL_RUNG), shapes.items(), strict=True):
        model = ModelConfig.of_family(hidden=hidden, num_layers=layers)
        assert float(model.training_flops_without_lm_head(steps * batch * 4096)) == rung.flops
    hero = ModelConfig.of_family(hidden=6144, num_layers=48)
    assert float(hero.training_flops_without_lm_head(390_251 * 11_264 * 4096)) == HERO_FLOPS


def test_leave_one_out_spans_the_prediction() -> None:
    found = predict(FLOPS, LOSSES, target=HERO_FLOPS, asymptote=ASYMPTOTE)
    pairs = [
        fit(FLOPS[:i] + FLOPS[i + 1 :], LOSSES[:i] + LOSSES[i + 1 :], asymptote=1.5).loss(HERO_FLOPS) for i in range(3)
    ]
    assert (found.low, found.high) == (min(*pairs, found.loss), max(*pairs, found.loss))
    assert found.low < found.loss < found.high
    two = predict(FLOPS[:2], LOSSES[:2], target=HERO_FLOPS, asymptote=ASYMPTOTE)
    assert two.low == two.loss == two.high


def test_the_published_ladder_tested_on_its_own_top_rungs() -> None:
    two = fit(FLOPS[:2], LOSSES[:2], asymptote=ASYMPTOTE)
    assert two.loss(FLOPS[2]) == pytest.approx(2.5629, abs=5e-5), "2.5638 was measured"
    assert fit(FLOPS, LOSSES, asymptote=ASYMPTOTE).loss(PARTIAL_RUNG.flops) == pytest.approx(2.4116, abs=5e-5)


def test_a_free_asymptote_passes_through_three_rungs_and_is_found_where_a_law_has_one() -> None:
    law = fit_free(FLOPS, LOSSES)
    assert [law.loss(flops) for flops in FLOPS] == pytest.approx(LOSSES, abs=1e-5)
    flops = [1e10, 3e10, 1e11, 5e11]
    found = fit_free(flops, [2.2 + 40 * value**-0.15 for value in flops])
    assert (found.asymptote, found.exponent) == (pytest.approx(2.2, abs=1e-3), pytest.approx(0.15, abs=1e-3))
    with pytest.raises(ValueError, match="three or more rungs"):
        fit_free(FLOPS[:2], LOSSES[:2])


def test_a_shared_exponent_is_the_mean_of_those_of_the_marks() -> None:
    curves = [[3.5, 3.0], [3.2, 2.7], [3.0, 2.45]]
    each = laws(FLOPS, curves, asymptote=1.5)
    shared = laws(FLOPS, curves, asymptote=1.5, method="shared-exponent")
    mean = (each[0].exponent + each[1].exponent) / 2
    assert [law.exponent for law in shared] == pytest.approx([mean, mean])
    middle = float(np.exp(np.mean(np.log(FLOPS))))
    assert shared[1].loss(middle) == pytest.approx(each[1].loss(middle)), "each mark keeps its own level"


def test_an_exact_law_is_found_again() -> None:
    flops = [1e10, 3e11, 2e12]
    losses = [1.2 + 40 * c**-0.11 for c in flops]
    found = predict(flops, losses, target=1e14, asymptote=1.2)
    assert [found.loss, found.low, found.high] == pytest.approx([1.2 + 40 * 1e14**-0.11] * 3, rel=1e-12)


def test_what_no_law_fits() -> None:
    with pytest.raises(ValueError, match="two or more rungs of different compute"):
        fit([1e10, 1e10], [3.0, 2.9], asymptote=1.5)
    with pytest.raises(ValueError, match=r"found losses \[1.5\]; lower ForecastConfig.asymptote"):
        fit([1e10, 1e11], [3.0, 1.5], asymptote=1.5)
    with pytest.raises(ValueError, match="nan"):
        fit([1e10, 1e11], [3.0, float("nan")], asymptote=1.5)


def test_complete_run_gives_the_nearest_measurement() -> None:
    curve = [(0.25, 4.0), (0.5, 3.0), (0.74, 2.5), (0.8, 2.4), (1.0, 2.0)]
    assert loss_at_marks(curve, marks=4) == [4.0, 3.0, 2.5, 2.0]


def test_a_rung_that_stopped_goes_on_along_its_line_plus_the_offset() -> None:
    curve = [(mark / 20, 4.0 - mark / 20) for mark in range(1, 17)]
    curve[3] = (0.2, 99.0)  # outside of the window: of no influence
    found = loss_at_marks(curve, marks=20)
    assert found[3] == 99.0
    assert found[15] == pytest.approx(3.2)
    assert found[16:] == pytest.approx([4.0 - at + 0.005 for at in (0.85, 0.9, 0.95, 1.0)])


def test_a_rung_that_stopped_too_early_is_refused() -> None:
    with pytest.raises(ValueError, match=r"stopped at 60%.*found 1"):
        loss_at_marks([(mark / 20, 3.0) for mark in range(1, 13)], marks=20)
    with pytest.raises(ValueError, match="without a single evaluation"):
        loss_at_marks([], marks=20)
