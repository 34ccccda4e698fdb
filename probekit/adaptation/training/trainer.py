"""Training in both regimes: transformers' Trainer with probekit's batches, schedules and checkpoints."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from accelerate.data_loader import prepare_data_loader
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file, save_model
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainingArguments
from transformers.integrations import get_reporting_integration_callbacks
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import EvalLoopOutput

from probekit.adaptation.data.batches import Batches, Data, Decoding, Numbered, Rounds
from probekit.adaptation.data.responses import ResponseData
from probekit.adaptation.heads.head import Head
from probekit.adaptation.mixtures import MixedBatches, MixedData
from probekit.adaptation.options import Keep, Optimizer, TrainOptions
from probekit.adaptation.runs.digests import seal, whole_checkpoints
from probekit.adaptation.runs.folder import RESUME
from probekit.adaptation.runs.predictions import gathered, predict_batches
from probekit.adaptation.training.checkpointing import Checkpointing, Cost, measured, not_finite, rate_of
from probekit.adaptation.training.groups import LayerGroup, order_of, param_groups
from probekit.adaptation.training.learners import Learner, compile_encoder
from probekit.adaptation.training.objective import Objective, Save, Training, Watcher, check_shard
from probekit.adaptation.training.schedules import BertAdamW, build
from probekit.adaptation.training.sharding import load_optimiser, load_whole, shard, whole, whole_optimiser
from probekit.errors import UsageError
from probekit.models.transformers.onednn import onednn_available, train_with_onednn
from probekit.models.transformers.stock import quiet_transformers
from probekit.runtime import Dtype, Progress, no_progress, processes


@dataclass(frozen=True, slots=True)
class History:
    """The history of a training.

    Attributes
    ----------
    log : list[dict[str, Any]]
        The Trainer's log, one mapping per entry: losses, rates, gradient norms, ``eval_…`` metrics, each with ``step``
        and ``epoch``.
    step : int
        Step of the kept weights.
    total : int
        Steps of the whole run.
    metrics : dict[str, float]
        Metrics of the kept weights on dev.
    seconds : float
        Time of training and evaluation, without loading; for a resumed run, only in this process.
    cost : Cost, optional
        Its processor time and peak memory; None for a resumed run.
    """

    log: list[dict[str, Any]]
    step: int
    total: int
    metrics: dict[str, float]
    seconds: float
    cost: Cost | None = None


def fit(
    training: Training, out: Path, save: Save, *, watcher: Watcher | None = None, progress: Progress = no_progress
) -> History:
    """Train, evaluate regularly and at each saved step, and keep the best or the last weights.

    Parameters
    ----------
    out : Path
        The run's folder, from which an interrupted training resumes.
    save : Save
        Writes the current weights.

    Raises
    ------
    NonFiniteError
        If the loss is NaN or infinite; the message gives the step and its learning rate.
    """
    learner, options = training.learner, training.options
    if options.shard:
        check_shard(training)
    objective, data = training.objectives[0], _training_data(training)
    batches = len(_batches(data, options.batch_size, options, shuffle=True))
    steps_per_epoch = ceil(ceil(batches / processes()[1]) / options.accumulation)
    arguments = _arguments(options, steps_per_epoch, out)
    if options.shard:  # before the optimiser is made, whose moments are then shards, too
        shard(learner, arguments.device)
    groups = learner.groups()
    optimizer = _optimizer(groups, options)
    scheduler, thaw = build(optimizer, groups, options, steps_per_epoch, rising=objective.metric.sign > 0)
    checkpoints = Checkpointing(
        training, out, save, scheduler=scheduler, steps_per_epoch=steps_per_epoch, watcher=watcher, progress=progress
    )
    log, last = _unfinished(out, checkpoints)
    arguments.eval_on_start = last is None and 0 in checkpoints.saved
    _use_one_gpu(arguments, options.device)
    trainer = (_ShardedTrainer if options.shard else _Trainer)(
        model=learner, args=arguments, training=training, batches_per_epoch=batches, updates_per_epoch=steps_per_epoch,
        train_dataset=Numbered(data) if training.terms else data,
        eval_dataset=objective.dev, optimizers=(optimizer, scheduler),
        compute_metrics=_scoring(objective, learner), progress=progress,
        callbacks=[checkpoints, *([thaw] if thaw else []), *_reporters(options.report_to)],
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        raise UsageError(
            "each process must hold the whole model, but accelerate's configuration spreads its weights (FSDP or "
            "DeepSpeed). Use distributed_type: MULTI_GPU, or torchrun, and --shard to spread the weights."
        )
    if processes()[0]:
        torch.manual_seed(options.seed + processes()[0])  # each process draws its own dropout
    if options.compile:
        compile_encoder(learner.encoder, options.device)
    elif options.device == "cpu" and not options.shard and onednn_available(torch.float32):
        train_with_onednn(learner)
    checkpoints.recall(log)
    if last is not None and checkpoints.out_of_patience:  # it was interrupted after its last evaluation
        load_whole(learner, load_file(Path(last) / "model.safetensors"))
        step, seconds = int(log[-1]["step"]), 0.0
    else:
        with quiet_transformers(), measured(options.device) as cost:
            seconds = float(trainer.train(resume_from_checkpoint=last).metrics["train_runtime"])
        log, step = trainer.state.log_history, trainer.state.global_step
    if options.keep is Keep.LAST:
        checkpoints.keep(step, checkpoints.metrics)
    trainer.accelerator.wait_for_everyone()
    return History(log, checkpoints.kept[0], step, checkpoints.kept[1], seconds, None if last else cost)


def _training_data(training: Training) -> Data | MixedData:
    """The examples of the objective, or of all."""
    if len(training.objectives) == 1:
        return training.objectives[0].train
    return MixedData({objective.module: objective.train for objective in training.objectives})


def _batches(data: Any, size: int, options: TrainOptions, *, shuffle: bool) -> Batches | MixedBatches:
    mixed = data.data if isinstance(data, Numbered) else data
    if isinstance(mixed, MixedData):
        return MixedBatches(
            mixed, size, sampling=options.sampling, epochs=options.epochs, seed=options.seed, group=options.group
        )
    return Batches(data, size, seed=options.seed, shuffle=shuffle, group=options.group, window=options.window)


def _use_one_gpu(arguments: TrainingArguments, device: str) -> None:
    """Prevent the Trainer from splitting batches over all GPUs, which batches of cached layers do not allow."""
    if device.startswith("cuda") and processes()[1] == 1:
        if ":" in device:
            torch.cuda.set_device(device)
        arguments._n_gpu = 1


class _Trainer(Trainer):
    """A Trainer over :class:`Batches` that stops if the loss is NaN or infinite.

    The gradient of an update is that of the mean loss over all its labels (examples, labelled words), however they are
    spread over accumulated batches and over processes.
    """

    loss_is_scaled_for_ga = True  # compute_loss does it; the Trainer would take the mean over the batches

    def __init__(
        self, *, training: Training, batches_per_epoch: int, updates_per_epoch: int, progress: Progress, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.progress = progress if processes()[1] == 1 else no_progress  # each process evaluates a part
        self.batches_per_epoch, self.updates_per_epoch = batches_per_epoch, updates_per_epoch
        self.options, self.objectives, self.terms = training.options, training.objectives, training.terms
        self._shares: list[torch.Tensor | None] = []  # of the batches of the update that are still to come
        self._parts = range(0)  # the numbers of these batches in the update, over all processes
        self._added: dict[str, list[torch.Tensor]] = {term.name: [] for term in self.terms}  # since the last log
        self._updates = 0  # since the last log
        self._bad = torch.tensor(torch.inf, device=self.args.device)  # the first step with a loss that was not finite

    def _loader(self, data: Data, size: int, *, shuffle: bool) -> DataLoader:
        options = self.options
        every = _batches(data, size, options, shuffle=shuffle)
        batches = Rounds(every, *processes()) if shuffle and processes()[1] > 1 else every
        loader: DataLoader = DataLoader(
            data,  # type: ignore[arg-type]  # a protocol; torch uses no more of it than it uses of a Dataset
            batch_sampler=batches, collate_fn=_same, pin_memory=self.args.device.type == "cuda",
            generator=torch.Generator(),  # torch's generator is for dropout, which an evaluation must not change
        )  # fmt: skip
        if not shuffle or processes()[1] == 1:
            return self.accelerator.prepare(loader)
        place = {"device": self.accelerator.device, "put_on_device": True}
        return prepare_data_loader(loader, **place, num_processes=1, process_index=0, rng_types=["generator"])

    def get_train_dataloader(self) -> DataLoader:
        return self._loader(self.train_dataset, self.args.per_device_train_batch_size, shuffle=True)

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> tuple[list[Any], None]:
        """The batches of the next update; notes what each one's loss is multiplied by."""
        batches, _ = super().get_batch_samples(*args, **kwargs)
        rank, count = processes()
        self._updates += 1
        self._parts = range(rank, len(batches) * count, count)
        if len(batches) * count == 1:
            self._shares = [None]
            return batches, None
        first = self.state.global_step % self.updates_per_epoch * self.args.gradient_accumulation_steps
        learner = self.accelerator.unwrap_model(self.model)
        heads = [cast("Head", learner.get_submodule(b.get("module", self.objectives[0].module))) for b in batches]
        weights = torch.stack([head.weight(b["labels"]) for head, b in zip(heads, batches, strict=True)]).float()
        for i in range(len(batches)):  # a batch that fills the last round counts as nothing
            weights[i] *= (first + i) * count + rank < self.batches_per_epoch
        total = weights.sum()
        if count > 1:
            torch.distributed.all_reduce(total)
        shares = torch.where(total > 0, weights * count / total, 1 / len(batches))  # without labels, terms remain
        self._shares = [*shares]
        return batches, None

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        return self._loader(eval_dataset or self.eval_dataset, self.args.per_device_eval_batch_size, shuffle=False)

    def evaluation_loop(self, dataloader: DataLoader, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """Like the Trainer's loop, but with several processes each evaluates different whole batches.

        The Trainer's loop pads the last batches with examples of the first, which then affect their loss; and it knows
        neither texts nor probabilities.
        """
        rank, count = processes()
        objective, data = self.objectives[0], self.eval_dataset
        if count == 1 and not isinstance(data, Decoding | ResponseData) and not objective.task.scored:
            return super().evaluation_loop(dataloader, *args, **kwargs)
        every_batch = [*Batches(data, self.args.per_device_eval_batch_size, shuffle=False)]
        batches, first, number = every_batch[rank::count], every_batch[:1], len(every_batch)
        with self.compute_loss_context_manager():
            learner = self.accelerator.unwrap_model(self.model)
            mine = predict_batches(
                learner, data, batches, module=objective.module, device=self.args.device, progress=self.progress
            )
            if self.options.shard and len(batches) < ceil(number / count):  # the others gather weights once more
                predict_batches(learner, data, first, module=objective.module, device=self.args.device)
        every: list[Any] = [mine] * count
        if count > 1:
            torch.distributed.all_gather_object(every, mine)
        evaluation = gathered(objective.task, data, {i: one for part, _ in every for i, one in part.items()})
        found, gold = evaluation.joined("predictions"), evaluation.joined("labels")
        metrics = evaluation.measured(sum(losses for _, losses in every) / len(data)) | _mix_weights(learner)
        prefixed = {f"eval_{name}": float(value) for name, value in metrics.items()}
        return EvalLoopOutput(predictions=found, label_ids=gold, metrics=prefixed, num_samples=len(data))

    def _evaluate(self, trial: Any, ignore_keys_for_eval: Any, skip_scheduler: bool = True) -> dict[str, float]:
        """Evaluate; Checkpointing steps a plateau schedule, which the Trainer would step at saved steps, too."""
        metrics: dict[str, float] = super()._evaluate(trial, ignore_keys_for_eval, skip_scheduler=True)
        return metrics

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The learner's loss and, in training, what the terms add to it."""
        loss, out = super().compute_loss(model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch)
        if model.training:
            part = self._parts[-len(self._shares)]
            learner, share = self.accelerator.unwrap_model(model), self._shares.pop(0)
            for term in self.terms:
                with self.accelerator.autocast():  # as the learner's own pass
                    value = term(learner, inputs, out, self.state.global_step, self.state.max_steps, part)
                self._added[term.name].append(value.detach() if share is None else value.detach() * share)
                loss = loss + value
            loss = loss if share is None else loss * share
        return (loss, out) if return_outputs else loss

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log the mean of each term over the updates since the last log beside the loss, which includes them."""
        if "loss" in logs:
            for name, values in self._added.items():
                added = self.accelerator.reduce(torch.stack(values).sum(), "mean")
                logs[f"loss_{name}"] = float(added) / self._updates
            self._added, self._updates = {name: [] for name in self._added}, 0
        super().log(logs, *args, **kwargs)

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss: torch.Tensor = super().training_step(*args, **kwargs)
        step = self.state.global_step + 1
        self._bad = torch.minimum(self._bad, torch.where(torch.isfinite(loss), torch.inf, step))
        if loss.device.type == "cpu" or step % self.args.logging_steps == 0:  # reading it on a GPU would wait
            self._check()
        return loss

    def _check(self) -> None:
        if torch.isfinite(self._bad):
            raise not_finite("the loss", "not finite", int(self._bad), self.state, rate_of(self.optimizer))

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        self._check()
        try:
            super()._save_checkpoint(*args, **kwargs)
        except (SafetensorError, RuntimeError) as error:  # raised by safetensors and torch if the disk is full
            raise OSError(f"{self.args.output_dir}: the checkpoint for resuming cannot be written: {error}") from error
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            seal(Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}")

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        folder = Path(output_dir or str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        save_model(self.accelerator.unwrap_model(self.model), str(folder / "model.safetensors"))


class _ShardedTrainer(_Trainer):
    """A Trainer of a learner that :func:`shard` has spread over processes.

    Its checkpoints for resuming hold whole tensors, which any number of processes can read.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        prepare = self.accelerator.prepare_model
        self.accelerator.prepare_model = partial(prepare, evaluation_mode=True)  # FSDP reduces gradients, not DDP

    def _clip_grad_norm(self, model: Any) -> torch.Tensor:
        norm = super()._clip_grad_norm(model)
        return cast("torch.Tensor", norm.full_tensor() if isinstance(norm, DTensor) else norm)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        state = whole(dict(self.model.state_dict()))
        if self.args.should_save:
            folder = Path(output_dir or str(self.args.output_dir))
            folder.mkdir(parents=True, exist_ok=True)
            save_file(state, folder / "model.safetensors")

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        state = whole_optimiser(self.optimizer)
        if self.args.should_save:
            torch.save(state, Path(output_dir) / OPTIMIZER_NAME)
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / SCHEDULER_NAME)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        load_whole(self.model, load_file(Path(resume_from_checkpoint) / "model.safetensors"))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            load_optimiser(self.optimizer, torch.load(Path(checkpoint) / OPTIMIZER_NAME, weights_only=True))
            self.lr_scheduler.load_state_dict(torch.load(Path(checkpoint) / SCHEDULER_NAME, weights_only=True))


