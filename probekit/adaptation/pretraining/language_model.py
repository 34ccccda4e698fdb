"""Language models of transformers: built from a configuration, their losses, and their perplexity on held-out text."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from math import exp, inf, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from probekit.adaptation.heads.vocabulary import vocabulary_loss
from probekit.adaptation.pretraining.masking import masked
from probekit.adaptation.pretraining.options import LanguageModelling
from probekit.adaptation.pretraining.text import Pieces
from probekit.errors import ModelError, UsageError, did_you_mean, first_line
from probekit.models.adapted.record import adapted
from probekit.models.folder import check_config, text_config
from probekit.models.transformers.onednn import onednn_available, train_with_onednn
from probekit.runtime import Dtype, Progress, no_progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

logger = logging.getLogger(__name__)

IGNORED = -100
LONGEST_EAGER = 512
OF_MASKS = 0x6D61736B
"""Makes the draws of masks differ from those of dropout, which has the same seed."""
MOST = 700.0
"""Nats whose exponential is a number."""
SHIPPED = files("probekit.adaptation.pretraining") / "configs"


def new_language_model(
    config: str, tokenizer: PreTrainedTokenizerFast, objective: LanguageModelling, *, context: int, seed: int
) -> PreTrainedModel:
    """A language model with random weights, from the name of a shipped configuration or a config.json.

    The vocabulary is the tokenizer's.

    Raises
    ------
    UsageError
        For an unknown name, or a configuration that reads fewer pieces than ``context``.
    ModelError
        If the file cannot be read, or transformers has no model of this kind for the objective.
    """
    from transformers import AutoConfig

    values = config_values(config)
    kind = values.pop("model_type", None)
    if not isinstance(kind, str):
        raise ModelError(f"{config} has no model_type, such as gpt2 or bert.")
    ids = {name: getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    values |= {"vocab_size": vocabulary_size(tokenizer)} | {f"{name}_token_id": value for name, value in ids.items()}
    values |= {"is_decoder": True} if kind == "bert" and objective is LanguageModelling.CAUSAL_LM else {}
    with _as_usage_error(
        f"{config} does not describe a model that reads {context} pieces and is trained by {objective}"
    ):
        described = AutoConfig.for_model(kind, **values)
        _check_context(described, context, config)
        torch.manual_seed(seed)
        model: PreTrainedModel = auto_class(objective).from_config(described, dtype=torch.float32)
        with torch.no_grad():
            model.eval()(input_ids=torch.full((1, context), vocabulary_size(tokenizer) - 1))
    return model


def auto_class(objective: LanguageModelling) -> Any:
    """The class of transformers that makes a language model of this kind."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    return AutoModelForCausalLM if objective is LanguageModelling.CAUSAL_LM else AutoModelForMaskedLM


