"""Tables with text, dates and missing values: features as pandas and scikit-learn make them, and names of rows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import dump_svmlight_file
from sklearn.feature_extraction import FeatureHasher
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

import streamsvm
from streamsvm import IncompleteCholesky, LinearSVC
from streamsvm.data.open import open_dataset
from streamsvm.data.sources import csv
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.tables.columns import Columns
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import load
from streamsvm.models.predict import predict
from streamsvm.models.score import score
from streamsvm.numeric import encoding
from streamsvm.numeric.rows import CsrRows, to_dense
from streamsvm.runs.features import make_features
from streamsvm.runs.held_out import EvalSet
from streamsvm.solvers.options import FeatureOptions
from streamsvm.system.errors import InputError
from streamsvm.train import TrainOptions, train
from tests.commands import Run, run  # noqa: F401

WORK = ["Private", "Local-gov", 'Self "emp"', "Without pay, none", "Größe; 1"]
N = 300
KEEP = {"shuffle": None, "label": "income"}


def make_frame(seed: int = 0, extra: list[str] | None = None) -> pd.DataFrame:
    """A table like Adult: numbers, text, dates, and values that are missing."""
    rng = np.random.default_rng(seed)
    work = rng.choice([*WORK, *(extra or [])], N)
    frame = pd.DataFrame(
        {
            "id": [f"row {i}" for i in range(N)],
            "age": rng.integers(17, 90, N).astype(float),
            "work": work,
            "hours": np.round(rng.normal(40, 10, N), 3),
            "city": rng.choice([f"city {i}" for i in range(40)], N),
            "joined": pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.integers(0, 3000, N), unit="D"),
            "income": np.where(rng.random(N) < 0.2 + 0.6 * (work == WORK[0]), ">50K", "<=50K"),
        }
    )
    for name in ("age", "work", "hours"):
        frame.loc[rng.random(N) < 0.1, name] = None
    return frame


def read_all(dataset: Dataset) -> np.ndarray:
    """All rows in their order, dense."""
    parts = [dataset.read(k).X for k in range(dataset.n_chunks)]
    return np.concatenate([to_dense(part) if isinstance(part, CsrRows) else part for part in parts])


def one_hot(column: pd.Series) -> np.ndarray:
    found = OneHotEncoder(sparse_output=False).fit_transform(column.to_frame().fillna("~"))
    return np.asarray(found[:, :-1] if column.isna().any() else found)  # "~" sorts last


def impute(frame: pd.DataFrame, missing: str) -> np.ndarray:
    if missing == "mean":
        return np.asarray(SimpleImputer(strategy="mean").fit_transform(frame))
    return np.asarray(SimpleImputer(strategy="constant", fill_value=0.0).fit_transform(frame))


def days(frame: pd.DataFrame) -> np.ndarray:
    return np.asarray((frame["joined"] - pd.Timestamp("1970-01-01")).dt.days)


def expect(frame: pd.DataFrame, missing: str) -> np.ndarray:
    """The features of age, work, hours, city and joined, as scikit-learn makes them."""
    age, hours = impute(frame[["age", "hours"]], missing).T
    work, city = one_hot(frame["work"]), one_hot(frame["city"])
    if missing != "indicator":
        return np.column_stack([age, work, hours, city, days(frame)])
    gaps = {name: frame[name].isna() for name in ("age", "work", "hours")}
    return np.column_stack([age, gaps["age"], work, gaps["work"], hours, gaps["hours"], city, days(frame)])


WRITERS: dict[str, Callable[[pd.DataFrame, Path], Path]] = {
    "comma": lambda frame, folder: _to_csv(frame, folder / "t.csv"),
    "semicolons, CR LF, quotes": lambda frame, folder: _to_csv(
        frame, folder / "t.csv", sep=";", lineterminator="\r\n", quoting=1
    ),
    "tabs, NA": lambda frame, folder: _to_csv(frame, folder / "t.tsv", sep="\t"),
    "bars, gz": lambda frame, folder: _to_csv(frame, folder / "t.csv.gz", sep="|"),
}


def _to_csv(frame: pd.DataFrame, path: Path, **options: Any) -> Path:
    frame.to_csv(path, index=False, **options)
    return path


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("missing", ["mean", "zero", "indicator"])
def test_features_are_those_of_scikit_learn(kind: str, missing: str, tmp_path: Path) -> None:
    frame = make_frame()
    path = WRITERS[kind](frame, tmp_path)
    dataset = streamsvm.ingest(path, tmp_path / "t.zarr", index="id", missing=missing, one_hot="auto", **KEEP)
    np.testing.assert_allclose(read_all(dataset), expect(frame, missing), rtol=1e-6)
    assert dataset.feature_names is not None
    assert dataset.feature_names[:1] + dataset.feature_names[-1:] == ("age", "joined")
    assert not list(tmp_path.glob(".streamsvm*")), "nothing is left of the scratch file"


@pytest.mark.parametrize("block_bytes", [1, 1000, 1 << 20])
def test_blocks_do_not_show(block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Categories get the same places, and text the same features, wherever the text is cut."""
    monkeypatch.setattr(csv, "CODED_BLOCK_BYTES", block_bytes)
    frame = make_frame()
    path = _to_csv(frame, tmp_path / "t.csv")
    given = {"drop": "city", "index": "id", "missing": "mean", "one_hot": ["work"]}
    found = read_all(streamsvm.ingest(path, tmp_path / "t.zarr", **given, **KEEP))
    wanted = np.delete(expect(frame, "mean"), np.s_[-41:-1], axis=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_hashed_features_are_those_of_scikit_learn(tmp_path: Path) -> None:
    frame = make_frame()
    path = _to_csv(frame, tmp_path / "t.csv")
    given = {"drop": ["id", "joined", "age", "hours"], "missing": "zero", "hash_bits": 5}
    dataset = streamsvm.ingest(path, tmp_path / "t.zarr", **given, **KEEP)
    known = [row.dropna().to_dict() for _, row in frame[["work", "city"]].iterrows()]
    wanted = FeatureHasher(32).transform(known).toarray()
    assert np.array_equal(read_all(dataset), wanted)
    assert dataset.feature_names is None


def test_the_mean_is_that_of_the_digits_of_the_table(tmp_path: Path) -> None:
    """float32 has no odd numbers there, so the mean of rounded values would be another one."""
    (tmp_path / "table.csv").write_text("a,label\n20240101,0\n,0\n20240104,1\n")
    encoding = streamsvm.ingest(tmp_path / "table.csv", tmp_path / "d.zarr", missing="mean").encoding
    assert encoding is not None
    assert encoding.columns[0].fill == 20240102.5


@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize("number", ["3e38", "3.40282356e38"])
def test_the_mean_of_enormous_numbers_can_be_recorded(sign: str, number: str, tmp_path: Path) -> None:
    """The second number is larger than the largest float32, to which it is rounded."""
    (tmp_path / "table.csv").write_text(f"a,b,label\n{sign}{number},1,0\n,2,1\n{sign}{number},3,1\n")
    dataset = streamsvm.ingest(tmp_path / "table.csv", tmp_path / "d.zarr", missing="mean", shuffle=None)
    np.testing.assert_array_equal(read_all(dataset)[:, 0], np.full(3, f"{sign}{number}").astype(np.float32))


def test_all_columns_of_a_name_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("a,b,a,label\n1,2,3,0\n4,5,6,1\n")
    dataset = streamsvm.ingest(tmp_path / "table.csv", tmp_path / "d.zarr", drop="a", shuffle=None)
    assert dataset.feature_names == ("b",)
    assert streamsvm.ingest(tmp_path / "table.csv", tmp_path / "e.zarr", drop="1").feature_names == ("b", "a")


def test_a_header_of_numbers_and_no_header(tmp_path: Path) -> None:
    rows = "1;red;5\n2;blue;6\n1;red;?\n"
    bare, counted = tmp_path / "bare.csv", tmp_path / "counted.csv"
    bare.write_text(rows)
    counted.write_text("0;1;2\n" + rows)
    for path, header, label in ((bare, "no", "1"), (counted, "yes", "0")):
        given = {"header": header, "label": label, "missing": "mean", "one_hot": "auto", "shuffle": None}
        dataset = streamsvm.ingest(path, tmp_path / "t.zarr", overwrite=True, **given)
        assert read_all(dataset).tolist() == [[0, 1, 5], [1, 0, 6], [0, 1, 5.5]]


def test_times_are_parts_of_days(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("y,a,b\n0,1970-01-02 12:00,1970-01-01T00:00:00Z\n1,1969-12-31,1970-01-02T01:00:00+01:00\n")
    dataset = streamsvm.ingest(path, tmp_path / "t.zarr", missing="zero", shuffle=None)
    assert read_all(dataset).tolist() == [[1.5, 0], [-1, 1]]


ERRORS: list[tuple[str, dict[str, Any], str]] = [
    ("y,a\n0,1\n1,x\n", {}, "3:2: column a: not a number: 'x'; ingest --one-hot"),
    ("y,a\n0,1\n1,\n", {}, "3:2: column a: empty (missing value); ingest --missing"),
    ("y,a\n0,1\n1,NA\n", {}, "3:2: column a: not a number: 'NA'; ingest --missing"),
    ("y,a,b\n0,u,1\n1,,2\n", {"one_hot": "auto"}, "3:2: column a: missing value; ingest --missing"),
    ("y,a\n0,1\n1,x\n", {"missing": "zero"}, "3:2: column a: not a number: 'x'; ingest --one-hot"),
    ("y,a\n0,1\n1,1e99\n", {"missing": "zero"}, "3:2: column a: overflows float32: 1e+99"),
    ("y,a\n0,1\n1,inf\n", {"missing": "zero"}, "3:2: column a: infinite"),
    ("y,a\n0,1\n1,2,3\n", {"missing": "zero"}, "3:3: 3 columns, but the first line has 2"),
    ('y,a\n0,1\n1,"2\n', {"missing": "zero"}, "3:1: a quoted value does not end"),
    ("y,a\n0,1\n,2\n", {"missing": "zero"}, "3:1: column y: label missing"),
    (f"y,a\n0,{'x' * 1001}\n", {"one_hot": "auto"}, "2:2: column a: a category has 1,001 characters, more than 1,000"),
    ("y,a\n0,1\n", {"drop": "b"}, "column 'b', which --drop names, is missing; there are y, a"),
    ("y,a\n0,1\n", {"one_hot": "b"}, "column 'b', which --one-hot names, is not a feature of the table"),
    ("y,a\n0,1\n", {"one_hot": "y"}, "column 'y', which --one-hot names, is not a feature of the table"),
    ("y,a\n0,1\n", {"index": "b"}, "column 'b', the index, is missing; there are y, a"),
    (",y,a\n0,0,1\n", {}, "column 1 has no name: use --index 1 if it names the rows, or --drop 1"),
]


@pytest.mark.parametrize(("text", "given", "wanted"), ERRORS)
def test_errors_name_file_line_column_and_remedy(text: str, given: dict[str, Any], wanted: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        streamsvm.ingest(path, tmp_path / "t.zarr", **given)
    assert str(caught.value).removeprefix(f"{path}:").strip().startswith(wanted)
    assert sorted(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "given",
    [{"sep": ";;"}, {"sep": "1"}, {"sep": "\n"}, {"missing": "median"}, {"hash_bits": 0}, {"hash_bits": 23},
     {"one_hot": "auto", "hash_bits": 4}, {"one_hot": True}],
)  # fmt: skip
def test_unsuitable_options_are_refused(given: dict[str, Any], tmp_path: Path) -> None:
    path = _to_csv(make_frame(), tmp_path / "t.csv")
    with pytest.raises(InputError, match=next(iter(given)).partition("_")[0]):
        streamsvm.ingest(path, tmp_path / "t.zarr", **given, **KEEP)


def test_too_many_categories_are_refused_and_hashing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.data.tables.encoder.MOST_CATEGORIES", 30)
    path = _to_csv(make_frame(), tmp_path / "t.csv")
    with pytest.raises(InputError, match=r"more than 30 values, most of them city: use --hash BITS"):
        streamsvm.ingest(path, tmp_path / "t.zarr", index="id", missing="zero", one_hot="auto", **KEEP)
    assert encoding.MOST_CATEGORIES == 20_000


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A run whose model was trained on an encoded table."""
    path = _to_csv(make_frame(), tmp_path / "train.csv")
    given = {"index": "id", "missing": "indicator", "one_hot": ["work"], "hash_bits": 6, "scale": "maxabs"}
    dataset = streamsvm.ingest(path, tmp_path / "train.zarr", **given, **KEEP)
    train(dataset, TrainOptions(C=0.1), tmp_path / "run")
    return tmp_path / "run"


def test_a_model_encodes_new_tables(trained: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The scores of a table are those of its features, in whatever order its columns are."""
    model, frame = load(trained), make_frame(1, ["Astronaut"])
    path = _to_csv(frame[frame.columns[::-1]], tmp_path / "new.csv", sep=";")
    features = streamsvm.ingest(
        _to_csv(frame.replace({"work": {"Astronaut": None}}), tmp_path / "known.csv"), tmp_path / "known.zarr",
        index="id", missing="indicator", one_hot=["work"], hash_bits=6, **KEEP,
    )  # fmt: skip
    X = read_all(features)
    X[:, 2 + len(WORK)] = frame["work"].isna()  # unknown is not missing
    with caplog.at_level(logging.WARNING, "streamsvm"):
        found = np.concatenate([part.scores for part in score(model, path)])
    np.testing.assert_allclose(found, model.decide(X), rtol=1e-6, atol=1e-6)
    n_unknown = int((frame["work"] == "Astronaut").sum())
    told = f"{n_unknown} rows with unknown categories in column work, set to 0"
    assert [record.getMessage() for record in caplog.records] == [f"{path}: {told}"]
    assert evaluate(model, path, Columns(label="income"))["n_rows"] == N


def test_predictions_have_the_names_of_the_rows(trained: Path, tmp_path: Path) -> None:
    frame, out = make_frame(1), tmp_path / "p.csv"
    path = _to_csv(frame, tmp_path / "new.csv")
    predict(load(trained), path, out)
    found = pd.read_csv(out)
    assert found.columns.tolist() == ["name", "label", "score"]
    assert found["name"].tolist() == frame["id"].tolist()
    predict(load(trained), path, out, read_as=Columns(index="income"))
    assert pd.read_csv(out)["name"].tolist() == frame["income"].tolist()
    predict(load(trained), _to_csv(frame.drop(columns="id"), tmp_path / "bare.csv"), out)
    assert pd.read_csv(out).columns.tolist() == ["label", "score"]
    with pytest.raises(InputError, match="column 'nobody', the index, is missing"):
        predict(load(trained), path, out, read_as=Columns(index="nobody"))


def test_rows_are_appended_as_they_would_have_been_encoded(trained: Path, tmp_path: Path) -> None:
    data, path = tmp_path / "train.zarr", _to_csv(make_frame(1), tmp_path / "new.csv")
    before = open_dataset(data)
    with pytest.raises(InputError, match="--one-hot has no effect: rows are encoded as in"):
        streamsvm.ingest(path, data, label="income", append=True, one_hot="auto")
    joined = streamsvm.ingest(path, data, label="income", append=True, shuffle=None)
    assert (joined.n_rows, joined.encoding) == (2 * N, before.encoding)
    scores = np.concatenate([part.scores for part in score(load(trained), joined)])
    wanted = np.concatenate([part.scores for part in score(load(trained), path)])
    np.testing.assert_allclose(scores[N:], wanted, rtol=1e-5, atol=1e-5)


def test_held_out_rows_are_encoded_like_those_of_the_training(trained: Path, tmp_path: Path) -> None:
    data, path = tmp_path / "train.zarr", _to_csv(make_frame(1), tmp_path / "new.csv")
    held_out = streamsvm.ingest(path, tmp_path / "held-out.zarr", label="income", like=data, shuffle=None)
    assert held_out.encoding == open_dataset(data).encoding
    result = train(open_dataset(data), TrainOptions(C=0.1), eval_set=EvalSet(held_out))
    wanted = evaluate(load(trained), path, Columns(label="income"))["accuracy"]
    assert result.history[-1]["eval_score"] == pytest.approx(wanted)
    given = {"index": "id", "missing": "mean", "one_hot": ["work"], "hash_bits": 6, "shuffle": None}
    other = streamsvm.ingest(path, tmp_path / "other.zarr", label="income", **given)
    with pytest.raises(InputError, match="ingest it with --like"):
        train(open_dataset(data), TrainOptions(C=0.1), eval_set=EvalSet(other))


def test_maps_of_encoded_rows_keep_the_encoding(tmp_path: Path) -> None:
    """A model of features that a map makes takes the table as well, whether the features were stored or not."""
    path = _to_csv(make_frame(), tmp_path / "t.csv")
    given = {"drop": "city", "index": "id", "missing": "mean", "one_hot": "auto", "scale": "maxabs"}
    dataset = streamsvm.ingest(path, tmp_path / "t.zarr", **given, **KEEP)
    options = TrainOptions(kernel="rbf", gamma=0.5)
    made = make_features(dataset, tmp_path / "features.zarr", FeatureOptions("cholesky", 20), options).dataset
    assert made.encoding == dataset.encoding
    stored = train(made, TrainOptions()).model
    on_the_fly = LinearSVC(feature_map=IncompleteCholesky(n_components=20, kernel="rbf", gamma=0.5)).fit(dataset).model_
    for model in (stored, on_the_fly):
        assert model.encoding == dataset.encoding
        assert model.feature_names == dataset.feature_names
        scores = np.concatenate([part.scores for part in score(model, path)])
        wanted = np.concatenate([part.scores for part in score(model, dataset)])
        np.testing.assert_allclose(scores, wanted, rtol=1e-4, atol=1e-4)


def test_a_stop_while_the_codes_are_set_aside_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "CODED_BLOCK_BYTES", 1000)
    monkeypatch.setattr("streamsvm.ingestion.ingest.interrupts.check", lambda: None)
    asked: list[int] = []

    def stop() -> None:
        asked.append(1)
        if len(asked) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("streamsvm.data.sources.table_stream.interrupts", SimpleNamespace(check=stop))
    path = _to_csv(make_frame(), tmp_path / "t.csv")
    with pytest.raises(KeyboardInterrupt):
        streamsvm.ingest(path, tmp_path / "t.zarr", index="id", missing="mean", one_hot="auto", **KEEP)
    assert sorted(each.name for each in tmp_path.iterdir() if not each.name.endswith(".lock")) == ["t.csv"]


def test_rows_that_are_features_already(trained: Path, tmp_path: Path) -> None:
    """svmlight text and arrays hold the features of an encoded table: for the model, and to be appended."""
    path, data = _to_csv(make_frame(1), tmp_path / "new.csv"), tmp_path / "train.zarr"
    features = read_all(streamsvm.ingest(path, tmp_path / "raw.zarr", index="id", missing="indicator",
                                         one_hot=["work"], hash_bits=6, **KEEP))  # fmt: skip
    dump_svmlight_file(features, np.zeros(N), str(tmp_path / "rows.svm"), zero_based=False)
    model = load(trained)
    scores = np.concatenate([part.scores for part in score(model, tmp_path / "rows.svm")])
    np.testing.assert_allclose(scores, model.decide(features), rtol=1e-6, atol=1e-6)
    labels = make_frame(1)["income"].to_numpy(dtype=str)
    assert streamsvm.ingest(features, data, labels, append=True).n_rows == 2 * N
    joined = streamsvm.ingest(make_frame(1).drop(columns="income"), data, labels, append=True, shuffle=None)
    assert joined.n_rows == 3 * N
    scores = np.concatenate([part.scores for part in score(model, joined)])
    np.testing.assert_allclose(scores[2 * N :], model.decide(features), rtol=1e-4, atol=1e-4)


def test_the_formats_that_earlier_versions_refuse(trained: Path, tmp_path: Path) -> None:
    """They know formats up to 4 of datasets and 1 of models, and say so."""
    assert open_dataset(tmp_path / "train.zarr").meta["format"] == 5
    assert '"format": 2' in str(load(trained).to_arrays()["about"])
    plain = tmp_path / "plain.csv"
    plain.write_text("y;a\n0;1\n1;2\n")
    dataset = streamsvm.ingest(plain, tmp_path / "plain.zarr", sep=";")
    assert (dataset.meta["format"], dataset.encoding) == (2, None)
    assert '"format": 1' in str(train(dataset, TrainOptions()).model.to_arrays()["about"])


def test_a_dataset_of_another_encoding_is_refused(trained: Path, tmp_path: Path) -> None:
    path = _to_csv(make_frame(3), tmp_path / "t.csv")
    given = {"index": "id", "missing": "mean", "one_hot": ["work"], "hash_bits": 6}
    other = streamsvm.ingest(path, tmp_path / "t.zarr", **given, **KEEP)
    with pytest.raises(InputError, match="its table was encoded differently"):
        list(score(load(trained), other))


def test_the_command_line(run: Run, tmp_path: Path) -> None:  # noqa: F811
    path = _to_csv(make_frame(), tmp_path / "t.csv", sep=";")
    data, out = tmp_path / "t.zarr", tmp_path / "run"
    options = ["--label", "income", "--index", "id", "--drop", "city,joined", "--missing", "mean", "--one-hot", "work"]
    assert run("ingest", path, data, *options, "--sep", ";").code == 0
    assert run("train", data, "--out", out).code == 0
    assert run("predict", out, path, "--out", tmp_path / "p.csv", "--sep", ";").code == 0
    assert (tmp_path / "p.csv").read_text().startswith("name,label,score\nrow 0,")
    ran = run("evaluate", out, path, "--label", "income", "--json")
    assert ran.result["n_rows"] == N
    ran = run("ingest", path, tmp_path / "u.zarr", "--label", "income")
    assert (ran.code, "t.csv:2:1: column id: not a number: 'row 0'; 3 columns are of text: " in ran.err) == (2, True)
    assert run("ingest", path, tmp_path / "u.zarr", *options, "--hash", "99").code == 2
