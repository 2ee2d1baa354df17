"""The solvers' own options: frozen dataclasses that declare their names, types, defaults and help texts.

Users give these options as strings (`--option merge=5`, or the mapping `TrainOptions.options`). They are defined in the
dataclass alone: the command line, its help and the checks read it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, TypeVar

from streamsvm.system.errors import InputError, require_known

Options = TypeVar("Options")
MOST_COUNT = 2**53  # All integers up to this one are exact in float64.
OPTION = "option"  # the key of the Option in the metadata of a field
READ_WITH = "read_with"  # in the metadata, the key of the values of other options for which the option has an effect
Words = Mapping[str, tuple[str, ...]]  # the values of some options, by name
ALWAYS: Words = {}  # The option has an effect for all values of the other options.


class Option(NamedTuple):
    """The kind of an option. read: returns the value for (name, text), or raises InputError if the text is invalid.

    shown: the placeholder for the value in the help. words: the allowed values, if the option is a choice.
    """

    read: Callable[[str, str], Any]
    shown: str
    help: str
    words: tuple[str, ...] = ()


def choice(*words: str, default: str | None = "", help: str, read_with: Words = ALWAYS) -> Any:  # noqa: A002
    """Return the field of an option that is one of these words; the default is the first word unless one is given.

    read_with: the values of other options for which this one has an effect.
    """

    def read(name: str, text: str) -> str:
        require_known(name, text, words)
        return text

    return _make_field(words[0] if default == "" else default, Option(read, "|".join(words), help, words), read_with)


def count(least: int, *, default: int | None = None, help: str, read_with: Words = ALWAYS) -> Any:  # noqa: A002
    """Return the field of an option that is an integer of at least `least`."""

    def read(name: str, text: str) -> int:
        value = _read_number(text)
        if not (value.is_integer() and least <= value <= MOST_COUNT):
            raise InputError(f"option {name}={text[:40]}: a whole number of at least {least} is expected")
        return int(value)

    return _make_field(default, Option(read, "N", help), read_with)


def positive(*, default: float | None = None, help: str, read_with: Words = ALWAYS, or_zero: bool = False) -> Any:  # noqa: A002
    """Return the field of an option that is a positive, finite number, or 0 if or_zero is set."""

    def read(name: str, text: str) -> float:
        value = _read_number(text)
        if not (math.isfinite(value) and (value > 0 or (value == 0 and or_zero))):
            raise InputError(f"option {name}={text}: a positive number{' or 0' if or_zero else ''} is expected")
        return value

    return _make_field(default, Option(read, "NUMBER", help), read_with)


def bias_feature(help: str = "value of the constant feature whose weight is the bias; 0 means no bias") -> Any:  # noqa: A002
    """Return the field for the value of the constant feature."""
    return positive(default=1.0, or_zero=True, help=help)


def kernel_cache(*kernels: str) -> Any:
    """Return the field for the memory that caches columns of these kernels."""
    told = "memory for kernel columns; a quarter of the spare memory by default"
    return count(0, help=told, read_with={"kernel": kernels})


def folder(*, help: str) -> Any:  # noqa: A002
    """Return the field of an option that is the path of a folder, without a default."""

    def read(name: str, text: str) -> str:
        if not text:
            raise InputError(f"option {name}: the path of a folder is expected")
        return text

    return _make_field(None, Option(read, "DIR", help), ALWAYS)


def _make_field(default: Any, option: Option, read_with: Words) -> Any:
    return field(default=default, metadata={OPTION: option, READ_WITH: read_with})


def name_options(kind: type[Any]) -> dict[str, Option]:
    """Return all options by name."""
    return {each.name: each.metadata[OPTION] for each in fields(kind)}


def read_options(kind: type[Options], given: Mapping[str, str], solver: str) -> Options:
    """Return the options parsed from strings; raise InputError if a name is unknown or a value is invalid."""
    known = name_options(kind)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InputError(f"option {unknown[0]!r} is unknown to {solver}; its options are {', '.join(known)}")
    return kind(**{name: known[name].read(name, text) for name, text in given.items()})


def refuse_unread(kind: type[Any], given: Mapping[str, str], kernel: str, settings: Mapping[str, Words]) -> None:
    """Raise InputError if a given option or setting has no effect because of the value of another option.

    settings: the given settings outside the solver's own options; for each of them, the values of the options with
    which the solver reads it.
    """
    values = {each.name: each.default for each in fields(kind)} | {"kernel": kernel} | dict(given)
    needs = {f"--option {each.name}": each.metadata[READ_WITH] for each in fields(kind) if each.name in given}
    for name, words in {**needs, **settings}.items():
        for other, able in words.items():
            if values[other] not in able:
                raise InputError(
                    f"{name} has no effect with {other}={values[other]}: remove it, or choose {other}={'|'.join(able)}"
                )


def describe_options(kind: type[Any]) -> list[str]:
    """Return a line of help for every option: its values, its purpose, and its default."""
    defaults = {each.name: "" if each.default is None else f" (default: {each.default})" for each in fields(kind)}
    return [f"{name}={own.shown}: {own.help}{defaults[name]}" for name, own in name_options(kind).items()]


def _read_number(text: str) -> float:
    """Return the number in a string, or NaN if the string is not a number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


