"""Bars that lie, as SVG text: one for each name, to the right of zero or to the left."""

from __future__ import annotations

from collections.abc import Sequence

from streamsvm.cli.pages.chart import MOST_TITLE_LETTERS, WIDTH, write_short, write_text

LINE, TOP, NAMES, NUMBERS = 22, 34, 170, 100  # heights and widths, in the units of the picture
MOST_LETTERS = 24  # of a name beside its bar; the tooltip tells all of it


def draw_bars(title: str, bars: Sequence[tuple[str, float, str]]) -> str:
    """Return an SVG element with a bar for each name, its length, and a text that tells the length."""
    height = TOP + LINE * max(1, len(bars)) + 6
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{write_text(title)}">',
        f'<text class="title" x="4" y="18">{write_short(title, MOST_TITLE_LETTERS)}</text>',
    ]
    if not bars:
        return "".join([*parts, f'<text x="4" y="{TOP + 12}">nothing to show</text></svg>'])
    low, high = min(0.0, *(length for _, length, _ in bars)), max(0.0, *(length for _, length, _ in bars))
    unit = (WIDTH - NAMES - NUMBERS) / ((high - low) or 1.0)
    zero = NAMES - low * unit
    for k, (name, length, told) in enumerate(bars):
        y, width = TOP + LINE * k, abs(length) * unit
        left = zero if length >= 0 else zero - width
        short = name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 3]}..."
        parts.append(
            f"<g><title>{write_text(f'{name}: {told}')}</title>"
            f'<text x="{NAMES - 8}" y="{y + 14}" text-anchor="end">{write_text(short)}</text>'
            f'<rect class="{"c0" if length >= 0 else "c1"}" x="{left:.1f}" y="{y + 3}" width="{max(width, 0.5):.1f}" '
            f'height="{LINE - 7}"/>'
            f'<text x="{WIDTH - NUMBERS + 8}" y="{y + 14}">{write_text(told)}</text></g>'
        )
    parts.append(f'<path class="axis" d="M{zero:.1f} {TOP}V{height - 6}"/></svg>')
    return "".join(parts)
