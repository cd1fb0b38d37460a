"""The node problem: what a decision node may look like and what it costs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Oblique:
    """A sparse hyperplane, by logistic regression with an L1 penalty.

    Minimises ``sum_i c_i log(1 + exp(-s_i f(x_i))) + alpha |w|_1 + l2/2 |w|_2^2`` over
    f(x) = w·x + b in scaled units: the convex stand-in for the weighted 0/1 problem of a decision
    node (boosted TAO paper, eq. 4; LapTAO paper, section 3.2).

    Attributes
    ----------
    alpha : float
        Price of the L1 norm, in units of one row's loss.
    l2 : float
        Price of half the squared norm; keeps nearly separable node problems from running off.
    newton_steps : int
        Steps per visit at most: the tree around the node moves too, so a few are enough, and a step
        that lowers the objective little is the last.
    or_axis : bool
        Also try the best single feature and take it where the objective (weighted 0/1 loss plus
        penalty) is lower: a hyperplane by logistic regression cannot be sharp in a skewed column.
    """

    alpha: float
    l2: float = 0.0
    newton_steps: int = 2
    or_axis: bool = False


@dataclass(frozen=True)
class Axis:
    """One feature and a threshold, the exact minimiser of the weighted 0/1 problem.

    Attributes
    ----------
    alpha : float
        Price of a decision node, in units of one row's loss.
    """

    alpha: float


Split = Oblique | Axis
