"""``probekit evaluate --text``: what a training does to the language model that it begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from probekit.adaptation.options import EvaluateOptions, Regime
from probekit.adaptation.pretraining.language_model import continued_language_model, losses, objective_for
from probekit.adaptation.pretraining.options import PRETRAIN, LanguageModelling
from probekit.adaptation.pretraining.text import Pieces, Text, open_text, to_pieces
from probekit.adaptation.runs.rows import columns_of
from probekit.adaptation.training.fine_tuning import encoder_of
from probekit.errors import DataError, ModelError, UsageError
from probekit.models.adapted.direction import reads_ahead
from probekit.models.adapted.loading import base_folder
from probekit.models.adapted.record import adapted
from probekit.models.find import resolve_model
from probekit.models.folder import weights_digest
from probekit.models.loading import text_reader
from probekit.models.scoring.load import is_causal
from probekit.models.transformers.stock import quiet_transformers
from probekit.models.transformers.tokens import load_tokenizer
from probekit.recipe import Read
from probekit.rows import Result, make_rows
from probekit.runtime import Progress, resolve_device
from probekit.statistics.clusters import reach, standard_error

LONGEST = 512
"""Pieces that are read together, if the model reads as many."""
BEFORE = "pretrained"
"""The value of ``against`` in the row of the difference."""
Losses = list[tuple[float, int]]


def evaluate_text(run: Path, card: Mapping[str, Any], options: EvaluateOptions, progress: Progress) -> Result:
    """The perplexity of text for the head of a run's pretrained language model, on its encoder before and after.

    A head that shares its weights with the input embeddings reads those of the run. Decoders predict each piece from at
    least half a window of pieces before it, encoders the masked pieces, with the same masks before and after. Runs of
    ``pretrain``, and those that generate responses, have a head of their own.

    Returns
    -------
    Result
        Rows with the metrics "log-loss" (nats per predicted piece), "perplexity" and, for decoders, "bits-per-byte", of
        the run, of the pretrained model (``checkpoint`` is ""), and "difference(log-loss)", the run minus the
        pretrained model. Intervals are over the batches, which are consecutive parts of the text: they are Student's,
        with the standard error of a ratio, at 95 %. They need five batches; ``why`` says so.

    Raises
    ------
    UsageError
        For frozen layers, models whose weights were drawn at random, and those without a head of a language model.
    ModelError
        If the pretrained model is missing or has changed.
    DataError
        For texts that are missing, empty, too short or not UTF-8.
    """
    if card["regime"] == Regime.FEATURE_EXTRACTION:
        raise UsageError(f"{run} keeps its encoder frozen, so its language model has not changed; leave out text.")
    texts = [open_text(file) for file in options.text or ()]
    own = card["regime"] == PRETRAIN
    base = run if own else _base(run, card, options.model)
    causal = is_causal(base, "there is no perplexity to measure")
    kind = LanguageModelling.CAUSAL_LM if causal else LanguageModelling.MASKED_LM
    tokenizer = load_tokenizer(base)
    if kind is LanguageModelling.MASKED_LM and tokenizer.mask_token_id is None:
        raise UsageError(f"the tokenizer of {base} has no piece for masks, without which nothing is predicted.")
    pieces = to_pieces(tokenizer, texts, progress=progress)
    device = torch.device(resolve_device(options.device))
    with quiet_transformers(), torch.random.fork_rng():
        model: Any = continued_language_model(base, kind, context=1, seed=0).to(device)
        encoder = None if own else encoder_of(run)
        if encoder is not None and reads_ahead(encoder) is not (kind is LanguageModelling.MASKED_LM):
            raise UsageError(
                f"{run} reads texts in another direction (--attention) than its language model, so there is no "
                "perplexity to measure."
            )
        context = min(LONGEST, text_reader(run, (encoder or model).config).max_length)
        if len(pieces.ids) < (2 if kind is LanguageModelling.CAUSAL_LM else context):
            raise DataError(
                f"{', '.join(map(str, options.text or ()))}: {len(pieces.ids)} pieces are too few for a sequence of "
                f"{context}; give more text."
            )

        def read() -> Losses:
            objective = objective_for(kind, tokenizer, model)
            return losses(model, objective, pieces, context, options.batch_size, progress)

        found = {"": read()}
        if encoder is not None:
            if card["head"]["head"] == "response":
                model = continued_language_model(run, kind, context=1, seed=0).to(device)
            else:
                setattr(model, model.base_model_prefix, encoder.to(device))
                model.tie_weights()
            found = {BEFORE: found[""], "": read()}
    rows = make_rows(pd.DataFrame(_records(card, texts, found, pieces, kind)))
    weights = str(card["encoder"].get("weights_digest") or "") if "encoder" in card else ""
    reads = [Read(str(run), "run", weights, {"run": card["run"], "step": card["step"]})]
    return Result(rows, (), reads=(*reads, *(Read(str(text.file), "data", text.digest) for text in texts)))


def _base(run: Path, card: Mapping[str, Any], moved: str | None) -> Path:
    """The folder of the pretrained model, checked to be the one that the run began with."""
    if card["encoder"].get("random_weights") is not None:
        raise UsageError(f"{run} began with random weights, which are no language model; leave out text.")
    if (changed := adapted(run)) is not None:
        return base_folder(changed, moved)
    given = moved or card["recipe"]["arguments"]["model"]
    folder = resolve_model(given, card["encoder"].get("revision"))
    if (digest := weights_digest(folder)) != (expected := card["encoder"]["weights_digest"]):
        raise ModelError(
            f"{run} began with weights with the digest {expected}, but {folder} has {digest}; give the pretrained "
            "model as --model."
        )
    return folder


def _records(
    card: Mapping[str, Any], texts: Sequence[Text], found: Mapping[str, Losses], pieces: Pieces, kind: LanguageModelling
) -> list[dict[str, Any]]:
    """The rows of the pretrained model, of the run, and of their difference."""
    name = "+".join(text.file.stem for text in texts)
    about = _columns(card) | {"task": name, "split": "text", "analysis": "evaluate", "layer": None, "kept": True}
    records = []
    for which, parts in found.items():
        columns = about | ({"checkpoint": "", "step": None, "regime": "", "head": "", "variant": ""} if which else {})
        total, n = sum(nats for nats, _ in parts), sum(count for _, count in parts)
        value = _ratio([nats for nats, _ in parts], parts)
        records.append(columns | {"metric": "log-loss", "n": n} | value)
        exponential = {key: exp(x) if isinstance(x, float) else x for key, x in value.items()}
        records.append(columns | {"metric": "perplexity", "n": n, "headline": not which} | exponential)
        if kind is LanguageModelling.CAUSAL_LM:
            records.append(columns | {"metric": "bits-per-byte", "n": n, "value": total / log(2) / pieces.bytes})
    if BEFORE in found:
        before, after = found[BEFORE], found[""]
        more = [mine - theirs for (mine, _), (theirs, _) in zip(after, before, strict=True)]
        records.append(about | {"metric": "difference(log-loss)", "against": BEFORE, "n": n, **_ratio(more, after)})
    return records


def _columns(card: Mapping[str, Any]) -> dict[str, Any]:
    if card["regime"] != PRETRAIN:
        return columns_of(card) | {"representation": "tokens", "target": ""}
    return {
        "model": card["model"], "checkpoint": card["run"], "step": card["step"], "regime": PRETRAIN,
        "representation": "tokens", "estimator": "", "target": "", "seed": card["seeds"]["seed"],
    }  # fmt: skip


def _ratio(nats: Sequence[float], parts: Losses) -> dict[str, Any]:
    """The sum of ``nats`` over the number of pieces, with its interval over the parts of the text."""
    x, count = np.array(nats), np.array([n for _, n in parts], dtype=np.float64)
    value = x.sum() / count.sum()
    error, units = standard_error(((x - value * count) / count.mean())[None])
    if np.isnan(error[0]):
        return {"value": float(value), "why": f"{units} batches; intervals need at least 5"}
    far = reach(units, 0.95) * float(error[0])
    return {"value": float(value), "ci_low": float(value - far), "ci_high": float(value + far)}


def text_sentence(rows: pd.DataFrame) -> str:
    """What the rows say: the perplexity of the run and of the pretrained model, and the difference."""

    def text_of(row: Mapping[Any, Any], sign: str = "") -> str:
        if row["ci_low"] == row["ci_low"]:
            return f"{row['value']:{sign}.4f} (95 % interval {row['ci_low']:{sign}.4f} to {row['ci_high']:{sign}.4f})"
        return f"{row['value']:{sign}.4f} (no interval: {row['why']})"

    of = {row["checkpoint"]: row for row in rows[rows["metric"] == "perplexity"].to_dict("records")}
    run = next(row for name, row in of.items() if name or len(of) == 1)
    said = f"{run['task']}, {run['n']:,} predicted pieces: perplexity {text_of(run)}"
    if "" in of and len(of) > 1:
        said += f"; before the training {text_of(of[''])}"
    for row in rows[rows["metric"] == "difference(log-loss)"].to_dict("records"):
        said += f"; log loss {text_of(row, '+')} nats"
    return said
