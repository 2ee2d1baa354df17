"""The `report` command: one page of a run or of several, which needs no script, no other file and no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streamsvm.cli.pages.evaluation import compare_settings, draw_reliability, list_settings, show_evaluation
from streamsvm.cli.pages.page import Section, Table, render_page
from streamsvm.cli.pages.progress import draw_costs, draw_progress
from streamsvm.cli.pages.run_files import Run, read_run
from streamsvm.cli.pages.tuning import show_tuning
from streamsvm.cli.pages.weights import show_weights
from streamsvm.errors import InputError
from streamsvm.files import refuse_inputs, write_atomically
from streamsvm.machine import format_bytes
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import Model, load
from streamsvm.urls import hide_secrets, is_remote

RUN_FILES = ("settings.json", "history.jsonl", "checkpoint.npz", "model.npz", "result.json")
ONE_STEP = "The solver made one step, so there are no curves."
NOT_ENDED = "the run has not ended; this is its progress so far"


def write_report(
    folders: Sequence[Path], out: Path | None = None, data: str | None = None, reading: Mapping[str, Any] | None = None
) -> Path:
    """Write the page of runs and return its file. InputError if a folder holds no run.

    out: by default report.html in the folder of a single run. An older file of this name is replaced, but no file of a
    run. data: labelled rows that the models of the runs are measured on; reading: how a file of them is read, as
    `evaluate` takes it.
    """
    if out is None and len(folders) > 1:
        raise InputError("--out FILE.html is missing: it names the page of several runs")
    target = folders[0] / "report.html" if out is None else out
    inputs = [folder / name for folder in folders for name in RUN_FILES]
    refuse_inputs(target, inputs if data is None or is_remote(data) else [*inputs, data])
    runs = _name_apart([read_run(folder) for folder in folders])
    models = {
        run.name: load(folder)
        for run, folder in zip(runs, folders, strict=True)
        if data is not None or (folder / "model.npz").exists()
    }
    measured = {}
    if data is not None:
        measured = {name: evaluate(model, data, **(reading or {})) for name, model in models.items()}
    page = make_page(runs, models, measured, "" if data is None else hide_secrets(data))
    write_atomically(target, page.encode())
    return target


def _name_apart(runs: Sequence[Run]) -> list[Run]:
    """Return the runs, with numbers added to names that several of them have."""
    names = [run.name for run in runs]
    return [
        Run(f"{run.name} ({k + 1})" if names.count(run.name) > 1 else run.name, *list(vars(run).values())[1:])
        for k, run in enumerate(runs)
    ]


def make_page(
    runs: Sequence[Run],
    models: Mapping[str, Model] | None = None,
    measured: Mapping[str, dict[str, Any]] | None = None,
    data: str = "",
    refresh_seconds: int | None = None,
) -> str:
    """Return the page of runs as HTML, with what is known of their models and of measures on rows, by run."""
    outcome = _list_facts(runs[0]) if len(runs) == 1 else _compare(runs)
    sections = [Section("", tables=[outcome]), Section("Progress", charts=draw_progress(runs))]
    if not sections[1].charts:
        sections[1] = Section("Progress", [ONE_STEP])
    sections += [show_tuning(run.tuning) for run in runs if run.tuning]
    if measured:
        sections.append(show_evaluation(measured, data))
    held_out = {run.name: run.result["calibration"] for run in runs if run.result and run.result.get("calibration")}
    if curves := draw_reliability(held_out):
        sections.append(Section("Rows that were held out from the training", charts=curves))
    for name, model in (models or {}).items():
        section = show_weights(model)
        own = f"{section.title} ({name})" if len(runs) > 1 else section.title
        sections.append(Section(own, section.notes, section.charts))
    sections.append(Section("Costs", charts=draw_costs(runs)))
    names, settings = [run.name for run in runs], [run.settings for run in runs]
    shown = list_settings(settings[0]) if len(runs) == 1 else compare_settings(names, settings)
    title = "Settings" if len(runs) == 1 else "Settings that differ"
    sections.append(Section(title, tables=[shown] if shown.rows else []))
    return render_page(", ".join(names), sections, refresh_seconds)


def _list_facts(run: Run) -> Table:
    """Return the outcome of a run as a table of facts."""
    return Table(list(describe_result(run.result).items()) if run.result else [("status", NOT_ENDED)])


def _compare(runs: Sequence[Run]) -> Table:
    """Return the outcomes of runs, with a column for each run."""
    facts = [describe_result(run.result) if run.result else {"status": "not ended"} for run in runs]
    keys = list(dict.fromkeys(key for each in facts for key in each))
    rows = [[key, *(each.get(key, "-") for each in facts)] for key in keys]
    return Table(rows, ["", *(run.name for run in runs)], is_text=True)


def describe_result(result: dict[str, Any]) -> dict[str, str]:
    """Return the outcome of a run as texts by name."""
    gap, support = result["relative_gap"], result["n_support_vectors"]
    seconds = max(result["seconds"], 1e-9)
    facts = {
        "status": result["status"],
        "reason": result.get("status_reason") or "",
        "solver": result["solver"],
        "rows, features": f"{result['n_rows']:,} x {result['n_features']:,}",
        "objective": f"{result['objective']:.8g}",
        "lower bound": "none: nothing is proved" if gap is None else f"{result['lower_bound']:.8g}",
        "relative gap": "-" if gap is None else f"{gap:.2e}",
        "passes, steps": f"{result['passes']:,}, {result['steps']:,}",
        "time": f"{result['seconds']:.1f} s; {result['passes'] * result['n_rows'] / seconds:,.0f} rows a second",
        "read": f"{format_bytes(result['read_bytes'])}, {result['read_bytes'] / 1e6 / seconds:,.0f} MB/s",
        "peak memory": format_bytes(result["peak_memory_bytes"]),
        "projected memory": format_bytes(result["projected_memory_bytes"]),
        "support vectors": "" if support is None else f"{support:,}",
        "model, SHA-256": result["model_sha256"],
    }
    if known := result.get("calibration"):
        told = f"{known['method']}: Brier score {known['brier_score']:.4f}, log loss {known['log_loss']:.4f}"
        facts["probabilities of held-out rows"] = told
    return {name: told for name, told in facts.items() if told}
