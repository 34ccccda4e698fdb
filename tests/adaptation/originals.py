"""The names of weights in AllenNLP's and jiant's models, and ours."""

from collections.abc import Mapping

import torch
from torch import Tensor

BCN = {
    "_pre_encode_feedforward._linear_layers.0.": "pre_encode.",
    "_encoder._module.": "encoder.",
    "_integrator._module.": "integrator.",
    "_self_attentive_pooling_projection.": "attention.",
    "_output_layer._linear_layers.": "output.",
}
ESIM = {
    "_encoder._module.": "encoder.",
    "_projection_feedforward._linear_layers.0.": "projection.",
    "_inference_encoder._module.": "inference.",
    "_output_feedforward._linear_layers.0.": "output.0.",
    "_output_logit._linear_layers.0.": "output.3.",
}
BILSTM = {
    "encoder._module.": "encoder.",
    "tag_projection_layer._module.": "output.",
    "crf.transitions": "crf.transitions",
    "crf.start_transitions": "crf.start_transitions",
    "crf.end_transitions": "crf.end_transitions",
}
MAX_MLP = {"pooler.project.": "projection.", "classifier.classifier.": "output."}
ATTENTION_MAX_MLP = {"attn._modeling_layer._module.": "encoder.", "classifier.classifier.": "output."}


def renamed(weights: Mapping[str, Tensor], prefixes: Mapping[str, str]) -> dict[str, Tensor]:
    """Select the weights whose names begin with one of these prefixes, and replace the prefix.

    renamed(torch.load(path, weights_only=True), ESIM)     # for ESIM.load_state_dict
    """
    return {
        prefixes[old] + name.removeprefix(old): weight
        for name, weight in weights.items()
        for old in prefixes
        if name.startswith(old)
    }


def scalar_mix(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The weights of the scalar mix whose names begin with ``prefix``; AllenNLP stores one per layer.

    scalar_mix(weights, "_elmo.scalar_mix_0.")     # for ScalarMix.load_state_dict
    """
    mix = renamed(weights, {prefix: ""})
    layers = sum(name.startswith("scalar_parameters.") for name in mix)
    return {
        "scalar_parameters": torch.cat([mix[f"scalar_parameters.{i}"] for i in range(layers)]),
        "gamma": mix["gamma"],
    }
