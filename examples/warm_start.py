"""Starting from a tree at hand, watching the optimisation, stopping it, and going on."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

from silva import TAOTreeClassifier

X, X_test, y, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0)
objectives = []


def stop_when_slow(step):
    """Print a line for each pass; stop when the objective falls by less than 1 %."""
    print(f"  pass {step.number:2}: objective {step.objective:6.1f}, {step.nonzeros} coefficients")
    objectives.append(step.objective)
    return step.number > 1 and objectives[-1] > 0.99 * objectives[-2]


# Any fitted tree is a start: each node is then optimised for the loss of the whole tree.
greedy = DecisionTreeClassifier(max_depth=6, random_state=0).fit(X, y)
model = TAOTreeClassifier(init=greedy, alpha=0.1, warm_start=True)
model.fit(X, y, callback=stop_when_slow)
for name, tree in (("greedy", greedy), ("optimised", model)):
    accuracy = tree.score(X_test, y_test)
    print(f"{name:9} tree: accuracy {accuracy:.3f}, {tree.get_n_leaves()} leaves")

# With warm_start a further fit goes on from the last tree: here along a path of penalties.
print("\nalpha  accuracy  leaves  numbers")
for alpha in (0.1, 0.3, 1, 3, 10):
    model.set_params(alpha=alpha).fit(X, y)
    accuracy = model.score(X_test, y_test)
    print(f"{alpha:5}{accuracy:10.3f}{model.get_n_leaves():8}{model.n_parameters_:9}")
