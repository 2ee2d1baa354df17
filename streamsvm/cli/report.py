"""The page of a run, which needs no script and no other file: its gap, throughput, memory and settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from typing import Any

from streamsvm import __version__
from streamsvm.cli.chart import Series, draw_chart
from streamsvm.errors import InputError
from streamsvm.files import refuse_inputs, write_atomically
from streamsvm.machine import format_bytes

History = list[dict[str, Any]]

RUN_FILES = ("settings.json", "history.jsonl", "checkpoint.npz", "model.npz", "result.json")

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 980px; margin: 2em auto; padding: 0 1em; color: #222; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 2em; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(400px, 1fr)); gap: 1em; }
figure { margin: 0; } svg { width: 100%; font-size: 11px; } svg .title { font-size: 13px; font-weight: 600; }
.axis { fill: none; stroke: #888; } .grid { stroke: #eee; } .line { fill: none; stroke-width: 1.6; }
table { border-collapse: collapse; } td, th { text-align: left; padding: 2px 1.2em 2px 0; vertical-align: top; }
td { overflow-wrap: anywhere; } .note { color: #666; }
"""


def write_report(run: Path, out: Path | None = None) -> Path:
    """Write the page of a run, by default into the run's folder, and return the file. InputError if there is no run.

    An older file of this name is replaced, but no file of the run.
    """
    target = run / "report.html" if out is None else out
    page = make_page(run.resolve().name, *read_run(run))
    refuse_inputs(target, [run / name for name in RUN_FILES])
    write_atomically(target, page.encode())
    return target


def read_run(run: Path) -> tuple[dict[str, Any], History, dict[str, Any] | None]:
    """Return the settings, the lines of the history, one a step, and the result, or None if the run has not ended."""
    if not (run / "settings.json").is_file():
        raise InputError(f"{run}: this is not the folder of a run (settings.json is missing)")
    settings = _read(run / "settings.json", json.loads)
    history = _read(run / "history.jsonl", lambda text: [json.loads(line) for line in text.splitlines()])
    result = _read(run / "result.json", json.loads) if (run / "result.json").exists() else None
    return settings, history, result


def _read(file: Path, parse: Callable[[str], Any]) -> Any:
    """Return the parsed file; InputError if it is missing or damaged."""
    try:
        return parse(file.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: missing or damaged ({error})") from error


def make_page(name: str, settings: dict[str, Any], history: History, result: dict[str, Any] | None) -> str:
    """Return the page as HTML."""
    drawn = [*draw_charts(history), *draw_reliability(result)]
    charts = "\n".join(f"<figure>{chart}</figure>" for chart in drawn)
    facts = describe_result(result) if result else [("status", "the run has not ended; this is its progress so far")]
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{escape(name)}</title><style>{STYLE}</style>\n'
        f"<h1>{escape(name)}</h1>\n{_make_table(facts)}\n"
        f'<h2>Progress</h2>\n<div class="charts">{charts}</div>\n'
        f"<h2>Settings</h2>\n{_make_table(settings.items())}\n"
        f'<p class="note">streamsvm {__version__}</p></html>\n'
    )


def draw_charts(history: History) -> list[str]:
    """Return SVG charts. Those of the gap are left out if the solver proves none."""
    passes, seconds = _column(history, "passes"), _column(history, "seconds")
    objective, bound, gap = (_column(history, name) for name in ("objective", "lower_bound", "relative_gap"))
    mb_read = [value / 1e6 for value in _column(history, "read_bytes")]
    memory = [value / 1e6 for value in _column(history, "memory_bytes")]
    charts = []
    if any(line.get("relative_gap") is not None for line in history):
        for unit, values in (("passes", passes), ("seconds", seconds)):
            charts.append(
                draw_chart(f"Gap against {unit}", unit, "relative gap", [Series("gap", values, gap)], log=True)
            )
        bounds = [Series("objective", passes, objective), Series("lower bound", passes, bound, dashed=True)]
        charts.append(draw_chart("Objective and lower bound", "passes", "P and D", bounds, log=True))
    else:
        charts.append(draw_chart("Objective (estimated)", "seconds", "P", [Series("P", seconds, objective)], log=True))
    charts.append(draw_chart("Read from storage", "seconds", "MB", [Series("read", seconds, mb_read)]))
    charts.append(draw_chart("Resident memory of this process", "seconds", "MB", [Series("memory", seconds, memory)]))
    return charts


def draw_reliability(result: dict[str, Any] | None) -> list[str]:
    """Return the chart of the reliability curve of rows that were held out, if the model has probabilities."""
    known = (result or {}).get("calibration")
    if not known:
        return []
    predicted, true = ([part[name] for part in known["reliability"]] for name in ("predicted", "true"))
    lines = [Series(known["method"], predicted, true), Series("true ones", [0.0, 1.0], [0.0, 1.0], dashed=True)]
    return [draw_chart("Reliability of the probabilities (held-out rows)", "predicted", "share that is true", lines)]


def _column(history: History, name: str) -> list[float]:
    """Return a figure of all steps, NaN where a step has none."""
    return [float("nan") if line.get(name) is None else float(line[name]) for line in history]


def describe_result(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the outcome of a run as lines of a table."""
    gap, support = result["relative_gap"], result["n_support_vectors"]
    seconds = max(result["seconds"], 1e-9)
    facts = [
        ("status", result["status"]),
        ("solver", result["solver"]),
        ("rows, features", f"{result['n_rows']:,} x {result['n_features']:,}"),
        ("objective", f"{result['objective']:.8g}"),
        ("lower bound", "none: nothing is proved" if gap is None else f"{result['lower_bound']:.8g}"),
        ("relative gap", "-" if gap is None else f"{gap:.2e}"),
        ("passes, steps", f"{result['passes']:,}, {result['steps']:,}"),
        ("time", f"{result['seconds']:.1f} s; {result['passes'] * result['n_rows'] / seconds:,.0f} rows a second"),
        ("read", f"{format_bytes(result['read_bytes'])}, {result['read_bytes'] / 1e6 / seconds:,.0f} MB/s"),
        ("peak memory", format_bytes(result["peak_memory_bytes"])),
        ("projected memory", format_bytes(result["projected_memory_bytes"])),
    ]
    if known := result.get("calibration"):
        told = f"{known['method']}: Brier score {known['brier_score']:.4f}, log loss {known['log_loss']:.4f}"
        facts.append(("probabilities of held-out rows", told))
    if support is not None:
        facts.append(("support vectors", f"{support:,}"))
    return [*facts, ("model, SHA-256", result["model_sha256"])]


def _make_table(facts: Iterable[tuple[str, Any]]) -> str:
    """Return an HTML table with a line for each fact."""

    def show(value: Any) -> str:
        return escape(value if isinstance(value, str) else json.dumps(value))

    lines = (f"<tr><th>{escape(name)}</th><td>{show(value)}</td></tr>" for name, value in facts)
    return f"<table>{''.join(lines)}</table>"
