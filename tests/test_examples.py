"""What the documentation shows runs: the examples, the docstrings, the code of the README."""

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import silva

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MODULES = sorted(
    name
    for _, name, _ in pkgutil.walk_packages(silva.__path__, "silva.")
    if not name.endswith("._core")
)
MADE = {
    "demo": "silva_demo.png",
    "read_a_tree": "iris_tree.png",
    "tree_embedding": "digits_map.png",
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_without_a_warning(example, tmp_path):
    run = subprocess.run(
        [sys.executable, "-W", "error", example],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()
    if example.stem in MADE:
        assert (tmp_path / MADE[example.stem]).stat().st_size > 10_000


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_hold(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


@pytest.mark.parametrize(
    "page",
    [
        "README.md", "docs/flagship.md", "docs/tao.md", "docs/laptao.md", "docs/optimal_trees.md",
        "docs/embeddings.md",
    ],
)  # fmt: skip
def test_code_of_the_page_runs(page, tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/*.md")))
def test_links_between_pages_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
