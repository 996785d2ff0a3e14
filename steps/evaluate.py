"""Evaluation of finished checkpoints: bits per byte on held-out text, and multiple choice on held-out text.

Every stage of a run (pretrain, midtrain, fine-tuned) is measured with the same code on the same text, so that the
rows of one table can be compared. Router biases are frozen; nothing is trained.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from executor import Input, resolved
from steps.model.config import ModelConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """What is measured on which checkpoints.

    Attributes:
        checkpoints: stage -> checkpoint folder.
        tokens: domain -> token artifact, whose validation part is read.
        questions: multiple-choice questions (`questions.jsonl`), None for none.
        tokenizer: the one the tokens were made with.
        baselines: `baselines.json`, repeated in the results.
        batch_size: sequences per forward pass; a multiple of the expert degree.
        max_sequences: validation sequences per domain, evenly spaced; None reads all.
    """

    model: ModelConfig
    checkpoints: Mapping[str, Input]
    tokens: Mapping[str, Input]
    questions: Input | None = None
    tokenizer: Input
    baselines: Input
    batch_size: int = 8
    max_sequences: int | None = None


def evaluate_checkpoints(config: EvaluateConfig, output: str) -> dict[str, Any]:
    """Write `{stage}/evaluation.json` for every stage and return stage -> measurements.

    `bits_per_byte` and `loss` (nats per token) by domain; `multiple_choice` with accuracy, chance and the number of
    questions; `baselines` as they were measured.
    """
    import fsspec

    from executor import current
    from steps.train.checkpoint import restore_weights
    from steps.train.compile_cache import keep_compiled_programs
    from steps.train.data import validation_set
    from steps.train.evaluation import total_nats
    from steps.train.processes import connect
    from steps.train.state import make_mesh, weight_shapes

    connect(current())
    keep_compiled_programs()
    mesh = make_mesh(config.model)
    baselines = _read_json(resolved(config.baselines))
    sets = {
        domain: validation_set(tokens, config.model.sequence_length, config.batch_size, config.max_sequences)
        for domain, tokens in config.tokens.items()
    }
    results: dict[str, Any] = {}
    total, done = len(config.checkpoints) * (len(sets) + 1), 0
    for stage, checkpoint in config.checkpoints.items():
        weights = restore_weights(resolved(checkpoint), weight_shapes(config.model, mesh))
        losses = {}
        for domain, validation in sets.items():
            nats, weight = total_nats(*weights, validation.batches, config.model, mesh)
            losses[domain] = nats / weight
            done += 1
            current().progress(done, total, unit="evaluations", loss=losses[domain])
        result = {
            "stage": stage,
            "loss": losses,
            "bits_per_byte": {domain: sets[domain].bits_per_byte(loss) for domain, loss in losses.items()},
        }
        if config.questions is not None:
            result["multiple_choice"] = _multiple_choice(config, weights, mesh)
        done += 1
        current().progress(done, total, unit="evaluations")
        results[stage] = result
        print(json.dumps(result), flush=True)
        if current().process > 0:
            continue
        with fsspec.open(f"{output}/{stage}/evaluation.json", "wt") as file:
            json.dump({**result, "baselines": baselines}, file, indent=1)  # pyright: ignore[reportArgumentType]
    return results


def _multiple_choice(config: EvaluateConfig, weights: tuple[Any, Any], mesh: Any) -> dict[str, float]:
    """Score every choice by the summed loss of its tokens after the passage; the likeliest per byte is chosen."""
    import fsspec
    import numpy as np

    from steps.batches import stack
    from steps.tokenizer import open_tokenizer
    from steps.train.data import as_batches
    from steps.train.evaluation import sequence_nats

    assert config.questions is not None
    with fsspec.open(resolved(config.questions), "rt", encoding="utf-8") as file:
        questions = [json.loads(line) for line in file]  # pyright: ignore[reportGeneralTypeIssues]
    rows = choice_rows(open_tokenizer(resolved(config.tokenizer)), questions, config.model.sequence_length)
    nats = sequence_nats(*weights, as_batches(stack(rows, config.batch_size)), config.model, mesh)[: len(rows)]
    lengths = [len(choice.encode()) for question in questions for choice in question["choices"]]
    num_choices = len(questions[0]["choices"])
    chosen = (nats / np.asarray(lengths)).reshape(len(questions), num_choices).argmin(axis=1)
    right = chosen == np.asarray([question["answer"] for question in questions])
    return {"accuracy": float(right.mean()), "chance": 1 / num_choices, "questions": len(questions)}


def choice_rows(tokenizer: Any, questions: list[dict[str, Any]], sequence_length: int) -> list[dict[str, Any]]:
    """One example per choice, the choices of a question in order; the loss counts on the choice alone.

    A passage that is too long for the sequence loses its beginning, a choice its end past half the sequence.
    """
    import numpy as np

    from steps.batches import PADDING

    contexts = tokenizer.encode([question["context"] for question in questions])
    choices = tokenizer.encode([choice for question in questions for choice in question["choices"]])
    per_question = len(choices) // len(questions)
    rows = []
    for index, choice in enumerate(choices):
        choice = choice[: sequence_length // 2]
        context = contexts[index // per_question][-(sequence_length - len(choice) - 1) :]
        ids = [tokenizer.bos_id, *context, *choice]
        padding = sequence_length - len(ids)
        mask = np.zeros(sequence_length, np.float32)
        mask[len(ids) - len(choice) - 1 : len(ids) - 1] = 1.0
        rows.append(
            {
                "tokens": np.pad(np.asarray(ids, np.int32), (0, padding)),
                "loss_mask": mask,
                "segment_ids": np.pad(np.zeros(len(ids), np.int32), (0, padding), constant_values=PADDING),
            }
        )
    return rows


def _read_json(location: str) -> Any:
    import fsspec

    with fsspec.open(location, "rt") as file:
        return json.load(file)  # pyright: ignore[reportArgumentType]
