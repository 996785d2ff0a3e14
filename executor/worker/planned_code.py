"""The code in this process against the code that was planned."""

from executor.errors import MarinadeError
from executor.keys.changes import code_drift
from executor.keys.code import reach
from executor.worker.task import Task


def check_code(task: Task) -> None:
    """Raise MarinadeError where a step's code here is not what its key was made from."""
    drift = code_drift(task.code, reach(task.things).fingerprints)
    if drift:
        raise MarinadeError(
            f"step {task.name}: its code here is not the code that was planned ({', '.join(drift[:5])}"
            f"{', ...' if len(drift) > 5 else ''}): it was edited meanwhile, or this worker has other files; "
            "run again"
        )