def _unfinished(out: Path, checkpoints: Checkpointing) -> tuple[list[dict[str, Any]], str | None]:
    """The log and the folder of the last complete checkpoint of an interrupted run, if there is one."""

    def fits(logged: list[dict[str, Any]]) -> bool:
        return checkpoints.options.keep is Keep.LAST or checkpoints.has_kept(logged)

    for logged, place in whole_checkpoints(out / RESUME, fits):
        return logged, str(place)
    return [], None


def _scoring(objective: Objective, learner: Learner) -> Callable[[EvalPrediction], dict[str, float]]:
    """Metrics for the Trainer, with the weights of mixed layers, so that they are logged."""

    def compute(found: EvalPrediction) -> dict[str, float]:
        metrics = objective.task.score(np.asarray(found.predictions), np.asarray(found.label_ids))
        return metrics | _mix_weights(learner)

    return compute


def _mix_weights(learner: Learner) -> dict[str, float]:
    if learner.mix is None:
        return {}
    weights = {f"mix_{i}": float(w) for i, w in enumerate(learner.mix.weights.detach().float().cpu())}
    return weights | {"mix_gamma": float(learner.mix.gamma.detach())}


def _optimizer(groups: list[LayerGroup], options: TrainOptions) -> torch.optim.Optimizer:
    made = param_groups(
        groups, lr=options.learning_rate, weight_decay=options.weight_decay, layer_factor=options.layer_factor
    )
    match options.optimizer:
        case Optimizer.BERT_ADAMW:
            return BertAdamW(made)
        case Optimizer.AMSGRAD:
            return torch.optim.Adam(made, amsgrad=True, fused=True)
    return torch.optim.AdamW(made, fused=True)


