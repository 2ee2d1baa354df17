"""Checks of a folder before a run or a grid is written there: what it holds, and with which settings that was begun."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from streamsvm.errors import InputError
from streamsvm.files import is_partial
from streamsvm.numeric.arithmetic import Arithmetic

LOCK = ".lock"
FOLDS = "folds"
SET_BY = {  # the options behind settings of other names
    "class_costs": "--C and --class-weight",
    "class_weights": "--class-weight",
    "pair_cost": "--C",
    "kernel": "--kernel, --gamma, --degree and --coef0",
    "bias_feature": "--option intercept_scaling",
    "accelerated": "--option acceleration",
    "free_bias": "--option bias",
    "pack_rows": "--option pack",
    "resident_rows": "--resident-rows or --memory",
    "precise_rows": "--resident-rows or --memory",
    "working_rows": "--option working_rows, --resident-rows or --memory",
    "cache_bytes": "--option cache_bytes or --memory",
    "start_from": "--start-from",
    "updates": "--start-from",
    "fingerprint": "the data: these are other rows, or other labels",
}
WRITTEN_IF_ASKED = {
    "keep_dual",
    "axes",
    "forward",
    "start_from",
    "updates",
}  # settings that are written only for runs that asked for them
# A run that ended before its first checkpoint leaves these files only. An estimator keeps features.zarr there.
MAY_BE_THERE = {"settings.json", "history.jsonl", "report.html", "features.zarr", "map.npz", FOLDS, LOCK}


def check_place(folder: Path) -> None:
    """Raise InputError if there is a file or a dataset in the place of the folder."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file, a folder is needed")
    if (folder / "zarr.json").exists():
        raise InputError(f"{folder}: is a dataset; choose another folder for the run")


def compare_settings(folder: Path, settings: dict[str, Any], gamma_is_known: bool = True) -> None:
    """Raise InputError if the run in a folder was begun with other settings.

    The path of the data is not compared, since they may be moved: their fingerprint says whether they are the same.
    """
    path = folder / "settings.json"
    try:
        known = dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path}: missing or damaged ({error})") from error
    new = {name: settings.get(name) for name in (*settings, *(WRITTEN_IF_ASKED & known.keys())) if name != "data"}
    if not gamma_is_known:
        known, new = _drop_gamma(known), _drop_gamma(new)
    differing = [name for name in new if known.get(name) != new[name]]
    if differing:
        listed = ", ".join(
            f"{name} was {known.get(name)!r}, now {new[name]!r}{_say_option(name)}" for name in differing
        )
        raise InputError(f"{folder}: cannot be resumed with other settings: {listed}")


def read_arithmetic(folder: Path) -> list[Arithmetic]:
    """Return the kinds of arithmetic with which the run in a folder was computed; none of older versions."""
    known: Any = json.loads((folder / "settings.json").read_text()).get("arithmetic", [])
    right = isinstance(known, list) and all(isinstance(one, dict) for one in known)
    return known if right else []


def _say_option(name: str) -> str:
    """Return what a setting is set by, if its name does not tell it."""
    return f" (set by {SET_BY[name]})" if name in SET_BY else ""


def _drop_gamma(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings without the gamma of the kernel."""
    kernel = settings.get("kernel")
    if not isinstance(kernel, dict):
        return settings
    return {**settings, "kernel": {name: value for name, value in kernel.items() if name != "gamma"}}


def remove_if_empty(folder: Path, is_new: bool) -> None:
    """Remove a folder if this process made it (`is_new`) and it is empty, because nothing could be written to it."""
    if is_new and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def check_empty(folder: Path, besides: Collection[str] = ()) -> None:
    """Raise InputError unless a folder is empty, or holds a run that ended before its first checkpoint.

    Entries whose names are in `besides` may be there as well.
    """
    names = {entry.name for entry in folder.iterdir() if not is_partial(entry.name)} if folder.exists() else set()
    if left := sorted(names & {"model.npz", "result.json"}):
        raise InputError(
            f"{folder}: a run has ended there ({left[0]}), and its checkpoint.npz is missing; choose another --out, or "
            "replace the run by --overwrite"
        )
    foreign = sorted(names - MAY_BE_THERE - set(besides))
    if "settings.json" in names and not is_of_a_run(folder / "settings.json"):
        foreign = ["settings.json", *foreign]
    if foreign:
        raise InputError(
            f"{folder}: is not empty, and what is there is no run ({foreign[0]}); choose another --out, or write a run "
            "into that folder by --overwrite"
        )


def is_of_a_run(path: Path) -> bool:
    """Tell whether a file holds the settings of a run. Editors, too, call their files settings.json."""
    try:
        settings = json.loads(path.read_bytes())
        return isinstance(settings, dict) and "fingerprint" in settings
    except (OSError, ValueError):
        return False
