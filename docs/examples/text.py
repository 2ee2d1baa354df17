"""Text: documents are hashed into sparse rows piece by piece, written as svmlight text, and used to train a model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.datasets import dump_svmlight_file
from sklearn.feature_extraction.text import HashingVectorizer

import streamsvm

SUBJECTS = {
    "astronomy": ["orbit", "comet", "telescope", "galaxy", "lens", "eclipse", "star", "dust", "light", "night"],
    "cooking": ["butter", "oven", "flour", "onion", "simmer", "garlic", "light", "dust", "night", "roast"],
}
COMMON = ["the", "a", "of", "and", "with", "very", "it", "was", "near", "after", "some", "we", "saw", "then", "more"]


def write_documents(seed: int, count: int) -> Iterator[tuple[str, str]]:
    """Yield documents of twelve words and their subjects; every third word belongs to the subject."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        subject = str(random.choice(list(SUBJECTS)))
        words = random.choice(COMMON, size=12)
        words[::3] = random.choice(SUBJECTS[subject], size=4)
        yield " ".join(words), subject


def write_rows(file: str, seed: int, pieces: int) -> None:
    """Hash pieces of 500 documents, one after another, and write the rows to a text file; no vocabulary is stored."""
    with open(file, "wb") as out:
        for piece in range(pieces):
            documents, subjects = zip(*write_documents(seed + piece, 500), strict=True)
            rows = hashing.transform(documents)
            dump_svmlight_file(rows, [list(SUBJECTS).index(one) for one in subjects], out, zero_based=False)


hashing = HashingVectorizer(n_features=2**16, alternate_sign=False)
write_rows("train.svm", seed=0, pieces=6)
write_rows("test.svm", seed=100, pieces=2)

data = streamsvm.ingest("train.svm", "text.zarr")
test = streamsvm.ingest("test.svm", "test.zarr")
print(f"{data.n_rows:,} documents of {data.n_features:,} columns")

model = streamsvm.LinearSVC(C=1.0).fit(data)
print(f"{model.status_}, gap {model.gap_:.0e}, {model.score(test):.1%} of the new documents are right")

unseen = hashing.transform(["we saw a comet near the galaxy", "simmer the onion with butter"])
known = unseen[:, : data.n_features]  # the dataset has no columns after the last nonzero one
print([list(SUBJECTS)[int(label)] for label in model.predict(known)])
