"""How datasets, results and models show themselves: in one line, and in notebooks as a small table."""

from __future__ import annotations

from html import escape


class Shown:
    """An object that tells some facts of itself. Its classes list them; values that are None are left out."""

    def _list_facts(self) -> dict[str, str | None]:
        """Return the facts by name; the first one is what the object is known by."""
        raise NotImplementedError

    def __repr__(self) -> str:
        facts = {name: value for name, value in self._list_facts().items() if value is not None}
        first, *others = facts
        return f"{type(self).__name__}({', '.join([facts[first], *(f'{name}: {facts[name]}' for name in others)])})"

    def _repr_html_(self) -> str:
        """Return a table, which Jupyter shows."""
        facts = {name: value for name, value in self._list_facts().items() if value is not None}
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items())
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


def tell_certificate(objective: float, lower_bound: float | None) -> dict[str, str | None]:
    """Return the facts that prove how good a model is."""
    if lower_bound is None:
        return {"objective": f"{objective:.6g}", "gap": "nothing proved"}
    gap = (objective - lower_bound) / objective if objective > 0 else 0.0
    return {"objective": f"{objective:.6g}", "lower bound": f"{lower_bound:.6g}", "gap": f"{gap:.2e}"}
