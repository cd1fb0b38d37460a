"""Certified radii: sampled perturbations, kernels that are not quite Gaussian, closed forms."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm
from sklearn.datasets import make_moons
from sklearn.tree import DecisionTreeClassifier

from silva.robustness import certified_radius, cut_distance, histogram_distance

SIGMA = 0.25
PIECES = np.linspace(-3, 3, 8)
HEIGHTS = np.diff(ndtr(PIECES)) / (np.diff(PIECES) * (1 - 2 * ndtr(-3)))


def whole(z):
    return ndtr(z)


def cut_at_three(z):
    return np.clip((ndtr(np.clip(z, -3, 3)) - ndtr(-3)) / (1 - 2 * ndtr(-3)), 0, 1)


def histogram(z):
    total = np.concatenate([[0], np.cumsum(HEIGHTS * np.diff(PIECES))])
    return np.interp(z, PIECES, total)


def leaf_boxes(tree):
    """Lowest and highest point of each leaf of a scikit-learn tree, and its class shares."""
    low, high, values = [], [], []

    def descend(node, bottom, top):
        if tree.children_left[node] < 0:
            low.append(bottom)
            high.append(top)
            values.append(tree.value[node][0] / tree.value[node][0].sum())
            return
        j, threshold = tree.feature[node], tree.threshold[node]
        left_top, right_bottom = top.copy(), bottom.copy()
        left_top[j], right_bottom[j] = min(top[j], threshold), max(bottom[j], threshold)
        descend(tree.children_left[node], bottom, left_top)
        descend(tree.children_right[node], right_bottom, top)

    n = tree.n_features
    descend(0, np.full(n, -np.inf), np.full(n, np.inf))
    return np.array(low), np.array(high), np.array(values)


def smoothed(boxes, X, kernel=whole):
    """Mean answer of the tree under a product kernel around each row, exactly: box by box."""
    low, high, values = boxes
    inside = kernel((high - X[:, None]) / SIGMA) - kernel((low - X[:, None]) / SIGMA)
    return inside.prod(axis=2) @ values


@pytest.fixture(scope="module", params=["classes", "shares"])
def moons_boxes(request):
    X, y = make_moons(300, noise=0.25, random_state=0)
    y = np.where((X[:, 0] > 1.2) & (y == 1), 2, y)
    leaves = 1 if request.param == "classes" else 12
    tree = DecisionTreeClassifier(min_samples_leaf=leaves, random_state=0).fit(X, y)
    return X, leaf_boxes(tree.tree_)


def answers_inside(X, boxes, radius, share, n_directions=60):
    """Smoothed classes of points at `share` of the radius in many directions."""
    angle = np.linspace(0, 2 * np.pi, n_directions, endpoint=False)
    for direction in np.stack([np.cos(angle), np.sin(angle)], axis=1):
        yield smoothed(boxes, X + share * radius[:, None] * direction).argmax(axis=1)


@pytest.mark.parametrize("kernel", [whole, cut_at_three, histogram])
@pytest.mark.parametrize("share", [0.3, 0.9, 0.9999])
def test_no_perturbation_inside_the_radius_changes_the_class(moons_boxes, share, kernel):
    X, boxes = moons_boxes
    distance = {
        whole: 0.0,
        cut_at_three: cut_distance(3),
        histogram: histogram_distance(PIECES, HEIGHTS),
    }[kernel]
    p = smoothed(boxes, X, kernel)
    radius = certified_radius(p, SIGMA, kernel_distance=distance, n_columns=2)
    sure = radius > 0
    assert sure.mean() > 0.4
    for answer in answers_inside(X[sure], boxes, radius[sure], share):
        assert_array_equal(answer, p[sure].argmax(axis=1))


def test_radius_is_tight_for_a_half_space():
    # The class changes exactly where the smoothed plane is crossed.
    distance = np.array([0.1, 0.5, 1.5])
    p = ndtr(distance / SIGMA)
    radius = certified_radius(np.stack([p, 1 - p], axis=1), SIGMA)
    assert_allclose(radius, distance, rtol=1e-3)
    assert (radius <= distance).all()


def test_nothing_is_certified_without_a_majority():
    assert_array_equal(certified_radius(np.array([[0.5, 0.3, 0.2], [0.4, 0.35, 0.25]]), 1.0), 0)


def test_certainty_up_to_rounding_gives_no_infinite_radius():
    assert certified_radius(np.array([[1.0, 0.0]]), 1.0)[0] == pytest.approx(7.03, abs=0.01)


@pytest.mark.parametrize("kernel", [cut_at_three, histogram])
@pytest.mark.parametrize("n_columns", [1, 2, 3])
def test_probabilities_of_another_kernel_are_within_the_distance(kernel, n_columns):
    distance = cut_distance(3) if kernel is cut_at_three else histogram_distance(PIECES, HEIGHTS)
    rng = np.random.default_rng(n_columns)
    low = rng.normal(size=(2000, n_columns)) - 1
    high = low + rng.exponential(2, size=low.shape)
    p, q = ((k(high) - k(low)).prod(axis=1) for k in (whole, kernel))
    worst = np.abs(p - q).max()
    assert worst <= 1 - (1 - distance) ** n_columns
    assert worst > 0.2 * distance  # and the bound is no idle one


def test_error_of_cutting_at_three_deviations_is_reached():
    # By the box that holds all of the cut kernel.
    q = np.array([1, 10, 64])
    error = (cut_at_three(3) - cut_at_three(-3)) ** q - (ndtr(3) - ndtr(-3)) ** q
    assert_allclose(error, 1 - (1 - cut_distance(3)) ** q, rtol=1e-12)
    assert_allclose(error, [0.0027, 0.0267, 0.1589], atol=1e-4)


@pytest.mark.parametrize("n_pieces", [1, 2, 7, 20])
def test_histogram_distance_matches_quadrature(n_pieces):
    edges = np.linspace(-3, 3, n_pieces + 1)
    density = np.diff(ndtr(edges)) / (np.diff(edges) * (1 - 2 * ndtr(-3)))
    parts = [
        quad(lambda z, h=h: abs(h - norm.pdf(z)), a, b, limit=200, epsabs=1e-9)[0]
        for a, b, h in zip(edges[:-1], edges[1:], density, strict=True)
    ]
    expected = (sum(parts) + 2 * ndtr(-3)) / 2
    assert histogram_distance(edges, density) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(
    ("proba", "sigma", "distance", "message"),
    [
        (np.ones(3), 1.0, 0.0, "proba has shape"),
        (np.array([[1.4, -0.4]]), 1.0, 0.0, "within 0 and 1"),
        (np.ones((1, 2)), -1.0, 0.0, "sigma is -1"),
        (np.ones((1, 2)), 1.0, 2.0, "kernel_distance is 2"),
    ],
)
def test_bad_arguments_are_named(proba, sigma, distance, message):
    with pytest.raises(ValueError, match=message):
        certified_radius(proba, sigma, kernel_distance=distance)