def _arguments(options: TrainOptions, steps_per_epoch: int, out: Path) -> TrainingArguments:
    """The arguments of transformers' Trainer."""
    return TrainingArguments(
        output_dir=str(out / RESUME),
        num_train_epochs=options.epochs,
        per_device_train_batch_size=options.batch_size,
        per_device_eval_batch_size=options.batch_size,
        gradient_accumulation_steps=options.accumulation,
        max_grad_norm=options.max_grad_norm,
        bf16=options.dtype is Dtype.BFLOAT16,
        fp16=options.dtype is Dtype.FLOAT16,
        use_cpu=options.device == "cpu",
        seed=options.seed,
        eval_strategy="no",  # Checkpointing says when
        save_strategy="no",  # as well
        save_total_limit=2,  # the previous one, in case the last is damaged
        logging_steps=max(1, steps_per_epoch // 10),
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=["labels"],
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=processes()[1] > 1 and (order_of(options) != "all" or options.also is not None),
        report_to="none",  # _reporters
    )


def _reporters(names: str) -> list[TrainerCallback]:
    """The transformers callbacks with these names; raises UsageError if one is unknown or not installed."""
    chosen = [name.strip() for name in names.split(",") if name.strip() not in ("", "none")]
    try:
        return [made() for made in get_reporting_integration_callbacks(chosen)]
    except (ValueError, RuntimeError) as error:
        raise UsageError(f"report_to is {names!r}: {error}") from error


def _same(batch: Any) -> Any:
    return batch


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Start from ``seed``; restore the generators of Python, numpy and torch, which the Trainer changes."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
