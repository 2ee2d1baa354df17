"""What is told of the gaps of many problems that were solved side by side: one of each class, or of each label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamsvm.errors import say_count

MOST_NAMED = 20  # labels that a text names


def name_problems(problems: Sequence[dict[str, Any]], classes: Any) -> list[dict[str, Any]]:
    """Return the certificates with the label of each problem, if there is one for each class or label."""
    if classes is None or len(problems) != len(classes):
        return list(problems)
    return [{"label": label, **one} for label, one in zip(classes.tolist(), problems, strict=True)]


def sum_up_gaps(problems: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the mean and the worst gap, the worst one's label, and the labels that are not proved; None if unknown."""
    gaps = [one["relative_gap"] for one in problems]
    if len(gaps) < 2 or None in gaps or "label" not in problems[0]:
        return None
    worst = max(range(len(gaps)), key=gaps.__getitem__)
    return {
        "mean": sum(gaps) / len(gaps),
        "worst": gaps[worst],
        "worst_label": problems[worst]["label"],
        "unproved": [one["label"] for one in problems if one["status"] != "converged"],
    }


def tell_gaps(problems: Sequence[dict[str, Any]]) -> str:
    """Return a line about the gaps of many problems; an empty text for a single one."""
    gaps = sum_up_gaps(problems)
    if gaps is None:
        return ""
    left = gaps["unproved"]
    proved = f"{len(problems) - len(left)} of {say_count(len(problems), 'label')} are proved"
    named = ", ".join(map(str, left[:MOST_NAMED])) + (f" and {len(left) - MOST_NAMED} more" * (len(left) > MOST_NAMED))
    unproved = f"; not proved: {named}" if left else ""
    worst = f"the worst {gaps['worst']:.2e} (label {gaps['worst_label']})"
    return f"{proved}; the mean gap is {gaps['mean']:.2e}, {worst}{unproved}\n"