@contextmanager
def _as_usage_error(problem: str) -> Iterator[None]:
    """What transformers raises (ValueError, KeyError, TypeError, IndexError, OSError, its own …) as a sentence."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        raise ModelError(f"{problem}: {first_line(error)}") from error


def _check_context(config: Any, context: int, name: str | Path) -> None:
    longest = getattr(config, "max_position_embeddings", None)
    if longest is not None and longest < context:
        raise UsageError(f"context is {context}, but {name} reads at most {longest} pieces.")


def continued_language_model(folder: Path, objective: LanguageModelling, *, context: int, seed: int) -> PreTrainedModel:
    """The language model in a folder, to train it further; it warns if its head is new, with random weights.

    Raises
    ------
    UsageError
        If it reads fewer pieces than ``context``.
    ModelError
        If transformers has no such model for the objective, or the folder is damaged.
    """
    from transformers import AutoConfig

    check_config(folder)
    if (run := adapted(folder)) is not None and run.adapters:
        raise UsageError(f"{folder} is an adapter on a base; give a whole model to pretrain further.")
    where: Any = {"trust_remote_code": False, "local_files_only": True}
    with _as_usage_error(f"{folder} cannot be trained by {objective}"):
        config = AutoConfig.from_pretrained(folder, **where)
        if text_config(config) is not config:
            raise UsageError(
                f"{folder} is of type {config.model_type!r}, which reads images or sounds beside texts; probekit "
                "trains its text part on tasks (probekit train), and does not continue its pretraining."
            )
        _check_context(config, context, folder)
        if config.model_type == "bert" and objective is LanguageModelling.CAUSAL_LM:
            raise UsageError(f"{folder} reads the words on both sides; give --objective masked-lm.")
        torch.manual_seed(seed)  # of a new head
        model, report = auto_class(objective).from_pretrained(
            folder, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **where
        )
    if new := sorted(report["missing_keys"]):
        logger.warning(
            "%s has no head for %s; %s and %d other weights of it are new, so its perplexity before the training says "
            "nothing of the model.",
            *(folder, objective, new[0], len(new) - 1),
        )
    return model


def vocabulary_size(tokenizer: PreTrainedTokenizerFast) -> int:
    """One more than the highest id of a piece; some tokenizers leave out numbers."""
    return 1 + max(tokenizer.get_vocab().values())


def use_fast_kernels(model: PreTrainedModel, dtype: Dtype, context: int) -> None:
    """Switch a model on a CPU to faster kernels for training, in place; weights keep their names.

    In bfloat16, attention by matrix products takes half the time of PyTorch's fused kernel for sequences of 256
    pieces; its memory grows with the square of their length.
    """
    if model.device.type != "cpu" or not onednn_available(torch.float32):
        return
    train_with_onednn(model)
    if dtype is Dtype.BFLOAT16 and context <= LONGEST_EAGER:
        model.set_attn_implementation("eager")


def config_values(config: str) -> dict[str, Any]:
    """The values of a shipped configuration, or of a config.json; raises as :func:`new_language_model`."""
    shipped = {Path(entry.name).stem: entry for entry in SHIPPED.iterdir() if entry.name.endswith(".json")}
    if config in shipped:
        return dict(json.loads(shipped[config].read_text(encoding="utf-8")))
    path = Path(config)
    try:
        path = path / "config.json" if path.is_dir() else path
        found = path.is_file()
    except OSError:  # a name that is too long
        found = False
    if not found:
        raise UsageError(f"config is {config!r}, which is not a file; {did_you_mean(config, sorted(shipped))}")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON ({error}).") from None
    if path.name == "config.json":
        check_config(path.parent)
    if not isinstance(values, dict):
        raise ModelError(f"{path} holds a {type(values).__name__}; expected the configuration of a model, an object.")
    return values


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
    around : tuple of int, optional
        For masked models, the pieces with which each sequence begins and ends; they are not predicted.
    separable : bool
        Whether the head, applied to some states, gives their logits (:func:`separable_head`).
    """

    kind: LanguageModelling
    vocabulary: int
    mask: int | None = None
    around: tuple[int, int] | None = None
    separable: bool = False

    def loss(self, model: PreTrainedModel, blocks: Tensor, seed: int) -> Tensor:
        """The mean loss in nats per predicted piece.

        Parameters
        ----------
        blocks : Tensor
            int64 (b, t).
        seed : int
            Seed of the masks.
        """
        if self.kind is LanguageModelling.CAUSAL_LM:
            return self.causal_loss(model, blocks)
        masked, labels = self.masked(blocks, seed)
        return self.masked_loss(model, masked, labels)

    def causal_loss(self, model: PreTrainedModel, blocks: Tensor, first: int = 1) -> Tensor:
        """Mean cross-entropy of pieces ``first`` to the last of each block, given those before, in nats."""
        read, labels = blocks[:, :-1], blocks[:, first:].flatten()
        if not self.separable:
            logits = model(input_ids=read).logits[:, first - 1 :]
            return functional.cross_entropy(logits.flatten(0, 1).float(), labels)
        hidden = model.base_model(input_ids=read, use_cache=False).last_hidden_state[:, first - 1 :]
        head: Any = model.get_output_embeddings()
        return vocabulary_loss(hidden.flatten(0, 1), head.weight, head.bias, labels)

    def masked_loss(self, model: PreTrainedModel, masked: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy of the predicted pieces, in nats; 0 if there are none."""
        predicted = labels != IGNORED
        if not self.separable:
            logits = model(input_ids=masked).logits[predicted]
        else:
            head: Any = masked_head(model)
            logits = head(model.base_model(input_ids=masked).last_hidden_state[predicted])
        if not len(logits):
            return logits.sum()
        return functional.cross_entropy(logits.float(), labels[predicted])

    def masked(self, blocks: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """The blocks with masks, and labels with -100 where nothing is predicted."""
        draw = torch.Generator().manual_seed(seed ^ OF_MASKS)
        special = torch.zeros_like(blocks, dtype=torch.bool)
        if self.around is not None:
            special[:, [0, -1]] = True
        hidden, chosen = masked(blocks, special, mask=int(self.mask or 0), vocabulary=self.vocabulary, draw=draw)
        return hidden, blocks.masked_fill(~chosen, IGNORED)


def objective_for(kind: LanguageModelling, tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel) -> Objective:
    """The objective of a model with this tokenizer, which has a piece for masks if the model predicts masked pieces."""
    separable = separable_head(model, kind)
    if kind is LanguageModelling.CAUSAL_LM:
        return Objective(kind, vocabulary_size(tokenizer), separable=separable)
    ends = tokenizer.cls_token_id, tokenizer.sep_token_id
    around = None if None in ends else ends
    return Objective(kind, vocabulary_size(tokenizer), int(tokenizer.mask_token_id), around, separable)


@torch.no_grad()
def separable_head(model: PreTrainedModel, kind: LanguageModelling) -> bool:
    """Whether the logits are the head of the last hidden states, one by one, as tested on a few pieces.

    For causal models the head is the output embeddings. Other models (with a transform before them, scaled logits, an
    encoder and a decoder …) run as a whole.
    """
    was = model.training
    model.eval()
    try:
        ids = torch.arange(8, device=model.device)[None] % text_config(model.config).vocab_size
        states = model.base_model(input_ids=ids).last_hidden_state
        head: Any = model.get_output_embeddings() if kind is LanguageModelling.CAUSAL_LM else masked_head(model)
        if kind is LanguageModelling.CAUSAL_LM and not isinstance(head, nn.Linear):
            return False
        return torch.allclose(head(states), model(input_ids=ids).logits, rtol=1e-4, atol=1e-5)
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return False
    finally:
        model.train(was)


def masked_head(model: PreTrainedModel) -> Any:
    """The head of a masked language model, by the name that its class gives it; None for other names."""
    return getattr(model, "cls", None) or getattr(model, "lm_head", None)


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
    """The loss on held-out text: of each piece but the first, or of masked pieces (masks have fixed seeds).

    Causal models read overlapping windows, so that each piece after the first ``context`` ones has at least
    ``context / 2`` pieces before it.

    Returns
    -------
    dict
        "log-loss" (nats per piece), "perplexity" (its exponential) and, for causal models, "bits-per-byte" of the
        text, which does not depend on the tokenizer.
    """
    nats, count = map(sum, zip(*losses(model, objective, text, context, batch_size, progress), strict=True))
    loss = nats / max(count, 1)
    found = {"log-loss": loss, "perplexity": exp(loss) if loss < MOST else inf}
    return found | (
        {"bits-per-byte": nats / log(2) / text.bytes} if objective.kind is LanguageModelling.CAUSAL_LM else {}
    )


@torch.no_grad()
def losses(
    model: PreTrainedModel, objective: Objective, text: Pieces, context: int, batch_size: int, progress: Progress
) -> list[tuple[float, int]]:
    """The sum of the losses of the predicted pieces in nats, and their number, for each batch in the order of the text.

    The parameters are those of :func:`evaluate`.
    """
    was = model.training
    model.eval()
    try:
        if objective.kind is LanguageModelling.CAUSAL_LM:
            ids = torch.from_numpy(text.ids).to(model.device)
            return [*_causal_nats(model, objective, ids, context, batch_size, progress)]
        return [*_masked_nats(model, objective, text, context, batch_size, progress)]
    finally:
        model.train(was)


def _causal_nats(
    model: PreTrainedModel, objective: Objective, ids: Tensor, context: int, batch_size: int, progress: Progress
) -> Iterator[tuple[float, int]]:
    """The losses of pieces 1 … t - 1."""

    def loss(windows: Tensor, first: int = 1) -> float:
        return float(objective.causal_loss(model, windows.long(), first))

    stride, total = max(1, context // 2), len(ids)
    first = ids[:context]
    yield loss(first[None]) * (len(first) - 1), len(first) - 1
    starts = range(stride, total - context + 1, stride)
    for i in range(0, len(starts), batch_size):
        windows = torch.stack([ids[start : start + context] for start in starts[i : i + batch_size]])
        count = stride * len(windows)
        yield loss(windows, context - stride) * count, count
        progress("evaluating", min(i + batch_size, len(starts)), len(starts))
    done = min(total, context + stride * len(starts))
    if done < total:
        last = ids[-context:]
        yield loss(last[None], len(last) - (total - done)) * (total - done), total - done


def _masked_nats(
    model: PreTrainedModel, objective: Objective, text: Pieces, context: int, batch_size: int, progress: Progress
) -> Iterator[tuple[float, int]]:
    """The losses of the masked pieces; each sequence has masks of its own seed."""
    blocks = torch.from_numpy(text.blocks(context, objective.around).astype(np.int64)).to(model.device)
    for start in range(0, len(blocks), batch_size):
        part = [objective.masked(block[None], start + i) for i, block in enumerate(blocks[start : start + batch_size])]
        masked, labels = (torch.cat(both) for both in zip(*part, strict=True))
        predicted = int((labels != IGNORED).sum())
        yield float(objective.masked_loss(model, masked, labels)) * predicted, predicted
        progress("evaluating", min(start + batch_size, len(blocks)), len(blocks))
