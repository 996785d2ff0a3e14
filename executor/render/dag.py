"""The graph of a recipe as a tree, Mermaid or DOT."""

from typing import TYPE_CHECKING

from executor.render.terminal import Terminal

if TYPE_CHECKING:
    from executor.keys.graph import Graph, InputRef


def dag_text(graph: "Graph", terminal: Terminal) -> str:
    """From each target down to its inputs; a step met before is named, not repeated."""
    lines: list[str] = []
    seen: set[str] = set()
    stack = [(name, "", "", "") for name in reversed(graph.targets)]
    while stack:
        name, note, indent, connector = stack.pop()
        edges = _edges(graph, name)
        again = name in seen and edges
        amends = graph.steps[name].amends
        words = [note, f"amends {amends.name}" if amends else "", "above" if again else ""]
        tail = ", ".join(word for word in words if word)
        shown = terminal.paint(name, "bold") if not connector else name
        lines.append(f"{indent}{connector}{shown}" + terminal.paint(f"  ({tail})" if tail else "", "dim"))
        if again:
            continue
        seen.add(name)
        below = indent + {"": "", "├─ ": "│  ", "└─ ": "   "}[connector]
        for place, (source, label) in reversed(list(enumerate(edges.items()))):
            stack.append((source, label, below, "└─ " if place == len(edges) - 1 else "├─ "))
    return "\n".join(lines) + "\n"


def dag_mermaid(graph: "Graph") -> str:
    """A Mermaid flowchart; execution-only inputs and amendments are dotted."""
    ids = {name: f"s{number}" for number, name in enumerate(graph.steps)}
    lines = ["flowchart TD"]
    lines += [f'    {ids[name]}["{name}"]' for name in graph.steps]
    for name in graph.steps:
        for source, label in _edges(graph, name).items():
            arrow = "-.->" if _only_execution(graph, name, source) else "-->"
            text = f"|{label}|" if label else ""
            lines.append(f"    {ids[source]} {arrow}{text} {ids[name]}")
        amends = graph.steps[name].amends
        if amends is not None and amends.name in ids:
            lines.append(f"    {ids[amends.name]} -.->|amended by| {ids[name]}")
    return "\n".join(lines) + "\n"


def dag_dot(graph: "Graph") -> str:
    """Graphviz DOT with the same edges."""
    lines = ["digraph recipe {", "    node [shape=box];"]
    lines += [f'    "{name}";' for name in graph.steps]
    for name in graph.steps:
        for source, label in _edges(graph, name).items():
            attributes = [f'label="{label}"'] if label else []
            attributes += ["style=dotted"] if _only_execution(graph, name, source) else []
            tail = f" [{', '.join(attributes)}]" if attributes else ""
            lines.append(f'    "{source}" -> "{name}"{tail};')
        amends = graph.steps[name].amends
        if amends is not None and amends.name in graph.steps:
            lines.append(f'    "{amends.name}" -> "{name}" [label="amended by", style=dotted];')
    return "\n".join([*lines, "}"]) + "\n"


def _edges(graph: "Graph", name: str) -> dict[str, str]:
    """Steps that a step reads -> the milestone or `guard`-like remark to write on the edge."""
    found: dict[str, list[InputRef]] = {}
    for reference in graph.inputs[name]:
        found.setdefault(reference.step, []).append(reference)
    return {source: _label(references) for source, references in found.items()}


def _label(references: "list[InputRef]") -> str:
    words = [f"at step {reference.at}" for reference in references if reference.at is not None]
    if all(reference.execution_only for reference in references):
        words.append("execution only")
    return ", ".join(dict.fromkeys(words))


def _only_execution(graph: "Graph", name: str, source: str) -> bool:
    return all(reference.execution_only for reference in graph.inputs[name] if reference.step == source)
