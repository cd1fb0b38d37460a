"""Choosing settings on held-out rows: which rows, which candidates, which order."""

import numpy as np
import pytest

from silva.estimators.selection import FINALISTS, Settings, Trial, finals, folds, search

START = Settings(split="oblique", alpha=1.0, depth=0, shrinkage=0.0, l2=0.1)


def trials(*losses):
    """Return trials of different alphas with these losses."""
    return [Trial(Settings("oblique", a, 0, 0.0, 0.1), (loss,)) for a, loss in enumerate(losses)]


def test_each_setting_is_varied_from_the_best_so_far():
    def loss(settings):
        return (abs(settings.alpha - 3.0) + abs(settings.depth - 2),)

    found = search(START, [("alpha", (1.0, 3.0, 9.0)), ("depth", (0, 2))], loss)
    assert (found[0].settings.alpha, found[0].settings.depth) == (3.0, 2)
    assert len(found) == 4  # start, two more alphas, one more depth


def test_finalists_are_ordered_by_all_folds_and_the_others_stay_behind():
    first = trials(*np.linspace(0.1, 0.9, FINALISTS + 2))
    further = {trial.settings: 1.0 - trial.losses[0] * 10 for trial in first}
    found = finals(first, lambda settings: (further[settings], further[settings]))
    assert [trial.settings.alpha for trial in found] == [
        *reversed(range(FINALISTS)), *range(FINALISTS, FINALISTS + 2),
    ]  # fmt: skip
    assert [len(trial.losses) for trial in found] == [3] * FINALISTS + [1, 1]


def test_only_finalists_are_tried_again():
    asked = []
    finals(trials(*range(10)), lambda settings: (asked.append(settings.alpha), (0.0,))[1])
    assert asked == list(range(FINALISTS))


def test_an_interrupt_in_the_finals_leaves_the_order_of_the_search():
    def interrupted(settings):
        raise KeyboardInterrupt

    first = trials(0.1, 0.2)
    with pytest.warns(RuntimeWarning, match="interrupted after 2 candidates"):
        assert finals(first, interrupted) == first


@pytest.mark.parametrize(("rows", "used"), [(100, (5, 0)), (5000, (3, 0)), (12_000, (1, 2))])
def test_folds_are_more_where_rows_are_fewer_and_one_has_finals(rows, used):
    groups, strata = np.arange(rows), np.zeros(rows, int)
    parts = [folds(groups, 5, strata, further=further) for further in (False, True)]
    assert tuple(map(len, parts)) == used
    seen = np.concatenate([held_out for _, held_out in parts[0] + parts[1]])
    assert len(seen) == len(np.unique(seen))
    for train, held_out in parts[0] + parts[1]:
        assert not np.isin(held_out, train).any()
        assert len(train) + len(held_out) == rows


def test_rows_of_a_group_are_on_the_same_side():
    groups = np.arange(12_000) // 3
    for train, held_out in folds(groups, 5, np.zeros(12_000, int)):
        assert not np.isin(groups[held_out], groups[train]).any()
