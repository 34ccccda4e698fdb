"""A language model's loss beside that of the task, on the encoder that both train."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig

from probekit.adaptation.pretraining.language_model import masked_head, separable_head
from probekit.adaptation.pretraining.masking import masked
from probekit.adaptation.pretraining.options import LanguageModelling
from probekit.adaptation.signals.unlabelled import Unlabelled
from probekit.adaptation.training.learners import READ, Learner
from probekit.adaptation.training.objective import Batch, Outputs
from probekit.errors import UsageError, reading
from probekit.models.adapted.direction import reads_ahead
from probekit.models.adapted.record import adapted
from probekit.models.conversion import reads_apart
from probekit.models.scoring.load import is_causal, load_language_model
from probekit.models.transformers.stock import quiet_transformers
from probekit.models.transformers.tokens import load_tokenizer
from probekit.models.transformers.towers import class_for, language_model_of

log = logging.getLogger(__name__)

HEAD = "language_model"
OF_MASKS = 0x6D61736B
Inputs = Mapping[str, Tensor]


class TiedHead(nn.Module):
    """A transform, and the input embeddings as output weights, as in BERT's head (Devlin et al. 2019).

    Attributes
    ----------
    transform : nn.Sequential
        Linear layer, GELU and layer norm, new.
    decoder : nn.Linear
        From the width of the embeddings to the vocabulary, with the weights of the embeddings and a new bias.
    """

    def __init__(self, width: int, embeddings: nn.Embedding) -> None:
        super().__init__()
        pieces, inner = embeddings.weight.shape
        self.transform = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.LayerNorm(inner))
        self.decoder = nn.Linear(inner, pieces, device="meta")
        self.decoder.weight = embeddings.weight
        self.decoder.bias = nn.Parameter(torch.zeros(pieces))

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits (n, pieces) of states (n, d)."""
        logits: Tensor = self.decoder(self.transform(hidden))
        return logits


def causal_loss(head: nn.Module, hidden: Tensor, inputs: Inputs) -> Tensor:
    """Mean cross-entropy of each piece of a text but the first, given those before it, in nats.

    Parameters
    ----------
    head : nn.Module
        From states (n, d) to logits (n, pieces).
    hidden : Tensor
        Float (b, t, d), the last states of the pieces.
    inputs : Inputs
        ``input_ids`` and ``attention_mask``, (b, t).
    """
    known = (inputs["attention_mask"][:, 1:] > 0) & (inputs["attention_mask"][:, :-1] > 0)
    logits = head(hidden[:, :-1][known])
    return functional.cross_entropy(logits.float(), inputs["input_ids"][:, 1:][known], reduction="sum") / max(
        1, int(known.sum())
    )


def masked_loss(encoder: Any, head: nn.Module, inputs: Inputs, mask: int, draw: torch.Generator) -> Tensor:
    """Mean cross-entropy of the pieces that are masked, in nats; 0 if there are none."""
    special = inputs["special"] | (inputs["attention_mask"] == 0)
    pieces = int(encoder.get_input_embeddings().weight.shape[0])
    hidden, chosen = masked(inputs["input_ids"], special, mask=mask, vocabulary=pieces, draw=draw)
    read = {name: x for name, x in inputs.items() if name in READ} | {"input_ids": hidden}
    logits = head(encoder(**read).last_hidden_state[chosen])
    return functional.cross_entropy(logits.float(), inputs["input_ids"][chosen], reduction="sum") / max(
        1, int(chosen.sum())
    )


