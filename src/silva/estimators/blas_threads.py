"""Threads of the libraries that an estimator calls: BLAS and OpenMP."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import threadpool_limits

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def on_one_blas_thread(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let BLAS and OpenMP use one thread while the method runs.

    A fit makes thousands of small calls, which gain nothing from more. But such threads spin while
    they wait for each other: beside another busy process a fit takes five to twenty times as long.
    And the last digits of their sums depend on how many there are, so that the same seed would not
    give the same model everywhere. Our own threads, `n_jobs`, are not affected.
    """

    @wraps(method)
    def limited(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with threadpool_limits(1):
            return method(*args, **kwargs)

    return limited
