"""The class of transformers that computes what an encoder with a head does, and what config.json says of the labels."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.heads.spec import HeadSpec
from probekit.tasks.task import TaskKind

__all__ = ["BARE", "POOLER", "Layout", "bare_layout", "library_layout"]

OUTPUT, POOLER = "head.output", "encoder.pooler."
"""What a learner calls the head's linear layer, and the encoder's pooler."""

TAGGERS = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "albert"), "classifier"),
    **dict.fromkeys(("electra", "deberta-v2", "gpt2", "gpt_neox"), "classifier"),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), "score"),
}
"""What ForTokenClassification calls the linear layer on its last hidden states, by type of model."""

_BERT = {"classifier": OUTPUT}
_ROBERTA = {"classifier.dense": f"{POOLER}dense", "classifier.out_proj": OUTPUT}
CLASSIFIERS = {"bert": _BERT, "albert": _BERT, "roberta": _ROBERTA, "xlm-roberta": _ROBERTA, "camembert": _ROBERTA}
"""What ForSequenceClassification calls the pooler, where it has one of its own, and the linear layer on it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the weights of an encoder with a head lie in a model folder that transformers reads.

    Attributes
    ----------
    prefix : str, default ''
        Of the encoder's weights.
    names : Mapping[str, str]
        What the learner calls each further weight of the library's class, by the library's name.
    left : frozenset[str], optional
        Weights of the encoder's pooler, where this class lacks it; by the learner's names.
    config : Mapping[str, Any]
        What config.json says of architecture and labels; None for what it no longer says.
    """

    prefix: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    left: frozenset[str] = frozenset()
    config: Mapping[str, Any] = field(default_factory=dict)

    def weights(self, state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What lies in the model's file by the library's names, and what lies beside it by the learner's."""
        own = {k for k in state if k.startswith("encoder.")} - self.left
        model = {self.prefix + k.removeprefix("encoder."): state[k] for k in state if k in own}
        model |= {name: state[ours] for name, ours in self.names.items()}
        return model, {k: v for k, v in state.items() if k not in own}


BARE = Layout()
"""Of an encoder alone, and of none."""


def library_layout(encoder: Any, head: HeadSpec, task: TaskSpec, *, mixed: bool) -> Layout | None:
    """The layout of the class of transformers that gives the same logits; None where there is none.

    Parameters
    ----------
    encoder : Any
        The transformers model that AutoModel makes.
    mixed : bool
        Whether the head reads a mix of the layers.
    """
    from transformers import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING

    kind = encoder.config.model_type
    if mixed:
        return None
    if head.head == "softmax" and kind in TAGGERS:
        known, modules = MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING, {TAGGERS[kind]: OUTPUT}
    elif head.head == "linear" and head.pooling == "pooler" and not head.pairs_apart and kind in CLASSIFIERS:
        known, modules = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, CLASSIFIERS[kind]
    else:
        return None
    made = known[type(encoder.config)]
    prefix = f"{made.base_model_prefix}."
    names = {f"{name}.{x}": f"{ours}.{x}" for name, ours in modules.items() for x in ("weight", "bias")}
    wanted = _weights_of(made, encoder.config, task.outputs)
    there = {prefix + name for name in encoder.state_dict()}
    left = frozenset(f"encoder.{name.removeprefix(prefix)}" for name in there - wanted)
    if wanted - there != names.keys() or not all(name.startswith(POOLER) for name in left):
        return None  # another version of the library
    return Layout(prefix, names, left, _described(task) | {"architectures": [made.__name__]})


def bare_layout(encoder: Any, task: TaskSpec, prefix: str = "") -> Layout:
    """The encoder alone, its weights named as AutoModel names them; the head lies beside it."""
    from transformers import MODEL_MAPPING

    made = MODEL_MAPPING.get(type(encoder.config), None)
    bare = {} if made is None or isinstance(made, tuple) else {"architectures": [made.__name__]}
    return Layout(prefix, config=_described(task) | bare)


def _weights_of(made: type[nn.Module], config: Any, outputs: int) -> set[str]:
    """The names of the weights of a class of the library, which takes no memory."""
    config = deepcopy(config)
    config.num_labels = outputs
    with torch.device("meta"):
        return set(made(config).state_dict())


def _described(task: TaskSpec) -> dict[str, Any]:
    """The labels as config.json has them; a number is what transformers takes one label for."""
    number = task.kind is TaskKind.REGRESSION
    names = ("LABEL_0",) if number else task.label_names
    return {
        "num_labels": len(names),
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
        "problem_type": "regression" if number else None,
    }
