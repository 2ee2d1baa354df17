"""The representation of datasets, results and models: one line of text, and a small table in notebooks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 200, 40  # the size of a sparkline, in pixels


class Shown:
    """An object whose representation lists some facts. Subclasses provide the facts; None values are left out."""

    def _list_facts(self) -> dict[str, str | None]:
        """Return the facts by name; the first one identifies the object."""
        raise NotImplementedError

    def __repr__(self) -> str:
        facts = {name: value for name, value in self._list_facts().items() if value is not None}
        first, *others = facts
        return f"{type(self).__name__}({', '.join([facts[first], *(f'{name}: {facts[name]}' for name in others)])})"

    def _repr_html_(self) -> str:
        """Return a table for Jupyter."""
        facts = {name: value for name, value in self._list_facts().items() if value is not None}
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items())
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>{self._draw()}"

    def _draw(self) -> str:
        """Return a drawing to show below the table, as SVG made of numbers only; "" for none."""
        return ""


def draw_gaps(gaps: Sequence[float]) -> str:
    """Return a small curve of gaps on a logarithmic axis, one point per step, as SVG; "" for fewer than two."""
    heights = [math.log10(gap) for gap in gaps if 0 < gap < math.inf]
    if len(heights) < 2:
        return ""
    low, high = min(heights), max(heights)
    scale = (HEIGHT - 4) / (high - low) if high > low else 0.0
    xs = [2 + k * (WIDTH - 4) / (len(heights) - 1) for k in range(len(heights))]
    points = " ".join(f"{x:.1f},{2 + (high - y) * scale:.1f}" for x, y in zip(xs, heights, strict=True))
    title = f"gap from 1e{heights[0]:.1f} to 1e{heights[-1]:.1f} in {len(heights)} steps"
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{title}"><title>{title}</title>'
        f'<polyline points="{points}" fill="none" stroke="currentColor"/></svg>'
    )


def describe_certificate(objective: float, lower_bound: float | None) -> dict[str, str | None]:
    """Return the facts of the certificate of a model."""
    if lower_bound is None:
        return {"objective": f"{objective:.6g}", "gap": "nothing proved"}
    gap = (objective - lower_bound) / objective if objective > 0 else 0.0
    return {"objective": f"{objective:.6g}", "lower bound": f"{lower_bound:.6g}", "gap": f"{gap:.2e}"}
