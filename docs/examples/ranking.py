"""Ranking: documents are ordered within their queries, and the order is compared with a regression on the grade."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import Ridge

from streamsvm import RankSVM

QUERIES, DOCUMENTS = 200, 15


def make_queries(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows (n, 8), grades 0 to 3 and query ids. A grade also depends on the level of its query."""
    random = np.random.default_rng(seed)
    query = np.repeat(np.arange(QUERIES), DOCUMENTS)
    X = random.normal(size=(len(query), 8))
    level = random.normal(size=QUERIES)[query]
    X[:, 7] += 2 * level  # a feature that differs between queries, not between documents of a query
    worth = X[:, 0] + 0.5 * X[:, 1] - 0.5 * X[:, 2] + 0.5 * random.normal(size=len(query)) + 3 * level
    return X, np.digitize(worth, [-2.0, 0.0, 2.0]), query


X, grade, query = make_queries(0)
X_new, grade_new, query_new = make_queries(1)

model = RankSVM(C=0.01).fit(X, grade, qid=query)
print(f"{model.status_}: gap {model.gap_:.0e} over all pairs of one query")
print(f"RankSVM puts {model.score(X_new, grade_new, qid=query_new):.1%} of the new pairs in the right order")


def count_right(scores: np.ndarray) -> float:
    """Return the share of pairs within a query that are in the right order."""
    better = (grade_new[:, None] > grade_new[None, :]) & (query_new[:, None] == query_new[None, :])
    return float(np.mean((scores[:, None] > scores[None, :])[better]))


by_grade = Ridge().fit(X, grade).predict(X_new)
print(f"a regression on the grade: {count_right(by_grade):.1%}")
assert np.isclose(count_right(model.predict(X_new)), model.score(X_new, grade_new, qid=query_new))

chosen = next(k for k in range(QUERIES) if len(set(grade_new[query_new == k])) == 3)
mine = query_new == chosen
best = np.argsort(-model.predict(X_new[mine]))
print(f"grades of the documents of query {chosen}, best score first: {grade_new[mine][best].tolist()}")
