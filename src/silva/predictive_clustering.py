"""Predictive clustering trees: greedy trees that look at labels and at unlabelled rows.

Each node is split by the column and threshold that lower most (Levatić, Ceci, Kocev & Džeroski
2017, semi-supervised classification trees)

    impurity = w · impurity of the targets + (1 - w)/D · sum over D columns of their variance,

the first over the labelled rows of the node (Gini for classes, the variance for numbers), the
second over all of them, each divided by its value at the root. w = 1 is a supervised greedy tree,
w = 0 a clustering of the rows. A leaf answers the mean target of its labelled rows.

It is the crisp kernel tree, whose loss is the same: see `silva.kernel_growth`. What is its own are
limits on the numbers of rows in a leaf, no split where labels agree, and the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from silva.kernel_growth import Growth, Prepared, grow_many
from silva.kernel_trees import Task
from silva.leaf_values import ancestor_values
from silva.tree import Tree, node_totals


def grow(task: Task, growth: Growth, seed: int) -> Tree:
    """Grow a tree; return it with the weight of all rows at its nodes.

    Parameters
    ----------
    task : Task
    growth : Growth
        Crisp. With w = 1 the unlabelled rows take no part, not even in where a threshold lies.
    seed : int
        For the columns drawn at each node.
    """
    return grow_each(task, growth, [growth.supervision], seed)[0]


def grow_each(task: Task, growth: Growth, supervisions: Sequence[float], seed: int) -> list[Tree]:
    """Grow a tree for each weight of the labels, otherwise as `grow` does."""
    prepared: dict[bool, Prepared] = {}  # by whether unlabelled rows are left out
    trees = []
    for w in supervisions:
        alone = w == 1
        if alone not in prepared:  # rows are the same for all weights below one
            prepared[alone] = _prepare(task, replace(growth, supervision=1.0 if alone else 0.5))
        rows = replace(prepared[alone], growth=replace(growth, supervision=w))
        grown = grow_many(rows, np.array([seed]), n_threads=task.n_threads)[0]
        trees.append(_answering(grown.tree, task, growth))
    return trees


def _prepare(task: Task, growth: Growth) -> Prepared:
    """Bin and scale the rows that take part, with weights of about one: sums of them are single
    precision. A power of two leaves their ratios as they are.
    """
    part = task
    if growth.supervision == 1 and not task.labelled.all():
        part = task.on(task.labelled)
    unit = 2.0 ** np.round(np.log2(part.weight.mean()))
    return replace(part, weight=part.weight / unit).prepare(growth)


def _answering(tree: Tree, task: Task, growth: Growth) -> Tree:
    """Return the tree with the mean target of each leaf's labelled rows; where it has none, that of
    the nearest node above.
    """
    M = task.members(tree, growth)
    values = ancestor_values(tree, M, task.targets, task.labelled, task.weight, min_labelled=0.0)
    return tree.with_leaves(values, node_totals(tree, np.asarray(M.T @ task.weight)))
