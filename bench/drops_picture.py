"""The simulated drops as curves over the context length."""

from collections.abc import Mapping, Sequence
from typing import Any


def draw(rows: Sequence[Mapping[str, Any]], path: str) -> None:
    """One curve a policy, both axes logarithmic; what is below 0.01% stands at the bottom."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for policy in dict.fromkeys(row["policy"] for row in rows):
        found = [(row["context"], max(row["drop_percent"], 0.01)) for row in rows if row["policy"] == policy]
        contexts, shares = zip(*found, strict=True)
        axes.plot(contexts, shares, "o-" if policy.startswith("ours") else "s--", label=policy, markersize=4)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(
        sorted({row["context"] for row in rows}), [f"{c // 1024}K" for c in sorted({r["context"] for r in rows})]
    )
    axes.set_yticks([0.01, 0.1, 1, 10, 100], ["≤ 0.01%", "0.1%", "1%", "10%", "100%"])
    axes.set_xlabel("tokens of a document")
    axes.set_ylabel("assignments dropped")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(0, 0.42))
    figure.savefig(path)
    pyplot.close(figure)
