"""The solvers' own options: frozen dataclasses that declare their names, types, defaults and help texts.

Users give these options as strings (`--option merge=5`, or the mapping `TrainOptions.options`), or as an object that
estimators take as their solver (`solver=BudgetedSGD(merge=5)`). They are defined in the dataclass alone: the command
line, its help, the documentation of the objects and the checks read it.

What users name a solver, such as cutting-plane, has a record for each kind of problem (solvers.registry), and the
options of the records may differ. The class with a `name` has the options of all of them; a record refuses those that
it lacks.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar, dataclass_transform

from streamsvm.system.docstrings import Entry, join_sections, split_sections, write_entries
from streamsvm.system.errors import InputError, require_known
from streamsvm.system.machine import parse_bytes

Options = TypeVar("Options")
MOST_COUNT = 2**53  # All integers up to this one are exact in float64.
OPTION = "option"  # the key of an Option in the metadata of a dataclass field
READ_WITH = "read_with"  # the metadata key for the values of other options with which the option has an effect
Words = Mapping[str, tuple[str, ...]]  # the values of some options, by name
ALWAYS: Words = {}  # the option has an effect with all values of the other options


class Option(NamedTuple):
    """The kind of an option.

    read: a function that returns the value for (name, text), or raises InputError if the text is invalid. shown: the
    placeholder for the value in the help. help: its help text. words: the allowed values, if the option is a choice.
    """

    read: Callable[[str, str], Any]
    shown: str
    help: str
    words: tuple[str, ...] = ()


@dataclass_transform(kw_only_default=True, frozen_default=True)
class OptionSet:
    """The base class of options that belong together, of a solver or a feature map: subclasses are frozen dataclasses.

    `get_params` and `set_params` are those of scikit-learn, so that clones and grids reach the options of an
    estimator's solver and feature map, as solver__acceleration and feature_map__gamma.
    """

    name: ClassVar[str] = ""  # as on the command line; empty for a class that users do not name

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True, repr=False)(cls)
        if cls.__doc__:  # python -OO has no docstrings
            sections = split_sections(cls.__base__.__doc__) | split_sections(cls.__doc__)
            entries = {}
            for each in fields(cls):  # type: ignore[arg-type]
                if (own := each.metadata.get(OPTION)) is not None:
                    kind, text = f"{own.shown}, default={each.default!r}", textwrap.fill(own.help, 100)
                    entries[each.name] = Entry(kind, textwrap.indent(text, "    "))
            cls.__doc__ = join_sections(sections | ({"Parameters": write_entries(entries)} if entries else {}))

    def list_given(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, by name."""
        values = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, (value, default) in values.items() if value != default}

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """Return all options by name."""
        return dict(vars(self))

    def set_params(self, **params: Any) -> Self:
        """Change options, as scikit-learn's grids do with clones. Raises InputError for an unknown option."""
        for name in params:
            require_known("option", name, vars(self))
        vars(self).update(params)
        return self

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.list_given().items())
        return f"{type(self).__name__}({given})"


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

    def read(name: str, text: str) -> int:
        number = _read_number(text)
        size = float(parse_bytes(text)) if math.isnan(number) else number
        if not (size.is_integer() and 0 <= size <= MOST_COUNT):
            raise InputError(f"option {name}={text[:40]}: a whole number of at least 0 or a size is expected")
        return int(size)

    told = "memory for kernel columns, such as 64MB; a quarter of the spare memory by default"
    return _make_field(None, Option(read, "SIZE", told), {"kernel": kernels})


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
    return {each.name: each.metadata[OPTION] for each in fields(kind) if OPTION in each.metadata}


def read_options(kind: type[Options], given: Mapping[str, str], solver: str) -> Options:
    """Return the options parsed from strings; raise InputError if a name is unknown or a value is invalid."""
    known = name_options(kind)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InputError(f"option {unknown[0]!r} is unknown to {solver}; its options are {', '.join(known)}")
    return kind(**{name: known[name].read(name, text) for name, text in given.items()})


