"""The flagship as declared: what it plans, what it costs, and what its variant changes. Nothing runs here."""

import dataclasses
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from executor import Criterion, UsageError
from executor.comparing.fields import field_changes
from executor.comparing.side import Side
from executor.experiments.experiment import graph_of, observed
from executor.keys.graph import Graph
from executor.recipe import load
from recipes import hero_535b, hero_535b_mixture_swap
from recipes._hero import HeroSettings

ROOT = Path(__file__).parents[2]
STEPS = [
    "corpus", "tokenizer", "tokens/prose", "tokens/docstrings", "tokens/code", "ladder/d48", "ladder/d64", "ladder/d80",
    "forecast", "hero/pretrain", "hero/midtrain", "pairs", "hero/sft", "questions", "baselines", "hero/eval",
    "hero/report",
]  # fmt: skip


def test_laptop_plan_has_every_step_and_a_reason(marinade, tmp_path):
    plan = json.loads(marinade("plan", "recipes/hero_535b.py", "--prefix", str(tmp_path), "--json"))
    assert sorted(step["name"] for step in plan["steps"]) == sorted(STEPS)
    assert all(step["action"] == "run" and step["reasons"][0]["kind"] == "new" for step in plan["steps"])
    seen: set[str] = set()
    for step in plan["steps"]:
        assert set(step["inputs"]) <= seen
        seen.add(step["name"])


@pytest.mark.parametrize("file", sorted(path.stem for path in (ROOT / "recipes").glob("[!_]*.py")))
def test_every_recipe_says_what_it_expects_and_how_that_is_checked(file):
    recipe = load(str(ROOT / f"recipes/{file}.py"))
    for scale in ("laptop",) if file == "smoke" else ("laptop", "full"):
        experiment = recipe.experiment(scale)
        assert experiment.hypothesis and experiment.success
        assert all(isinstance(criterion, Criterion) for criterion in experiment.success)
        seen = set(observed(experiment, graph_of(experiment)))
        assert ("forecast" in seen) == (experiment.prediction is not None)
        family = {"forecast", "hero/midtrain", "hero/eval", "baselines"}
        compares = file.startswith("ablation_") or file.endswith("_amendments")
        assert seen >= family or (compares and seen == {one.name for one in experiment.targets})


def test_full_plan_works_where_the_data_is_not(marinade, tmp_path):
    plan = json.loads(marinade("plan", "recipes/hero_535b.py", "--scale", "full", "--prefix", str(tmp_path), "--json"))
    corpus = next(step for step in plan["steps"] if step["name"] == "corpus")
    assert corpus["action"] == "maybe"
    assert {reason["kind"] for reason in corpus["reasons"]} >= {"unreachable"}
    assert {step["name"] for step in plan["steps"]} >= {f"ladder/d{hidden}" for hidden in (768, 1024, 1536, 2048)}


def test_full_estimate_is_the_published_run(marinade):
    steps = json.loads(marinade("estimate", "recipes/hero_535b.py", "--scale", "full", "--json"))["steps"]
    pretrain, midtrain = steps["hero/pretrain"], steps["hero/midtrain"]
    assert pretrain["parameters_total"] == 535_477_106_688
    assert pretrain["parameters_active"] == 22_762_487_808
    assert pretrain["forward_flops_per_token"] == 49_912_086_528
    assert pretrain["devices"] == 704
    assert pretrain["tokens"] == 312_192 * 11_264 * 4096
    assert pretrain["tokens"] + midtrain["tokens"] == 390_251 * 11_264 * 4096
    assert pretrain["flops_total"] + midtrain["flops_total"] == pytest.approx(2.69602e24, rel=2e-6)
    assert pretrain["days"] + midtrain["days"] == pytest.approx(75.9, rel=0.01)
    parameters = [steps[f"ladder/d{hidden}"]["parameters_total"] for hidden in (768, 1024, 1536, 2048)]
    assert parameters == [1_591_848_448, 3_980_116_480, 11_534_398_464, 27_742_902_528]
    flops = [steps[f"ladder/d{hidden}"]["flops_total"] for hidden in (768, 1024, 1536, 2048)]
    assert flops == pytest.approx([5.48e19, 2.736e20, 1.831e21, 9.201e21], rel=1e-3)
    assert sum(flops) / 2.69602e24 == pytest.approx(0.0042, rel=0.01)
    graph = Graph.of(hero_535b.build(HeroSettings.at_scale("full")).targets)
    rates = graph.steps["hero/pretrain"].config.optimizer
    assert (rates.learning_rate, rates.adam_learning_rate) == (
        pytest.approx(0.0032905, rel=1e-4),
        pytest.approx(0.0007593, rel=1e-4),
    )


