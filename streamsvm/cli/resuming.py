"""What a command says if `--resume` finds nothing to go on from: it begins anew, as documented, but not silently."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from streamsvm.urls import is_remote

CHECKPOINTS = {"train": "checkpoint.npz", "tune": "grid/*/checkpoint.npz"}  # within the folder of the run


def tell_if_nothing_is_kept(options: argparse.Namespace) -> None:
    """Print a line that names the place without a checkpoint, if `--resume` was given and there is none."""
    if options.resume and (missing := _describe_missing(options)):
        print(f"streamsvm {options.command}: --resume: {missing}; all begins anew", file=sys.stderr)


def _describe_missing(options: argparse.Namespace) -> str:
    """Return where there is no checkpoint, as a sentence, or an empty text if there is one."""
    if options.command == "features":
        from streamsvm.training.feature_checkpoint import name_checkpoint

        kept = name_checkpoint(options.destination)
        return "" if kept.exists() else f"there are no results of finished passes in {kept}"
    if is_remote(options.out):
        from streamsvm.data.remote_folder import RemoteFolder

        there = RemoteFolder(options.out).list_names()
        return "" if "checkpoint.npz" in there else f"there is no checkpoint in {options.out}"
    out: Path = options.out
    if any(out.glob(CHECKPOINTS[options.command])):
        return ""
    return f"there is no checkpoint in {out}" if out.exists() else f"there is no folder {out}"
