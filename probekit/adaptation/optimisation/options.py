"""Options of the order of layers, of mixout and of penalties on the weights. Importing this module is cheap.

Its annotations are types, not strings: the command line reads them in a class of another module that inherits them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from probekit.adaptation.optimisation.order import check_order
from probekit.constraint import Checked, Commas, Count, NotNegative, Part
from probekit.errors import UsageError
from probekit.recipe import option


class Penalty(StrEnum):
    """A penalty on the distance of the encoder's weights from those that training starts with."""

    L2_SP = "l2-sp"  # the squared distance (Li, Grandvalet & Davoine 2018)
    EWC = "ewc"  # the same, each weight by its Fisher information on an old task (Kirkpatrick et al. 2017)


class FisherLabels(StrEnum):
    """The labels with which the Fisher information is computed."""

    GOLD = "gold"
    PREDICTED = "predicted"


QUANTISED = ("8bit", "4bit")
"""Integers with a scale for each output (Dettmers et al. 2022); NormalFloat as in QLoRA (Dettmers et al. 2023)."""
FROZEN = ("lora", "dora", "ia3", "prefix", "prompt", "adapter")
"""Methods that train no weight of the base."""


@dataclass(frozen=True, kw_only=True)
class OptimisationOptions(Checked):
    """The order of layers, and penalties on the weights of a fine-tuned encoder."""

    order: Commas = option(
        "",
        "Fine-tuning: stages in which layers are trained, separated by commas: head, embeddings, blocks, layers "
        "(blocks and embeddings), body (all but the embeddings) or all. blocks:top-down trains the head and one block "
        "more in each epoch (also bottom-up; :alone: each by itself). head=2 takes 2 epochs, the last stage all that "
        "remain. "
        "Or all, top, gradual, chain-thaw, sequential (default: as --unfreezing).",
        metavar="STAGES",
    )
    mixout: Part = option(
        0.0,
        "Fine-tuning: in each training step, replace each weight of the encoder's linear layers by its first value "
        "with this probability.",
        metavar="P",
    )
    penalty: Penalty | None = option(
        None,
        "Fine-tuning: penalty on the distance of the encoder's weights from those it starts with: l2-sp, or ewc "
        "(weighted by the Fisher information on --fisher-task).",
    )
    penalty_strength: NotNegative | None = option(
        None, "Penalty: factor of half the squared distance; 0 for none.", metavar="NUMBER", needs="penalty"
    )
    head_penalty: NotNegative = option(
        0.0, "Penalty: factor of half the squared norm of the head's weights, the beta of L2-SP.", needs="penalty"
    )
    fisher_task: str | None = option(
        None,
        "EWC: the old task, that --model was fine-tuned on: its name, or a TOML file.",
        metavar="TASK",
        needs="penalty=ewc",
    )
    fisher_split: str = option("train", "EWC: split of the old task.", metavar="SPLIT", needs="penalty=ewc")
    fisher_examples: Count = option(
        1000, "EWC: examples of the old task, drawn at random.", metavar="N", needs="penalty=ewc"
    )
    fisher_labels: FisherLabels = option(
        FisherLabels.GOLD, "EWC: labels of the old examples: gold, or predicted (the model's own).", needs="penalty=ewc"
    )

    compile: bool = option(False, "Fine-tuning: compile the encoder with torch.compile (needs a C++ compiler).")

    quantise: str | None = option(
        None,
        "Fine-tuning with --method lora, dora, ia3, prefix, prompt or adapter: quantise the linear layers of the base, "
        "8bit or 4bit (needs bitsandbytes).",
        metavar="8bit|4bit",
    )

    shard: bool = option(
        False, "Fine-tuning in several processes: spread weights, gradients and moments of the optimiser (FSDP2)."
    )

    def together(self) -> None:
        check_order(self.order or "all")
        if getattr(self, "regime", "fine-tune") != "fine-tune" and (
            self.order or self.mixout or self.compile or self.shard
        ):
            raise UsageError("order, mixout, compile and shard are for fine-tuning; a frozen encoder is not trained.")
        if self.quantise is not None:
            self._check_quantised()
        if self.compile and self.mixout:
            raise UsageError("mixout replaces weights in each step, which a compiled encoder does not see; give one.")
        if self.penalty is not None and getattr(self, "regime", "fine-tune") != "fine-tune":
            raise UsageError("a penalty on the encoder's weights is for fine-tuning; a frozen encoder does not move.")
        if self.penalty is not None or self.mixout:
            if (method := str(getattr(self, "method", "full"))) not in ("full", "bitfit", "norms", "last"):
                raise UsageError(
                    f"penalty and mixout hold pretrained weights; the method {method} trains new ones. Leave them out, "
                    "or choose --method full."
                )
            if getattr(self, "reinit_top", 0):
                raise UsageError(
                    "penalty and mixout hold pretrained weights; reinit_top replaces some, so leave it out."
                )
        if self.penalty is not None and self.penalty_strength is None:
            raise UsageError(f"the penalty {self.penalty} needs its factor: add --penalty-strength, such as 0.01.")
        if self.penalty is Penalty.EWC and self.fisher_task is None:
            raise UsageError(
                "EWC needs old data: give --fisher-task, the task that the model was fine-tuned on before. Without old "
                "data, use --penalty l2-sp."
            )

    def _check_quantised(self) -> None:
        how: Any = self
        if self.quantise not in QUANTISED:
            raise UsageError(f"quantise is {self.quantise!r}; it must be one of {', '.join(QUANTISED)}.")
        if how.method not in FROZEN:
            raise UsageError(
                f"--quantise {self.quantise} freezes the base's weights, which --method {how.method} trains; choose "
                f"one of {', '.join(FROZEN)}, or leave out --quantise."
            )
        for name in ("shard", "compile"):
            if getattr(self, name):
                raise UsageError(f"--{name} does not work with quantised weights; leave out --{name} or --quantise.")
