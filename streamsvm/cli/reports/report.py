"""The page about runs, for `report` and, during a run, for `train --live PORT`.

Its sections are progress, costs, measures on labelled rows, largest weights, the grid of `tune`, and settings.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from streamsvm.cli.info import CLASS_MEASURES, format_evaluation, list_class_measures
from streamsvm.cli.output import RUN_FILES, fill_text
from streamsvm.cli.reports.page import Frame, Section, Series, Table, draw_bars, draw_chart, mark_values, render_page
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import LinearModel, Model, load
from streamsvm.numeric.rows import F64
from streamsvm.runs.folder import read_history, read_run_file
from streamsvm.runs.tune import Tuning
from streamsvm.system.errors import InputError, say_count
from streamsvm.system.files import hide_secrets, refuse_inputs, write_atomically

Scores = dict[str, Any]


UNITS = {"MB": 1e6, "GB": 1e9, "TB": 1e12}


@dataclass(frozen=True)
class Run:
    """The files of a run. result: None until the run has ended. tuning: None unless `tune` wrote it.

    unit: the unit in which `column` returns bytes.
    """

    name: str
    settings: dict[str, Any]
    history: list[dict[str, Any]]
    result: dict[str, Any] | None = None
    tuning: dict[str, Any] | None = None
    unit: str = "MB"

    def column(self, name: str) -> list[float]:
        """Return one figure for all steps, NaN where a step lacks it."""
        unit = UNITS[self.unit] if name.endswith("_bytes") else 1.0
        return [float("nan") if line.get(name) is None else line[name] / unit for line in self.history]


def read_run(folder: Path) -> Run:
    """Return the run in a folder. Raises InputError if there is none, or if a file is damaged."""
    if not (folder / "settings.json").is_file():
        raise InputError(f"{folder}: this is not the folder of a run (settings.json is missing)")
    settings = read_run_file(folder / "settings.json")
    history = read_history(folder)
    result, tuning = (
        read_run_file(folder / name) if (folder / name).exists() else None for name in ("result.json", "tuning.json")
    )
    return Run(folder.resolve().name, settings, history, result, tuning)


ONE_STEP = "The solver made one step and proved nothing, so there are no curves."
NOT_SET = "not set"
NOT_ENDED = "the run has not ended; this page shows its progress so far"


def write_report(folders: Sequence[Path], out: Path | None = None, data: str | None = None, *reading: Any) -> Path:
    """Write the page about runs and return its path. Raises InputError if a folder holds no run.

    out: by default report.html in the folder of a single run. An existing file is replaced, but never a file of a run.
    data: labelled rows on which the models of the runs are measured. reading: the further arguments of `evaluate`,
    which say how to read the rows from a file.
    """
    if out is None and len(folders) > 1:
        raise InputError("--out FILE.html is missing; a page about several runs needs a name")
    target = folders[0] / "report.html" if out is None else out
    inputs = [folder / name for folder in folders for name in RUN_FILES]
    refuse_inputs(target, inputs if data is None else [*inputs, data])
    runs = _name_apart([read_run(folder) for folder in folders])
    models = {
        run.name: load(folder)
        for run, folder in zip(runs, folders, strict=True)
        if data is not None or (folder / "model.npz").exists()
    }
    measured = {} if data is None else {name: evaluate(models[name], data, *reading) for name in models}
    page = make_page(runs, models, measured, hide_secrets(data or ""))
    write_atomically(target, page.encode())
    return target


def _name_apart(runs: Sequence[Run]) -> list[Run]:
    """Return the runs, with numbers appended to equal names."""
    names = [run.name for run in runs]
    return [
        replace(run, name=f"{run.name} ({k + 1})") if names.count(run.name) > 1 else run for k, run in enumerate(runs)
    ]


def make_page(
    runs: Sequence[Run],
    models: Mapping[str, Model] | None = None,
    measured: Mapping[str, dict[str, Any]] | None = None,
    data: str = "",
    refresh_seconds: int | None = None,
    notes: Sequence[str] = (),
) -> str:
    """Return the page about runs as HTML. models, measured: the models and their measures, by run."""
    runs = [replace(run, unit=_choose_unit(runs)) for run in runs]
    names = [run.name for run in runs]
    settings = [{name.replace("_", " "): say_value(value) for name, value in run.settings.items()} for run in runs]
    facts = [describe_result(run.result) if run.result else {"status": NOT_ENDED} for run in runs]
    progress = draw_progress(runs)
    sections = [Section("", notes, tables=[_compare(names, facts)])]
    heading = "Certificate" if all(len(run.history) == 1 for run in runs) else "Progress"
    sections.append(Section(heading, () if progress else [ONE_STEP], progress))
    sections += [show_tuning(run.tuning) for run in runs if run.tuning]
    if measured:
        sections.append(show_evaluation(measured, data))
    held_out = {run.name: run.result["calibration"] for run in runs if run.result and run.result.get("calibration")}
    sections.append(Section("Rows held out from the training", charts=draw_reliability(held_out)))
    for name, model in (models or {}).items():
        section = show_weights(model)
        sections.append(replace(section, title=f"{section.title} ({name})") if len(runs) > 1 else section)
    sections.append(Section("Costs", charts=draw_costs(runs)))
    shown = _compare(names, settings, "setting", NOT_SET)
    if len(runs) > 1:
        shown = replace(shown, rows=[row for row in shown.rows if len(set(row[1:])) > 1])
    title = "Settings" if len(runs) == 1 else "Settings that differ"
    sections.append(Section(title, tables=[shown] if shown.rows else []))
    return render_page(", ".join(names), sections, refresh_seconds)


def _choose_unit(runs: Sequence[Run]) -> str:
    """Return the unit of all bytes on the page, in which the largest number is at least 1 if it is at least 1 MB."""
    figures = [line.get(name) or 0 for run in runs for line in run.history for name in ("read_bytes", "memory_bytes")]
    return [name for name, size in UNITS.items() if name == "MB" or size <= max(figures, default=0)][-1]


def _compare(names: Sequence[str], facts: Sequence[Mapping[str, str]], head: str = "", missing: str = "-") -> Table:
    """Return a table of facts: a list for one run, or a column for each of several runs."""
    keys = dict.fromkeys(key for each in facts for key in each)
    rows = [[key, *(each.get(key, missing) for each in facts)] for key in keys]
    return Table(rows, [head, *names] if len(names) > 1 else (), is_text=True)


def say_value(value: object) -> str:
    """Return a value of a setting in words: lists and mappings without brackets, numbers without superfluous zeros."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {say_value(each)}" for key, each in value.items())
    if isinstance(value, list):
        return ("; " if any(isinstance(each, Mapping) for each in value) else ", ").join(map(say_value, value))
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    if value is None or isinstance(value, bool):
        return {None: NOT_SET, True: "yes", False: "no"}[value]
    return str(value)


