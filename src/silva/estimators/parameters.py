"""Checks of constructor arguments: errors name the argument, what was seen, what is expected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np


def check_integer(name: str, value: Any, least: int) -> int:
    """Return `value` as an int, or raise."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value!r}")
    return int(value)


def check_number(name: str, value: Any, least: float = 0.0) -> float:
    """Return `value` as a finite float, or raise."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}")
    number = float(value)
    if not math.isfinite(number) or number < least:
        raise ValueError(f"{name} must be finite and at least {least:g}, got {value!r}")
    return number


def check_flag(name: str, value: Any, word: str | None = None) -> None:
    """Raise unless `value` is a truth value, or the word that may stand for one."""
    if isinstance(value, bool | np.bool_) or (word is not None and value == word):
        return
    expected = "True or False" if word is None else f"True, False or {word!r}"
    raise TypeError(f"{name} must be {expected}, got {value!r}")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return `value` if it is one of `choices`, or raise."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}, got {value!r}")
    return value


def count_columns(max_features: Any, n_columns: int) -> int | None:
    """Return how many columns a node looks at; None for all."""
    if max_features is None:
        return None
    if isinstance(max_features, str):
        rules = {"sqrt": math.sqrt(n_columns), "log2": math.log2(max(n_columns, 2))}
        return max(1, int(rules[check_choice("max_features", max_features, list(rules))]))
    if isinstance(max_features, float):
        if not 0 < max_features <= 1:
            raise ValueError(f"max_features as a share must be in (0, 1], got {max_features!r}")
        return max(1, int(max_features * n_columns))
    return check_integer("max_features", max_features, 1)


def check_running(n_jobs: Any, verbose: Any, callback: Any) -> None:
    """Check what says how a long fit runs: threads, progress, and a function that may stop it."""
    if n_jobs is not None:
        check_integer("n_jobs", n_jobs, -(2**31))
    if not isinstance(verbose, bool):
        check_integer("verbose", verbose, 0)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function or None, got {callback!r}")
