"""docs/diff.md shows what the command really prints."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_page_shows_what_comes_out() -> None:
    spec = importlib.util.spec_from_file_location("diff_page", ROOT / "docs" / "examples" / "diff_page.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (ROOT / "docs" / "diff.md").read_text()
    assert script.remade(page) == page
