"""``probekit pretrain``: train a language model of one's own from nothing, on plain text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from probekit.adaptation.pretraining.language_model import (
    Objective,
    config_values,
    continued_language_model,
    evaluate,
    new_language_model,
    objective_for,
    use_fast_kernels,
)
from probekit.adaptation.pretraining.loop import History, Stream, optimise
from probekit.adaptation.pretraining.options import LanguageModelling, PretrainOptions, description
from probekit.adaptation.pretraining.text import Pieces, Text, open_text, to_pieces, train_tokenizer
from probekit.adaptation.runs.digests import digests_of
from probekit.adaptation.runs.folder import begin, kept, locked_run, write_card
from probekit.adaptation.runs.rows import columns_of
from probekit.adaptation.runs.run import Run, finish_run, new_card, noting_failure, open_run
from probekit.constraint import File, RunOut
from probekit.errors import DataError, UsageError
from probekit.files import draft
from probekit.models.find import resolve_model
from probekit.models.folder import tokenizer_digest, writing_tensors
from probekit.models.identity import identify
from probekit.models.transformers.stock import quiet_transformers
from probekit.models.transformers.tokens import load_tokenizer
from probekit.public import public
from probekit.recipe import Read, Recipe
from probekit.rows import make_rows
from probekit.runtime import Progress, no_progress, resolve_device

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

TRAIN = "train:"
"""Before the number of pieces of a tokenizer to train."""
METRICS = ("perplexity", "bits-per-byte", "log-loss")


@public(options=PretrainOptions)
def pretrain(
    text: File | Sequence[File], out: RunOut, *, options: PretrainOptions, progress: Progress = no_progress
) -> Run:
    """Train a language model on plain text: a new one and its tokenizer, or ``model`` further.

    ``out`` becomes a folder with the model, its language-model head, its tokenizer, a card (probekit.json) and the
    losses during training (rows.parquet). Every command reads it as a model. Texts are packed into sequences without
    padding. Perplexity and bits per byte are those of held-out text: the last part of each text, or ``dev``. Run the
    same command again to show a finished run, or to resume an interrupted one after its last evaluation, with the same
    numbers as an uninterrupted run.

    Parameters
    ----------
    text : path or sequence of paths
        UTF-8 text files, separated by commas. Each one is a document, which ends with an end-of-text piece.
    out : path
        Folder of the run.
    options : PretrainOptions
        ``objective``, ``config``, ``tokenizer``, ``dev``, ``epochs`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Run
        The folder, the card, and as rows the loss on the text, and perplexity, loss and bits per byte on held-out text.

    Raises
    ------
    DataError
        For texts that are missing, empty, too short or not UTF-8.
    UsageError, ModelError
        For options that contradict each other or the configuration, and if ``out`` holds other files.
    NonFiniteError
        If the loss is NaN or infinite.

    Examples
    --------
    >>> run = probekit.pretrain(["wiki.txt"], "models/tiny", tokenizer="train:8000")  # doctest: +SKIP
    >>> run.metrics["perplexity"]  # doctest: +SKIP

    On the command line::

        probekit pretrain --text wiki.txt,books.txt --out models/tiny
        probekit pretrain --text wiki.txt --dev wiki.valid.txt --save-at log-spaced --dtype bfloat16 --out models/tiny
        probekit pretrain --objective masked-lm --config bert-mini --text wiki.txt --out models/tiny-bert
        probekit pretrain --config gpt2-large/config.json --tokenizer gpt2 --context 512 --text wiki.txt --out models/mine
        probekit pretrain --model gpt2 --text reviews.txt --out models/gpt2-reviews
    """  # noqa: E501
    given = [text] if isinstance(text, str | Path) else list(text)
    recipe = Recipe.of("pretrain", {"text": given, "out": out, **_fields(options)})
    folder = Path(out)
    train, dev = _texts([Path(file) for file in given], options)
    digests = [[part.digest for part in parts] for parts in (train, dev)]
    identity = json.loads(
        json.dumps({"task": _name(train), "data": digests, **_beginning(options), **options.numbers()})
    )
    reads = [Read(str(part.file), "data", part.digest) for part in (*train, *dev)]
    with locked_run(folder), torch.random.fork_rng(), quiet_transformers():
        done = begin(folder, identity, overwrite=options.overwrite)
        if done is not None:
            return open_run(folder, done)
        tokenizer = _tokenizer(options, train)
        pieces, held = (to_pieces(tokenizer, texts, progress=progress) for texts in (train, dev))
        device = torch.device(resolve_device(options.device))
        model = _model(options, tokenizer).to(device)
        objective = objective_for(options.objective, tokenizer, model)
        stream = _stream(pieces, held, objective, options)
        model.train()
        use_fast_kernels(model, options.dtype, options.context)
        card = new_card(
            folder, options.run_name, options.seed, recipe, **description(identity["task"], str(options.objective)),
            identity=identity, parameters=model.num_parameters(), examples=[len(part.ids) for part in (pieces, held)],
            bytes=[part.bytes for part in (pieces, held)], continued=options.model,
        )  # fmt: skip
        write_card(folder, card)

        def check() -> dict[str, float]:
            return evaluate(
                model, objective, held, context=options.context, batch_size=options.batch_size, progress=progress
            )

        def save(to: Path, step: int, metrics: Mapping[str, float]) -> None:
            found = {name: metrics[name] for name in METRICS if name in metrics}
            _save(model, tokenizer, to, card | {"step": step, "metrics": found, "complete": True})

        with noting_failure(folder, card):
            history = optimise(
                model, lambda blocks, seed: objective.loss(model, blocks, seed), stream, check,
                lambda step, metrics: save(folder / f"step-{step}", step, metrics), options, folder, progress,
            )  # fmt: skip
        last = history.log[-1]
        save(kept(folder), history.steps, last)
        rows = _rows(card, history, (pieces, held))
        outcome = {
            "step": history.steps, "total_steps": history.steps,
            "metrics": {name: last[name] for name in METRICS if name in last},
            "before": {name: history.log[0][name] for name in METRICS if name in last} if options.model else None,
        }  # fmt: skip
        finish_run(folder, card | outcome, rows, recipe, reads, history.seconds)
        return open_run(folder)


def _fields(options: PretrainOptions) -> dict[str, Any]:
    return {name: getattr(options, name) for name in PretrainOptions.__slots__}


def _texts(files: Sequence[Path], options: PretrainOptions) -> tuple[list[Text], list[Text]]:
    """The texts to train on, and the held-out ones."""
    if not files:
        raise UsageError("no text was given; give UTF-8 text files (--text).")
    texts = [open_text(file) for file in files]
    if options.dev is not None:
        return texts, [open_text(Path(file)) for file in options.dev]
    parts = [text.divide(options.validation) for text in texts]
    return [first for first, _ in parts], [second for _, second in parts]


def _name(texts: Sequence[Text]) -> str:
    names = list(dict.fromkeys(text.file.stem for text in texts))
    return "+".join(names) if len(names) < 4 else f"{names[0]}+{len(names) - 1} texts"


def _beginning(options: PretrainOptions) -> dict[str, Any]:
    """The identity of the model that is trained."""
    if options.model is not None:
        found = identify(options.model)
        return {"model": {name: found[name] for name in ("weights_digest", "tokenizer_digest")}}
    return {
        "config": options.config_name, "configuration": config_values(options.config_name),
        "tokenizer": options.tokenizer, "tokenizer_digest": _tokenizer_digest(options),
    }  # fmt: skip


def _model(options: PretrainOptions, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    if options.model is not None:
        folder = resolve_model(options.model, None)
        return continued_language_model(folder, options.objective, context=options.context, seed=options.seed)
    return new_language_model(
        options.config_name, tokenizer, options.objective, context=options.context, seed=options.seed
    )


def _tokenizer_digest(options: PretrainOptions) -> str:
    """Digest of the tokenizer of another model; "" for one that is trained."""
    if options.tokenizer.startswith(TRAIN):
        return ""
    return tokenizer_digest(resolve_model(options.tokenizer, None))


def _tokenizer(options: PretrainOptions, train: Sequence[Text]) -> PreTrainedTokenizerFast:
    masked = options.objective is LanguageModelling.MASKED_LM
    if options.model is None and options.tokenizer.startswith(TRAIN):
        size = options.tokenizer.removeprefix(TRAIN)
        if not (size.isascii() and size.isdigit() and len(size) < 10):
            raise UsageError(f"tokenizer is {options.tokenizer!r}; expected train:N with a number of pieces.")
        return train_tokenizer((line for text in train for line in text.lines()), int(size), masked=masked)
    source = options.model or options.tokenizer
    tokenizer: PreTrainedTokenizerFast = load_tokenizer(resolve_model(source, None))
    if masked and tokenizer.mask_token_id is None:
        raise UsageError(f"{source} has no piece for masks; choose another tokenizer, or causal-lm.")
    return tokenizer


def _stream(pieces: Pieces, held: Pieces, objective: Objective, options: PretrainOptions) -> Stream:
    """The batches of the text; raises DataError for texts that are too short."""
    blocks = pieces.blocks(options.context, objective.around)
    if not len(blocks):
        raise DataError(
            f"the text has {len(pieces.ids):,} pieces, fewer than one sequence of {options.context}; give more text or "
            "a smaller --context."
        )
    least = 2 if objective.kind is LanguageModelling.CAUSAL_LM else options.context
    if len(held.ids) < least:
        raise DataError(
            f"the held-out text has {len(held.ids):,} pieces; {least} are needed. Give more of it (--dev, or a larger "
            "--validation)."
        )
    return Stream(blocks, options.batch_size, options.seed)


def _save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path, card: Mapping[str, Any]) -> None:
    """Write a model folder with its head, tokenizer and card, atomically."""
    if folder.exists():
        return
    with draft(folder) as new:
        with writing_tensors(new / "model.safetensors"):
            model.save_pretrained(new, max_shard_size="1TB")  # one file
        (new / "generation_config.json").unlink(missing_ok=True)  # repeats config.json
        tokenizer.save_pretrained(new)
        for file in new.iterdir():
            file.chmod(new.parent.stat().st_mode & 0o666)
        write_card(new, {**card, "digests": digests_of(new)})
        new.replace(folder)


def _rows(card: Mapping[str, Any], history: History, texts: tuple[Pieces, Pieces]) -> pd.DataFrame:
    """The losses on the text, and the metrics on held-out text, as rows."""
    about = columns_of(card) | {"representation": "tokens", "analysis": "train", "layer": None}
    rows = []
    for entry in history.log:
        step = int(entry["step"])
        common = about | {"step": step, "kept": step == history.steps}
        if "loss" in entry:
            rows.append(
                common | {"split": "train", "metric": "log-loss", "value": entry["loss"], "n": len(texts[0].ids)}
            )
        rows += [
            common | {
                "split": "dev", "metric": name, "value": entry[name], "n": len(texts[1].ids),
                "headline": name == METRICS[0] and step == history.steps,
            }
            for name in METRICS
            if name in entry
        ]  # fmt: skip
    return make_rows(rows)
