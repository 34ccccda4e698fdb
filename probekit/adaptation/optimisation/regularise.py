"""What keeps weights near those at the start: mixout (Lee, Cho & Kang 2020), L2-SP, EWC and Fisher information."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from probekit.adaptation.data.batches import Data
from probekit.adaptation.data.reading import data_as_in
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.heads.head import Head
from probekit.adaptation.optimisation.options import FisherLabels, Penalty
from probekit.adaptation.options import Regime
from probekit.adaptation.runs.evaluation import load_learner
from probekit.adaptation.runs.predictions import on_device
from probekit.adaptation.training.groups import moved_weights
from probekit.adaptation.training.learners import FineTuning, Learner
from probekit.adaptation.training.multi_task import card_for
from probekit.adaptation.training.objective import Batch, Outputs, Training, check_labelled
from probekit.errors import UsageError
from probekit.models.identity import CARD
from probekit.models.loading import text_reader
from probekit.models.transformers.onednn import onednn_available, train_with_onednn
from probekit.runtime import Progress, no_progress
from probekit.tasks.context import Context, in_context
from probekit.tasks.task import Task


def regularised(training: Training, old: Task | None, progress: Progress = no_progress) -> Training:
    """The training with mixout and the penalty of its options, from the weights that its learner has now.

    A probability and a strength of 0 leave the training as it is.

    Parameters
    ----------
    old : Task | None
        The old task of EWC.

    Raises
    ------
    UsageError
        If none of the weights that they hold is ever trained.
    """
    how = training.options
    _check_effect(training)
    if how.mixout:
        add_mixout(training.learner.encoder, how.mixout)
    if how.penalty is None or (not how.penalty_strength and not how.head_penalty):
        return training
    importance = None
    if how.penalty is Penalty.EWC:
        assert old is not None
        assert training.source is not None
        importance = fisher_of_run(
            training.source, old, how.fisher_split, examples=how.fisher_examples, seed=how.data_seed,
            labels=how.fisher_labels, device=how.device, progress=progress,
        )  # fmt: skip
    term = DistancePenalty(
        str(how.penalty), training.learner, strength=how.penalty_strength or 0.0, head_strength=how.head_penalty,
        importance=importance,
    )  # fmt: skip
    return replace(training, terms=(*training.terms, term))


def _check_effect(training: Training) -> None:
    how, learner = training.options, training.learner
    moved = moved_weights(learner.groups(), how) if how.mixout or how.penalty_strength else {}
    if how.mixout:
        weights = {id(weight) for weight in moved.values()}
        if not any(id(one.weight) in weights for one in linear_layers(learner.encoder)):
            raise UsageError(
                "mixout holds the weights of the encoder's linear layers, and this run trains none of them. Leave out "
                "--mixout, or choose another --method, --unfreezing or --order."
            )
    if how.penalty_strength and not moved:
        raise UsageError(
            f"the penalty {how.penalty} holds the encoder's weights, and this run trains none of them. Leave out "
            "--penalty (or set --penalty-strength 0, for --head-penalty alone), or choose another --unfreezing or "
            "--order."
        )


def mixout(weight: Tensor, start: Tensor, p: float) -> Tensor:
    """Each weight replaced by its value at the start with probability p, corrected so that the mean is the weight.

    ((1 - m) w0 + m w - p w0) / (1 - p) with m = 0 with probability p, else 1 (equation 4), which is w0 + the dropout of
    w - w0. The mask comes from torch's generator.

    Examples
    --------
    >>> import torch
    >>> from probekit.adaptation.optimisation.regularise import mixout
    >>> w, w0 = torch.tensor([2.0, 2.0, 2.0, 2.0]), torch.ones(4)
    >>> sorted(set(mixout(w, w0, 0.5).tolist())) in ([1.0], [1.0, 3.0], [3.0])
    True
    """
    return start + functional.dropout(weight - start, p)


def linear_layers(module: nn.Module) -> list[nn.Module]:
    """The trained linear layers (and GPT-2's Conv1D) of a module."""
    return [one for one in module.modules() if isinstance(one, nn.Linear | Conv1D) and one.weight.requires_grad]


def add_mixout(module: nn.Module, p: float) -> int:
    """Apply :func:`mixout` in training to the weights of all :func:`linear_layers` of a module.

    The weights of now are those at the start, of which one copy is kept outside the module's state. Biases are not
    replaced, as in the authors' program. Returns the number of layers.
    """
    layers = linear_layers(module)
    for layer in layers:
        mixed = _Mixed(cast("Tensor", layer.weight).detach().clone(), p)
        layer.register_forward_pre_hook(mixed.begin)
        layer.register_forward_hook(mixed.end, always_call=True)
    return len(layers)


class _Mixed:
    """Hides a layer's parameter behind the mixed weight during its forward pass."""

    def __init__(self, start: Tensor, p: float) -> None:
        self.start, self.p = start, p

    def begin(self, layer: nn.Module, inputs: Any) -> None:
        if layer.training:
            weight = layer._parameters["weight"]
            assert weight is not None
            self.start = self.start.to(weight.device)
            layer.__dict__["weight"] = mixout(weight, self.start, self.p)

    def end(self, layer: nn.Module, inputs: Any, output: Any) -> None:
        layer.__dict__.pop("weight", None)


def distance_penalty(
    weights: Mapping[str, Tensor], start: Mapping[str, Tensor], importance: Mapping[str, Tensor] | None = None
) -> Tensor:
    """Half the sum of F (w - w0)² over all weights, a scalar with a gradient.

    Times its strength, it is the first term of L2-SP (Li, Grandvalet & Davoine 2018, section 3.2) without
    ``importance``, and the penalty of EWC (Kirkpatrick et al. 2017, equation 3) with the diagonal of the Fisher
    information. The gradient keeps no copy of the weights.

    Parameters
    ----------
    weights : Mapping[str, Tensor]
        Weights by name.
    start : Mapping[str, Tensor]
        Their values w0 at the start, by the same names.
    importance : Mapping[str, Tensor], optional
        F by the same names, at least 0 (default: 1).

    Examples
    --------
    >>> import torch
    >>> from probekit.adaptation.optimisation.regularise import distance_penalty
    >>> float(distance_penalty({"w": torch.tensor([1.0, 3.0])}, {"w": torch.tensor([1.0, 1.0])}))
    2.0
    """
    f = importance or {}
    return torch.stack([_Distance.apply(w, start[name], f.get(name)) for name, w in weights.items()]).sum()


class _Distance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, start: Tensor, importance: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight, start, importance)
        return _weighted(weight - start, importance).mul_(weight - start).sum() / 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        weight, start, importance = ctx.saved_tensors
        return _weighted(weight - start, importance).mul_(gradients[0]), None, None


