"""How often a plan waits for a store on which every call takes 50 ms: a number of rounds that steps do not add to."""

import pytest

RECIPE = """
    import fsspec

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TextConfig:
        number: int
        source: Input | None = None

    def text(config, output):
        fs, path = fsspec.core.url_to_fs(output)
        fs.pipe_file(f"{path}/text", str(config.number).encode())

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Settings(Scales):
        steps: int = 40
        chain: bool = False
        first: str = "0"

    def build(settings: Settings) -> Experiment:
        steps = []
        for number in range(settings.steps):
            source = steps[-1] if steps and settings.chain else None
            steps.append(Step(f"s{number}", text, TextConfig(number=number, source=source)))
        return Experiment(targets=steps)
"""


def rounds(calls: list[tuple[str, str, float, float]]) -> int:
    """The longest row of calls of which each began after the one before had ended."""
    count, ended = 0, 0.0
    for _, _, start, end in sorted(calls, key=lambda call: call[3]):
        if start >= ended:
            count, ended = count + 1, end
    return count


@pytest.mark.parametrize("shape", ["chain=false", pytest.param("chain=true", marks=pytest.mark.slow)])
def test_planning_waits_for_a_bounded_number_of_rounds(project, faults, shape):
    project.write("toy_recipe.py", RECIPE)
    project.prefix = faults.url

    def planned(action: str) -> int:
        faults.filesystem.delay_seconds = 0.05
        faults.filesystem.calls.clear()
        plan = project.plan(shape)
        faults.filesystem.delay_seconds = 0.0
        assert len(plan) == 40 and {step.action for step in plan.values()} == {action}
        return rounds(faults.filesystem.calls)

    assert planned("run") <= 25, "nothing is there"
    assert project.run(shape).exit_code == 0
    assert planned("reuse") <= 15, "everything is there"
    files = project.store.files
    for name in files.find(".index/recipe"):
        files.write(f".index/recipe/{name}", b"")
    assert planned("reuse") <= 15, "everything is there under other recipe keys, as behind a step that wrote the same"
