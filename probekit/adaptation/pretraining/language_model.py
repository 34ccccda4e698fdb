"""Language models of transformers: built from a configuration, their losses, and their perplexity on held-out text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from probekit.adaptation.pretraining.options import LanguageModelling
from probekit.adaptation.pretraining.text import Pieces
from probekit.errors import ModelError, UsageError, did_you_mean
from probekit.models.folder import check_config
from probekit.runtime import Progress, no_progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

__all__ = ["Objective", "evaluate", "new_language_model"]

SHARE, REPLACED, RANDOM = 0.15, 0.8, 0.5
"""Devlin et al. (2019, 3.1): 15 % of the pieces are predicted; 80 % of them are hidden, half of the others random."""
IGNORED = -100
SHIPPED = files("probekit.adaptation.pretraining") / "configs"


def new_language_model(
    config: str, tokenizer: PreTrainedTokenizerFast, objective: LanguageModelling, *, context: int, seed: int
) -> PreTrainedModel:
    """A language model with random weights, from the name of a shipped configuration or a config.json.

    Raises
    ------
    UsageError
        For an unknown name, or a configuration that reads fewer pieces than ``context``.
    ModelError
        If the file cannot be read, or transformers has no model of this kind for the objective.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    values = _values(config)
    kind = values.pop("model_type", None)
    if not isinstance(kind, str):
        raise ModelError(f"{config} has no model_type, such as gpt2 or bert.")
    ids = {name: getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    values |= {"vocab_size": len(tokenizer)} | {f"{name}_token_id": value for name, value in ids.items()}
    values |= {"is_decoder": True} if kind == "bert" and objective is LanguageModelling.CAUSAL else {}
    try:
        described = AutoConfig.for_model(kind, **values)
        longest = getattr(described, "max_position_embeddings", None)
        if longest is not None and longest < context:
            raise UsageError(f"context is {context}, but {config} reads at most {longest} pieces.")
        auto = AutoModelForCausalLM if objective is LanguageModelling.CAUSAL else AutoModelForMaskedLM
        torch.manual_seed(seed)
        model: PreTrainedModel = auto.from_config(described)
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{config} does not describe a model for {objective}: {error}") from None
    return model


def _values(config: str) -> dict[str, Any]:
    shipped = {Path(entry.name).stem: entry for entry in SHIPPED.iterdir() if entry.name.endswith(".json")}
    if config in shipped:
        return dict(json.loads(shipped[config].read_text(encoding="utf-8")))
    path = Path(config)
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        raise UsageError(f"config is {config!r}, which is not a file; {did_you_mean(config, sorted(shipped))}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON ({error}).") from None
    if path.name == "config.json":
        check_config(path.parent)
    if not isinstance(found, dict):
        raise ModelError(f"{path} holds a {type(found).__name__}; expected the configuration of a model, an object.")
    return found


@dataclass(frozen=True, slots=True)
class Objective:
    """What is predicted, and its loss; it does not hold the model.

    Attributes
    ----------
    kind : LanguageModelling
        Causal or masked.
    vocabulary : int
        Number of pieces.
    mask : int | None
        The piece of a mask, for masked models.
    """

    kind: LanguageModelling
    vocabulary: int
    mask: int | None = None

    def loss(self, model: PreTrainedModel, blocks: Tensor, seed: int) -> Tensor:
        """The mean loss in nats per predicted piece.

        Parameters
        ----------
        blocks : Tensor
            int64 (b, t).
        seed : int
            Seed of the masks.
        """
        if self.kind is LanguageModelling.CAUSAL:
            return causal_loss(model, blocks)
        masked, labels = self.masked(blocks, seed)
        return _masked_head(model, masked, labels)

    def masked(self, blocks: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """The blocks with masks, and labels with -100 where nothing is predicted."""
        draw = torch.Generator().manual_seed(seed)
        chosen = torch.rand(blocks.shape, generator=draw) < SHARE
        fate = torch.rand(blocks.shape, generator=draw)
        others = torch.randint(self.vocabulary, blocks.shape, generator=draw)
        chosen, fate, others = (x.to(blocks.device) for x in (chosen, fate, others))
        labels = blocks.masked_fill(~chosen, IGNORED)
        hidden = blocks.masked_fill(chosen & (fate < REPLACED), int(self.mask or 0))
        swapped = chosen & (fate >= REPLACED) & (fate < REPLACED + (1 - REPLACED) * RANDOM)
        return hidden.where(~swapped, others), labels


def causal_loss(model: PreTrainedModel, blocks: Tensor, first: int = 1) -> Tensor:
    """Mean cross-entropy of pieces ``first`` to the last of each block, given those before, in nats."""
    hidden = model.base_model(input_ids=blocks[:, :-1], use_cache=False).last_hidden_state[:, first - 1 :]
    head = model.get_output_embeddings()
    assert isinstance(head, nn.Module)
    logits = head(hidden.flatten(0, 1))
    return functional.cross_entropy(logits.float(), blocks[:, first:].flatten())


def _masked_head(model: PreTrainedModel, masked: Tensor, labels: Tensor) -> Tensor:
    """The masked language model's loss; its head reads only the predicted positions where that is possible."""
    head = getattr(model, "cls", None) or getattr(model, "lm_head", None)
    if head is None:
        found: Tensor = model(input_ids=masked, labels=labels).loss
        return found
    predicted = labels != IGNORED
    hidden = model.base_model(input_ids=masked).last_hidden_state[predicted]
    return functional.cross_entropy(head(hidden).float(), labels[predicted])


@torch.no_grad()
def evaluate(
    model: PreTrainedModel,
    objective: Objective,
    text: Pieces,
    *,
    context: int,
    batch_size: int,
    progress: Progress = no_progress,
) -> dict[str, float]:
    """The loss on held-out text: of each piece but the first, or of masked pieces.

    Windows overlap by half, so that each piece but those of the first window has at least ``context / 2`` pieces before
    it.

    Returns
    -------
    dict
        "log-loss" (nats per piece), "perplexity" (its exponential) and, for causal models, "bits-per-byte" of the
        text, which does not depend on the tokenizer.
    """
    was, device = model.training, model.device
    model.eval()
    ids = torch.from_numpy(text.ids.astype(np.int64)).to(device)
    try:
        if objective.kind is LanguageModelling.CAUSAL:
            nats, count = _causal_nats(model, ids, context, batch_size, progress)
        else:
            blocks = torch.from_numpy(text.blocks(min(context, len(ids))).astype(np.int64)).to(device)
            nats, count = 0.0, 0
            for i, part in enumerate(blocks.split(batch_size)):
                masked, labels = objective.masked(part, i)
                predicted = int((labels != IGNORED).sum())
                nats += float(_masked_head(model, masked, labels)) * predicted if predicted else 0.0
                count += predicted
                progress("evaluating", min((i + 1) * batch_size, len(blocks)), len(blocks))
    finally:
        model.train(was)
    loss = nats / max(count, 1)
    found = {"log-loss": loss, "perplexity": float(np.exp(loss))}
    return found | ({"bits-per-byte": nats / log(2) / text.bytes} if objective.kind is LanguageModelling.CAUSAL else {})


def _causal_nats(
    model: PreTrainedModel, ids: Tensor, context: int, batch_size: int, progress: Progress
) -> tuple[float, int]:
    """The sum of the losses of pieces 1 … t - 1, and their number."""
    stride, total = max(1, context // 2), len(ids)
    first = ids[:context]
    nats = float(causal_loss(model, first[None])) * (len(first) - 1)
    starts = range(stride, total - context + 1, stride)
    for i in range(0, len(starts), batch_size):
        windows = torch.stack([ids[start : start + context] for start in starts[i : i + batch_size]])
        nats += float(causal_loss(model, windows, context - stride)) * stride * len(windows)
        progress("evaluating", min(i + batch_size, len(starts)), len(starts))
    done = min(total, context + stride * len(starts))
    if done < total:
        last = ids[-context:]
        nats += float(causal_loss(model, last[None], len(last) - (total - done))) * (total - done)
    return nats, total - 1