def test_full_run_stops_before_any_step_with_what_is_missing(tmp_path):
    done = subprocess.run(
        [sys.executable, "recipes/hero_535b.py", "--scale", "full", "--prefix", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 1
    assert "GB200" in done.stderr
    assert "hero/pretrain" in done.stderr
    assert not list(tmp_path.glob("*/.step"))


@pytest.mark.parametrize("scale", ["laptop", "full"])
def test_the_swap_is_one_cause_and_what_follows_inherits(marinade, scale):
    text = marinade(
        "diff", "recipes/hero_535b.py", "recipes/hero_535b_mixture_swap.py", "--scale", scale, "--json", expect=1
    )
    diff = json.loads(text)
    assert [cause["step"] for cause in diff["causes"]] == ["hero/pretrain-swap"]
    paths = {change["path"] for change in diff["causes"][0]["changes"]}
    assert any(path.startswith("data.stages") for path in paths)
    assert {item["step"] for item in diff["inherited"]} == {"hero/midtrain", "hero/sft", "hero/eval", "hero/report"}
    assert (diff["added"], diff["removed"]) == ([], [])


def test_the_swap_trains_the_base_only_to_the_fork():
    settings = HeroSettings.at_scale("laptop")
    graph = Graph.of(hero_535b_mixture_swap.build(settings).targets)
    fork = settings.mixture.swap_step
    wanted = {ref.at for refs in graph.inputs.values() for ref in refs if ref.step == "hero/pretrain"}
    assert wanted == {fork}
    swap = graph.steps["hero/pretrain-swap"].config
    assert (swap.start_step, swap.data.stages[0].start_step) == (fork, fork)
    assert fork * settings.hero.batch_size % settings.mixture.block_size == 0


def test_a_swap_outside_of_pretraining_is_refused():
    settings = HeroSettings.at_scale("laptop")
    late = dataclasses.replace(settings, mixture=dataclasses.replace(settings.mixture, swap_step=800))
    with pytest.raises(ValueError, match=r"mixture\.swap_step must lie between 0 and 680, found 800"):
        hero_535b_mixture_swap.build(late)


def test_the_forecast_is_read_and_no_key_depends_on_it():
    settings = HeroSettings.at_scale("laptop")
    graph = Graph.of(hero_535b.build(settings).targets)
    refs = [ref for ref in graph.inputs["hero/pretrain"] if ref.step == "forecast"]
    assert [ref.execution_only for ref in refs] == [True]


def test_mixture_shares_of_the_real_run_sum_to_one_hundred():
    mixture = HeroSettings.at_scale("full").mixture
    for shares in (mixture.initial, mixture.swapped, mixture.cooldown):
        assert sum(shares.values()) == pytest.approx(100)
    assert mixture.initial["command_line_agents"] == 1.3
    assert mixture.swapped["command_line_agents"] == 6.0


@pytest.mark.parametrize("scale", ["laptop", "full"])
def test_a_wrong_setting_names_what_exists(scale, tmp_path):
    done = subprocess.run(
        [sys.executable, "recipes/hero_535b.py", "--scale", scale, "--set", "midtrian.learning_rate=1"],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert "midtrain" in done.stderr


def test_the_ablation_is_the_flagships_rung_and_the_same_without_z_loss():
    """Its control is found where the flagship has run, and the arms differ in one field."""
    recipe = load(str(ROOT / "recipes/ablation_z_loss.py"))
    arms = Side.of_graph("ablation", graph_of(recipe.experiment("laptop"))).steps
    flagship = Side.of_graph("hero", graph_of(load(str(ROOT / "recipes/hero_535b.py")).experiment("laptop"))).steps
    control, without = arms["ladder/d64"], arms["ablation/d64-without-z-loss"]
    assert control.key == flagship["ladder/d64"].key
    changes = field_changes(control.payload["config"], without.payload["config"])
    assert [(change.path, change.old, change.new) for change in changes] == [("model.z_loss", 1e-4, 0.0)]
    with pytest.raises(UsageError, match="there is no rung 'd3'; the ladder has d48, d64, d80"):
        recipe.experiment("laptop", ["rung=d3"])


@pytest.mark.parametrize("recipe", sorted(path.stem for path in (ROOT / "recipes").glob("*.py")))
def test_no_recipe_hides_a_package(recipe):
    """Run as a script, a recipe's folder comes first on the path."""
    assert recipe == "__init__" or find_spec(recipe) is None


def test_executor_is_this_checkout():
    import executor

    assert Path(executor.__file__).parent.parent == ROOT
