"""The language recipes are written in: steps, the outputs they hand on, and what was expected of them.

A step is a declaration. Building one runs nothing and reads nothing; a dependency is declared by putting another
step (or a part of what it writes) into a config field:

    corpus = Step("corpus", collect, CorpusConfig(sources=...))
    tokens = Step("tokens/code", tokenize, TokenizeConfig(documents=corpus / "code"))

Invariant: everything here is immutable and free of I/O; equal declarations are equal values.
"""

import dataclasses
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from executor.errors import UsageError

EXECUTION = "marinade.execution"
BORN = "marinade.born"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resources:
    """What one attempt of a step needs; never part of a key.

    Attributes:
        cpus: cores of one process, reduced to what the machine has when it has fewer.
        gpus: GPUs of one process (one process per host).
        memory_gib: memory of one process.
        hosts: processes of one group, all placed on hosts that share `colocate`.
        groups: how many such groups the gang has; `groups * hosts` processes start together or not at all.
        colocate: node label that is equal over one group (an NVLink domain), empty for none.
        accelerator: name of the accelerator, for people (`GB200`), empty for none.
        environment: variables set before the worker process imports anything.
    """

    cpus: int = 1
    gpus: int = 0
    memory_gib: float = 0.0
    hosts: int = 1
    groups: int = 1
    colocate: str = ""
    accelerator: str = ""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Output:
    """A part of what a step writes: `step / "train"`. Resolves to a location (a string) when the consumer runs."""

    step: "Step"
    part: str = ""

    def __truediv__(self, part: str) -> "Output":
        return Output(step=self.step, part=f"{self.part}/{part}" if self.part else part)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Milestone:
    """A published part of a step that may still be running: its permanent checkpoint at one training step."""

    step: "Step"
    at: int


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """One node of the pipeline: a name for people, a function, and the config that says what it does.

    Attributes:
        name: a path such as `tokens/code`; shown to people and part of the address, never part of a key.
        function: `function(config, output) -> dict | None`; `output` is the folder to write to, the returned
            JSON goes into the record.
        config: a frozen dataclass. Fields may hold steps, outputs and milestones, also inside lists, tuples and dicts.
        code: `rerun` makes the reachable source part of the key; `pin` records it and reports drift.
        uses: code that reading the source cannot find (executor.keys.uses): functions, classes and modules of the
            project, and names of installed distributions, which count by version.
        version: bumped by the author of a pinned step to ask for a rerun.
        digest: `files` hashes what was written; `opaque` lets the attempt's identity stand for it (checkpoints
            whose bytes differ between equal runs).
        resources: what an attempt needs to run.
        retries: how often the step is started again after its function raised; never part of a key.
        amends: the step this one amends (a declared change to a run, forking from a milestone of it), for `diff`
            and lineage; the dependency itself stands in the config.
    """

    name: str
    function: Callable[..., Any]
    config: Any
    _: dataclasses.KW_ONLY
    code: Literal["rerun", "pin"] = "rerun"
    uses: Sequence[Any] = ()
    version: str = ""
    digest: Literal["files", "opaque"] = "files"
    resources: Resources = Resources()
    retries: int = 0
    amends: "Step | None" = None

    def __truediv__(self, part: str) -> Output:
        return Output(step=self, part=part)

    def at_step(self, step: int) -> Milestone:
        """The checkpoint this step publishes after `step` training steps."""
        return Milestone(step=self, at=step)

    def amend(self, *, at_step: int, name: str = "", **changes: Any) -> "Step":
        """A step that forks from this one's checkpoint at `at_step` and goes on under a changed config.

            pretrain.amend(at_step=108_000, name="pretrain-swap", data={"prose": 0.3, "code": 0.7})

        All before the fork is reused; `diff` and lineage show the fork. What can be changed and how it is spelled is
        the config's to say, in its method `amended(start=, at_step=, **changes)`.

        Raises:
            UsageError: the config has no such method.
        """
        amended = getattr(self.config, "amended", None)
        if amended is None:
            raise UsageError(
                f"step {self.name}: only a run with checkpoints can be amended, and its {type(self.config).__name__} "
                "has no method amended(start=, at_step=, **changes)"
            )
        config = amended(start=self.at_step(at_step), at_step=at_step, **changes)
        return dataclasses.replace(self, name=name or f"{self.name}-from-{at_step}", config=config, amends=self)

    def result(self, path: str) -> "Value":
        """A number in the JSON this step returns, by dotted path: `validation.macro_loss`."""
        return Value(step=self, path=path)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Value:
    """A number in a step's result, or an object of numbers; what criteria are made of, never an input.

    It enters no key and makes no step depend on another.
    """

    step: Step
    path: str


Input = Step | Output | Milestone | str
"""Annotation of a config field that holds another step's output; the worker replaces it by a location."""