def describe_result(result: dict[str, Any]) -> dict[str, str]:
    """Return the results of a run as strings, by name; the template has a line `name: text` for each."""
    lines = fill_text("result.txt", **result).splitlines()
    return {name: text for name, _, text in (line.partition(": ") for line in lines)}


MOST_CLASSES = 20  # maximum for a confusion matrix; with more classes, the most frequent mistakes are listed


def show_evaluation(measured: Mapping[str, Scores], data: str) -> Section:
    """Return curves of all models in shared charts, and tables for each. measured: results of `evaluate`, by run."""
    notes, tables = [f"Measured on {data}."], list[Table]()
    for name, scores in measured.items():
        own = "" if len(measured) == 1 else f" ({name})"
        notes.append(format_evaluation(scores).splitlines()[0] + own)
        if "confusion" in scores:
            tables.append(Table(list_class_measures(scores["classes"]), CLASS_MEASURES, f"Classes{own}"))
            tables += _list_confusion(scores, own)
    return Section("Evaluation", notes, [*_draw_curves(measured), *draw_reliability(measured)], tables)


def _draw_curves(measured: Mapping[str, Scores]) -> list[Markup]:
    """Return the ROC and precision-recall curves of the models that have them."""
    known = {name: scores for name, scores in measured.items() if scores.get("curves")}
    if not known:
        return []
    roc, precision = [], []
    for name, scores in known.items():
        curves, own = scores["curves"], "" if len(known) == 1 else f"{name}, "
        rates, found = curves["false_positive_rate"], curves["true_positive_rate"]
        roc.append(Series(f"{own}area {scores['roc_area']:.4f}", rates, found))
        at = f"{own}average precision {scores['average_precision']:.4f}"
        precision.append(Series(at, found[1:], curves["precision"][1:]))
    roc.append(Series("chance", [0.0, 1.0], [0.0, 1.0], dashed=True))
    rows = [part["rows"] for part in next(iter(known.values()))["classes"].values()]
    precision.append(Series("chance", [0.0, 1.0], [rows[1] / max(1, sum(rows))] * 2, dashed=True))
    return [
        draw_chart("ROC curve", Frame("false positive rate", "true positive rate"), roc),
        draw_chart("Precision and recall", Frame("recall", "precision"), precision),
    ]