def _weighted(distance: Tensor, importance: Tensor | None) -> Tensor:
    return distance if importance is None else distance.mul_(importance)


class DistancePenalty:
    """The :func:`distance_penalty` of a learner's encoder, and half its head's squared norm, as a term of the loss.

    The weights of the encoder that are trained when it is made are penalised, from the values that they then have.

    Parameters
    ----------
    name : str
        Its name in the log, such as "l2-sp".
    learner : Learner
        The model before training, with an ``encoder``.
    strength, head_strength : float
        The factors of both parts, alpha and beta in Li, Grandvalet & Davoine (2018).
    importance : Mapping[str, Tensor], optional
        As for :func:`distance_penalty`, by names that begin with "encoder.".
    """

    def __init__(
        self, name: str, learner: Learner, *, strength: float, head_strength: float = 0.0,
        importance: Mapping[str, Tensor] | None = None,
    ) -> None:  # fmt: skip
        self.name, self.strength, self.head_strength = name, strength, head_strength
        self.start = {key: weight.detach().clone() for key, weight in _trained(learner, encoder=True).items()}
        self.importance = importance

    def __call__(self, learner: Learner, batch: Batch, out: Outputs, step: int, total: int, part: int = 0) -> Tensor:
        """The weighted value, a scalar with a gradient; the arguments are those of any term."""
        weights = {name: weight for name, weight in learner.weights().items() if name in self.start}
        self._move(next(iter(weights.values())).device)
        value = self.strength * distance_penalty(weights, self.start, self.importance)
        if self.head_strength:
            head = [weight.square().sum() for weight in _trained(learner, encoder=False).values()]
            value = value + self.head_strength * torch.stack(head).sum() / 2
        return value

    def _move(self, device: torch.device) -> None:
        """Move the values at the start to the device of the weights, once."""
        if next(iter(self.start.values())).device != device:
            self.start, self.importance = (_on(device, one) for one in (self.start, self.importance))


def _on(device: torch.device, tensors: Any) -> Any:
    return None if tensors is None else {name: one.to(device) for name, one in tensors.items()}


def _trained(learner: Learner, *, encoder: bool) -> dict[str, nn.Parameter]:
    return {
        name: weight
        for name, weight in learner.weights().items()
        if weight.requires_grad and name.startswith("encoder.") == encoder
    }


