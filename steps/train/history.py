"""What a run has measured so far, as plain data: training losses, evaluations, drops, router entropy.

It travels with every checkpoint, so that a resumed or continued run hands on one unbroken history. No clock and no
host enters it: equal runs have equal histories.
"""

import dataclasses
import json
import statistics
from typing import Any

import fsspec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One evaluation during training.

    Attributes:
        step: optimizer steps done.
        progress: of the horizon, in (0, 1].
        tokens: trained on so far.
        macro_loss: mean over domains of `losses`.
        losses: domain -> nats per token.
        bits_per_byte: domain -> bits per byte of the same text.
    """

    step: int
    progress: float
    tokens: int
    macro_loss: float
    losses: dict[str, float]
    bits_per_byte: dict[str, float]


@dataclasses.dataclass(kw_only=True)
class History:
    """The measurements of a run up to some step; the loop appends to it.

    Attributes:
        losses: cross-entropy of every training step, nats per token.
        gradient_norms: of all gradients together, per step.
        router_entropy: mean routing entropy over layers, per step.
        sender_dropped, receiver_dropped, assignments: assignments per step: lost at the sender, lost at the receiver,
            and all of them.
        largest_device, largest_pair: rows wanted of the fullest device, and by one sender of one device, over their
            means; of the layer where it is most, per step.
        router_bias: the router bias furthest from zero, of all layers and experts, per step.
        rollbacks: `{"guard", "step", "skipped"}` each: which guard spoke after which step, and the steps whose batches
            are passed over since; the figures of such a step repeat those of the one before.
        stages: the mixture's stages so far, `{"start_step", "weights"}` each; a phase that continues the run adds
            its own.
    """

    losses: list[float] = dataclasses.field(default_factory=list)
    gradient_norms: list[float] = dataclasses.field(default_factory=list)
    router_entropy: list[float] = dataclasses.field(default_factory=list)
    sender_dropped: list[int] = dataclasses.field(default_factory=list)
    receiver_dropped: list[int] = dataclasses.field(default_factory=list)
    assignments: list[int] = dataclasses.field(default_factory=list)
    largest_device: list[float] = dataclasses.field(default_factory=list)
    largest_pair: list[float] = dataclasses.field(default_factory=list)
    router_bias: list[float] = dataclasses.field(default_factory=list)
    rollbacks: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    evals: list[Evaluation] = dataclasses.field(default_factory=list)
    stages: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @property
    def steps(self) -> int:
        return len(self.losses)

    @property
    def skipped(self) -> frozenset[int]:
        """Steps whose batches are passed over."""
        return frozenset(step for rollback in self.rollbacks for step in rollback["skipped"])

    def skip(self) -> None:
        """Count a step whose batch is passed over, never the first: nothing was learned and nothing sent."""
        for figures in (self.losses, self.gradient_norms, self.router_entropy, self.router_bias,
                        self.largest_device, self.largest_pair):  # fmt: skip
            figures.extend(figures[-1:])
        for counts in (self.sender_dropped, self.receiver_dropped, self.assignments):
            counts.append(0)

    def drop_fraction(self, last: int | None = None) -> float:
        """Dropped over all valid assignments, in the last `last` steps or in all of them."""
        window = slice(-last if last else None, None)
        dropped = sum(self.sender_dropped[window]) + sum(self.receiver_dropped[window])
        return dropped / max(1, sum(self.assignments[window]))

    def gradient_norm(self) -> dict[str, float] | None:
        """Mean over the second quarter of the steps (the warm-up lies in the first) and over the last eighth, and the
        latter over the former; None where not every step has one."""
        count = self.steps
        if len(self.gradient_norms) != count or count < 8:
            return None
        middle = statistics.fmean(self.gradient_norms[count // 4 : count // 2])
        end = statistics.fmean(self.gradient_norms[-(count // 8) :])
        return {"second_quarter": middle, "end": end, "growth": end / middle}

    def to_json(self, run: dict[str, Any]) -> str:
        """The `history.json` of a training artifact; `run` says what was trained."""
        return json.dumps({"run": run, **dataclasses.asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> "History":
        data = json.loads(text)
        del data["run"]
        evaluations = [Evaluation(**item) for item in data.pop("evals")]
        return cls(evals=evaluations, **data)

    @classmethod
    def read(cls, location: str) -> "History":
        with fsspec.open(location, "rt") as file:
            return cls.from_json(file.read())  # pyright: ignore[reportAttributeAccessIssue]
