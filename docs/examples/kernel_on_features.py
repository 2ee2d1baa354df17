"""A kernel on features: digits are mapped to features of a Gaussian kernel, and a linear solver trains on these."""

from __future__ import annotations

from sklearn.datasets import load_digits

from streamsvm import SVC, InteriorPoint, LinearSVC

X, digit = load_digits(return_X_y=True)  # 1,797 pictures of 8 x 8 pixels
X, is_eight = X / 16, digit == 8
train, test = slice(0, 1200), slice(1200, None)

linear = LinearSVC(C=1.0).fit(X[train], is_eight[train])
print(f"linear: {linear.score(X[test], is_eight[test]):.1%} right")

exact = SVC(C=10.0, gamma=0.1).fit(X[train], is_eight[train])
print(f"Gaussian kernel, exact: {exact.score(X[test], is_eight[test]):.1%}, passes: {exact.n_passes_}")

for rank in (20, 100, 300):
    mapped = SVC(C=10.0, gamma=0.1, solver=InteriorPoint(approximation="cholesky", n_components=rank))
    mapped.fit(X[train], is_eight[train])
    assert mapped.status_ == "converged"
    print(
        f"features of rank {rank}: {mapped.score(X[test], is_eight[test]):.1%}, "
        f"objective {mapped.objective_ / exact.objective_:.2f} times the exact one"
    )
