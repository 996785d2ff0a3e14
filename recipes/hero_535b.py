"""The flagship: corpus, tokens, ladder, forecast, hero pretrain, midtrain, fine-tune, evaluation, report.

    python recipes/hero_535b.py                       # the whole pipeline on this machine
    marinade plan recipes/hero_535b.py --scale full   # the run of 535B parameters, planned

The hero waits for the forecast, so that what was predicted is on record before it starts; the forecast changes
nothing in it. Shapes and scales stand in `recipes/_hero.py`, what all recipes of the
family share in `recipes/_phases.py`.
"""

import dataclasses

from executor import Criterion, Experiment, Step, adopt, main
from recipes._hero import HeroSettings, cooldown_of
from recipes._phases import (
    Data,
    data_resources,
    data_steps,
    estimated,
    stages_of,
    training_of,
    training_resources,
)
from recipes._settings import RunSettings
from steps.baseline import BaselineConfig, measure_baselines
from steps.conversations import ConversationConfig
from steps.evaluate import EvaluateConfig, evaluate_checkpoints
from steps.forecast import ForecastConfig, fit_forecast
from steps.instruction_pairs import PairsConfig, build_pairs
from steps.multiple_choice import QuestionsConfig, write_questions
from steps.published import loss_by_published_ladder
from steps.report import ReportConfig, write_report
from steps.train.config import TrainConfig
from steps.train.schedule import ScheduleConfig
from steps.train.step import train


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeroSteps:
    """The steps that hypotheses of this family speak of."""

    ladder: list[Step]
    forecast: Step
    pretrain: Step
    midtrain: Step
    baselines: Step
    evaluation: Step
    report: Step


def build(settings: HeroSettings) -> Experiment:
    steps = steps_of(settings)
    return Experiment(
        targets=(steps.report,),
        report=steps.report / "report.md",
        hypothesis="A law fitted to the ladder predicts the hero's final loss before it starts.",
        success=(forecast_holds(steps, within=0.02), below_every_rung(steps), below_unigrams(steps)),
        prediction=steps.forecast.result("final.loss"),
    )


def forecast_holds(steps: HeroSteps, *, within: float) -> Criterion:
    """Final validation loss against the forecast's, both a mean over domains in nats per token."""
    return Criterion(
        f"the hero's final loss lies within {within:.0%} of the forecast",
        value=steps.midtrain.result("validation.macro_loss"),
        within=within,
        of=steps.forecast.result("final.loss"),
    )


def below_every_rung(steps: HeroSteps) -> Criterion:
    return Criterion(
        "the hero's loss is below every rung's",
        value=steps.midtrain.result("validation.macro_loss"),
        below=[rung.result("validation.macro_loss") for rung in steps.ladder],
    )


def below_unigrams(steps: HeroSteps) -> Criterion:
    return Criterion(
        "the hero is below the unigram and the byte-level baseline on every domain",
        value=steps.evaluation.result("midtrain.bits_per_byte"),
        below=[
            steps.baselines.result("unigram_bits_per_byte"),
            steps.baselines.result("byte_unigram_bits_per_byte"),
        ],
    )


def steps_of(settings: HeroSettings) -> HeroSteps:
    data = data_steps(settings)
    ladder = [rung_step(settings, name, rung, data) for name, rung in settings.ladder.items()]
    hero = training_of(settings, settings.hero, data.tokens, {0: settings.mixture.initial})
    target_flops = hero.model.training_flops_without_lm_head(hero.schedule.horizon_steps * hero.tokens_per_step)
    forecast = Step(
        "forecast",
        fit_forecast,
        ForecastConfig(
            rungs=tuple(rung / "history.json" for rung in ladder),
            target_flops=target_flops,
            asymptote=settings.asymptote,
            method=settings.forecast_method,
            marks=settings.evaluation.marks,
            estimated={"published_ladder_loss": loss_by_published_ladder(target_flops)}
            if settings.is_published
            else {},
        ),
        resources=data_resources(settings),
    )
    hero = dataclasses.replace(hero, forecast=forecast / "forecast.json")
    cooldown, horizon = cooldown_of(settings, settings.hero), hero.schedule.horizon_steps
    base = training_step(settings, "hero/pretrain", settings.hero, dataclasses.replace(hero, until_step=cooldown))
    pretrain = swap_step(settings, base) if settings.swap else base
    midtrain = training_step(
        settings,
        "hero/midtrain",
        settings.hero,
        dataclasses.replace(
            hero,
            data=dataclasses.replace(hero.data, stages=stages_of({cooldown: settings.mixture.cooldown})),
            schedule=dataclasses.replace(
                hero.schedule, learning_rate=settings.midtrain.learning_rate, phase_start=cooldown
            ),
            start=pretrain.at_step(cooldown),
            start_step=cooldown,
        ),
    )
    tuned = fine_tune_step(settings, hero, midtrain, data)
    baselines = Step(
        "baselines",
        measure_baselines,
        BaselineConfig(documents=_documents(settings, data), tokenizer=data.tokenizer),
        resources=data_resources(settings),
    )
    questions = Step(
        "questions",
        write_questions,
        QuestionsConfig(documents=_documents(settings, data)),
        resources=data_resources(settings),
    )
    checkpoints = {
        "pretrain": pretrain.at_step(cooldown),
        "midtrain": midtrain.at_step(horizon),
        "sft": tuned.at_step(settings.fine_tune.steps),
    }
    evaluation = Step(
        "hero/eval",
        evaluate_checkpoints,
        EvaluateConfig(
            model=hero.model,
            checkpoints=checkpoints,
            tokens=data.tokens,
            questions=questions / "questions.jsonl",
            tokenizer=data.tokenizer,
            baselines=baselines / "baselines.json",
            batch_size=settings.hero.evaluation_batch_size or settings.hero.batch_size,
            max_sequences=settings.max_evaluated_sequences,
        ),
        resources=training_resources(settings, settings.hero, cpus=2),
    )
    report = Step(
        "hero/report",
        write_report,
        ReportConfig(
            forecast=forecast / "forecast.json",
            rungs={name: rung / "history.json" for name, rung in zip(settings.ladder, ladder, strict=True)},
            pretrain=pretrain / "history.json",
            midtrain=midtrain / "history.json",
            fine_tune=tuned / "history.json",
            evaluations={stage: evaluation / f"{stage}/evaluation.json" for stage in checkpoints},
        ),
        resources=data_resources(settings),
    )
    return HeroSteps(
        ladder=ladder,
        forecast=forecast,
        pretrain=pretrain,
        midtrain=midtrain,
        baselines=baselines,
        evaluation=evaluation,
        report=report,
    )


