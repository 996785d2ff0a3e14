"""Random graphs with random edits rerun exactly the steps that a model written from scratch says.

The model knows nothing of keys, records or indexes: it keeps what was written for which function, settings and read
contents, and a step runs if and only if that is not there. Steps write less than their settings say (`// 2`, `% 3`),
so that a rerun often writes what was there before and everything after it stays as it is.
"""

import dataclasses
import itertools
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

HELPERS = (  # text, identity of the code, what it computes
    ("return x // 2", "halves", lambda x: x // 2),
    ("return (x  //  2)  # the same", "halves", lambda x: x // 2),
    ("y = x // 2\n        return y", "halves in two lines", lambda x: x // 2),
    ("return x // 2 + 7", "halves and seven", lambda x: x // 2 + 7),
)

RECIPE = """
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        label: int
        value: int
        ignored: int
        speed: int = execution(0)
        sources: tuple[Input, ...] = ()
        {field}

    def number(location):
        return int(get(next(path for name in ("all", "p", "state") if os.path.exists(path := f"{{location}}/{{name}}"))))

    def write(config, output, worth):
        with open("calls", "a") as file:
            file.write(f"{{config.label}}\\n")
        total = sum(number(source) for source in config.sources)
        put(f"{{output}}/at-1/state", str(config.value % 3 + total // 3))
        current().publish(1, "at-1")
        if current().stop_at is None:
            put(f"{{output}}/all", str(worth + getattr(config, "extra", 0) + total // 2))
            put(f"{{output}}/part/p", str((config.value + total) % 2))

    def helper_0(x):
        {helper_0}

    def helper_1(x):
        {helper_1}

    def work_0(config, output):
        write(config, output, helper_0(config.value))

    def work_1(config, output):
        write(config, output, helper_1(config.value))

    @dataclasses.dataclass(frozen=True)
    class Settings(Scales):
        pass

    def build(settings: Settings):
        steps = []
        for name, kind, opaque, sources, fields in {steps}:
            inputs = [steps[at] if how == 0 else steps[at] / "part" if how == 1 else steps[at].at_step(1) for at, how in sources]
            config = Config(sources=tuple(inputs), **fields)
            steps.append(Step(name, (work_0, work_1)[kind], config, digest="opaque" if opaque else "files"))
        return Experiment(targets=tuple(steps[at] for at in {targets}))
    """  # noqa: E501


@dataclasses.dataclass(kw_only=True)
class Node:
    """One step as the test edits it. Sources: index of another node, and whole (0), its part (1), its milestone (2)."""

    label: int
    kind: int
    opaque: bool
    value: int
    sources: tuple[tuple[int, int], ...]
    ignored: int = 0
    speed: int = 0
    extra: int = 0
    name: str = ""


@dataclasses.dataclass(kw_only=True)
class Written:
    """What lies in the store for one content: of a whole artifact, or of a milestone."""

    state: int
    whole: int = 0
    part: int = 0
    identity: Any = None
    has_files: bool = True


class Model:
    """What was written so far, and which steps a run has to call."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.helpers = [0, 0]
        self.wholes: dict[Any, Written] = {}
        self.milestones: dict[Any, Written] = {}
        self.attempts = itertools.count()

    def targets(self) -> list[int]:
        """Nodes that no other reads."""
        read = {at for node in self.nodes for at, _ in node.sources}
        return [at for at in range(len(self.nodes)) if at not in read]

    def wants(self, at: int) -> tuple[bool, bool]:
        """Whether a node is wanted as a whole, and its milestone."""
        how = {how for node in self.nodes for source, how in node.sources if source == at}
        return at in self.targets() or bool(how & {0, 1}), 2 in how

    def content(self, at: int, keys: list[Any]) -> Any:
        """Everything that says what a node is: its function, its settings, and the contents it reads."""
        node = self.nodes[at]
        read = [self.read(keys[source], how) for source, how in node.sources]
        if None in read:
            return None
        return (node.kind, HELPERS[self.helpers[node.kind]][1], node.opaque, node.label, node.value, node.ignored,
                node.extra, tuple(read))  # fmt: skip

    def read(self, key: Any, how: int) -> Any:
        found = (self.milestones if how == 2 else self.wholes).get(key)
        if found is None:
            return None
        return ("part", found.part) if how == 1 else ("all", found.identity)

    def has(self, at: int, key: Any, *, files: bool = False) -> bool:
        whole, milestone = self.wants(at)
        wanted = [self.wholes.get(key)] * whole + [self.milestones.get(key)] * milestone
        return all(found is not None and (found.has_files or not files) for found in wanted)

    def run(self, forced: set[int]) -> list[int]:
        """Labels of the nodes whose functions are called, in order."""
        again = self.without_files(forced)
        keys: list[Any] = []
        called = []
        changed: set[int] = set()
        for at, node in enumerate(self.nodes):
            key = self.content(at, keys)
            keys.append(key)
            known = not any(source in changed for source, _ in node.sources)
            if at in again or not self.has(at, key, files=not known):
                called.append(node.label)
                self.write(at, key, keys, anew=at in again)
                changed.add(at)
            elif not known:
                changed.add(at)
        return called

    def without_files(self, forced: set[int]) -> set[int]:
        """Forced nodes, and those whose files are gone though they are a target or read by one that may run."""
        again = set(forced)
        while True:
            keys: list[Any] = []
            sure: set[int] = set()
            for at, node in enumerate(self.nodes):
                keys.append(self.content(at, keys) if all(source in sure for source, _ in node.sources) else None)
                if keys[at] is not None and at not in again and self.has(at, keys[at]):
                    sure.add(at)
            used = {source for at, node in enumerate(self.nodes) if at not in sure for source, _ in node.sources}
            gone = {at for at in sure & (used | set(self.targets())) if not self.has(at, keys[at], files=True)}
            if not gone:
                return again
            again |= gone

    def write(self, at: int, key: Any, keys: list[Any], *, anew: bool) -> None:
        node, attempt = self.nodes[at], next(self.attempts)
        total = sum(self.number(keys[source], how) for source, how in node.sources)
        worth = HELPERS[self.helpers[node.kind]][2](node.value) + node.extra + total // 2
        made = Written(state=node.value % 3 + total // 3, whole=worth, part=(node.value + total) % 2)
        published = self.milestones.get(key)
        if anew or published is None or not published.has_files:
            identity = attempt if node.opaque else made.state
            self.milestones[key] = dataclasses.replace(made, identity=identity)
        whole, milestone = self.wants(at)
        if whole and not (milestone and key in self.wholes and not anew and self.wholes[key].has_files):
            identity = attempt if node.opaque else (made.whole, made.part, made.state)
            self.wholes[key] = dataclasses.replace(made, identity=identity)

    def number(self, key: Any, how: int) -> int:
        found = (self.milestones if how == 2 else self.wholes)[key]
        return (found.whole, found.part, found.state)[how]

    def results(self) -> dict[str, int]:
        """What each target has to hold when all is done."""
        keys: list[Any] = []
        for at in range(len(self.nodes)):
            keys.append(self.content(at, keys))
        return {self.nodes[at].name: self.wholes[keys[at]].whole for at in self.targets()}


class Bench:
    """The same graph as a recipe, run by the engine in a folder of its own."""

    def __init__(self, project) -> None:
        self.project, self.has_field = project, False
        self.model = Model()

    def write(self) -> None:
        steps = []
        for node in self.model.nodes:
            fields = {name: getattr(node, name) for name in ("label", "value", "ignored", "speed")}
            if self.has_field:
                fields["extra"] = node.extra
            steps.append((node.name, node.kind, node.opaque, node.sources, fields))
        text = RECIPE.format(
            field="extra: int = added(default=0, born=0)" if self.has_field else "",
            helper_0=HELPERS[self.model.helpers[0]][0],
            helper_1=HELPERS[self.model.helpers[1]][0],
            steps=steps,
            targets=self.model.targets(),
        )
        self.project.write("toy_recipe.py", text)

    def check(self, forced: set[int]) -> None:
        """One run: exactly the calls that the model says, the right results, and nothing left to do."""
        self.write()
        names = {self.model.nodes[at].name for at in forced}
        expected = self.model.run(forced)
        calls = Path(self.project.root / "calls")
        calls.unlink(missing_ok=True)
        outcome = self.project.run(force=tuple(names))
        plan = {step.name: step for step in outcome.plan.steps}
        assert outcome.exit_code == 0, {name: step.error for name, step in outcome.steps.items() if step.error}
        called = [int(line) for line in calls.read_text().splitlines()] if calls.exists() else []
        note(f"plan { ({name: step.action for name, step in plan.items()}) }")
        assert sorted(called) == sorted(expected)
        reused = {name for name, step in plan.items() if step.action == "reuse"}
        assert not reused & {node.name for node in self.model.nodes if node.label in called}
        for name, number in self.model.results().items():
            assert int((Path(outcome.steps[name].location) / "all").read_text()) == number, name

    def edit(self, what: str, at: int, to: int) -> None:
        model = self.model
        node = model.nodes[at % len(model.nodes)]
        if what in ("value", "ignored", "speed"):
            setattr(node, what, to % 4)
        elif what == "code":
            model.helpers[at % 2] = to % len(HELPERS)
        elif what == "rename":
            node.name = f"step{node.label}/{to}"
        elif what == "field":
            self.has_field = True
        elif what == "extra":
            self.has_field, node.extra = True, 5 * (to % 2)
        elif what == "rewire":
            before = model.nodes.index(node)
            node.sources = (
                tuple((to * (number + 1) % before, to // 2 % 3) for number in range(to % 3)) if before else ()
            )
        elif what == "files":
            self.delete_files(node)
        elif what == "index":
            shutil.rmtree(Path(self.project.prefix) / ".index", ignore_errors=True)

    def delete_files(self, node: Node) -> None:
        """All data of a step, under all of its contents and names; the records stay."""
        for key, found in [*self.model.wholes.items(), *self.model.milestones.items()]:
            if key[3] == node.label:
                found.has_files = False
        for folder in Path(self.project.prefix).glob(f"step{node.label}*/**/.step"):
            for attempt in folder.parent.iterdir():
                if attempt.name != ".step":
                    shutil.rmtree(attempt)


def nodes() -> st.SearchStrategy:
    """Graphs of 2 to 8 nodes; sources are drawn as numbers and taken modulo what stands before."""
    source = st.tuples(st.integers(0, 7), st.sampled_from([0, 0, 1, 2]))
    node = st.tuples(st.integers(0, 1), st.booleans(), st.integers(0, 3), st.lists(source, max_size=3))
    return st.lists(node, min_size=2, max_size=8)


EDITS = ("value", "value", "ignored", "speed", "code", "field", "extra", "rewire", "files")


def rounds() -> st.SearchStrategy:
    """Rounds of edits, each with what the run is forced to do again; renames or a lost index, not both."""
    forced = st.sets(st.integers(0, 7), max_size=1)
    what = st.sampled_from(["rename", "index"]).flatmap(
        lambda name: st.lists(
            st.tuples(
                st.lists(
                    st.tuples(st.sampled_from((*EDITS, name)), st.integers(0, 7), st.integers(0, 11)),
                    min_size=1,
                    max_size=3,
                ),
                forced,
            ),
            min_size=1,
            max_size=4,
        )
    )
    return what


def try_out(make_project, drawn, edits) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        bench = Bench(make_project(Path(folder)))
        try:
            for label, (kind, opaque, value, sources) in enumerate(drawn):
                found = tuple((at % label, how) for at, how in sources) if label else ()
                node = Node(label=label, kind=kind, opaque=opaque, value=value, sources=found, name=f"step{label}")
                bench.model.nodes.append(node)
            bench.check(set())
            for changes, forced in edits:
                for what, at, to in changes:
                    bench.edit(what, at, to)
                bench.check({at % len(drawn) for at in forced})
            assert {step.action for step in bench.project.plan().values()} == {"reuse"}
        finally:
            bench.project.forget()


COMMON: dict[str, Any] = {"deadline": None, "derandomize": True, "database": None, "report_multiple_bugs": False}
COMMON["phases"] = (Phase.explicit, Phase.generate)  # an example takes long enough that shrinking would take minutes
COMMON["suppress_health_check"] = [
    HealthCheck.function_scoped_fixture,
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
]


@given(drawn=nodes(), edits=rounds())
@settings(max_examples=6, **COMMON)
def test_edits_rerun_what_the_model_says(project, drawn, edits):
    try_out(type(project), drawn, edits)


@pytest.mark.slow
@given(drawn=nodes(), edits=rounds())
@settings(max_examples=300, **COMMON)
def test_many_edits_rerun_what_the_model_says(project, drawn, edits):
    try_out(type(project), drawn, edits)
