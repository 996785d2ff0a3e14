"""The pipeline engine: a recipe declares steps, the engine plans, runs and remembers them.

Everything public is here. What recipes and steps need is imported at once and light; the rest when it is first used.
"""

from typing import TYPE_CHECKING, Any

from executor.context import StepContext, current, resolved
from executor.errors import IdentityError, MarinadeError, ResourcesMissing, StepHalted, UsageError
from executor.external import adopt, external
from executor.keys.fingerprint import fingerprint
from executor.keys.names import identity
from executor.secrets import Secret
from executor.step import Criterion, Experiment, Input, Milestone, Output, Resources, Step, Value, added, execution

if TYPE_CHECKING:
    from executor.cli import recipe_main as main
    from executor.comparing.compare import diff
    from executor.driver.run import RunOptions, RunOutcome, run_experiment
    from executor.planning.planner import make_plan
    from executor.storage.locate import read_record
    from executor.storage.store import Store

__all__ = [
    "Criterion",
    "Experiment",
    "IdentityError",
    "Input",
    "MarinadeError",
    "Milestone",
    "Output",
    "Resources",
    "ResourcesMissing",
    "RunOptions",
    "RunOutcome",
    "Secret",
    "Step",
    "StepContext",
    "StepHalted",
    "Store",
    "UsageError",
    "Value",
    "added",
    "adopt",
    "current",
    "diff",
    "execution",
    "external",
    "fingerprint",
    "identity",
    "main",
    "make_plan",
    "read_record",
    "resolved",
    "run_experiment",
]

_LATER = {
    "main": "executor.cli",
    "diff": "executor.comparing.compare",
    "make_plan": "executor.planning.planner",
    "run_experiment": "executor.driver.run",
    "RunOptions": "executor.driver.run",
    "RunOutcome": "executor.driver.run",
    "Store": "executor.storage.store",
    "read_record": "executor.storage.locate",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        import importlib

        return getattr(importlib.import_module(_LATER[name]), "recipe_main" if name == "main" else name)
    raise AttributeError(f"module executor has no attribute {name}")