@dataclass(frozen=True)
class BudgetedOptions:
    """The options of budgeted SGD; the help text of each field explains it."""

    budget: int = count(1, default=500, help="the most support vectors of a model")
    merge: int | None = count(2, help="support vectors to merge into one when the budget is exceeded; 2 by default")
    maintenance: Literal["merge", "gradient-merge", "projection", "removal"] = choice(
        "merge", "gradient-merge", "projection", "removal", help="how the budget is enforced"
    )
    epochs: int = count(1, default=1, help="how many times every row is learned")
    pack: int = count(1, default=64, help="rows whose kernel values are computed at once; affects only the time")
    replicas: int = count(
        1, default=1, help="models that learn parts of the rows side by side; the result is their mean"
    )
    bias: str | None = choice(
        "none", "free", default=None, help="whether the model has a bias; by default only a regression has one"
    )


@dataclass(frozen=True)
class ClassDecompositionOptions:
    """The options of decomposition for Crammer-Singer with a kernel; the help text of each field explains it."""

    intercept_scaling: float = bias_feature(
        "value s of the constant feature whose weights are the biases, so that the kernel is k(x, z) + s^2; 0 means "
        "no bias"
    )
    working_rows: int | None = count(2, help="rows of a working set; a share of the active rows by default")
    cache_bytes: int | None = kernel_cache("rbf", "poly", "precomputed")


@dataclass(frozen=True)
class CrammerSingerOptions:
    """The options of linear Crammer-Singer; the help text of each field explains it."""

    acceleration: str = choice(
        "auto",
        "block-ascent",
        "line-search",
        help="dual coordinate ascent on one block of the rows after another, or a line search, which holds neither "
        "rows nor their shares; auto chooses the ascent unless the memory is too small or max_cuts is given",
    )
    intercept_scaling: float = bias_feature()
    max_cuts: int | None = count(4, help="the most cuts that are kept at once")


@dataclass(frozen=True)
class CuttingPlaneOptions:
    """The options of cutting planes for the hinge loss; the help text of each field explains it."""

    acceleration: str = choice(
        "auto",
        "one-read",
        "block-ascent",
        "line-search",
        "none",
        help="the exact solution for the rows near the margin (one-read), dual coordinate ascent on one block of the "
        "rows after another (block-ascent), a line search, or Algorithm 1 of Joachims 2006 without changes (none); "
        "auto chooses the first that suits the number of features and the memory, or a line search if epsilon or "
        "max_cuts is given; if there are too many features or too few resident rows, block-ascent replaces one-read, "
        "and a note says so",
    )
    epsilon: float | None = positive(help="the paper's stopping rule: the largest allowed violation of a cut, per row")
    intercept_scaling: float = bias_feature()
    max_cuts: int | None = count(4, help="the most cuts that are kept at once")
    scratch: str | None = folder(
        help="folder to which the first read of one-read writes the rows that may change sides, so that later reads "
        "cover only these rows; for two classes; nothing is written if one read is expected to be enough, or if most "
        "rows may change sides"
    )


@dataclass(frozen=True)
class OneClassOptions:
    """The options of the linear one-class SVM, which has none."""


@dataclass(frozen=True)
class NewtonOptions:
    """The options of Newton's method; the help text of each field explains it."""

    intercept_scaling: float = bias_feature()


@dataclass(frozen=True)
class AnyLossOptions(NewtonOptions):
    """The options of cutting planes for any convex loss; the help text of each field explains it."""

    max_cuts: int | None = count(4, help="the most cuts that are kept at once")


