"""Reading of finished runs for a comparison, and checks that they are comparable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from probekit.activations.writing.request import data_digest
from probekit.adaptation.options import Regime
from probekit.adaptation.pretraining.options import PRETRAIN
from probekit.adaptation.runs.folder import read_card
from probekit.adaptation.runs.run import Run
from probekit.adaptation.training.multi_task import predictions_name
from probekit.errors import DataError, UsageError
from probekit.statistics.predictions import Predictions

REGIMES = {Regime.FINE_TUNE: "fine-tuning", Regime.FEATURE_EXTRACTION: "feature extraction"}
RUNS = ("teacher", "pseudo_labels", "signals")
"""What a card says of other runs that a run learns from, which may be others for each seed; signals: their digests."""
SEEDS = ("seed", "splits", *RUNS)  # runs of one setting may differ in these; their digests identify the data
WEIGHTS = ("weights_digest", "tokenizer_digest", "random_weights")


class FinishedRun(NamedTuple):
    """A finished run: its folder and its card."""

    path: Path
    card: dict[str, Any]


def read_run(run: str | Path | Run) -> FinishedRun:
    """Read the card of a run; UsageError if the run is not finished."""
    folder = Path(run.path or "") if isinstance(run, Run) else Path(run)
    card = read_card(folder)
    if card["regime"] == PRETRAIN:
        raise UsageError(f"{folder} is a language model from probekit pretrain, which has no task; leave it out.")
    if not card["complete"]:
        why = f": {card['failed']}" if "failed" in card else "; its command resumes it"
        raise UsageError(f"{folder} is not finished{why}. Leave it out, or finish it ({card['command']}).")
    return FinishedRun(folder, card)


def check_together(*sides: Sequence[FinishedRun]) -> None:
    """Raise UsageError if runs were trained on different data, or runs of one side differ in more than the seed."""
    first, *others = [run for side in sides for run in side]
    for run in others:
        _same_data(first, run)
    for side in filter(None, sides):
        _check_seeds(side)


def _check_seeds(runs: Sequence[FinishedRun]) -> None:
    """Raise UsageError if runs of one regime differ in more than the seed, or have the same seed."""
    one, seen = runs[0], set()
    for run in runs:
        mine, its = one.card["identity"], run.card["identity"]
        if different := [k for k in mine if k in its and k not in SEEDS and mine[k] != its[k]]:
            k = different[0]
            raise UsageError(
                f"{one.path} and {run.path} are both {REGIMES[Regime(run.card['regime'])]} on {run.card['task']}, but "
                f"differ in more than the seed: {k} is {mine[k]!r} and {its[k]!r}. Give the runs of one setting: to "
                "choose the better one on the examples that then evaluate it would bias the comparison."
            )
        if its["seed"] in seen:
            raise UsageError(f"{run.path} is given twice, or repeats the seed {its['seed']}; give one run per seed.")
        seen.add(its["seed"])


def _same_data(one: FinishedRun, other: FinishedRun) -> None:
    """Raise UsageError if two runs were trained on, or selected on, different examples."""
    if one.card["task"] != other.card["task"]:
        raise UsageError(f"{one.path} was trained on {one.card['task']}, {other.path} on {other.card['task']}.")
    for i, (mine, its) in enumerate(zip(_digests(one), _digests(other), strict=True)):
        if mine != its:
            splits, sizes = ([run.card[key][i] for run in (one, other)] for key in ("splits", "examples"))
            raise UsageError(
                f"{one.path} and {other.path} have different data: {splits[0]} with {sizes[0]:,} examples and "
                f"{splits[1]} with {sizes[1]:,}. Train both on the same examples (--limit, --train, --dev, the files)."
            )


def _digests(run: FinishedRun) -> list[str]:
    """The digests of train and dev, as in caches: of the examples with their label names."""
    digests = run.card["identity"]["data"]
    if run.card["regime"] == Regime.FEATURE_EXTRACTION:
        return list(digests)
    return [data_digest(digest, run.card["target"]["label_names"]) for digest in digests]


def check_weights(runs: Sequence[FinishedRun]) -> None:
    """Raise UsageError if two models have the same name."""
    one = runs[0]
    for run in runs[1:]:
        for key in WEIGHTS:
            if (mine := one.card["encoder"].get(key)) != (its := run.card["encoder"].get(key)):
                raise UsageError(
                    f"{one.path} and {run.path} use two models with the same name, {run.card['model']}: {key} is "
                    f"{mine!r} and {its!r}. Train one of them with another --model-name."
                )


def common_split(runs: Sequence[FinishedRun], split: str | None) -> str:
    """The split to compare on: the requested one, or the last on which all runs were evaluated."""
    evaluated = [run.card["splits"][1:] for run in runs]
    both = [name for name in evaluated[0] if all(name in others for others in evaluated)]
    if not both or (split is not None and split not in both):
        found = "; ".join(f"{run.path} on {', '.join(names)}" for run, names in zip(runs, evaluated, strict=True))
        raise UsageError(f"the runs were not all evaluated on {split or 'the same split'}: {found}.")
    return split or str(both[-1])


def predictions_on(run: FinishedRun, split: str) -> Predictions:
    """The predictions of a run for each example of a split; DataError if their file is missing."""
    file = run.path / predictions_name(run.card, split)
    if not file.is_file():
        raise DataError(
            "does not exist. A finished run has it, unless an early version of probekit trained it or it is a "
            f"checkpoint of a run. Train it again with --overwrite ({run.card['command']}).",
            file=file,
        )
    return Predictions.read(file)
