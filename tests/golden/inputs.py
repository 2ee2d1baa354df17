"""The files that the golden commands read: small, and the same in every checkout."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import feather, orc
from scipy.sparse import csr_array, random_array, save_npz
from sklearn.datasets import dump_svmlight_file

# Texts that a command refuses, each for one reason.
BAD_TEXTS = {
    "word.svm": "1 1:1\n-1 1:x\n",
    "order.svm": "1 2:1 1:1\n-1 1:2\n",
    "twice.svm": "1 1:1 1:2\n-1 1:2\n",
    "zero.svm": "1 0:1 1:1\n-1 1:2\n",
    "huge.svm": "1 1:1e40\n-1 1:2\n",
    "nan.svm": "1 1:nan\n-1 1:2\n",
    "nolabel.svm": "1 1:1\nyes 1:2\n",
    "onlyone.svm": "1 1:1\n1 1:2\n",
    "bigindex.svm": "1 99999999999:1\n-1 1:1\n",
    "empty.svm": "",
    "comment.svm": "# nothing\n",
    "qid.svm": "1 qid:x 1:1\n-1 qid:2 1:1\n",
    "qidgone.svm": "1 qid:1 1:1\n-1 1:1\n",
    "label53.svm": "72048431380967004 1:1\n1 1:2\n",
    "word.csv": "y,a,b\n1,2,3\n0,x,4\n",
    "short.csv": "y,a,b\n1,2,3\n0,5\n",
    "long.csv": "y,a,b\n1,2,3\n0,5,6,7\n",
    "gap.csv": "y,a,b\n1,,3\n0,5,6\n",
    "nolabel.csv": "y,a,b\n1,2,3\n,5,6\n",
    "na.csv": "y,a,b\n1,2,3\nNA,5,6\n0,1,1\n",
    "samename.csv": "y,a,a\n1,2,3\n0,5,6\n",
    "quote.csv": 'y,a,b\n1,2,3\n0,"5,6\n',
    "header.csv": "y,a,b\n",
    "empty.csv": "",
    "text.csv": "y,a,b\nu,2,red\nv,5,blue\nu,1,red\nv,3,green\n",
    "target.csv": "y,a,b\n1.5,2,3\n?,5,6\n2.5,1,1\n",
    "weight.csv": "y,w,a\n1,1,3\n0,-1,6\n",
    "day.csv": "y,d,a\n1,2020-01-01,3\n0,2020-13-01,6\n",
    "comma.csv": "y;a\n1;1,5\n0;2,5\n",
    "wide.csv": "y,a,b,c,d,e,f,g\n1,1,2,3,4,5,6,7\n0,1,2,3,4,5,6,8\n",
    "bad.jsonl": '{"y": 1, "a": 2}\n{"y": 0, "a": }\n',
    "odd.jsonl": '{"y": 1, "a": 2}\n{"y": 0, "a": "x"}\n',
    "plain.txt": "see you later\n",
    "page.html": "<html></html>\n",
    "rows.txt": "0-5\nx\n",
}


def write_good(folder: Path) -> None:
    """Write files that commands take: text, arrays and tables of the same few hundred rows."""
    random = np.random.default_rng(0)
    dense = random.standard_normal((300, 6))
    scores = dense @ random.standard_normal(6) + random.standard_normal(300)
    sides, classes = np.where(scores > 0, 1, -1), np.digitize(scores, (-2, 0, 2))
    sparse = csr_array(random_array((200, 50), density=0.1, rng=random))
    dump_svmlight_file(dense, sides, str(folder / "dense.svm"), zero_based=False)
    dump_svmlight_file(dense, classes, str(folder / "classes.svm"), zero_based=False)
    dump_svmlight_file(dense, scores, str(folder / "numbers.svm"), zero_based=False)
    dump_svmlight_file(sparse, np.arange(200) % 2, str(folder / "sparse.svm"), zero_based=False)
    queries = np.repeat(np.arange(30), 10)
    dump_svmlight_file(dense, classes, str(folder / "queries.svm"), zero_based=False, query_id=queries)
    np.save(folder / "rows.npy", dense.astype(np.float32))
    np.savez(folder / "arrays.npz", X=dense, y=sides, sample_weight=np.ones(300))
    save_npz(folder / "sparse.npz", sparse)
    whole = random.integers(-5, 6, (100, 4))
    np.savez(
        folder / "whole.npz", X=whole, y=np.arange(100) % 3, sample_weight=random.random(100), qid=np.arange(100) // 5
    )
    weighed = [
        f"{y},{1 + i % 3},{i // 4},{row[0]}" for i, (y, row) in enumerate(zip(np.arange(100) % 2, whole, strict=True))
    ]
    (folder / "weighed.csv").write_text("\n".join(["y,w,q,a", *weighed]) + "\n")
    write_tables(folder, dense, sides)


def write_tables(folder: Path, dense: np.typing.NDArray[np.float64], sides: np.typing.NDArray[np.int64]) -> None:
    """Write tables of the same rows: CSV of numbers and of several kinds, Parquet, Arrow, ORC and JSON lines."""
    names = list("abcdef")
    rows = [",".join([str(side), *(f"{value:.6g}" for value in row)]) for side, row in zip(sides, dense, strict=True)]
    (folder / "rows.csv").write_text("\n".join([",".join(["y", *names]), *rows]) + "\n")
    colours, days = ("red", "green", "", "blue"), (f"2024-0{1 + i % 9}-1{i % 7}" for i in range(300))
    mixed = [
        f"{'yes' if side > 0 else 'no'},{row[0]:.6g},{colours[i % 4]},{day},{'' if i % 5 == 0 else i},w{i % 11}"
        for i, (side, row, day) in enumerate(zip(sides, dense, days, strict=True))
    ]
    (folder / "mixed.csv").write_text("\n".join(["y,number,colour,day,gaps,word", *mixed]) + "\n")
    table = pa.table({"y": sides, **{name: dense[:, j] for j, name in enumerate(names)}})
    pq.write_table(table, folder / "rows.parquet", row_group_size=70)
    feather.write_feather(table, str(folder / "rows.arrow"))
    orc.write_table(table, str(folder / "rows.orc"))
    lines = [json.dumps(row) for row in table.to_pylist()]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    for side in (1, -1):
        part = folder / "parts" / f"y={side}"
        part.mkdir(parents=True)
        chosen = table.filter(pa.compute.equal(table["y"], side))
        pq.write_table(chosen.drop_columns("y"), part / "rows.parquet")


def write_bad(folder: Path) -> None:
    """Write files that commands refuse."""
    for name, text in BAD_TEXTS.items():
        (folder / name).write_text(text)
    (folder / "latin.csv").write_bytes("y,a\n1,é\n".encode("latin-1"))
    (folder / "cut.svm.gz").write_bytes(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03+T")
    (folder / "cut.parquet").write_bytes((folder / "rows.parquet").read_bytes()[:500])
    (folder / "cut.npy").write_bytes((folder / "rows.npy").read_bytes()[:500])
    np.save(folder / "wide.npy", np.zeros((2, 9), np.float32))
    np.save(folder / "cube.npy", np.zeros((2, 2, 2), np.float32))
    np.save(folder / "objects.npy", np.array([{}, {}]), allow_pickle=True)
    np.savez(folder / "lengths.npz", X=np.zeros((3, 2)), y=np.zeros(4))
    np.savez(folder / "names.npz", A=np.zeros((3, 2)))
