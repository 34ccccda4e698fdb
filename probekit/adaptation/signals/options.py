"""Options of the signals that are added to the labels of a training. Importing this module is cheap."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from probekit.constraint import Checked, Commas, Ge, Le, NotNegative, Positive, Share
from probekit.errors import UsageError
from probekit.recipe import option


class Consistency(StrEnum):
    """What differs between the two passes over a text whose outputs must agree."""

    DROPOUT = "dropout"
    WORD_DELETION = "word-deletion"


@dataclass(frozen=True, kw_only=True)
class SignalOptions(Checked):
    """What a training learns from beside the labels of its task."""

    teacher: str | None = option(
        None, "Distillation: a run of probekit train on the same labels, whose outputs are learned too.", metavar="RUN"
    )
    temperature: Positive = option(2.0, "Distillation: temperature of both softmaxes.", needs="teacher")
    distillation: Annotated[float, Ge(0), Le(1)] = option(
        0.5,
        "Distillation: weight of the teacher's outputs; the labels have the rest.",
        metavar="SHARE",
        needs="teacher",
    )
    match_hidden: NotNegative = option(
        0.0,
        "Distillation: weight of the distance between the hidden states of both models.",
        metavar="WEIGHT",
        needs="teacher",
    )
    lm_loss: NotNegative = option(
        0.0,
        "Weight of a language model's loss on the texts of the batch or, with --unlabelled, on those: causal for "
        "decoders, masked for encoders.",
        metavar="WEIGHT",
    )
    lm_anneal: bool = option(
        False, "Let the weight of --lm-loss fall linearly to 0 over the training.", needs="lm_loss"
    )
    unlabelled: str | None = option(
        None,
        "Text without labels: a split of a task (its labels are not read), or a file with a text in each line.",
        metavar="TASK:SPLIT|FILE",
        needs="lm_loss consistency pseudo_labels",
    )
    consistency: Consistency | None = option(
        None,
        "Unlabelled text is read twice, and the outputs must agree: dropout (both passes differ in dropout) or "
        "word-deletion (one pass lacks words).",
    )
    consistency_weight: NotNegative = option(
        1.0, "Weight of the disagreement on unlabelled text.", metavar="WEIGHT", needs="consistency"
    )
    confidence: Annotated[float, Ge(0), Le(1)] | None = option(
        None,
        "Lowest probability of the most likely class with which an unlabelled text counts (default: .8 for "
        "--consistency, .9 for --pseudo-labels).",
        needs="consistency pseudo_labels",
    )
    sharpening: Positive = option(
        1.0,
        "Consistency: temperature of the first pass's softmax; below 1, the second learns sharper distributions.",
        needs="consistency",
    )
    deletion: Share = option(
        0.1, "Word deletion: probability with which each word is left out.", needs="consistency=word-deletion"
    )
    pseudo_labels: str | None = option(
        None,
        "Self-training: a run of probekit train on the same labels, which labels the unlabelled texts; confident ones "
        "are added to the training examples.",
        metavar="RUN",
    )

    slices: str | None = option(
        None,
        "Slices: a TOML file of named conditions on examples. The run is evaluated on each, as TASK:SLICE, and "
        "compared with the other examples.",
        metavar="FILE.toml",
    )
    slice_heads: NotNegative = option(
        0.0,
        "Slices: weight of further heads that learn which slices an example is in, and the task on each slice.",
        metavar="WEIGHT",
        needs="slices",
    )
    also: Commas | None = option(
        None,
        "Multi-task fine-tuning: further tasks, separated by commas, each with a head of its own on the same encoder; "
        "--task chooses the epoch.",
        metavar="TASKS",
    )
    sampling: str = option(
        "power-0.75",
        "Multi-task: how the task of a batch is drawn, from the numbers of training examples n: uniform, proportional, "
        "power-0.75 (n to this power), annealed (the power falls from 1 to .2), or weights such as 2,1.",
        needs="also",
    )

    def together(self) -> None:
        if self.slice_heads and self.also is not None:
            raise UsageError("slice_heads are for one task; leave out --also or --slice-heads.")
        for name in ("consistency", "pseudo_labels"):
            if getattr(self, name) is not None and self.unlabelled is None:
                raise UsageError(f"{name} needs text without labels; give --unlabelled TASK:SPLIT or a file.")

    def signals(self) -> list[str]:
        """The names of the options that add a signal."""
        names = ("teacher", "lm_loss", "consistency", "pseudo_labels", "slice_heads")
        return [name for name in names if getattr(self, name)]
