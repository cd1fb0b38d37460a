"""Results as Markdown: the table, its notes, the versions, the machine and the date."""

from __future__ import annotations

import os
import platform
import tempfile
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
BASE_PACKAGES = ("silva", "numpy", "scipy", "scikit-learn")


def render(description, table):
    """Return the result page; the first line of the description is its title."""
    title, _, text = description.strip().partition("\n")
    facts = [
        f"- Versions: {', '.join(versions((*BASE_PACKAGES, *table.packages)))}",
        f"- Machine: {machine()}",
        f"- Date: {datetime.now(UTC):%Y-%m-%d}",
    ]
    parts = [f"# {title.rstrip('.')}", text.strip(), markdown(table.rows)]
    parts += ["\n".join(f"- {note}" for note in table.notes)] if table.notes else []
    for heading, words, rows in table.sections:
        parts += [f"## {heading}", *([words] if words else []), markdown(rows)]
    return "\n\n".join([*parts, "\n".join(facts)]) + "\n"


def markdown(rows):
    """Write rows as a Markdown table; a row without a cell for a column leaves it empty."""
    if not rows:
        return "No rows."
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[str(row.get(column, "")) for column in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(path, text):
    """Write a file whole or not at all: a temporary file beside it takes its name at the end."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def versions(packages):
    """Name and version of each package that is installed."""
    found = []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return found


def machine():
    """Processor, cores, system and Python, without the name of the machine."""
    return (
        f"{_cpu_model()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}"
    )


def _cpu_model():
    """Model name of the processor where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown processor"
