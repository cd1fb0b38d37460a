"""Long tables that may be interrupted: a log with a line for everything that was measured.

A log lies beside the page of its table and is kept with it: it holds what the page is made from,
and a table of many hours is measured in several sittings. Each record has its day and its machine.
"""

from __future__ import annotations

import json
import signal
from contextlib import contextmanager
from datetime import UTC, datetime

from benchmarks import report


def read_log(log):
    """Return the records of a log; a last line that was cut off is dropped from the file, too."""
    if log is None or not log.exists():
        return []
    text = log.read_text("utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        report.write(log, whole)
    return [json.loads(line) for line in whole.splitlines()]


def append(log, record):
    """Return a record with its day and machine; add it to the log, if there is one."""
    record = record | {"day": f"{datetime.now(UTC):%Y-%m-%d}", "machine": report.machine()}
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return record


def sittings(records):
    """Say when and where the records were measured, if in more than one sitting."""
    days = {}
    for record in records:
        days.setdefault(record["machine"], set()).add(record["day"])
    if sum(map(len, days.values())) < 2:
        return []
    parts = [f"{', '.join(sorted(of))} ({machine})" for machine, of in sorted(days.items())]
    return [f"Measured in several sittings: {'; '.join(parts)}."]


@contextmanager
def remembered_interrupts():
    """Yield a list that is no longer empty once there was a Ctrl-C, or a kind wish to end."""
    wishes = []

    def remember(number, frame):
        wishes.append(number)
        raise KeyboardInterrupt

    before = {which: signal.signal(which, remember) for which in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wishes
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
