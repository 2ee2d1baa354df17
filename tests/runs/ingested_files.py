"""Files that an ingest may meet, as text by their names; and the files of a dataset."""

from __future__ import annotations

import random
from pathlib import Path


def read_bytes(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def make_svmlight(seed: int, n: int, qid: bool = False, extra: str = "") -> str:
    rng = random.Random(seed)
    lines = []
    for i in range(n):
        chosen = sorted(rng.sample(range(1, 40), rng.randrange(9)))
        pairs = " ".join(f"{j}:{rng.randrange(1, 999) / 8}" for j in chosen)
        lines.append(f"{rng.choice([-1, 1])} {f'qid:{i // 5} ' if qid else ''}{pairs}{' # note' if i % 7 == 0 else ''}")
        if extra and i % 11 == 3:
            lines.append(extra)
    return "\n".join(lines)


def make_csv(seed: int, n: int, quoted: bool = False) -> str:
    rng = random.Random(seed)
    names = ["no", 'y"es\n"' if quoted else "yes", "perhaps"]
    lines = ["a,b,label,c"]
    for _ in range(n):
        label = rng.choice(names[:2] if seed == 0 else names)
        label = '"' + label.replace('"', '""') + '"' if quoted else label
        lines.append(f"{rng.randrange(999) / 8},{rng.randrange(99)},{label},{rng.choice([0, 0, 1.5])}")
    return "\n".join(lines) + "\n"


WORKS = ["Private", 'Self "emp"', "none, yet", "State-gov", "Größe"]


def make_table(seed: int, n: int, works: list[str] = WORKS, mark: str = ".") -> dict[str, list[str]]:
    """A table of texts: values are missing, most categories come late, and sums of sizes are rounded."""
    rng = random.Random(seed)
    return {
        "id": [f"row {i}" for i in range(n)],
        "age": [rng.choice(["", "?", *(str(rng.randrange(17, 90)) for _ in range(8))]) for _ in range(n)],
        "work": [rng.choice(works[: 1 + i * len(works) // n]) for i in range(n)],
        "hours": [f"{rng.gauss(40, 10):.3f}".replace(".", mark) for _ in range(n)],
        "size": [repr(10 ** rng.uniform(-9, 9)).replace(".", mark) for _ in range(n)],
        "city": [rng.choice(["", *(f"city {k}" for k in range(30))]) for _ in range(n)],
        "label": [rng.choice([">50K", "<=50K"]) for _ in range(n)],
    }


def add_dates(table: dict[str, list[str]]) -> dict[str, list[str]]:
    dates = [f"20{10 + i % 14}-03-{1 + i % 28:02}" if i % 9 else "" for i in range(len(table["id"]))]
    return {**table, "joined": dates}


def write_csv(path: Path, table: dict[str, list[str]], sep: str = ",") -> Path:
    lines = [
        sep.join(f'"{cell.replace(chr(34), 2 * chr(34))}"' for cell in row) for row in zip(*table.values(), strict=True)
    ]
    path.write_text("\n".join([sep.join(table), *lines]) + "\n")
    return path


FILES = {
    "svmlight": {"a.svm": make_svmlight(0, 150), "b.svm": make_svmlight(1, 60) + "\n"},
    "blanks and comments": {"a.svm": make_svmlight(0, 90, extra="# " + 80 * "none " + "\n\n# " + 300 * "x")},
    "no rows for long": {"a.svm": make_svmlight(0, 40) + "\n" + 60 * ("#" + 60 * "-" + "\n") + make_svmlight(1, 60)},
    "long lines": {"a.svm": make_svmlight(0, 20) + "\n1 " + " ".join(f"{j}:1.5" for j in range(1, 900)) + "\n-1 1:2"},
    "queries": {"a.svm": make_svmlight(0, 120, qid=True)},
    "one row": {"a.svm": "1 1:1\n", "b.svm": "-1 2:1"},
    "csv": {"a.csv": make_csv(0, 150), "b.csv": make_csv(1, 80)},
    "quotes": {"a.csv": "\ufeff" + make_csv(0, 150, quoted=True)},
}

FAULTS = {
    "value": {"a.svm": make_svmlight(0, 100) + "\n1 1:2 3:x\n" + make_svmlight(1, 50) + "\n1 5:y"},
    "order": {"a.svm": make_svmlight(0, 100), "b.svm": make_svmlight(1, 70) + "\n1 7:1 2:1"},
    "query": {"a.svm": make_svmlight(0, 70) + "\n1 qid:3 2:1\n" + make_svmlight(1, 50)},
    "no rows": {"a.svm": make_svmlight(0, 100), "b.svm": "# nothing\n", "c.svm": "1 1:1"},
    "empty": {"a.csv": make_csv(0, 90), "b.csv": ""},
    "cell": {"a.csv": make_csv(0, 120) + "1,2\n" + make_csv(1, 50)[12:]},
    "open": {"a.csv": make_csv(0, 90) + '1,2,"no,3\n' + make_csv(1, 90)[12:]},
    "columns": {"a.csv": make_csv(0, 90), "b.csv": "a,b,label,d\n1,2,no,3\n"},
    "labels": {"a.csv": "x,label\n" + 200 * "1.5,1\n", "b.csv": "x,label\n1,text\n"},
    "one class": {"a.svm": "1 1:1\n1 2:1\n"},
    "zeros": {"a.svm": "1\n-1\n"},
}