def refuse_unread(kind: type[Any], given: Mapping[str, str], kernel: str, settings: Mapping[str, Words]) -> None:
    """Raise InputError if a given option or setting has no effect because of the value of another option.

    settings: the given settings outside the solver's own options. For each setting: the values of the own options with
    which the solver reads the setting.
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


class BudgetedSGD(OptionSet):
    """Stochastic gradient descent on a budget of support vectors, with its options."""

    name = "budgeted-sgd"

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


class ClassDecompositionOptions(OptionSet):
    """The options of decomposition for Crammer-Singer with a kernel."""

    intercept_scaling: float = bias_feature(
        "value s of the constant feature whose weights are the biases, so that the kernel is k(x, z) + s^2; 0 means "
        "no bias"
    )
    working_rows: int | None = count(2, help="rows of a working set; a share of the active rows by default")
    cache_bytes: int | None = kernel_cache("rbf", "poly", "precomputed")


class CrammerSingerOptions(OptionSet):
    """The options of cutting planes for linear Crammer-Singer."""

    acceleration: str = choice(
        "auto",
        "block-ascent",
        "line-search",
        help="dual coordinate ascent on one block of the rows after another, or a line search, which holds neither "
        "rows nor their shares; auto chooses the ascent unless the memory is too small or max_cuts is given",
    )
    intercept_scaling: float = bias_feature()
    max_cuts: int | None = count(4, help="the most cuts that are kept at once")


class CuttingPlane(OptionSet):
    """Cutting planes, with the options that they have for the hinge loss; for other losses they have fewer."""

    name = "cutting-plane"

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


class OneClassOptions(OptionSet):
    """The options of the linear one-class SVM, which has none."""


class NewtonOptions(OptionSet):
    """The options of Newton's method for one problem after another, and of multinomial logistic regression."""

    intercept_scaling: float = bias_feature()


class AnyLossOptions(NewtonOptions):
    """The options of cutting planes for any convex loss."""

    max_cuts: int | None = count(4, help="the most cuts that are kept at once")


SMALL_ROWS = 1024  # Up to this many rows form a single working set of SMO, which is solved in float64.

WITH_ACTIVE_ROWS = ("second-order", "largest", "smallest", "random", "chunking")  # Platt's loops hold all rows.


class DecompositionOptions(OptionSet):
    """The options of decomposition (smo and irwls)."""

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


class SMO(DecompositionOptions):
    """Sequential minimal optimization on active sets of rows, with its options."""

    name = "smo"
    intercept_scaling: float = bias_feature("the constant feature of Crammer-Singer with a kernel; 0 means no bias")


class IRWLS(DecompositionOptions):
    """Iterated reweighted least squares on active sets of rows, with their options."""

    name = "irwls"


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


class KernelFeatures(OptionSet):
    """A map to features that approximate a kernel.

    Parameters
    ----------
    kernel : {"rbf", "poly", "linear", "sigmoid"}, default="rbf"
        The kernel, as in SVC.
    gamma : float, "scale" or "auto", default="scale"
        The scale of the kernel, as in SVC.
    degree : int, default=3
        The degree of the kernel "poly".
    coef0 : float, default=0.0
        The constant of the kernels "poly" and "sigmoid".
    n_components : int, default=300
        The number of features.
    """

    kernel: str = "rbf"
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0
    n_components: int = FeatureOptions.rank


class IncompleteCholesky(KernelFeatures):
    """Features from a pivoted incomplete Cholesky factor of the kernel matrix; 11 reads of the rows."""

    name = "cholesky"


class Eigenmap(KernelFeatures):
    """Features from the leading eigenvectors within an incomplete Cholesky factor; 12 reads of the rows."""

    name = "eigen"


class Nystroem(KernelFeatures):
    """Features from the kernel values with random rows; one read."""

    name = "nystrom"


class PolynomialMap(OptionSet):
    """All features, their squares, and the products of two of them; two reads of the rows."""

    name = "polynomial"


ADAPTIVE = {"reduction": ("adaptive-balanced", "adaptive")}
REDUCED = {"reduction": ("adaptive-balanced", "adaptive", "fixed")}


class InteriorPointOptions(OptionSet):
    """The choice of the rows that form the normal equations.

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


class InteriorPoint(InteriorPointOptions):
    """The interior-point method, with its options. SVC, which solves on features, also reads those of the features."""

    name = "interior-point"
    approximation: str = choice(*APPROXIMATIONS, help="how features approximate the kernel of SVC")
    n_components: int = count(1, default=300, help="the number of features that approximate the kernel of SVC")


class Newton(NewtonOptions):
    """Newton's method, with the options that it has for many labels; for other problems it has fewer."""

    name = "newton"
    curvature_rows: int = count(
        default=0, least=0, help="rows from which a pass computes the curvature of a label; 0: 64 for each weight"
    )
    sample_rows: int = count(
        default=0,
        least=0,
        help="rows in memory at the start; 0: 160 for each weight, or 256 MB if a label has more than 1,500 weights",
    )


class RankingOptions(OptionSet):
    """The options of cutting planes for rankings."""

    acceleration: str = choice(
        "line-search", "none", help="a line search, or Algorithm 2 of Joachims 2006 without changes"
    )
    epsilon: float | None = positive(help="the paper's stopping rule: the largest allowed violation of a cut, per pair")
    max_cuts: int | None = count(9, help="the most cuts that are kept at once")