Bound = Value | float | int


@dataclasses.dataclass(frozen=True, eq=False)
class Criterion:
    """A condition on the results of steps, checked when a run ends.

        Criterion("the final loss lies within 2% of the forecast", value=hero.result("loss"), within=0.02,
                  of=forecast.result("loss"))

    A value or bound that is an object of numbers is compared key by key; all that is given has to hold.

    Attributes:
        words: what is claimed, for people.
        within, of: the relative distance allowed, and what it is taken from: |value - of| <= within * |of|.
        below, above, at_most, at_least: a bound or several.

    Raises UsageError for a criterion that compares nothing, or with something that is no number.
    """

    words: str
    _: dataclasses.KW_ONLY
    value: Value
    within: float | None = None
    of: Bound | None = None
    below: Bound | Sequence[Bound] = ()
    above: Bound | Sequence[Bound] = ()
    at_most: Bound | Sequence[Bound] = ()
    at_least: Bound | Sequence[Bound] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.value, Value):
            raise UsageError(f"{self._name}: value is step.result(path), found {self.value!r}")
        if (self.within is None) != (self.of is None):
            raise UsageError(f"{self._name}: within and of go together, as in within=0.02, of=forecast.result('loss')")
        if self.within is not None and not (_is_number(self.within) and self.within >= 0):
            raise UsageError(f"{self._name}: within is a share such as 0.02 for 2%, found {self.within!r}")
        for relation, bounds in self.bounds.items():
            for bound in bounds:
                if not isinstance(bound, Value) and not _is_number(bound):
                    raise UsageError(f"{self._name}: {relation} is a number or step.result(path), found {bound!r}")
        if not any(self.bounds.values()):
            raise UsageError(f"{self._name}: give it something to compare with: within and of, below, above, "
                             "at_most or at_least; what only people can judge is a plain string")  # fmt: skip

    @property
    def bounds(self) -> dict[str, tuple[Bound, ...]]:
        """Relation -> what the value is compared with."""
        given = {name: getattr(self, name) for name in ("below", "above", "at_most", "at_least")}
        several = {
            name: tuple(bounds) if isinstance(bounds, list | tuple) else (bounds,) for name, bounds in given.items()
        }
        return {"within": () if self.of is None else (self.of,), **several}

    @property
    def _name(self) -> str:
        return f"criterion {self.words!r}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """What a recipe builds: the steps wanted, and what was expected of them before anything ran.

    Attributes:
        targets: the steps to bring up to date; all they depend on comes with them.
        report: a Markdown file among the outputs, printed when a run ends.
        hypothesis: what the run is expected to show.
        issue: where it is discussed, an http(s) URL.
        success: criteria under which the hypothesis counts as confirmed; a string is for people to judge.
        prediction: a number that a step forecasts; it goes on record when that step ends, before its readers start.

    Raises UsageError for an issue that is no such URL, and for criteria of another kind.
    """

    targets: tuple[Step, ...]
    report: Output | None = None
    hypothesis: str = ""
    issue: str = ""
    success: Sequence[Criterion | str] = ()
    prediction: Value | None = None

    def __post_init__(self) -> None:
        if self.issue:
            _check_url(self.issue)
        if isinstance(self.success, str | Criterion):
            raise UsageError(f"Experiment.success is a list of criteria, found one alone: write [{self.success!r}]")
        for criterion in self.success:
            if not isinstance(criterion, str | Criterion):
                raise UsageError(f"Experiment.success holds criteria and strings, found {criterion!r}")
        if self.prediction is not None and not isinstance(self.prediction, Value):
            raise UsageError(f"Experiment.prediction is step.result(path), found {self.prediction!r}")


def _check_url(url: str) -> None:
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        parts = urllib.parse.urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url:
        raise UsageError(f"Experiment.issue is an http or https URL such as https://github.com/OWNER/REPO/issues/1, "
                         f"found {url!r}")  # fmt: skip
    if "@" in parts.netloc:
        raise UsageError("Experiment.issue goes on record and on screen: leave the credentials out of the URL")


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)


def execution(default: Any = dataclasses.MISSING, *, default_factory: Any = dataclasses.MISSING) -> Any:
    """A field that says how a step runs, not what it is: recorded with each attempt, absent from every key."""
    return _field(default, default_factory, {EXECUTION: True})


def added(default: Any = dataclasses.MISSING, *, born: Any, default_factory: Any = dataclasses.MISSING) -> Any:
    """A field added after artifacts exist: it enters the key only when its value differs from `born`."""
    return _field(default, default_factory, {BORN: born})


def _field(default: Any, default_factory: Any, metadata: dict[str, Any]) -> Any:
    if default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=default_factory, metadata=metadata, kw_only=True)
    return dataclasses.field(default=default, metadata=metadata, kw_only=True)
