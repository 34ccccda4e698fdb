"""Finished runs that are held against each other: read, and refused where they do not belong together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from probekit.activations.writing.request import data_digest
from probekit.adaptation.options import Regime
from probekit.adaptation.runs.folder import read_card
from probekit.adaptation.runs.run import Run
from probekit.errors import DataError, UsageError
from probekit.files import slug
from probekit.statistics.predictions import Predictions

__all__ = ["REGIMES", "FinishedRun", "check_together", "check_weights", "common_split", "predictions_on", "read_run"]

REGIMES = {Regime.FINE_TUNE: "fine-tuning", Regime.FEATURE_EXTRACTION: "feature extraction"}
SEEDS = ("seed", "splits")  # what runs of one setting may differ in; what they learned from is in their digests
WEIGHTS = ("weights_digest", "tokenizer_digest", "random_weights")


class FinishedRun(NamedTuple):
    """A finished run: its folder and its card."""

    path: Path
    card: dict[str, Any]


def read_run(run: str | Path | Run) -> FinishedRun:
    """A run by its folder; UsageError where it is not finished."""
    folder = Path(run.path or "") if isinstance(run, Run) else Path(run)
    card = read_card(folder)
    if not card["complete"]:
        why = f": {card['failed']}" if "failed" in card else ", and its command goes on with it"
        raise UsageError(f"{folder} is not finished{why}. Leave it out, or finish it ({card['command']}).")
    return FinishedRun(folder, card)


def check_together(*sides: Sequence[FinishedRun]) -> None:
    """Raise UsageError where runs learned from other data, or those of one side differ in more than their seed."""
    first, *others = [run for side in sides for run in side]
    for run in others:
        _same_data(first, run)
    for side in filter(None, sides):
        _seeds_alone(side)


def _seeds_alone(runs: Sequence[FinishedRun]) -> None:
    """Raise UsageError where runs of one regime differ in anything but their seed, or not even in that."""
    one, seen = runs[0], set()
    for run in runs:
        mine, its = one.card["identity"], run.card["identity"]
        if different := [k for k in mine if k in its and k not in SEEDS and mine[k] != its[k]]:
            k = different[0]
            raise UsageError(
                f"{one.path} and {run.path} are both {REGIMES[Regime(run.card['regime'])]} of {run.card['task']}, and "
                f"differ in more than the seed: {k} is {mine[k]!r} and {its[k]!r}. Give the runs of one setting: "
                "choosing the better one here, by the examples it is then judged by, would flatter it."
            )
        if its["seed"] in seen:
            raise UsageError(f"{run.path} is given twice, or is a run again with the seed {its['seed']}; give it once.")
        seen.add(its["seed"])


def _same_data(one: FinishedRun, other: FinishedRun) -> None:
    """Raise UsageError where two runs learned from, or were kept by, other examples."""
    if one.card["task"] != other.card["task"]:
        raise UsageError(f"{one.path} learned {one.card['task']}, {other.path} {other.card['task']}.")
    for i, (mine, its) in enumerate(zip(_digests(one), _digests(other), strict=True)):
        if mine != its:
            splits, sizes = ([run.card[key][i] for run in (one, other)] for key in ("splits", "examples"))
            raise UsageError(
                f"{one.path} and {other.path} do not have the same data: {splits[0]} of {sizes[0]:,} examples and "
                f"{splits[1]} of {sizes[1]:,}. Train both on the same examples (--limit, --train, --dev, the files)."
            )


def _digests(run: FinishedRun) -> list[str]:
    """Of train and dev, as caches have them: the digest of the examples with the names of their labels."""
    told = run.card["identity"]["data"]
    if run.card["regime"] == Regime.FEATURE_EXTRACTION:
        return list(told)
    return [data_digest(one, run.card["target"]["label_names"]) for one in told]


def check_weights(runs: Sequence[FinishedRun]) -> None:
    """Raise UsageError where two models go by one name."""
    one = runs[0]
    for run in runs[1:]:
        for key in WEIGHTS:
            if (mine := one.card["encoder"].get(key)) != (its := run.card["encoder"].get(key)):
                raise UsageError(
                    f"{one.path} and {run.path} are of two models by the name of {run.card['model']}: {key} is "
                    f"{mine!r} and {its!r}. Train one of them with another --model-name."
                )


def common_split(runs: Sequence[FinishedRun], split: str | None) -> str:
    """The split to judge by: the one wanted, or the last that all runs have evaluated."""
    evaluated = [run.card["splits"][1:] for run in runs]
    both = [name for name in evaluated[0] if all(name in others for others in evaluated)]
    if not both or (split is not None and split not in both):
        told = "; ".join(f"{run.path} on {', '.join(names)}" for run, names in zip(runs, evaluated, strict=True))
        raise UsageError(f"the runs were not all evaluated on {split or 'one split'}: {told}.")
    return split or str(both[-1])


def predictions_on(run: FinishedRun, split: str) -> Predictions:
    """What a run said of each example of a split; DataError where that is not there."""
    file = run.path / f"{slug(split)}.examples.parquet"
    if not file.is_file():
        raise DataError(
            "is wanted and not there: a finished run has it, unless it was trained before there was such a file, or is "
            f"a checkpoint of a run. Train it again with --overwrite ({run.card['command']}).",
            file=file,
        )
    return Predictions.read(file)
