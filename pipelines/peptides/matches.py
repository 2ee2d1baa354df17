"""Generated peptide-spectrum matches. It is known which matches are right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

N_FEATURES = 12
SHARE_RIGHT = 0.35  # the share of right matches among the target matches


@dataclass(frozen=True)
class Matches:
    """Matches of spectra with peptides. Half of the peptides are decoys.

    X (n, N_FEATURES): the features, standardised; the first feature is the score of the search engine. is_target (n,):
    whether the peptide is a target. is_right (n,): whether the spectrum is really from the peptide. fold (n,): the
    number of the fold, 0 to 2, drawn for each spectrum.
    """

    X: npt.NDArray[np.float32]
    is_target: npt.NDArray[np.bool_]
    is_right: npt.NDArray[np.bool_]
    fold: npt.NDArray[np.int64]


def make_matches(seed: int, n_spectra: int) -> Matches:
    """Return a target match and a decoy match of each spectrum.

    Wrong matches of targets and decoys have the same distribution, as target-decoy competition assumes. Right matches
    differ a little from wrong ones in all features. Some features are correlated, and no single feature identifies
    right matches.
    """
    random = np.random.default_rng(seed)
    is_target = np.repeat([True, False], n_spectra)
    is_right = is_target & (random.random(2 * n_spectra) < SHARE_RIGHT)
    mixing = np.eye(N_FEATURES)
    mixing[:, 1:] += 0.3 * random.normal(size=(N_FEATURES, N_FEATURES - 1))
    shift = np.concatenate(([2.6], random.normal(scale=0.25, size=N_FEATURES - 1)))
    X = random.normal(size=(2 * n_spectra, N_FEATURES)) @ mixing + is_right[:, None] * shift
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    fold = np.tile(random.integers(3, size=n_spectra), 2)
    return Matches(X.astype(np.float32), is_target, is_right, fold)


def find_q_values(scores: npt.NDArray[np.float64], is_target: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return the q-value of each match: the least estimated false discovery rate at which it is accepted.

    FDR(t) = (1 + number of decoys with scores >= t) / number of targets with scores >= t
    """
    order = np.argsort(-scores, kind="stable")
    targets = np.cumsum(is_target[order])
    decoys = np.arange(1, len(scores) + 1) - targets
    rates = np.minimum((1 + decoys) / np.maximum(targets, 1), 1.0)
    found = np.empty(len(scores))
    found[order] = np.minimum.accumulate(rates[::-1])[::-1]
    return found
