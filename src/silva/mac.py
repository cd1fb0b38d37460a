"""The method of auxiliary coordinates: coordinates and a mapping trained together.

Minimises, over a mapping T and its outputs on the N training rows,

    E(T(X)) + penalty(T)

where E couples the rows (a graph prior, an embedding objective) and T is not differentiable.
Coordinates Z stand for the outputs, with the constraint Z = T(X) in an augmented Lagrangian
(LapTAO paper, eq. 5; its pseudocode is figure 5):

    E(Z) + penalty(T) - <Λ, Z - T(X)> + mu·|Z - T(X)|²

For each mu of a growing schedule it is minimised over Z and over T in turn. Completing the square
leaves two problems that each side can solve alone:

    Z-step:  argmin E(Z) + mu·|Z - (T(X) + Λ / 2mu)|²
    T-step:  argmin |(Z - Λ / 2mu) - T(X)|² + penalty(T) / mu        (eq. 7)
    Λ       <-  Λ - step·mu·(Z - T(X))

The paper writes step = 1; the gradient of its own penalty term gives 2. It is `multiplier_step`
here.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from silva.tree import Array


class Coordinates(Protocol):
    """The side that couples the rows."""

    def initial(self) -> Array:
        """Return argmin E(Z)."""
        ...

    def step(self, target: Array, mu: float, Z: Array) -> Array:
        """Return argmin E(Z) + mu·|Z - target|², starting at Z."""
        ...

    def energy(self, Z: Array) -> dict[str, float]:
        """Return the terms of E by name."""
        ...


@dataclass(frozen=True, eq=False)
class Fit:
    """A mapping fitted to the coordinates.

    Attributes
    ----------
    model : object
        The mapping itself.
    outputs : float64 array of shape (rows, outputs)
        T(X) on the training rows.
    """

    model: Any
    outputs: Array


class Mapping(Protocol):
    """The side that predicts."""

    def fit(self, targets: Array, mu: float) -> Fit:
        """Fit the mapping to targets, going on from the last fit where it can."""
        ...


@dataclass(frozen=True)
class Step:
    """What one outer step reached.

    Attributes
    ----------
    number : int
        0 is the mapping fitted to the initial coordinates.
    mu : float
        Weight of the constraint; 0 at the start.
    energy : float
        E(T(X)), the sum of `terms`.
    terms : dict of str to float
        Its parts by name.
    violation : float
        Root mean square of Z - T(X) over the rows, relative to the spread of Z.
    seconds : float
        Time of this step.
    """

    number: int
    mu: float
    energy: float
    terms: dict[str, float]
    violation: float
    seconds: float


Callback = Callable[[Step], bool | None]


@dataclass(frozen=True, eq=False)
class Alternation:
    """What came of the loop.

    Attributes
    ----------
    fit : Fit
        The best mapping by the energy of its outputs.
    Z : array
        The coordinates that it was fitted to.
    history : list of Step
    interrupted : bool
        Whether Ctrl-C ended it.
    """

    fit: Fit
    Z: Array
    history: list[Step]
    interrupted: bool


def schedule(first: float, factor: float, steps: int) -> list[float]:
    """Return the weights mu of the constraint: a geometric sequence."""
    return [first * factor**power for power in range(steps)]


def alternate(
    coordinates: Coordinates,
    mapping: Mapping,
    weights: Sequence[float],
    *,
    repeats: int = 1,
    multiplier_step: float = 1.0,
    tol: float = 0.0,
    callback: Callback | None = None,
    verbose: int = 0,
) -> Alternation:
    """Train coordinates and mapping in turn.

    Parameters
    ----------
    coordinates, mapping
        The two sides.
    weights : sequence of float
        The values of mu, one outer step each.
    repeats : int
        Rounds of the two steps at each mu.
    multiplier_step : float
        Size of the step over Λ, see above.
    tol : float
        The loop ends when neither the violation nor the relative change of T(X) exceeds it.
    callback : callable, optional
        Called with each `Step`; a true answer stops.
    verbose : int
        Positive: a line of progress per step.
    """
    began = time.perf_counter()
    Z = coordinates.initial()
    fit = mapping.fit(Z, 0.0)
    multiplier = np.zeros_like(Z)
    best, best_Z, history = fit, Z, [_measure(0, 0.0, coordinates, Z, fit, began)]
    interrupted = False
    try:
        stopped = _report(history, len(weights), callback, verbose)
        for number, mu in enumerate(weights, start=1):
            if stopped:
                break
            began, before = time.perf_counter(), fit.outputs
            for _ in range(repeats):
                shift = multiplier / (2 * mu)
                Z = coordinates.step(fit.outputs + shift, mu, Z)
                fit = mapping.fit(Z - shift, mu)
                multiplier -= multiplier_step * mu * (Z - fit.outputs)
            history.append(_measure(number, mu, coordinates, Z, fit, began))
            if history[-1].energy <= min(step.energy for step in history):
                best, best_Z = fit, Z
            stopped = _report(history, len(weights), callback, verbose)
            moved = _relative_size(fit.outputs - before, Z)
            stopped = stopped or max(history[-1].violation, moved) < tol
    except KeyboardInterrupt:
        interrupted = True
        warnings.warn(
            f"interrupted after {len(history) - 1} of {len(weights)} steps: "
            "the best mapping so far is kept",
            RuntimeWarning,
            stacklevel=2,
        )
    return Alternation(best, best_Z, history, interrupted)


def _measure(
    number: int, mu: float, coordinates: Coordinates, Z: Array, fit: Fit, began: float
) -> Step:
    terms = coordinates.energy(fit.outputs)
    violation = _relative_size(Z - fit.outputs, Z)
    seconds = time.perf_counter() - began
    return Step(number, mu, sum(terms.values()), terms, violation, seconds)


def _relative_size(difference: Array, Z: Array) -> float:
    """Root mean square of a difference, relative to the spread of Z."""
    spread = np.sqrt(np.mean((Z - Z.mean(axis=0)) ** 2))
    return float(np.sqrt(np.mean(difference**2)) / max(spread, 1e-300))


def _report(history: list[Step], steps: int, callback: Callback | None, verbose: int) -> bool:
    """Tell of the last step; return whether the caller wants to stop."""
    step = history[-1]
    if verbose > 0:
        terms = "  ".join(f"{name} {value:.5g}" for name, value in step.terms.items())
        print(
            f"[MAC] {step.number:3d}/{steps}  mu {step.mu:.3g}  energy {step.energy:.6g}  {terms}  "
            f"violation {step.violation:.3g}  {step.seconds:.2f} s",
            flush=True,
        )
    return bool(callback(step)) if callback is not None else False
