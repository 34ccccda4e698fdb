"""``probekit average``: one run from the mean of the weights of several: model soups and averaged checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from probekit.adaptation.data.validation import VALIDATION, set_apart, validation_share
from probekit.adaptation.options import AverageOptions, Regime, TrainOptions
from probekit.adaptation.runs.constant import constant_rows
from probekit.adaptation.runs.digests import check_weights
from probekit.adaptation.runs.evaluation import predict_run
from probekit.adaptation.runs.folder import HEAD, ROWS, WEIGHTS, locked_run, read_card, save_averaged, write_card
from probekit.adaptation.runs.predictions import Evaluation
from probekit.adaptation.runs.rows import columns_of, evaluation_rows
from probekit.adaptation.runs.run import Run, open_run
from probekit.adaptation.runs.seeds import members
from probekit.adaptation.training.multi_task import card_for, further_tasks, predictions_name
from probekit.constraint import File, RunOut
from probekit.errors import UsageError
from probekit.files import digest_of_content, draft
from probekit.metrics import metric
from probekit.models.identity import CARD
from probekit.public import public
from probekit.recipe import Read, Recipe, current
from probekit.rows import make_rows, write_rows
from probekit.rows.card import environment, make_card
from probekit.runtime import Progress, no_progress, resolve_device
from probekit.tasks import load_task
from probekit.tasks.context import in_context
from probekit.tasks.task import Task

SAME = ("model", "task", "regime", "target", "head", "layers", "prefix", "source", "also")
"""Entries in which the cards of averaged runs agree."""


@public(options=AverageOptions)
def average(*runs: File | Run, out: RunOut, options: AverageOptions, progress: Progress = no_progress) -> Run:
    """Average the weights of fine-tuned runs or checkpoints into one run, and evaluate it on dev.

    Runs of several seeds or settings give a model soup (Wortsman et al. 2022), checkpoints of one run stochastic weight
    averaging (Izmailov et al. 2018). ``out`` becomes a run that every command reads as a model. Heads of different
    seeds start from different weights, and their mean may be worse than each of them: compare the metrics.

    Parameters
    ----------
    *runs : path or Run
        Two or more fine-tuned runs, or checkpoints (RUN/step-10), of the same model, task and head; a folder of several
        seeds counts as its runs.
    out : path
        Folder of the new run.
    options : AverageOptions
        ``greedy``, ``batch_size``, ``device``; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Run
        Its card names the averaged runs as ``averaged`` and those of the mean as ``kept``, whose last step is its
        ``step``. The rows have the metrics of the mean on each task of the runs, and of each run on dev of the first.

    Raises
    ------
    UsageError
        For fewer than two runs, runs that differ in more than seed or settings, frozen encoders, and if ``out`` holds
        something else.
    ModelError
        If a run is not finished or damaged.

    Examples
    --------
    >>> probekit.average("runs/rte", out="runs/rte-soup", greedy=True)  # doctest: +SKIP

    On the command line::

        probekit average runs/rte/step-200 runs/rte/step-300 runs/rte/step-400 --out runs/rte-swa
        probekit average runs/rte-seeds --greedy --out runs/rte-soup
    """
    folders = [folder for run in runs for folder in members(run)]
    cards = [read_card(folder) for folder in folders]
    _check(folders, cards)
    named = [{"run": str(f.resolve()), "digests": card["digests"]} for f, card in zip(folders, cards, strict=True)]
    identity = {"averaged": named, "greedy": options.greedy}
    place = Path(out)
    with locked_run(place):
        if (place / CARD).is_file() and (card := read_card(place))["identity"] == identity:
            if card["complete"]:
                return open_run(place)
            _remove_moved(place, card)
        if strange := [file.name for file in place.iterdir() if file.name != ".lock"]:
            raise UsageError(f"{place} holds {strange[0]}; give another --out.")
        return _average(folders, cards, identity, place, options, progress)


def _remove_moved(out: Path, card: Mapping[str, Any]) -> None:
    """Remove what a killed process had moved to the folder, of which its card says names and contents."""
    moved = card.get("moved")
    for name, content in moved.items() if isinstance(moved, Mapping) else ():
        file = out / Path(name).name
        if file.is_file() and not file.is_symlink() and digest_of_content(file) == content:
            file.unlink()
    (out / CARD).unlink()


def _check(folders: Sequence[Path], cards: Sequence[Mapping[str, Any]]) -> None:
    """Raise UsageError for runs whose weights cannot be averaged."""
    if len(folders) < 2:
        raise UsageError("an average needs two or more runs, or a folder of several seeds.")
    for folder, card in zip(folders, cards, strict=True):
        if card["regime"] != Regime.FINE_TUNE:
            raise UsageError(f"{folder} is a run of {card['regime']}; only fine-tuned runs are averaged.")
        if not card["complete"]:
            raise UsageError(f"{folder} is not finished; its command resumes it: {card['command']}")
        if not (folder / WEIGHTS).is_file():
            raise UsageError(
                f"{folder} has no weights of a whole encoder ({WEIGHTS}), so it cannot be averaged. Merge it with its "
                "base first (probekit merge), if its method allows it."
            )
        check_weights(folder, card)
        different = [key for key in SAME if card.get(key) != cards[0].get(key)]
        identities = card["identity"], cards[0]["identity"]
        different += [key for key in ("data", "also_data") if len({str(one.get(key)) for one in identities}) > 1]
        if different:
            raise UsageError(
                f"{folders[0]} and {folder} differ in {different[0]}; give runs of one model and head on the same data."
            )


def _average(
    folders: Sequence[Path], cards: Sequence[Mapping[str, Any]], identity: Mapping[str, Any], out: Path,
    options: AverageOptions, progress: Progress,
) -> Run:  # fmt: skip
    first, device = cards[0], resolve_device(options.device)
    card = _card(first, identity, out)
    task, *further = _data(first)
    name = str(first["target"]["metrics"][0])
    sign = metric(name).sign

    def evaluated(of: Task, split: str, place: Path) -> Evaluation:
        return predict_run(place, of, split, batch_size=options.batch_size, device=device)

    order = list(range(len(folders)))
    if options.greedy:
        order.sort(key=lambda i: -sign * cards[i]["metrics"][name])
    dev, *others = task.splits
    kept: list[int] = []
    total: State = {}
    best = -np.inf
    with draft(out) as new:
        for done, i in enumerate(order):
            progress("runs", done, len(order))
            candidate = _sum(total, _state(folders[i]))
            if options.greedy:
                save_averaged(new, _mean(candidate, len(kept) + 1), card, folders[0])
                value = sign * evaluated(task, dev, new).metrics[name]
                if value < best:
                    continue
                best = value
            total, kept = candidate, [*kept, i]
        mean = _mean(total, len(kept))
        save_averaged(new, mean, card, folders[0])
        results = {(of.name, split): evaluated(of, split, new) for of in (task, *further) for split in of.splits}
        card |= {"kept": [str(folders[i]) for i in kept], "step": max(cards[i]["step"] for i in kept)}
        card |= {"metrics": results[task.name, dev].metrics}
        card |= {"test": results[task.name, others[0]].metrics if others else None}
        _write(mean, card, results, cards, folders, new)
        *files, last = sorted(new.iterdir(), key=lambda f: f.name == CARD)
        write_card(out, {**card, "complete": False, "moved": {file.name: digest_of_content(file) for file in files}})
        for file in (*files, last):
            file.replace(out / file.name)
    return open_run(out)


State = dict[str, dict[str, torch.Tensor]]
"""The tensors of a run, by file and name."""


def _state(folder: Path) -> State:
    return {name: load_file(folder / name) for name in (WEIGHTS, HEAD)}


def _sum(total: State, state: State) -> State:
    """The sum in float64; of tensors of whole numbers those of the last run."""
    return {
        file: {
            name: one.double() + total[file][name] if total and one.is_floating_point() else _wide(one)
            for name, one in tensors.items()
        }
        for file, tensors in state.items()
    }


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _mean(total: State, count: int) -> State:
    """The mean in float32, the precision of runs."""
    return {
        file: {name: (one / count).float() if one.is_floating_point() else one for name, one in tensors.items()}
        for file, tensors in total.items()
    }


def _data(card: Mapping[str, Any]) -> list[Task]:
    """The tasks of a run with only the splits that it was evaluated on; a held-out part of train is held out again."""
    if not card.get("recipe") or not (card.get("source") or {}).get("task"):
        raise UsageError(f"{card['run']} was trained on a task defined in Python, which cannot be loaded again.")
    known = {f.name for f in fields(TrainOptions)}
    given = {k: v for k, v in card["recipe"]["arguments"].items() if k in known}
    options = TrainOptions(**given)
    task = load_task(card["source"]["task"], data_dir=card["source"]["data_dir"])
    share = validation_share(task, options.dev, options.validation)
    options = options if share is None else replace(options, validation=share, dev=VALIDATION)
    _, dev, _ = set_apart(in_context(task, options.context), options)
    parts = [set_apart(task, options)[1], *([task.split(options.test)] if options.test else [])]
    also = ",".join(one["source"]["task"] for one in card.get("also") or ())
    others = further_tasks(replace(options, also=also or None, data_dir=card["source"]["data_dir"]), task.name)
    digests = [card["identity"]["data"], *(card["identity"].get("also_data") or ())]
    found = [(task, dev, parts), *((one.task, one.dev, [one.dev, *filter(None, [one.test])]) for one in others)]
    for (of, used, _), digest in zip(found, digests, strict=True):
        if used.digest() != digest[1]:
            raise UsageError(f"the examples of {of.name} have changed since {card['run']} was trained on them.")
    return [replace(of, splits={part.name: part for part in some}) for of, _, some in found]


def _card(first: Mapping[str, Any], identity: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """The card of the average, without its metrics."""
    recipe = current() or Recipe.of("average", {"runs": [one["run"] for one in identity["averaged"]], "out": out})
    dropped = ("caches", "seconds", "total_steps", "diverged", "cost")
    return {
        **{key: value for key, value in first.items() if key not in dropped},
        "run": out.resolve().name, "complete": True, "variant": "average", "seeds": {"seed": None},
        "identity": dict(identity), "seconds": 0.0,
        "recipe": recipe.to_json(), "command": str(recipe), **environment(), "threads": torch.get_num_threads(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip


def _write(
    mean: State, card: dict[str, Any], results: Mapping[tuple[str, str], Evaluation],
    cards: Sequence[Mapping[str, Any]], folders: Sequence[Path], out: Path,
) -> None:  # fmt: skip
    """Write the folder of the average: weights, predictions, rows and card."""
    more = {"analysis": "average", "layer": None, "step": card["step"]}
    rows = list(_of_runs(cards, columns_of(card) | more))
    last = [split for task, split in results if task == card["task"]][-1]
    for (task, split), found in results.items():
        about, of = columns_of(card, task) | more, card_for(card, task)
        of_kept = evaluation_rows(found, about | {"split": split, "members": len(card["kept"])})
        main = (task, split) == (card["task"], last)
        rows += [row | {"headline": main and row["headline"]} for row in of_kept]
        rows += constant_rows(found, of["constant"], about | {"split": split})
        found.table({**about, "split": split}).write(out / predictions_name(of, split))
    recipe = Recipe.from_json(card["recipe"])
    reads = tuple(
        Read(str(folder), "run", str(one["encoder"].get("weights_digest") or ""))
        for folder, one in zip(folders, cards, strict=True)
    )
    write_rows(make_rows(rows), out / ROWS, make_card(recipe, reads, {}) | {"threads": card["threads"]})
    save_averaged(out, mean, card, folders[0])


def _of_runs(cards: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The metrics of the averaged runs on dev of the first task, from their cards."""
    for card in cards:
        own = {**about, **columns_of(card), "step": card["step"], "estimator": "member"}
        own |= {"split": card["splits"][1], "kept": False, "headline": False, "n": card["examples"][1]}
        for name in card["target"]["metrics"]:
            yield own | {"metric": name, "value": card["metrics"][name]}