class LanguageModelLoss:
    """The term W · loss of a language model; annealed, W falls linearly to 0 over the training.

    GPT adds it with W = .5 (Radford et al. 2018, eq. 5). Decoders predict each next piece from the states of the same
    pass as the task (or a pass over unlabelled text); encoders make a pass over the text with masks.

    Attributes
    ----------
    kind : LanguageModelling
        Causal or masked.
    weight : float
        W at the start.
    anneal : bool
        Whether it falls.
    mask : int
        The piece of a mask.
    seed : int
        Seed of the masks.
    texts : Unlabelled, optional
        The texts that are read instead of those of the batch.
    """

    name = "language-model"

    def __init__(
        self, learner: Learner, kind: LanguageModelling, *, weight: float, anneal: bool, mask: int, seed: int,
        texts: Unlabelled | None = None,
    ) -> None:  # fmt: skip
        self.kind, self.weight, self.anneal, self.mask, self.seed, self.texts = kind, weight, anneal, mask, seed, texts
        self._last: list[Tensor] = []
        if kind is LanguageModelling.CAUSAL_LM and texts is None:
            learner.encoder.register_forward_hook(self._hold)

    def _hold(self, encoder: nn.Module, _: Any, out: Any) -> None:
        if encoder.training:
            self._last.append(out.last_hidden_state)

    def __call__(self, learner: Learner, batch: Batch, out: Outputs, step: int, total: int, part: int = 0) -> Tensor:
        states, self._last = self._last, []
        weight = self.weight * (1 - step / total) if self.anneal else self.weight
        if self.texts is not None:
            batch = self.texts.batch(self.texts.rows(self.texts.draw(step, part)), out["logits"].device)
        encoder = learner.encoder
        head = learner.auxiliary[HEAD]
        seed = np.random.SeedSequence((self.seed, OF_MASKS, step, part)).generate_state(1)[0]
        draw = torch.Generator().manual_seed(int(seed))
        losses = []
        for i, inputs in enumerate(batch[name] for name in ("first", "second") if name in batch):
            if self.kind is LanguageModelling.MASKED_LM:
                losses.append(masked_loss(encoder, head, inputs, self.mask, draw))
            else:
                read = {name: x for name, x in inputs.items() if name in READ}
                hidden = encoder(**read).last_hidden_state if self.texts is not None else states[i]
                losses.append(causal_loss(head, hidden, inputs))
        return weight * torch.stack(losses).mean()


def language_model_loss(
    learner: Learner, folder: Path, *, weight: float, anneal: bool, seed: int, texts: Unlabelled | None = None
) -> LanguageModelLoss:
    """The term for the encoder of a learner, which gets a head: the model's own, or a new one.

    Parameters
    ----------
    folder : Path
        Folder of the pretrained model; its head is used if config.json names a language model.

    Raises
    ------
    UsageError
        For encoders without embeddings of pieces, and those on both sides without a piece for masks.
    """
    encoder = learner.encoder
    kind_of_model = encoder.config.model_type
    if reads_apart(kind_of_model) or not isinstance(encoder.get_input_embeddings(), nn.Embedding):
        raise UsageError(f"{kind_of_model} has no embeddings of pieces to predict; --lm-loss needs a transformer.")
    kind = LanguageModelling.MASKED_LM if reads_ahead(encoder) else LanguageModelling.CAUSAL_LM
    mask = load_tokenizer(folder).mask_token_id if kind is LanguageModelling.MASKED_LM else 0
    if mask is None:
        raise UsageError(f"{folder} has no piece for masks, which an encoder needs for --lm-loss; leave it out.")
    head = own_head(folder, encoder, kind)
    learner.auxiliary[HEAD] = head or TiedHead(int(encoder.config.hidden_size), encoder.get_input_embeddings())
    return LanguageModelLoss(learner, kind, weight=weight, anneal=anneal, mask=int(mask or 0), seed=seed, texts=texts)


def own_head(folder: Path, encoder: Any, kind: LanguageModelling) -> nn.Module | None:
    """The model's own head on this encoder; None if it has none that can be applied to single states."""
    causal = kind is LanguageModelling.CAUSAL_LM
    try:
        if is_causal(folder, "it has none") is not causal:
            return None
    except UsageError:
        return None
    run = adapted(folder)
    with reading(folder, "a language model"), quiet_transformers(), torch.random.fork_rng(devices=[]):
        if run is not None and run.adapters:
            model: Any = load_language_model(folder, causal=causal, random_weights=None)
        else:
            where: Any = {"trust_remote_code": False, "local_files_only": True}
            made = class_for(AutoConfig.from_pretrained(folder, **where), causal=causal)
            model = language_model_of(made.from_pretrained(folder, dtype=torch.float32, **where))
    if not separable_head(model, kind):
        log.warning("the head of %s cannot be applied to single states; --lm-loss starts with a new head.", folder)
        return None
    head: Any = model.get_output_embeddings() if causal else masked_head(model)
    theirs = model.get_input_embeddings().weight
    for module in list(head.modules()):
        if isinstance(module, nn.Linear) and module.weight is theirs:
            module.weight = encoder.get_input_embeddings().weight
    return head.requires_grad_(requires_grad=True)
