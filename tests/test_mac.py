"""The loop of coordinates and mapping, on problems with a closed-form answer."""

from __future__ import annotations

import numpy as np
import pytest

from silva.mac import Fit, alternate, schedule


class Pull:
    """E(Z) = sum_n a_n |z_n - y_n|²."""

    def __init__(self, y, strength):
        self.y, self.strength = y, strength[:, None]
        self.targets = []

    def initial(self):
        return self.y.copy()

    def step(self, target, mu, Z):
        self.targets.append(target)
        return (self.strength * self.y + mu * target) / (self.strength + mu)

    def energy(self, Z):
        return {"pull": float((self.strength * (Z - self.y) ** 2).sum())}


class Line:
    """Least squares on given columns: an exact step over a linear mapping."""

    def __init__(self, X):
        self.X = X
        self.targets = []

    def fit(self, targets, mu):
        self.targets.append(targets)
        slope = np.linalg.lstsq(self.X, targets, rcond=None)[0]
        return Fit(slope, self.X @ slope)


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = rng.normal(size=(40, 2))
    strength = rng.uniform(0.1, 2, size=40)
    return Pull(y, strength), Line(X)


def weighted_least_squares(pull, line):
    root = np.sqrt(pull.strength)
    return np.linalg.lstsq(root * line.X, root * pull.y, rcond=None)[0]


@pytest.mark.parametrize("multiplier_step", [1.0, 2.0])
def test_the_loop_finds_the_constrained_optimum_of_a_convex_problem(problem, multiplier_step):
    pull, line = problem
    result = alternate(pull, line, [0.5] * 400, multiplier_step=multiplier_step)
    expected = weighted_least_squares(pull, line)
    np.testing.assert_allclose(result.fit.model, expected, atol=1e-6)
    assert result.history[-1].violation < 1e-6


def test_the_schedule_alone_is_biased_and_multipliers_remove_the_bias(problem):
    pull, line = problem
    weights = schedule(0.5, 1.2, 12)
    expected = weighted_least_squares(pull, line)
    error = [
        abs(alternate(pull, line, weights, multiplier_step=step).fit.model - expected).max()
        for step in (0.0, 1.0)
    ]
    assert error[1] < 0.5 * error[0]


def test_schedule_is_geometric():
    np.testing.assert_allclose(schedule(0.001, 1.5, 20), 0.001 * 1.5 ** np.arange(20))


def test_steps_see_the_multipliers_as_the_completed_square_says(problem):
    pull, line = problem
    alternate(pull, line, [0.3, 0.7], multiplier_step=1.0)
    first_T = line.X @ np.linalg.lstsq(line.X, pull.y, rcond=None)[0]
    np.testing.assert_allclose(pull.targets[0], first_T)  # no multipliers yet
    Z = (pull.strength * pull.y + 0.3 * first_T) / (pull.strength + 0.3)
    np.testing.assert_allclose(line.targets[1], Z)
    T = line.X @ np.linalg.lstsq(line.X, Z, rcond=None)[0]
    multiplier = -0.3 * (Z - T)
    np.testing.assert_allclose(pull.targets[1], T + multiplier / (2 * 0.7))
    Z = (pull.strength * pull.y + 0.7 * pull.targets[1]) / (pull.strength + 0.7)
    np.testing.assert_allclose(line.targets[2], Z - multiplier / (2 * 0.7))


def test_repeats_run_several_rounds_at_each_weight(problem):
    pull, line = problem
    result = alternate(pull, line, [0.5, 1.0], repeats=3)
    assert len(line.targets) == 1 + 2 * 3
    assert [step.number for step in result.history] == [0, 1, 2]


class Spoiler:
    """A mapping that spoils its outputs more at every fit."""

    def __init__(self):
        self.fits = 0

    def fit(self, targets, mu):
        self.fits += 1
        return Fit(self.fits, targets + self.fits)


def test_the_best_mapping_is_kept_not_the_last(problem):
    pull, _ = problem
    result = alternate(pull, Spoiler(), [0.1] * 5)
    assert result.fit.model == 1
    np.testing.assert_array_equal(result.Z, pull.y)  # the coordinates it was fitted to
    assert result.history[0].energy == min(step.energy for step in result.history)


def test_energy_is_that_of_the_mapping_and_the_sum_of_its_terms(problem):
    pull, line = problem
    result = alternate(pull, line, [0.5] * 3)
    last = result.history[-1]
    assert last.energy == pytest.approx(sum(last.terms.values()))
    best = min(result.history, key=lambda step: step.energy)
    assert best.energy == pytest.approx(sum(pull.energy(result.fit.outputs).values()))


def test_a_true_answer_of_the_callback_stops(problem):
    pull, line = problem
    result = alternate(pull, line, [0.5] * 50, callback=lambda step: step.number == 4)
    assert len(result.history) == 5
    assert not result.interrupted


def test_the_loop_ends_when_both_sides_agree_and_rest(problem):
    pull, line = problem
    result = alternate(pull, line, [0.5] * 400, tol=1e-3)
    assert len(result.history) < 200
    assert result.history[-1].violation < 1e-3


def test_ctrl_c_keeps_the_best_mapping_and_says_so(problem):
    pull, line = problem

    def interrupt(step):
        if step.number == 3:
            raise KeyboardInterrupt

    with pytest.warns(RuntimeWarning, match="interrupted after 3 of 10 steps"):
        result = alternate(pull, line, [0.5] * 10, callback=interrupt)
    assert result.interrupted
    assert result.fit.outputs.shape == pull.y.shape


def test_verbose_prints_a_line_per_step(problem, capsys):
    pull, line = problem
    alternate(pull, line, [0.5] * 2, verbose=1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "energy" in lines[0]
    assert "violation" in lines[0]
