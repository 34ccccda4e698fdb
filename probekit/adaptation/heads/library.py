"""The transformers class that is equivalent to an encoder with a head, and the labels in config.json."""

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

OUTPUT, POOLER = "head.output", "encoder.pooler."
"""Names of the head's linear layer and of the encoder's pooler in a learner."""

TAGGERS = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "albert"), "classifier"),
    **dict.fromkeys(("electra", "deberta-v2", "gpt2", "gpt_neox"), "classifier"),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), "score"),
}
"""Name of the linear layer in ForTokenClassification, by model type."""

_BERT = {"classifier": OUTPUT}
_ROBERTA = {"classifier.dense": f"{POOLER}dense", "classifier.out_proj": OUTPUT}
ANSWERING = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "albert", "electra")
"""Model types whose ForQuestionAnswering is a linear layer called qa_outputs on the last layer."""
CLASSIFIERS = {"bert": _BERT, "albert": _BERT, "roberta": _ROBERTA, "xlm-roberta": _ROBERTA, "camembert": _ROBERTA}
"""Names of the pooler (if the class has one) and of the linear layer in ForSequenceClassification, by model type."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of the weights of an encoder with a head in a model folder for transformers.

    Attributes
    ----------
    prefix : str, default ''
        Prefix of the encoder's weights.
    names : Mapping[str, str]
        The learner's names of all other weights of the library's class, by the library's names.
    left : frozenset[str], optional
        The learner's names of the pooler's weights, if this class lacks the pooler.
    config : Mapping[str, Any]
        The architecture and labels in config.json; None removes a key.
    """

    prefix: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    left: frozenset[str] = frozenset()
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def written(self) -> str:
        """The name of the model's file."""
        return "model.safetensors"

    @property
    def documents(self) -> Mapping[str, Mapping[str, Any]]:
        """The content of JSON files beside it."""
        return {}

    def weights(self, state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The weights in the model's file by the library's names, and the others by the learner's names."""
        encoder = {k for k in state if k.startswith("encoder.")} - self.left
        model = {self.prefix + k.removeprefix("encoder."): state[k] for k in state if k in encoder}
        model |= {name: state[ours] for name, ours in self.names.items()}
        return model, {k: v for k, v in state.items() if k not in encoder}


BARE = Layout()
"""The layout of an encoder without a head."""


def library_layout(encoder: Any, head: HeadSpec, task: TaskSpec, *, mixed: bool) -> Layout | None:
    """The layout of the transformers class that gives the same logits; None if there is none.

    Parameters
    ----------
    encoder : Any
        The transformers model from AutoModel.
    mixed : bool
        Whether the head reads a mix of the layers.
    """
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_MULTIPLE_CHOICE_MAPPING,
        MODEL_FOR_QUESTION_ANSWERING_MAPPING,
        MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
        MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    )

    kind = encoder.config.model_type
    if mixed:
        return None
    if head.head == "response":
        made = MODEL_FOR_CAUSAL_LM_MAPPING[type(encoder.config)]
        names = _output_names(made, encoder.config) if not head.tied else {}
        return Layout(f"{made.base_model_prefix}.", names, config={"architectures": [made.__name__]})
    if head.head == "softmax" and kind in TAGGERS:
        known, modules = MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING, {TAGGERS[kind]: OUTPUT}
    elif head.head == "linear" and head.pooling == "pooler" and not head.pairs_apart and kind in CLASSIFIERS:
        if head.windows is not None:
            return None
        known, modules = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, CLASSIFIERS[kind]
    elif head.head == "span" and kind in ANSWERING:
        known, modules = MODEL_FOR_QUESTION_ANSWERING_MAPPING, {"qa_outputs": OUTPUT}
    elif head.head == "choice" and head.pooling == "pooler" and kind in ("bert", "albert"):
        known, modules = MODEL_FOR_MULTIPLE_CHOICE_MAPPING, _BERT
    else:
        return None
    made = known[type(encoder.config)]
    prefix = f"{made.base_model_prefix}."
    names = {f"{name}.{x}": f"{ours}.{x}" for name, ours in modules.items() for x in ("weight", "bias")}
    expected = _weights_of(made, encoder.config, task.outputs)
    present = {prefix + name for name in encoder.state_dict()}
    left = frozenset(f"encoder.{name.removeprefix(prefix)}" for name in present - expected)
    if expected - present != names.keys() or not all(name.startswith(POOLER) for name in left):
        return None  # another version of the library
    return Layout(prefix, names, left, _described(task) | {"architectures": [made.__name__]})


def bare_layout(encoder: Any, task: TaskSpec, prefix: str = "") -> Layout:
    """The layout of the encoder with AutoModel's weight names; the head is stored separately."""
    from transformers import MODEL_MAPPING

    made = MODEL_MAPPING.get(type(encoder.config), None)
    bare = {} if made is None or isinstance(made, tuple) else {"architectures": [made.__name__]}
    return Layout(prefix, config=_described(task) | bare)


def _output_names(made: type[nn.Module], config: Any) -> dict[str, str]:
    """The head's names of the output weights of a causal language model, by the library's names."""
    with torch.device("meta"):
        model: Any = made(deepcopy(config))
    output = model.get_output_embeddings()
    place = next(name for name, module in model.named_modules() if module is output)
    return {f"{place}.{name}": f"{OUTPUT}.{name}" for name, _ in output.named_parameters()}


def _weights_of(made: type[nn.Module], config: Any, outputs: int) -> set[str]:
    """The names of the weights of a library class, without allocating memory."""
    config = deepcopy(config)
    config.num_labels = outputs
    with torch.device("meta"):
        return set(made(config).state_dict())


def _described(task: TaskSpec) -> dict[str, Any]:
    """The labels for config.json; transformers treats a single label as a number."""
    problem = "multi_label_classification" if task.kind is TaskKind.MULTI_LABEL else None
    unnamed = {TaskKind.REGRESSION: ("LABEL_0",), TaskKind.QUESTION_ANSWERING: ("LABEL_0", "LABEL_1")}
    names = unnamed.get(task.kind, task.label_names)
    return {
        "num_labels": len(names),
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
        "problem_type": "regression" if task.numbers else problem,
    }
