"""Two hundred refusals: the exit status, and the places, values and options that the message names.

The wording of messages is free. What a message names is found by its form (a file with a line and a column, a quoted
value, an option), and among the words of the command.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from tests.golden.processes import call

NAMED = re.compile(
    r"'[^'\n]{1,40}'|--[a-z][a-z-]+|[\w.-]+\.(?:svm|csv|npy|npz|zarr|parquet|jsonl|gz|txt|html)(?::\d+)*"
)
MEMORY = re.compile(r"'[\d.]+[kMG]?B'")  # sizes that depend on the memory of the process

INGEST_FILES = [
    "word.svm", "order.svm", "twice.svm", "zero.svm", "huge.svm", "nan.svm", "nolabel.svm",
    "bigindex.svm", "empty.svm", "comment.svm", "qid.svm", "qidgone.svm", "label53.svm", "word.csv", "short.csv",
    "long.csv", "gap.csv", "nolabel.csv", "na.csv", "samename.csv", "quote.csv", "header.csv", "empty.csv",
    "text.csv", "target.csv", "day.csv", "comma.csv", "latin.csv", "bad.jsonl", "odd.jsonl", "plain.txt",
    "page.html", "cut.svm.gz", "cut.parquet", "cut.npy", "cube.npy", "objects.npy", "lengths.npz", "names.npz",
    "missing.svm", "missing.csv", "missing.parquet", "rows.zarr", "run",
]  # fmt: skip
OTHERS = """
ingest
ingest rows.csv
ingest rows.csv out.zarr --label z
ingest rows.csv out.zarr --label 9
ingest rows.csv out.zarr --label 0
ingest rows.csv out.zarr --drop z
ingest rows.csv out.zarr --qid z
ingest rows.csv out.zarr --sample-weight z
ingest rows.csv out.zarr --groups z
ingest weight.csv out.zarr --label y --sample-weight w
ingest rows.csv out.zarr --label y --sample-weight a
ingest rows.csv out.zarr --index z
ingest zero.svm out.zarr --base 1
ingest zero.svm out.zarr --base 2
ingest rows.csv out.zarr --base 0
ingest rows.csv out.zarr --date-format day
ingest rows.csv out.zarr --quoting all
ingest rows.csv out.zarr --sep ab
ingest rows.csv out.zarr --decimal x
ingest rows.csv out.zarr --header maybe
ingest rows.csv out.zarr --missing lots
ingest rows.csv out.zarr --one-hot z
ingest rows.csv out.zarr --hash 0
ingest rows.csv out.zarr --hash many
ingest rows.csv out.zarr --text z
ingest rows.csv out.zarr --date a
ingest rows.csv out.zarr --number y --label y
ingest mixed.csv out.zarr --number colour --label y
ingest mixed.csv out.zarr --label y
ingest mixed.csv out.zarr --label y --one-hot colour
ingest mixed.csv out.zarr --label y --one-hot colour,word --date number
ingest rows.csv out.zarr --like missing.zarr
ingest rows.csv out.zarr --dense --sparse
ingest rows.csv out.zarr --chunk-bytes big
ingest rows.csv out.zarr --chunk-bytes 0
ingest rows.csv out.zarr --codec zip
ingest rows.csv out.zarr --dtype float64
ingest rows.csv out.zarr --scale other
ingest rows.csv out.zarr --shuffle x
ingest rows.csv rows.zarr
ingest rows.csv rows.csv
ingest rows.csv run
ingest rows.csv rows.csv/out.zarr
ingest rows.csv out.zarr --append
ingest wide.csv rows.zarr --append
ingest rows.csv rows.zarr --append --overwrite
ingest rows.csv rows.zarr --append --scale standard
ingest rows.csv out.zarr --resume
ingest rows.csv out.zarr --workers 0
ingest rows.csv out.zarr --workers x
ingest rows.csv out.zarr --scheduler nowhere
ingest rows.csv out.zarr --memory lots
ingest rows.csv out.zarr --new-classes
ingest rows.csv dense.svm out.zarr
ingest rows.csv wide.csv out.zarr
ingest dense.svm out.zarr --label y
ingest dense.svm out.zarr --sep ,
ingest dense.svm out.zarr --regression --multi-label
ingest rows.csv out.zarr --format svmlight
ingest rows.npy out.zarr --label y
ingest rows.csv http://127.0.0.1:1/out.zarr
info
info missing
info rows.csv
info rows.zarr --card
info rows.zarr --eval rows.csv
info run --verify
train
train rows.zarr
train missing.zarr --out new
train rows.zarr --out run
train rows.zarr --out rows.csv
train rows.zarr --out rows.csv/new
train rows.zarr --out rows.zarr
train rows.zarr --out run --resume --C 2
train rows.zarr --out new --resume --overwrite
train rows.zarr --out new --C -1
train rows.zarr --out new --C 0
train rows.zarr --out new --C nan
train rows.zarr --out new --C much
train rows.zarr --out new --C 1,2
train rows.zarr --out new --gamma wide
train rows.zarr --out new --kernel rbf --gamma -1
train rows.zarr --out new --kernel other
train rows.zarr --out new --kernel poly --degree 1.5
train rows.zarr --out new --kernel poly --coef0 inf
train rows.zarr --out new --kernel precomputed
train rows.zarr --out new --solver magic
train rows.zarr --out new --solver cutting-plane --kernel rbf
train rows.zarr --out new --solver interior-point --kernel rbf
train rows.zarr --out new --solver newton
train rows.zarr --out new --solver newton --loss hinge
train rows.zarr --out new --task other
train rows.zarr --out new --task multi-label
train rows.zarr --out new --task one-class --nu 2
train rows.zarr --out new --task one-class --nu 0
train rows.zarr --out new --task one-class --C 2
train rows.zarr --out new --task roc-area --kernel rbf
train rows.zarr --out new --multi-class other
train rows.zarr --out new --loss other
train rows.zarr --out new --loss logistic --kernel rbf
train rows.zarr --out new --penalty l1
train rows.zarr --out new --penalty l0
train rows.zarr --out new --epsilon -1
train rows.zarr --out new --epsilon 0.1
train rows.zarr --out new --nu 0.5
train numbers.zarr --out new --task regress --epsilon -1
train numbers.zarr --out new
train queries.zarr --out new --task rank --kernel rbf
train rows.zarr --out new --map other
train rows.zarr --out new --rank 5
train rows.zarr --out new --map nystrom --rank 0
train rows.zarr --out new --class-weight heavy
train rows.zarr --out new --class-weight 7=2
train rows.zarr --out new --class-weight 1=-2
train rows.zarr --out new --tol 0
train rows.zarr --out new --tol -1
train rows.zarr --out new --memory lots
train rows.zarr --out new --memory 1KB
train rows.zarr --out new --resident-rows many
train rows.zarr --out new --kernel rbf --resident-rows 1
train rows.zarr --out new --threads 0
train rows.zarr --out new --workers 0
train rows.zarr --out new --workers abc
train rows.zarr --out new --scheduler nowhere
train rows.zarr --out new --scheduler http://127.0.0.1:1
train rows.zarr --out new --cache x
train rows.zarr --out new --label z
train rows.zarr --out new --seed x
train rows.zarr --out new --max-passes 0
train rows.zarr --out new --option speed
train rows.zarr --out new --option speed=9
train rows.zarr --out new --option epsilon=-1
train rows.zarr --out new --option acceleration=warp
train rows.zarr --out new --solver smo --option selection=best
train rows.zarr --out new --solver smo --option epsilon=1
train rows.zarr --out new --solver budgeted-sgd --option budget=0
train rows.zarr --out new --solver budgeted-sgd --option maintenance=x
train rows.zarr --out new --solver interior-point --option reduction=x
train rows.zarr --out new --start-from missing
train rows.zarr --out new --start-from rows.npy
train rows.zarr --out new --eval missing.zarr
train rows.zarr --out new --patience 3
train rows.zarr --out new --live x
train rows.zarr --out new --probabilities other
train numbers.zarr --out new --task regress --probabilities sigmoid
train rows.zarr --out new --nothing
train rows.zarr --out new --ressume
train rows.zarr other --out new
tune rows.zarr
tune rows.zarr --out new --C 1,x
tune rows.zarr --out new --C 0,1
tune rows.zarr --out new --C 1,2 --folds 1
tune rows.zarr --out new --C 1,2 --folds 500
tune rows.zarr --out new --C 1,2 --groups z
tune rows.zarr --out new --C 1,2 --forward
tune rows.zarr --out new --C 1,2 --gamma 1,2
tune rows.zarr --out new --C 1,2 --loss hinge,other
tune missing.zarr --out new --C 1,2
predict run
predict missing rows.csv --out p.csv
predict rows.npy rows.csv --out p.csv
predict run missing.csv --out p.csv
predict run wide.npy --out p.csv
predict run rows.npy --out p.txt
predict run rows.npy --out rows.csv/p.csv
predict run rows.npy --out rows.npy
predict run rows.npy --out p.csv --probabilities
predict run rows.npy --out p.csv --top 0
predict run rows.npy --out p.csv --columns z
predict run rows.npy --out - --json
predict run word.svm --out p.csv
evaluate run
evaluate run rows.npy
evaluate run missing.svm
evaluate run dense.svm --curves
evaluate run dense.svm --qid z
evaluate missing dense.svm
export run --to other --out m
export run --to libsvm --out run
export missing --to csv --out m.csv
export run --to csv --out rows.csv
import missing --out m.npz
import plain.txt --out m.npz
verify run missing.zarr
verify run numbers.zarr
verify run dense.svm
verify missing rows.zarr
report
report missing
report run --sep ,
report run --eval missing.svm
delete rows.zarr
delete rows.zarr --rows x
delete rows.zarr --rows 0-99999
delete rows.zarr --rows rows.txt
delete missing.zarr --rows 1
features rows.zarr
features rows.zarr out.zarr --map other
features rows.zarr rows.zarr --map nystrom
features rows.zarr out.zarr --map nystrom --rank 0
features missing.zarr out.zarr --map nystrom
warm-up nothing
nothing
"""


def list_commands() -> list[str]:
    """Return the commands that are refused."""
    files = [f"ingest {name} out.zarr" for name in INGEST_FILES]
    tables = [f"{each} --label y" for each in files if each.split()[1].endswith(("csv", "jsonl", "parquet"))]
    return [*files, *tables, *filter(None, OTHERS.split("\n"))]


def record(folder: Path) -> dict[str, Any]:
    """Return, for each command, its exit status and what its message names."""
    found = {}
    for command in list_commands():
        ended = call(folder, *shlex.split(command))
        message = "\n".join(line for line in ended.err.splitlines() if not line.startswith("compiling kernels"))
        message = message.replace(str(folder), "").replace("\\", "/")
        given = {word.strip("-") for part in shlex.split(command) for word in re.split(r"[=,/]", part)}
        repeated = {word for word in given if re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", message)}
        named = {name for name in NAMED.findall(message) if not MEMORY.fullmatch(name)}
        names = sorted(named | repeated - {""})
        found[command] = {"status": ended.status, "names": names, "traceback": "Traceback" in ended.err}
    return found