def rung_step(settings: HeroSettings, name: str, rung: RunSettings, data: Data) -> Step:
    """One rung: a whole run, its cooldown included, in one step; only its end is kept."""
    weights = {0: settings.mixture.initial, cooldown_of(settings, rung): settings.mixture.cooldown}
    config = training_of(settings, rung, data.tokens, weights)
    config = dataclasses.replace(
        config,
        checkpoint=dataclasses.replace(settings.checkpoint, permanent_every=0),
        evaluation=dataclasses.replace(config.evaluation, every=0),
    )
    return training_step(settings, f"ladder/{name}", rung, config, cpus=1)


def training_step(
    settings: HeroSettings,
    name: str,
    run: RunSettings,
    config: TrainConfig,
    *,
    cpus: int = 2,
) -> Step:
    """A training step: code pinned, because a finished run is not repeated for an edit, and digests opaque."""
    return Step(
        name,
        train,
        estimated(settings, run, config),
        code="pin",
        digest="opaque",
        resources=training_resources(settings, run, cpus=cpus),
    )


def swap_step(settings: HeroSettings, base: Step) -> Step:
    """The amendment: pretrain from the fork on under the swapped mixture."""
    fork = settings.mixture.swap_step
    config: TrainConfig = base.config
    if not 0 < fork < config.until_step:
        raise ValueError(
            f"the mixture is swapped within pretraining: mixture.swap_step must lie between 0 and {config.until_step}, "
            f"found {fork}"
        )
    return base.amend(at_step=fork, name="hero/pretrain-swap", data=settings.mixture.swapped)


def fine_tune_step(settings: HeroSettings, hero: TrainConfig, midtrain: Step, data: Data) -> Step:
    """Supervised fine-tuning of midtrain's weights, with a new optimizer."""
    tuning = settings.fine_tune
    if tuning.pairs:
        pairs = adopt(tuning.pairs, name="raw/pairs")
    elif not settings.data.root:
        config = PairsConfig(documents=data.corpus / "docstrings")
        pairs = Step("pairs", build_pairs, config, resources=data_resources(settings))
    else:
        raise ValueError(
            "fine-tuning needs question and answer pairs, which are made from docstrings only where the text is the "
            "interpreter's library; set fine_tune.pairs to a folder with train.jsonl and validation.jsonl"
        )
    ratio = tuning.learning_rate_ratio
    config = dataclasses.replace(
        hero,
        data=ConversationConfig(pairs=pairs, tokenizer=data.tokenizer, seed=settings.seed),
        optimizer=dataclasses.replace(
            hero.optimizer,
            learning_rate=ratio * hero.optimizer.learning_rate,
            adam_learning_rate=ratio * hero.optimizer.adam_learning_rate,
        ),
        schedule=ScheduleConfig(horizon_steps=tuning.steps),
        batch_size=tuning.batch_size,
        evaluation=dataclasses.replace(hero.evaluation, every=0),
        until_step=tuning.steps,
        initial=midtrain.at_step(hero.schedule.horizon_steps),
        forecast=None,
    )
    return training_step(settings, "hero/sft", settings.hero, config)


def _documents(settings: HeroSettings, data: Data) -> dict:
    return {name: data.corpus / name for name in settings.data.domains}


if __name__ == "__main__":
    main(build)
