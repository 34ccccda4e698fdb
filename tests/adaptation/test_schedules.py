"""Schedules and unfreezing: AllenNLP's numbers, and what a Trainer really trains in each epoch."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

from probekit.adaptation.optimisation.order import ORDERS, plan
from probekit.adaptation.options import Hyperparameters, Schedule, Unfreezing
from probekit.adaptation.training.fine_tuning import encoder_of
from probekit.adaptation.training.groups import layer_groups, param_groups, trained_groups
from probekit.adaptation.training.schedules import SlantedTriangular, build, plateau, slanted_triangular, triangle
from probekit.errors import UsageError
from probekit.models.transformers.stock import load_model

GOLDEN = Path(__file__).parents[2] / "../shared/goldens/task_models/slanted_triangular.npz"
CASES = json.loads(GOLDEN.with_name("slanted_triangular_meta.json").read_text()) if GOLDEN.exists() else {}


@pytest.mark.shared
@pytest.mark.skipif(not CASES, reason=f"the recorded outputs are not at {GOLDEN}")
@pytest.mark.parametrize("case", [*CASES] or [None])
def test_numbers_of_allennlp(case):
    meta, recorded = CASES[case], np.load(GOLDEN)
    groups, epochs, steps, actual = (meta[name] for name in ("ngroups", "epochs", "steps", "actual"))
    gradual = meta.get("gradual_unfreezing", False)
    factor = meta.get("decay_factor", 0.38) if meta.get("discriminative_fine_tuning") else 1.0
    shape = {"cut": meta.get("cut_frac", 0.1), "ratio": meta.get("ratio", 32)}
    layers = [(str(i), [("w", nn.Parameter(torch.ones(1, 1)))]) for i in range(groups)]
    peaks = [group["lr"] for group in param_groups(layers, lr=meta.get("lr", 1.0), layer_factor=factor)]

    def rates(t):
        place = triangle(t, range(actual, t, actual), epochs=epochs, steps=steps, frozen=groups - 1 if gradual else 0)
        return [slanted_triangular(peak, *place, **shape) for peak in peaks]

    total = epochs * actual
    np.testing.assert_array_equal([rates(t) for t in range(total)], recorded[f"{case}/lr"][:, :-1])
    unfreezing = Unfreezing.GRADUAL if gradual else Unfreezing.ALL
    stages = plan(ORDERS[unfreezing], [name for name, _ in layers])
    sets = [trained_groups(stages, t // actual) for t in range(total)]
    np.testing.assert_array_equal([[i in s for i in range(groups)] for s in sets], recorded[f"{case}/requires_grad"])
    if actual == steps:  # what a Trainer steps through
        optimizer = torch.optim.SGD(param_groups(layers, lr=meta.get("lr", 1.0), layer_factor=factor))
        scheduler, _ = build(
            optimizer,
            layers,
            Hyperparameters(schedule=Schedule.SLANTED_TRIANGULAR, unfreezing=unfreezing, epochs=epochs, **shape),
            steps,
        )
        for t in range(total):
            assert scheduler.get_last_lr() == recorded[f"{case}/lr"][t, :-1].tolist()
            optimizer.step()
            scheduler.step()


PLATEAU = Path(__file__).parents[2] / "../shared/goldens/regularisation/plateau.json"
PLATEAUS = json.loads(PLATEAU.read_text()) if PLATEAU.exists() else []


@pytest.mark.shared
@pytest.mark.skipif(not PLATEAUS, reason=f"the recorded rates are not at {PLATEAU}")
@pytest.mark.parametrize("case", PLATEAUS or [None])
def test_plateaus_of_jiant(case):
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=case["lr0"])
    options = Hyperparameters(schedule=Schedule.PLATEAU, plateau_patience=case["patience"])
    scheduler, _ = build(optimizer, [], options, 5, rising=case["mode"] == "max")
    assert scheduler.threshold_mode == "abs"
    scheduler.threshold_mode = case["threshold_mode"]  # jiant's is abs
    rates = []
    for value in case["metric"]:
        scheduler.step(value)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == case["lr_after_each_validation"]


def test_a_plateau_counts_improvements_on_the_scale_of_the_metric():
    """Steps of 5e-5 near 0.01 are large for their size, and too small to count; those of 2e-4 count."""
    for step, rates in ((5e-5, [1.0, 1.0, 0.5]), (2e-4, [1.0, 1.0, 1.0])):
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
        scheduler, seen = plateau(optimizer, 1), []
        for i in range(3):
            scheduler.step(0.01 + i * step)
            seen.append(optimizer.param_groups[0]["lr"])
        assert seen == rates


def test_a_plateau_that_would_end_at_once():
    with pytest.raises(UsageError, match="learning_rate is 5e-07; it must be at least 1e-06, where a plateau"):
        Hyperparameters(schedule="plateau", learning_rate=5e-7)


def test_equation_3():
    rates = [slanted_triangular(0.01, t, 1000) for t in range(1001)]
    assert rates[0] == pytest.approx(0.01 / 32)
    assert max(rates) == rates[100] == 0.01
    assert rates[1000] == pytest.approx(0.01 / 32)
    t, cut = 550, 100  # with the paper's own denominator
    assert rates[t] == pytest.approx(0.01 * (1 + (1 - (t - cut) / (cut * (1 / 0.1 - 1))) * 31) / 32)


@pytest.mark.parametrize(
    ("schedule", "start", "middle"), [("constant", 1, 1), ("linear", 0, 5 / 9), ("cosine", 0, 0.5868241)]
)
def test_schedules_of_transformers(schedule, start, middle):
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    scheduler, thaw = build(optimizer, [], Hyperparameters(schedule=schedule, epochs=2), 50)
    assert thaw is None
    rates = []
    for _ in range(100):
        rates += scheduler.get_last_lr()
        optimizer.step()
        scheduler.step()
    assert (rates[0], rates[10], rates[50]) == (start, 1.0, pytest.approx(middle))


@pytest.mark.parametrize(
    "wrong",
    [{"sequential_head": -1}, {"encoder_dropout": 1.0}, {"epochs": 0}, {"warmup": 1.0}, {"cut": 1.0}, {"ratio": 0.5}],
)
def test_options_out_of_range(wrong):
    with pytest.raises(UsageError, match=rf"{next(iter(wrong))} is .*; it must be"):
        Hyperparameters(**wrong)


def test_numbers_out_of_range():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    with pytest.raises(UsageError, match="a schedule needs"):
        build(optimizer, [], Hyperparameters(), steps_per_epoch=0)


def test_too_few_epochs_are_told(caplog):
    layers = [(str(i), [("w", nn.Parameter(torch.ones(1)))]) for i in range(4)]
    optimizer = torch.optim.SGD(param_groups(layers, lr=1.0))
    for epochs in (4, 3):
        assert not caplog.records
        with caplog.at_level(logging.WARNING):
            build(optimizer, layers, Hyperparameters(unfreezing=Unfreezing.GRADUAL, epochs=epochs), 1)
    assert "only in epoch 4; there are 3 epochs" in caplog.text


# in a real Trainer ------------------------------------------------------------------------------------------------


class Classifier(nn.Module):
    def __init__(self, folder):
        super().__init__()
        torch.manual_seed(0)
        self.encoder = load_model(folder).requires_grad_(True)
        self.head = nn.Linear(24, 2)

    def forward(self, input_ids, labels):
        logits = self.head(self.encoder(input_ids=input_ids).pooler_output)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Watch(TrainerCallback):
    """Which layers changed in each epoch, which were trainable at each update, and the rate there."""

    def __init__(self, groups, stop_after=None):
        self.groups, self.stop_after, self.changed, self.trainable, self.rates = groups, stop_after, [], [], []

    def copies(self):
        return [[p.detach().clone() for _, p in members] for _, members in self.groups]

    def on_epoch_begin(self, args, state, control, **_):
        self.before = self.copies()

    def on_step_begin(self, args, state, control, lr_scheduler, **_):
        flags = [{p.requires_grad for _, p in members} for _, members in self.groups]
        assert all(len(flag) == 1 for flag in flags)
        self.trainable.append([i for i, flag in enumerate(flags) if flag == {True}])
        self.rates.append(lr_scheduler.get_last_lr()[-1])

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.stop_after:
            control.should_save = control.should_training_stop = True

    def on_epoch_end(self, args, state, control, **_):
        pairs = zip(self.before, self.copies(), strict=True)
        self.changed.append([i for i, (old, new) in enumerate(pairs) if not all(map(torch.equal, old, new))])


def run(
    folder, out, unfreezing, epochs, *, schedule=Schedule.LINEAR, stop_after=None, resume=False, planned=None, **more
):
    model = Classifier(folder)
    groups = layer_groups(model.encoder, head=model.head)
    assert [name for name, _ in groups] == ["embeddings", "block 1", "block 2", "head"]
    optimizer = torch.optim.AdamW(param_groups(groups, lr=1e-2, weight_decay=0.1, layer_factor=0.4))
    scheduler, thaw = build(
        optimizer,
        groups,
        Hyperparameters(schedule=schedule, unfreezing=unfreezing, epochs=planned or epochs, warmup=0, cut=0.34, **more),
        3,
    )
    watch = Watch(groups, stop_after)
    generator = torch.Generator().manual_seed(0)
    data = [
        {"input_ids": torch.randint(5, 40, (6,), generator=generator), "labels": torch.tensor(i % 2)} for i in range(10)
    ]  # 10 examples by 2 by 2: three updates, the last of half a batch
    arguments = TrainingArguments(
        output_dir=str(out),
        num_train_epochs=epochs,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        seed=0,
    )
    trainer = Trainer(model, arguments, train_dataset=data, optimizers=(optimizer, scheduler), callbacks=[thaw, watch])
    trainer.train(resume_from_checkpoint=resume)
    return watch, {name: p.detach().clone() for name, p in model.named_parameters()}


@pytest.fixture(scope="module")
def folder(tiny_model):
    return tiny_model("minilm")


def test_one_layer_more_in_each_epoch(folder, tmp_path):
    watch, _ = run(folder, tmp_path, Unfreezing.GRADUAL, 5, schedule=Schedule.SLANTED_TRIANGULAR)
    wanted = [[3], [2, 3], [1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]
    assert watch.changed == wanted
    assert watch.trainable == [layers for layers in wanted for _ in range(3)]
    # a triangle of 3 updates in each of three epochs, then one of 6
    short, long = ([slanted_triangular(1e-2, t, n, cut=0.34) for t in range(n)] for n in (3, 6))
    assert watch.rates == [*short * 3, *long]


@pytest.mark.parametrize(
    ("unfreezing", "wanted"),
    [
        ("chain-thaw", [[3], [0], [1], [2], [0, 1, 2, 3], [0, 1, 2, 3]]),
        ("sequential", [[3], [1, 2, 3], [0, 1, 2, 3]]),
        ("top", [[3], [3]]),
    ],
)
def test_layers_trained_in_each_epoch(folder, tmp_path, unfreezing, wanted):
    """Frozen layers are bit-equal, whatever decay and the moments of an earlier epoch would make of them."""
    watch, _ = run(folder, tmp_path, Unfreezing(unfreezing), len(wanted))
    assert watch.changed == wanted


def test_stages_of_sequential_unfreezing_are_as_long_as_asked(folder, tmp_path):
    watch, _ = run(folder, tmp_path, Unfreezing.SEQUENTIAL, 4, sequential_head=2, sequential_body=1)
    assert watch.changed == [[3], [3], [1, 2, 3], [0, 1, 2, 3]]
    with pytest.raises(UsageError, match="sequential_head is .*, which has an effect only with unfreezing sequential"):
        Hyperparameters(sequential_head=2)


def test_the_dropout_of_the_encoder(tiny_model, folder):
    for family in ("minilm", "gpt2", "roberta"):
        encoder = encoder_of(tiny_model(family), dropout=0.37).train()
        found = {module.p for module in encoder.modules() if isinstance(module, nn.Dropout)}
        assert found == {0.37}, family
        assert {0.1, 0.37} >= {module.p for module in encoder_of(folder).modules() if isinstance(module, nn.Dropout)}
        ids = torch.arange(5, 11)[None]
        one, other = encoder(input_ids=ids)[0], encoder(input_ids=ids)[0]
        assert not torch.equal(one, other)
    with pytest.raises(UsageError, match="encoder_dropout is for fine-tuning"):
        Hyperparameters(encoder_dropout=0.1, regime="feature-extraction")


@pytest.mark.parametrize(
    ("schedule", "stop"),  # before the last update of an epoch, and between two
    [
        (Schedule.SLANTED_TRIANGULAR, 5),
        pytest.param(Schedule.BERT, 6, marks=pytest.mark.slow),
        pytest.param(Schedule.SLANTED_TRIANGULAR, 6, marks=pytest.mark.slow),
        pytest.param(Schedule.BERT, 5, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_run_goes_on_alike(folder, tmp_path, schedule, stop):
    whole, weights = run(folder, tmp_path / "whole", Unfreezing.GRADUAL, 4, schedule=schedule)
    first, _ = run(folder, tmp_path / "cut", Unfreezing.GRADUAL, 4, schedule=schedule, stop_after=stop)
    rest, resumed = run(folder, tmp_path / "cut", Unfreezing.GRADUAL, 4, schedule=schedule, resume=True)
    assert first.trainable + rest.trainable == whole.trainable
    assert first.rates + rest.rates == whole.rates
    for name, weight in weights.items():
        assert torch.equal(weight, resumed[name]), name


def test_a_schedule_for_another_run(folder, tmp_path):
    with pytest.raises(UsageError, match="3 epochs of 3 updates.*makes 6 updates"):
        run(folder, tmp_path, Unfreezing.TOP, 2, planned=3)


def test_state_is_plain_numbers(tmp_path):
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    torch.save(SlantedTriangular(optimizer, epochs=1, steps=3).state_dict(), tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt", weights_only=True)["steps"] == 3
