"""Settings of training runs: runs that differ in nothing but their seed, with a short name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from probekit.adaptation.methods.options import Method
from probekit.adaptation.options import Hyperparameters, Regime, regime_defaults
from probekit.adaptation.runs.folder import read_card
from probekit.adaptation.runs.run import Run
from probekit.adaptation.runs.seeds import members
from probekit.analyses.finished_runs import REGIMES, RUNS, FinishedRun, read_run
from probekit.errors import UsageError

METHODS = (
    "method", "keep_layers", "reinit_top", "attention", "order", "unfreezing", "layer_factor", "mixout", "penalty",
    "teacher", "lm_loss", "consistency", "pseudo_labels", "mix", "also", "slice_heads",
)  # fmt: skip
"""The options that name a setting without a variant."""
NOT_COMPARED = ("seed", "regime", "preset")


class Group(NamedTuple):
    """What the compared runs have in common: the task, the model, and the number of training examples."""

    task: str
    model: str
    examples: int


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """The runs of one setting on one task, model and number of training examples.

    Attributes
    ----------
    name : str
        The variant, or the options that differ from the default, such as "lora" or "penalty l2-sp".
    runs, diverged : tuple[FinishedRun, ...]
        Finished runs, and those whose loss was not finite.
    full : bool
        Whether it is fine-tuning of all weights, without any option that names a setting.
    """

    name: str
    runs: tuple[FinishedRun, ...]
    diverged: tuple[FinishedRun, ...]
    full: bool


def read_runs(runs: Iterable[str | Path | Run]) -> list[FinishedRun]:
    """Read the cards of runs; a folder of several seeds counts as its runs, with those that diverged.

    Raises UsageError if a run is not finished.
    """
    found = []
    for run in runs:
        folder = Path(run.path or "") if isinstance(run, Run) else Path(run)
        for one in members(run):
            card = {} if one == folder else read_card(one)
            found.append(FinishedRun(one, card) if "failed" in card else read_run(one))
    return found


def settings(runs: Sequence[FinishedRun]) -> dict[Group, list[Setting]]:
    """The settings of runs by task, model and number of training examples, in their order.

    Raises
    ------
    UsageError
        If no run of a setting is finished.
    """
    groups: dict[Group, dict[str, list[FinishedRun]]] = {}
    for name, run in zip(_names(runs), runs, strict=True):
        group = Group(run.card["task"], run.card["model"], int(run.card["examples"][0]))
        groups.setdefault(group, {}).setdefault(name, []).append(run)
    return {group: [_setting(name, several) for name, several in by_name.items()] for group, by_name in groups.items()}


def _setting(name: str, runs: Sequence[FinishedRun]) -> Setting:
    finished = tuple(run for run in runs if run.card["complete"])
    if not finished:
        raise UsageError(f"every run of {name} diverged ({runs[0].path}); leave it out.")
    diverged = tuple(run for run in runs if not run.card["complete"])
    full = runs[0].card["regime"] == Regime.FINE_TUNE and not _words(_changed(runs[0]))
    return Setting(name, finished, diverged, full)


def _names(runs: Sequence[FinishedRun]) -> list[str]:
    """A name for the setting of each run; further options follow it where runs of one task differ in them."""
    of_variant: dict[str, set[str]] = {}
    for run in runs:
        of_variant.setdefault(run.card.get("variant", ""), set()).add(run.card["regime"])
    names = [_name(run, of_variant) for run in runs]
    together: dict[tuple[Any, ...], list[tuple[int, dict[str, Any]]]] = {}
    for name, run in zip(names, runs, strict=True):
        key = (name, run.card["task"], run.card["model"], run.card["examples"][0])
        together.setdefault(key, []).append((run.card["identity"]["seed"], _all(run)))
    different: dict[str, dict[str, None]] = {}
    for (name, *_), several in together.items():
        different.setdefault(name, {}).update(_differing(several))
    return [
        ", ".join([name, *(_word(k, _all(run).get(k)) for k in different[name])])
        for name, run in zip(names, runs, strict=True)
    ]


def _differing(runs: Sequence[tuple[int, dict[str, Any]]]) -> dict[str, None]:
    """The options in which runs, given with their seeds, differ.

    A teacher of its own for each seed is part of the setting, as with a study's ``teacher``.
    """
    keys = {k: None for _, one in runs for k in one}
    seeds = {seed for seed, _ in runs}

    def apart(key: str) -> bool:
        of_seeds = {(seed, one.get(key)) for seed, one in runs} if key in RUNS else set()
        return len(of_seeds) != len(seeds) and any(one.get(key) != runs[0][1].get(key) for _, one in runs)

    return {k: None for k in keys if apart(k)}


def _name(run: FinishedRun, of_variant: Mapping[str, set[str]]) -> str:
    variant, regime = run.card.get("variant", ""), Regime(run.card["regime"])
    if variant:
        return f"{variant}, {REGIMES[regime]}" if len(of_variant[variant]) > 1 else variant
    words = _words(_changed(run))
    if regime is Regime.FEATURE_EXTRACTION or not words:
        words = [REGIMES[regime], *words]
    return ", ".join(words)


def _words(changed: Mapping[str, Any]) -> list[str]:
    return [k.replace("_", "-") if k in RUNS else _word(k, changed[k]) for k in METHODS if k in changed]


def _word(key: str, value: Any) -> str:
    """An option in a name: "lora", "penalty l2-sp", "epochs 4"."""
    name = key.replace("_", " ")
    if isinstance(value, bool):
        return name if value else f"no {name}"
    if isinstance(value, str) and "/" in value:
        value = Path(value).name
    return str(value) if key == "method" else f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"


def _all(run: FinishedRun) -> dict[str, Any]:
    """The hyperparameters of a run; defaults for those that an older run lacks."""
    identity = run.card["identity"]
    return {k: identity.get(k, default) for k, default in _defaults(run).items()}


def _changed(run: FinishedRun) -> dict[str, Any]:
    """The hyperparameters of a run that differ from their defaults."""
    defaults = _defaults(run)
    return {k: v for k, v in _all(run).items() if v != defaults[k]}


def _defaults(run: FinishedRun) -> dict[str, Any]:
    identity = run.card["identity"]
    of_regime = regime_defaults(
        Regime(run.card["regime"]), identity.get("head", "auto"), Method(identity.get("method", Method.FULL))
    )
    every = {f.name: f.default for f in fields(Hyperparameters)} | of_regime
    return {k: default for k, default in every.items() if k not in NOT_COMPARED}