def diagonal_fisher(weights: Mapping[str, Tensor], losses: Iterable[Tensor]) -> dict[str, Tensor]:
    """The mean of the squared gradients of -log p, one example at a time (Kirkpatrick et al. 2017, section 2.1).

    Parameters
    ----------
    weights : Mapping[str, Tensor]
        Weights by name, with gradients.
    losses : Iterable[Tensor]
        -log p(label) of each example in nats, scalars.

    Returns
    -------
    dict[str, Tensor]
        By the same names, with the shapes of the weights; 0 where a weight has no effect.
    """
    sums, count = {name: torch.zeros_like(weight) for name, weight in weights.items()}, 0
    for loss in losses:
        found = torch.autograd.grad(loss, [*weights.values()], allow_unused=True)
        for total, gradient in zip(sums.values(), found, strict=True):
            if gradient is not None:
                total.addcmul_(gradient, gradient)
        count += 1
    return {name: total.detach().div_(max(count, 1)) for name, total in sums.items()}


def fisher_of_run(
    run: Path, task: Task, split: str = "train", *, examples: int | None = None, seed: int = 0,
    labels: FisherLabels = FisherLabels.GOLD, device: str = "cpu", progress: Progress = no_progress,
) -> dict[str, Tensor]:  # fmt: skip
    """The diagonal Fisher information of the encoder of a fine-tuned run, with the run's own head, without dropout.

    An example's log-probability is that of all its labels: the sum over the words for word tags, or over several
    labels; a number has a normal distribution of variance 1.

    Parameters
    ----------
    run : Path
        The run, or one of its checkpoints.
    task : Task
        The task that it was trained on, or another one with the same labels.
    examples : int, optional
        Number of examples, drawn at random with ``seed`` (default: all).
    labels : FisherLabels
        Gold labels (the empirical Fisher information), or those that the run predicts.

    Returns
    -------
    dict[str, Tensor]
        By the learner's names of the weights, which begin with "encoder.".

    Raises
    ------
    UsageError
        If ``run`` is not a fine-tuned run, the task has other labels, or numbers are to be predicted: at its own
        prediction, the gradient of a squared error is 0.
    """
    if not (run / CARD).is_file():
        raise UsageError(
            f"EWC needs a model that was fine-tuned on the old task, with its head; {run} is not a run of probekit "
            "train. Fine-tune it on the old task first, or use --penalty l2-sp."
        )
    learner, card = load_learner(run)
    card = card_for(card, task.name)
    learned = TaskSpec.of_card(card)
    if card["regime"] != Regime.FINE_TUNE or not isinstance(learner, FineTuning):
        raise UsageError(f"EWC needs a fine-tuned encoder; {run} is a {card['regime']} run.")
    target = TaskSpec.of_task(task, split)
    if (target.kind, target.label_names) != (learned.kind, learned.label_names):
        raise UsageError(
            f"{run} was trained on {learned.name}, whose labels differ from those of {task.name}. Give the old task, "
            f"{learned.name}, or one with its labels."
        )
    if labels is FisherLabels.PREDICTED and (learned.numbers or learned.answers):
        raise UsageError("predicted labels are for classes and tags; for numbers and texts leave out --fisher-labels.")
    read = in_context(task, card["encoder"].get("context", Context.NONE))
    reader = text_reader(run, learner.encoder.config, card["encoder"]["max_length"])
    data = data_as_in(card, read, read.split(split).sample(examples, seed), reader)
    check_labelled(learned, split, data)
    learner.to(device).requires_grad_(requires_grad=True).eval()
    if device == "cpu" and onednn_available(torch.float32):
        train_with_onednn(learner)
    weights = {name: w for name, w in learner.weights().items() if name.startswith("encoder.")}
    squared = learned.numbers and card["head"]["head"] != "rating"
    losses = _losses(learner, card["module"], data, device, labels is FisherLabels.PREDICTED)
    return diagonal_fisher(
        weights, _with_progress((0.5 * loss if squared else loss for loss in losses), len(data), progress)
    )


def _losses(learner: Learner, module: str, data: Data, device: str, predicted: bool) -> Iterator[Tensor]:
    """The loss of each example, summed over its words."""
    for i in range(len(data)):
        batch = on_device(device, data.__getitems__([i]))
        if predicted:
            with torch.no_grad():
                batch["labels"] = learner(**batch, module=module)["predictions"]
        head = cast("Head", learner.get_submodule(module))
        yield learner(**batch, module=module)["loss"] * head.weight(batch["labels"])


def _with_progress(losses: Iterable[Tensor], total: int, progress: Progress) -> Iterator[Tensor]:
    for i, loss in enumerate(losses, start=1):
        yield loss
        progress("fisher information", i, total)
