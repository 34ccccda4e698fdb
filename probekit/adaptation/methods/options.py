"""Options of the method and of the architecture, checked when they are created. Importing this module is cheap."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from probekit.constraint import Checked, Commas, Count, Natural, Part, Positive, Size
from probekit.errors import UsageError
from probekit.recipe import option


class Method(StrEnum):
    """Which weights of the encoder fine-tuning changes; the head is always trained."""

    FULL = "full"  # all
    LORA = "lora"  # low-rank changes of chosen layers (Hu et al. 2022)
    DORA = "dora"  # LoRA of the directions, with trained magnitudes (Liu et al. 2024)
    IA3 = "ia3"  # factors of keys, values and feed-forward activations (Liu et al. 2022)
    PREFIX = "prefix"  # keys and values before the text's in each block (Li & Liang 2021)
    PROMPT = "prompt"  # embeddings before the text's (Lester et al. 2021)
    BITFIT = "bitfit"  # the biases (Ben Zaken et al. 2022)
    ADAPTER = "adapter"  # small layers after those of the blocks (Houlsby et al. 2019; Pfeiffer et al. 2021)
    NORMS = "norms"  # weights and biases of layer norms
    LAST = "last"  # the last blocks (Lee et al. 2019)


class Placement(StrEnum):
    """Where bottleneck adapters are in a block."""

    HOULSBY = "houlsby"  # after attention and after the feed-forward part
    PFEIFFER = "pfeiffer"  # after the feed-forward part only


class Attention(StrEnum):
    """The pieces on which the vector of a piece depends."""

    CAUSAL = "causal"  # those before it, as in decoders
    BIDIRECTIONAL = "bidirectional"  # all, as in encoders


METHOD_DEFAULTS: dict[Method, dict[str, Any]] = {
    Method.LORA: {"learning_rate": 5e-4},
    Method.DORA: {"learning_rate": 5e-4},
    Method.IA3: {"learning_rate": 3e-3, "weight_decay": 0.0},
    Method.PREFIX: {"learning_rate": 5e-3, "weight_decay": 0.0},
    Method.PROMPT: {"learning_rate": 3e-2, "weight_decay": 0.0},
    Method.BITFIT: {"learning_rate": 1e-3},
    Method.ADAPTER: {"learning_rate": 3e-4},
    Method.NORMS: {"learning_rate": 1e-3},
}
"""Default rates that differ from those of full fine-tuning.

LoRA: 4e-4 or 5e-4 for RoBERTa-base on GLUE (Hu et al. 2022, table 9). IA3: 3e-3 without decay in the authors' program,
with Adafactor (H. Liu et al. 2022, configs/ia3.json). Prefix: 5e-3 for BERT-large on BoolQ, 1e-2 on RTE, in the program
of P-tuning v2 (X. Liu et al. 2022). BitFit: the default of the authors' program (Ben Zaken et al. 2022, run_glue.py).
Adapters: the example for MRPC in the authors' program (Houlsby et al. 2019). Our choice: DoRA (as LoRA), prompt and
norms, Pfeiffer's placement (as Houlsby's), and no decay of prefixes and prompts.
"""


@dataclass(frozen=True, kw_only=True)
class MethodOptions(Checked):
    """Which weights of the encoder are trained, and which blocks it has."""

    method: Method = option(
        Method.FULL,
        "Weights of the encoder to train: full (all), lora, dora, ia3, prefix, prompt, bitfit (biases), adapter "
        "(bottleneck layers), norms or last (blocks); the run then holds only the changed weights.",
    )
    rank: Size = option(8, "LoRA and DoRA: rank of the change of each layer.", needs="method=lora|dora")
    alpha: Positive = option(16.0, "LoRA and DoRA: the change is multiplied by alpha / rank.", needs="method=lora|dora")
    targets: Commas | None = option(
        None,
        "LoRA, DoRA, IA3: layers to adapt, by the ends of their names or by what they do (q, k, v, o, down, all), "
        "separated by commas (default: queries and values; IA3: keys, values and the end of the feed-forward part).",
        metavar="NAMES",
        needs="method=lora|dora|ia3",
    )
    method_dropout: Part = option(0.0, "LoRA and DoRA: dropout of the input of the change.", needs="method=lora|dora")
    bottleneck: Size = option(64, "Adapters: size of the bottleneck.", needs="method=adapter")
    placement: Placement = option(
        Placement.HOULSBY,
        "Adapters: houlsby (after attention and feed-forward part) or pfeiffer (feed-forward only).",
        needs="method=adapter",
    )
    virtual_tokens: Size = option(
        20, "Prefix and prompt: number of trained vectors before the text.", needs="method=prefix|prompt"
    )
    last: Count = option(2, "Last: number of blocks to train, from the top.", needs="method=last")
    keep_layers: Count | None = option(None, "Drop the blocks above the first N before training.", metavar="N")
    reinit_top: Natural = option(
        0, "Draw the weights of the top K blocks and of the pooler anew before training (Zhang et al. 2021).",
        metavar="K",
    )  # fmt: skip
    attention: Attention | None = option(
        None,
        "Let a pretrained encoder read as a decoder does (causal: the pieces before), or a decoder as an encoder does "
        "(bidirectional); default: as it was pretrained.",
    )

    def together(self) -> None:
        how: Any = self
        changed = [
            f"--{n.replace('_', '-')}"
            for n, off in (("method", Method.FULL), ("keep_layers", None), ("reinit_top", 0), ("attention", None))
            if getattr(self, n) != off
        ]
        if changed and how.regime == "feature-extraction":
            raise UsageError(f"{changed[0]} is for fine-tuning; in feature extraction the encoder is not trained.")
        if self.method in (Method.PREFIX, Method.PROMPT):
            if how.unfreezing != "all" or how.layer_factor != 1 or how.order:
                raise UsageError(
                    f"{self.method} trains no layer, so --unfreezing, --order and --layer-factor have no effect."
                )
            if self.method is Method.PREFIX and how.gradient_checkpointing:
                raise UsageError(
                    "prefix tuning keeps keys and values, which --gradient-checkpointing would drop. Leave out one."
                )
        if self.attention is not None and how.lm_loss:
            raise UsageError("the language model was not learned with other --attention; leave out --lm-loss.")
        if self.reinit_top and self.method not in (Method.FULL, Method.LAST):
            raise UsageError(
                f"--reinit-top draws blocks anew that --method {self.method} does not train; use full or last."
            )
        if self.method is Method.LAST and self.reinit_top > self.last:
            raise UsageError(
                f"--reinit-top {self.reinit_top} draws blocks anew that --last {self.last} does not train."
            )