SMALL_ROWS = 1024  # Up to this many rows form a single working set of SMO, which is solved in float64.

WITH_ACTIVE_ROWS = ("second-order", "largest", "smallest", "random", "chunking")  # Platt's loops hold all rows.


@dataclass(frozen=True)
class DecompositionOptions:
    """The options of decomposition (smo and irwls); the help text of each field explains it."""

    selection: str = choice(
        *WITH_ACTIVE_ROWS,
        "platt",
        help="how a working set is chosen; chunking is the method of Perez-Cruz, platt the loops of Platt 1998",
    )
    inner: str | None = choice(
        "smo",
        "irwls",
        "qp",
        default=None,
        help="what solves a working set: pairs, reweighted least squares, or a QP library (default: the solver's own)",
    )
    working_rows: int | None = count(2, help="rows of a working set; a share of the active rows by default")
    max_pairs: int | None = count(
        1, help="pair steps of SMO after which training ends; no limit by default (LIBSVM: the limit of iterations)"
    )
    cache_bytes: int | None = kernel_cache("rbf", "poly", "sigmoid", "precomputed")


OF_A_KERNEL = ("kernel", "gamma", "degree", "coef0", "rank", "seed")  # the options that kernel approximations read
APPROXIMATIONS = ("cholesky", "eigen", "nystrom")
READS: dict[str, tuple[str, ...]] = {**dict.fromkeys(APPROXIMATIONS, OF_A_KERNEL), "polynomial": ()}  # by map
MAPS = tuple(READS)


@dataclass(frozen=True)
class FeatureOptions:
    """The choice of a feature map, and of the way to write the new dataset.

    Parameters
    ----------
    map
        One of MAPS: an approximation of a kernel, or "polynomial", the second-order map.
    rank
        The number of features of an approximation; the polynomial map does not read it.
    seed
        The seed of the random numbers that draw rows; the polynomial map does not read it.
    chunk_bytes
        The size of a chunk of the new dataset, in bytes; None chooses it by the size of the dataset.
    overwrite
        Whether a dataset of the same name is replaced.
    """

    map: str = "cholesky"
    rank: int = 300
    seed: int = 0
    chunk_bytes: int | None = None
    overwrite: bool = False


ADAPTIVE = {"reduction": ("adaptive-balanced", "adaptive")}
REDUCED = {"reduction": ("adaptive-balanced", "adaptive", "fixed")}


@dataclass(frozen=True)
class InteriorPointOptions:
    """The choice of the rows that form the normal equations; each field's help text explains it.

    The symbols Q, q_U, omega_i, mu, theta and beta are those of Jung, O'Leary & Tits 2008, section 3.2.
    """

    reduction: str = choice(
        "adaptive-balanced",
        "adaptive",
        "fixed",
        "none",
        help="how many rows form the normal equations: q of the paper, by class or over both, a fixed number, or all",
    )
    rule: str = choice(
        "omega", "distance", help="how the rows are chosen: by omega_i, or by their distance", read_with=REDUCED
    )
    most_rows: int | None = count(
        1, help="the most rows that form the equations, q_U of the paper; all by default", read_with=REDUCED
    )
    theta: float = positive(
        default=100.0, help="a row is in Q if 1 / omega_i is at least theta sqrt(mu), (3.20)", read_with=ADAPTIVE
    )
    beta: float = positive(default=4.0, help="the share of rows in Q is mu^(1 / beta), (3.18)", read_with=ADAPTIVE)


@dataclass(frozen=True)
class LabelNewtonOptions(NewtonOptions):
    """The options of Newton's method for many labels; the help text of each field explains it."""

    curvature_rows: int = count(
        default=0, least=0, help="rows from which a pass computes the curvature of a label; 0: 64 for each weight"
    )
    sample_rows: int = count(
        default=0,
        least=0,
        help="rows in memory at the start; 0: 160 for each weight, or 256 MB if a label has more than 1,500 weights",
    )


@dataclass(frozen=True)
class RankingOptions:
    """The options of ranking; the help text of each field explains it."""

    acceleration: str = choice(
        "line-search", "none", help="a line search, or Algorithm 2 of Joachims 2006 without changes"
    )
    epsilon: float | None = positive(help="the paper's stopping rule: the largest allowed violation of a cut, per pair")
    max_cuts: int | None = count(9, help="the most cuts that are kept at once")
