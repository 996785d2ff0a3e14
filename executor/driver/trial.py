"""An experiment put to the test by one run: declared before it, its prediction recorded in it, judged after it.

What is known of a step's result, at any moment of a run, is decided here.
"""

import sys
from collections.abc import Callable, Mapping

from executor.driver.events import Event, StepFinished, StepOutcome, StepReused
from executor.experiments import prediction
from executor.experiments.experiment import declaration, observed, outcomes_read
from executor.experiments.verdict import Known, Verdict, judge
from executor.planning.planner import Prepared
from executor.secrets import redact_json
from executor.step import Experiment

_WHY = {
    "failed": "{name} failed",
    "halted": "{name} was halted",
    "interrupted": "{name} was interrupted",
    "not_run": "{name} did not run",
}


class Trial:
    """One experiment in one run.

    Attributes:
        declared: the declaration, as JSON.
        known_before: steps that the criteria are about and whose results were there when the run was planned, even if
            they are made anew.
    """

    def __init__(self, prepared: Prepared, experiment: Experiment) -> None:
        self.results, self.store = prepared.results, prepared.results.store
        self.declared = redact_json(declaration(experiment, prepared.graph))
        self.observed = observed(experiment, prepared.graph)
        about = outcomes_read(self.declared)
        self.known_before = tuple(n for n in about if n in prepared.made_before or self.results.of(n).record)

    def listener(self, run_id: str, tell: Callable[[Event], None]) -> Callable[[Event], None]:
        """`tell`, and before it the prediction put on record once its step has its artifact.

        The scheduler tells of a step's end before it starts what reads it.
        """
        value = self.declared["prediction"]
        if value is None:
            return tell

        def told(event: Event) -> None:
            if isinstance(event, StepFinished | StepReused) and event.name == value["step"]:
                record = self.results.of(value["step"]).record
                why = (
                    prediction.enter(self.store, run_id, self.declared, record)
                    if record is not None
                    else f"{value['step']} went only as far as a milestone"
                )
                if why:
                    print(f"the prediction is not on record: {why}", file=sys.stderr)
            tell(event)

        return told

    def verdict(self, outcomes: Mapping[str, StepOutcome]) -> Verdict | None:
        """What came of it; None where nothing was declared."""
        return judge(self.declared, {name: self._known(name, outcomes.get(name)) for name in self.observed})

    def _known(self, name: str, outcome: StepOutcome | None) -> Known:
        if outcome is not None and not outcome.is_good:
            return Known(reason=_WHY[outcome.status].format(name=name))
        record = self.results.of(name).record
        if outcome is None and record is None:
            return Known(reason=f"{name} was left out of this run")
        if record is None:
            return Known(reason=f"{name} went only as far as a milestone")
        return Known(result=record.result or {})
