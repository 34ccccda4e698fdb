"""``probekit pretrain-encoder``: train a shared encoder on one or several objectives."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from probekit.adaptation.mixtures import Mixture
from probekit.adaptation.pretraining.mixture_loop import MixtureHistory, train_mixture
from probekit.adaptation.pretraining.objective import Encoded, PretrainingObjective
from probekit.adaptation.pretraining.objectives import attentive, make_objective, source_digests
from probekit.adaptation.pretraining.options import EncoderOptions, description
from probekit.adaptation.pretraining.outputs import write_vocabularies
from probekit.adaptation.runs.folder import RESUME, begin, kept, locked_run, read_card, save_folder, write_card
from probekit.adaptation.runs.rows import columns_of
from probekit.adaptation.runs.run import Run, finish_run, new_card, noting_failure, open_run
from probekit.adaptation.training.fine_tuning import encoder_of
from probekit.adaptation.training.learners import FineTuning
from probekit.adaptation.training.trainer import own_randomness
from probekit.constraint import RunOut
from probekit.errors import UsageError
from probekit.files import remove
from probekit.metrics import METRICS
from probekit.models.find import resolve_model
from probekit.models.identity import CARD, identify
from probekit.models.loading import text_reader
from probekit.models.transformers.onednn import onednn_available, train_with_onednn
from probekit.models.transformers.stock import quiet_transformers
from probekit.public import public
from probekit.recipe import Read, Recipe
from probekit.rows import make_rows
from probekit.runtime import Progress, no_progress, resolve_device

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)

MACRO = "macro-average"


@public(options=EncoderOptions)
def pretrain_encoder(
    model: str | Path,
    on: str | Sequence[str],
    out: RunOut,
    *,
    options: EncoderOptions,
    progress: Progress = no_progress,
) -> Run:
    """Train a shared encoder on one or several objectives, each with a head of its own.

    Each step has a batch of one objective, which the mixture draws (Bowman et al. 2018). The weights with the best mean
    validation metric are kept; ``out`` becomes a model folder that every command reads, with a card of all objectives
    (probekit.json) and their metrics at each validation (rows.parquet). Run the same command again to show a finished
    run, or to resume an interrupted one after its last validation, with the same numbers as an uninterrupted run.

    Parameters
    ----------
    model : str or path
        The encoder to begin with: a model folder, such as an untrained one (see ``probekit new-encoder``), or hub id.
    on : str or sequence of str
        Objectives, separated by commas: language-model:CORPUS, masked-language-model:CORPUS, translate:CORPUS,
        skip-thought:CORPUS, reply:CORPUS, denoise:CORPUS, dissent:CORPUS, next-sentence:CORPUS, respond:CORPUS,
        contrast:CORPUS, or names of tasks.
    out : path
        Folder of the run.
    options : EncoderOptions
        ``steps``, ``sampling``, ``scaling``, ``learning_rate`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Run
        The folder, the card with all objectives, and as rows their metrics at each validation.

    Raises
    ------
    UsageError, ModelError
        For an unknown objective, one that does not fit the encoder, and if ``out`` holds other files.
    DataError
        For an objective without examples.
    NonFiniteError
        If a loss is NaN or infinite.

    Examples
    --------
    >>> run = probekit.pretrain_encoder(  # doctest: +SKIP
    ...     "models/bilstm", ["skip-thought:books.txt", "sst2"], "models/books-sst2", steps=20_000
    ... )
    >>> run.metrics  # doctest: +SKIP

    On the command line::

        probekit pretrain-encoder --model models/bilstm --on skip-thought:books.txt --out models/books
        probekit pretrain-encoder --model models/bilstm --on translate:multi30k-en-de,mnli,sst2 --data-dir data --out models/mixed
        probekit pretrain-encoder --model models/bilstm --on mnli,qnli --sampling proportional --steps 20000 --out models/nli
    """  # noqa: E501
    names = [name.strip() for name in (on.split(",") if isinstance(on, str) else on)]
    if not names or len(set(names)) < len(names):
        raise UsageError(f"on is {','.join(names)!r}; expected one or more objectives, each once.")
    recipe = Recipe.of(
        "pretrain_encoder",
        {"model": model, "on": names, "out": out} | {name: getattr(options, name) for name in EncoderOptions.__slots__},
    )
    folder, source = Path(out), resolve_model(model)
    attention = attentive(names, options)
    digests = [source_digests(name, options) for name in names]
    identity = json.loads(json.dumps(
        {"model": identify(model), "on": names, "data": digests, **options.numbers(), "attention": attention}
    ))  # fmt: skip
    with locked_run(folder), own_randomness(options.seed), quiet_transformers():
        done = begin(folder, identity, overwrite=options.overwrite)
        if done is not None:
            return open_run(folder, done)
        options = replace(options, device=resolve_device(options.device))
        all_names = "+".join(names)
        card = new_card(
            folder, options.run_name, options.seed, recipe, **description(all_names, all_names), identity=identity,
            encoder=identity["model"], seeds={"seed": options.seed, "data_seed": options.data_seed},
        )  # fmt: skip
        with _text(folder, card) as place:
            encoder = encoder_of(source)
            encoded = Encoded(encoder, text_reader(source, encoder.config, options.max_length), source)
            objectives = [
                make_objective(
                    name, encoded, options, place / str(i), module=f"head{i}" if i else "head", progress=progress
                )
                for i, name in enumerate(names)
            ]
            mixture = Mixture(tuple(len(one.train) for one in objectives), options.sampling, options.scaling)
            _warn(objectives, options.batch_size)
            card |= _of_mixture(objectives, mixture, options)
            write_card(folder, card)
            others: dict[str, Any] = {one.module: one.head for one in objectives[1:]}
            learner = FineTuning(encoder, objectives[0].head, **others).to(options.device)
            if options.device == "cpu" and onednn_available(torch.float32):
                train_with_onednn(learner)

            def save(step: int, entry: Mapping[str, Any]) -> None:
                state = {"step": step, "metrics": _metrics(entry, objectives), "complete": True}
                save_folder(kept(folder), learner.state_dict(), card | state, source)

            with noting_failure(folder, card):
                history = train_mixture(learner, objectives, mixture, save, options, folder, progress)
        return _finish(folder, card, history, objectives, recipe)


@contextmanager
def _text(folder: Path, card: Mapping[str, Any]) -> Iterator[Path]:
    """A folder for tokenised text in that of the run, removed in the end; a card marks the run, if it is new."""
    place, new = folder / RESUME / "text", not (folder / CARD).exists()
    if new:
        write_card(folder, card)
    remove(place)
    try:
        yield place
    finally:
        remove(place)
        if new and not any((folder / RESUME).glob("*")) and "objectives" not in read_card(folder):
            (folder / CARD).unlink()  # nothing was trained, because its data cannot be read
        with suppress(OSError):
            (folder / RESUME).rmdir()


def _metrics(entry: Mapping[str, Any], objectives: Sequence[PretrainingObjective]) -> dict[str, float]:
    """The main metric of each objective at a validation, by its name, and the macro average."""
    main = {one.name: entry["objectives"][one.name][one.metric.name] for one in objectives}
    return main | {MACRO: entry["macro"]}


def _of_mixture(
    objectives: Sequence[PretrainingObjective], mixture: Mixture, options: EncoderOptions
) -> dict[str, Any]:
    """What the card says of the objectives."""
    shares = zip(objectives, mixture.probabilities, mixture.scales, strict=True)
    described = [
        {
            "objective": one.name, "metric": one.metric.name, "examples": [len(one.train), len(one.dev)],
            "module": one.module, "probability": float(share), "scale": float(scale), **one.about,
            "chance": asdict(one.chance),
        }
        for one, share, scale in shares
    ]  # fmt: skip
    sizes = [sum(len(one.train) for one in objectives), sum(len(one.dev) for one in objectives)]
    rate = options.rate([one.metric for one in objectives])
    return {"objectives": described, "examples": sizes, "learning_rate": rate}


def _warn(objectives: Sequence[PretrainingObjective], batch_size: int) -> None:
    """Warn of objectives with fewer examples than a batch, or than dev."""
    for one in objectives:
        train, dev = len(one.train), len(one.dev)
        if train < batch_size or train < dev:
            log.warning(
                "%s has %s training examples%s; every pass repeats them.",
                *(one.name, f"{train:,}", f", and {dev:,} on dev" if train < dev else ", fewer than a batch"),
            )


def _finish(
    folder: Path, card: dict[str, Any], history: MixtureHistory, objectives: Sequence[PretrainingObjective],
    recipe: Recipe,
) -> Run:  # fmt: skip
    """Write the rows of a training and publish it."""
    best, last = history.log[history.best], history.log[-1]
    outcome = {
        "step": best["step"], "total_steps": last["step"], "metrics": _metrics(best, objectives),
        "stopped": history.stopped,
    }  # fmt: skip
    reads = [Read(name, "data", digest) for one in card["identity"]["data"] for name, digest in one.items()]
    vocabularies = {one.name: one.outputs for one in objectives if one.outputs is not None}
    outcome |= write_vocabularies(vocabularies, folder)
    finish_run(folder, card | outcome, _rows(card, history, objectives), recipe, reads, history.seconds)
    return open_run(folder)


def _rows(card: Mapping[str, Any], history: MixtureHistory, objectives: Sequence[PretrainingObjective]) -> pd.DataFrame:
    """The metrics of each objective on dev at each validation, as rows; the kept one is marked."""
    keys, rows = columns_of(card) | {"representation": "sequence", "analysis": "train", "layer": None}, []
    for i, entry in enumerate(history.log):
        for one in objectives:
            rows += [
                keys | {
                    "task": one.name, "step": entry["step"], "kept": i == history.best, "split": "dev", "metric": name,
                    "value": value, "chance": one.chance.value if name == one.metric.name else nan,
                    "n": len(one.dev), "examples": len(one.train),
                    "sampling": card["identity"]["sampling"], "scaling": card["identity"]["scaling"],
                    "headline": i == history.best and name == one.metric.name,
                }
                for name, value in entry["objectives"][one.name].items()
                if name in METRICS
            ]  # fmt: skip
    return make_rows(rows)
