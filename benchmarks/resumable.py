"""Long tables that may be interrupted: a log with a line for everything that was measured."""

from __future__ import annotations

import json
import signal
from contextlib import contextmanager

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
    """Add a record to the log, if there is one."""
    if log is None:
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


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