def draw_reliability(measured: Mapping[str, Scores]) -> list[Markup]:
    """Return the chart of the reliability curves of models that have probabilities."""
    curves = {name: scores["reliability"] for name, scores in measured.items() if scores.get("reliability")}
    if not curves:
        return []
    lines = []
    for name, curve in curves.items():
        spread = [_bound_share(part["true"], part["rows"]) for part in curve]
        predicted, true = ([part[each] for part in curve] for each in ("predicted", "true"))
        lines.append(Series(name, predicted, true, spread=spread))
    lines.append(Series("true probabilities", [0.0, 1.0], [0.0, 1.0], dashed=True))
    frame = Frame("predicted probability", "observed share (bars: 95% intervals)")
    return [draw_chart("Reliability of the probabilities", frame, lines)]


def _bound_share(share: float, rows: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of a share that was observed on some rows: the fewer rows, the wider it is."""
    z, n = 1.96, rows + 1.96**2
    middle, half = (rows * share + z**2 / 2) / n, z * math.sqrt(rows * share * (1 - share) + z**2 / 4) / n
    return max(0.0, middle - half), min(1.0, middle + half)


def _list_confusion(scores: Scores, own: str) -> list[Table]:
    """Return the confusion matrix or, for many classes, the most frequent mistakes."""
    names, counts = list(scores["classes"]), scores["confusion"]
    if len(names) <= MOST_CLASSES:
        rows = [[name, *(f"{n:,}" for n in line)] for name, line in zip(names, counts, strict=True)]
        shades = [[round(n / max(1, sum(line)), 3) for n in line] for line in counts]
        caption = f"Confusion matrix{own}: rows of a class, by predicted class"
        return [Table(rows, ["true class", *names], caption, shades)]
    wrong = [(n, i, j) for i, line in enumerate(counts) for j, n in enumerate(line) if i != j and n]
    most = sorted(wrong, reverse=True)[:MOST_CLASSES]
    rows = [[names[i], names[j], f"{n:,}"] for n, i, j in most]
    return [Table(rows, ["true class", "predicted", "rows"], f"Most frequent mistakes{own}")]


# The x axes of the gap charts, and their columns in the history. Bytes are left out if all rows stay in memory, because
# every step has then read the same amount.
X_AXES = {"passes": "passes", "seconds": "seconds", "{} read": "read_bytes"}


def draw_progress(runs: Sequence[Run]) -> list[Markup]:
    """Return SVG charts with a line for each run. The charts of the gap are left out if no solver proves a gap.

    Runs of one step have a chart of their certificate each.
    """
    if all(len(run.history) == 1 for run in runs):
        return [_draw_certificate(run, len(runs) > 1) for run in runs if run.history[0].get("relative_gap") is not None]
    charts: list[Markup] = []
    if any(line.get("relative_gap") is not None for run in runs for line in run.history):
        for label, column in X_AXES.items():
            if column != "read_bytes" or any(len(set(run.column(column))) > 1 for run in runs):
                frame = Frame(label.format(runs[0].unit), "relative gap", log=True)
                lines = _draw_lines(runs, column, "relative_gap")
                charts.append(draw_chart(f"Gap against {frame.x_label}", frame, lines))
        P, D = (_draw_lines(runs, "passes", name, name.replace("_", " ")) for name in ("objective", "lower_bound"))
        bounds = [each for line, bound in zip(P, D, strict=True) for each in (line, replace(bound, dashed=True))]
        charts.append(draw_chart("Objective and lower bound", Frame("passes", "P and D", log=True), bounds))
    else:
        lines = _draw_lines(runs, "seconds", "objective")
        charts.append(draw_chart("Objective (estimated)", Frame("seconds", "P", log=True), lines))
    if watched := [run for run in runs if any("eval_score" in line for line in run.history)]:
        lines = _draw_lines(watched, "passes", "eval_score")
        charts.append(draw_chart("Measure of held-out rows", Frame("passes", "measure", from_zero=False), lines))
    return charts


def _draw_certificate(run: Run, named: bool) -> Markup:
    """Return bars of the gap that the only step of a run has proved, and of the gap that was allowed."""
    line = run.history[-1]
    title = (f"{run.name}: " if named else "") + f"P = {line['objective']:.8g}, D = {line['lower_bound']:.8g}"
    gaps = {"proved: (P - D) / P": line["relative_gap"], "allowed: tol": run.settings.get("tol")}
    return draw_bars(title, [(name, max(0.0, gap), f"{gap:.3g}") for name, gap in gaps.items() if gap is not None])


def draw_costs(runs: Sequence[Run]) -> list[Markup]:
    """Return SVG charts of the time, the bytes read, and the memory with its projection."""
    charts = [_draw_time(run, len(runs) > 1) for run in runs if run.history and "solver_seconds" in run.history[-1]]
    if all(len(run.history) == 1 for run in runs):
        return charts
    memory = []
    for run, line in zip(runs, _draw_lines(runs, "seconds", "memory_bytes", "measured"), strict=True):
        memory.append(line)
        if run.result and line.x:
            ends, projected = [0.0, max(line.x)], [run.result["projected_memory_bytes"] / UNITS[run.unit]] * 2
            memory.append(Series(_name_line(run, runs, "projected"), ends, projected, dashed=True, color=line.color))
    frame, read = Frame("seconds", runs[0].unit), _draw_lines(runs, "seconds", "read_bytes")
    charts.append(draw_chart("Read from storage", frame, read))
    return [*charts, draw_chart("Resident memory of this process", frame, memory)]


def _draw_lines(runs: Sequence[Run], x: str, y: str, what: str = "") -> list[Series]:
    """Return a line for each run: one column of its history against another. Lines of one run share its colour."""
    return [
        Series(_name_line(run, runs, what), run.column(x), run.column(y), color=k if len(runs) > 1 else None)
        for k, run in enumerate(runs)
    ]


def _name_line(run: Run, runs: Sequence[Run], what: str) -> str:
    """Return the name of a line: the run if there are several, then `what`."""
    return ": ".join(filter(None, [run.name if len(runs) > 1 else "", what]))


def _draw_time(run: Run, named: bool) -> Markup:
    """Return bars of the seconds that a run spent in passes over the data and in the solver between them.

    If the result has task times, the time of the passes is divided in proportion to them.
    """
    title = "Where the time went" + (f" ({run.name})" if named else "")
    last: dict[str, Any] = run.history[-1]
    whole = float((run.result or last)["seconds"])
    tasks = (run.result or {}).get("task_seconds", {})
    parts = {"passes over the data": last["pass_seconds"]}
    if all_tasks := sum(tasks.values()):
        names = {"read": "passes: reading", "verify": "passes: verifying", "compute": "passes: computing"}
        parts = {names[name]: last["pass_seconds"] * value / all_tasks for name, value in tasks.items()}
    parts["solver between them"] = last["solver_seconds"]
    parts["everything else"] = max(0.0, whole - sum(parts.values()))
    share = 100 / max(whole, 1e-9)
    return draw_bars(title, [(name, value, f"{value:.3g} s, {value * share:.0f}%") for name, value in parts.items()])


MOST_WEIGHTS = 15
MOST_WEIGHED_CLASSES = 6  # maximum number of classes with a chart each


def show_weights(model: Model) -> Section:
    """Return charts of the weights of largest absolute value; an empty section for kernel models."""
    if not isinstance(model, LinearModel):
        return Section("Largest weights")
    of = "the features that the map computes" if model.features is not None else "the features"
    scaled = "" if model.scaling is None else f", which were scaled ({model.scaling.kind})"
    notes = [f"Weights of {of}{scaled}, largest first, with their signs."]
    W, classes = np.atleast_2d(model.coef), model.classes.tolist()
    named = [("Largest weights", W[0])]
    if len(W) > 1:
        named = [(f"For {name}", w) for name, w in zip(classes, W, strict=True)][:MOST_WEIGHED_CLASSES]
    elif len(classes) == 2:
        notes.append(f"A weight above 0 favours {classes[1]}, and one below 0 favours {classes[0]}.")
    if len(W) > len(named):
        notes.append(f"The charts show the first {MOST_WEIGHED_CLASSES} of {len(W):,} classes or labels.")
    return Section("Largest weights", notes, [draw_bars(name, _list_largest(model, w)) for name, w in named])


def _list_largest(model: LinearModel, w: F64) -> list[tuple[str, float, str]]:
    """Return names, weights and texts of the largest weights other than zero. Features without names are numbered."""
    order = np.argsort(-np.abs(w), kind="stable")[:MOST_WEIGHTS].tolist()
    known = model.feature_names if model.features is None else None
    names = {j: f"feature {j + 1}" if known is None else known[j] for j in order}
    return [(names[j], float(w[j]), f"{w[j]:.4g}") for j in order if w[j] != 0]


# the columns of a trial that are not compared as settings
OF_A_TRIAL = ("C", "scores", "converged", "passes", "mean", "std", "standard_error")
MOST_LINES = 12  # maximum number of lines in a chart
FAR_APART = 10.0  # the ratio of errors from which the axis is logarithmic


def format_tuning(tuning: Tuning) -> str:
    """Return a table with a line for each setting; the best one is marked."""
    return fill_text("tuning.txt", tuning=tuning, show_setting=show_setting)


def show_setting(value: object) -> str:
    """Return a value of a setting as a user writes it."""
    if isinstance(value, Mapping):
        return ",".join(f"{label}={weight:.4g}" for label, weight in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def show_tuning(tuned: Mapping[str, Any]) -> Section:
    """Return charts of the error on held-out rows and of the passes against C, and a table of all settings.

    tuned: the object that `tune --json` prints. Error bars go from the best fold of a setting to its worst.
    """
    grid, trials = tuned["grid"], tuned["trials"]
    best = grid.get("ideal_score", grid.get("best_score", 1.0))  # best_score: in files of earlier versions
    scoring = grid.get("scoring", grid.get("measure", "right on held-out rows"))
    error = scoring.removeprefix("neg_").replace("_", " ") if best == 0.0 else f"1 - {scoring}"
    lines = _split(trials)
    shown = list(lines.items())[:MOST_LINES]
    costs = [trial["C"] for trial in trials]
    frame = Frame("C (cost of a row)", "passes", log=True, log_x=True, from_zero=False, x_axis=mark_values(costs))
    wrong = [_draw_series(name, line, best) for name, line in shown]
    errors = [value for line in wrong for value in line.y]
    far = min(errors) > 0 and max(errors) / min(errors) >= FAR_APART
    charts = [draw_chart(f"Held-out rows: {error}", replace(frame, y_label=error, log=far), wrong)]
    if len({trial["passes"] for trial in trials}) > 1:
        passes = [Series(name, [each["C"] for each in line], [each["passes"] for each in line]) for name, line in shown]
        charts.append(draw_chart("Passes of the longest fit", frame, passes))
    notes = [
        f"{say_count(len(trials), 'setting')}, {say_count(len({*costs}), 'value')} of C, in "
        f"{say_count(grid['passes'], 'read')} of the data and {grid['seconds']:.1f} s. The best setting is trained on "
        "all rows. Points are means of the folds, and bars go from the best fold to the worst."
    ]
    if len(lines) > MOST_LINES:
        notes.append(f"The charts show the first {MOST_LINES} of {len(lines):,} lines; the table has all settings.")
    return Section("Grid", notes, charts, [_list_trials(tuned, scoring)])


def _split(trials: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Group the trials that differ only in C, sorted by C within each group."""
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for trial in trials:
        name = ", ".join(f"{key} {show_setting(value)}" for key, value in _list_others(trial).items())
        lines.setdefault(name, []).append(trial)
    return {name: sorted(line, key=lambda trial: trial["C"]) for name, line in lines.items()}


def _list_others(trial: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a trial other than C, by name."""
    return {key: value for key, value in trial.items() if key not in OF_A_TRIAL and value is not None}


def _draw_series(name: str, trials: Sequence[Mapping[str, Any]], best: float) -> Series:
    """Return the distance of each trial's score from the best possible score, with error bars over the folds."""
    spread = [(best - max(trial["scores"]), best - min(trial["scores"])) for trial in trials]
    return Series(name, [trial["C"] for trial in trials], [best - trial["mean"] for trial in trials], spread=spread)


def _list_trials(tuned: Mapping[str, Any], measure: str) -> Table:
    """Return a table with a row for each setting, the best mean first."""
    others = list(_list_others(tuned["trials"][0]))
    rows = []
    for trial in sorted(tuned["trials"], key=lambda trial: -trial["mean"]):
        n_folds, spread = len(trial["scores"]), float(np.std(trial["scores"]))
        error = spread / math.sqrt(max(1, n_folds - 1))
        is_best = all(trial[key] == tuned.get(key) for key in ("C", *others))
        cost = f"{trial['C']:.4g}" + (" (best)" if is_best else "")
        proved = "yes" if trial["converged"] else "no"
        settings = [show_setting(trial[key]) for key in others]
        score = f"{trial['mean']:.6g}", f"{spread:.2g}", f"{error:.2g}"
        rows.append([cost, *settings, *score, proved, f"{trial['passes']:,}"])
    score_columns = f"mean {measure}", "standard deviation", "standard error of the mean"
    return Table(rows, ["C", *others, *score_columns, "converged", "passes"])


LOOPBACK = "127.0.0.1"
REFRESH_SECONDS = 2
WATCHED_SECONDS = 3.0 * REFRESH_SECONDS  # a browser that shows the page asks for it within this time
NOT_BEGUN = "the run has not made a step yet"


@contextmanager
def serve_page(run: Path, port: int, describe: Callable[[], str] = str) -> Iterator[str]:
    """Serve the page of a run until the block ends, and yield its address. Raises InputError if the port is taken.

    A browser that shows the page gets the page of the ended run before the server stops. port: 0 selects any free port.
    describe: returns the progress of the current pass, or "". Only this machine can reach the page, and only by its
    loopback names, so that pages of other sites cannot read it (DNS rebinding).
    """
    seen, ended, last_seen = threading.Event(), threading.Event(), -math.inf

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rpartition(":")[0]
            if host not in (LOOPBACK, "localhost") or self.path not in ("/", "/index.html"):
                self.send_error(404)
                return
            nonlocal last_seen
            is_last, last_seen = ended.is_set(), time.monotonic()
            content = make_live_page(run, "" if is_last else describe(), not is_last).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)
            if is_last:
                seen.set()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Print nothing: standard error is for the progress of the run."""

    try:
        server = ThreadingHTTPServer((LOOPBACK, port), Handler)
    except (OSError, OverflowError) as error:
        raise InputError(f"--live {port}: {error}; choose another port, or 0 for any free port") from error
    with server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        try:
            yield f"http://{LOOPBACK}:{server.server_address[1]}/"
            ended.set()
            if time.monotonic() - last_seen < WATCHED_SECONDS:
                seen.wait(WATCHED_SECONDS)
        finally:
            server.shutdown()


def make_live_page(run: Path, reading: str = "", is_running: bool = True) -> str:
    """Return the page of a run in its current state; browsers reload it every REFRESH_SECONDS while it is running.

    reading: the progress of the current pass, or "".
    """
    refresh, notes = REFRESH_SECONDS if is_running else None, [reading] if reading else []
    try:
        return make_page([read_run(run)], refresh_seconds=refresh, notes=notes)
    except InputError:  # no files yet, or a half-written line of the history
        return render_page(run.resolve().name, [Section("", [NOT_BEGUN, *notes])], refresh)
