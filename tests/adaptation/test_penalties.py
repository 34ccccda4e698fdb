"""Penalties on the distance from the first weights: equal to others' programs and to autograd; at strength 0 plain."""

from pathlib import Path

import numpy as np
import pytest
import torch
from lessons import SHORT, Stop, amounts, animals, count, pairs, praise, same_weights, stopping, tags
from safetensors.torch import load_file
from test_resume import same
from torch.nn import functional

from probekit.adaptation.data.text import TextData
from probekit.adaptation.optimisation.options import FisherLabels
from probekit.adaptation.optimisation.regularise import diagonal_fisher, distance_penalty, fisher_of_run
from probekit.adaptation.options import TrainOptions
from probekit.adaptation.runs.evaluation import load_learner
from probekit.adaptation.train import train
from probekit.errors import DataError, UsageError
from probekit.models.loading import text_reader

GOLDENS = Path(__file__).parents[2] / "../shared/goldens/regularisation/regularisation.npz"
golden = pytest.mark.skipif(not GOLDENS.is_file(), reason=f"needs {GOLDENS}")


def parts(case, name):
    with np.load(GOLDENS) as stored:
        start = f"{case}/{name}/"
        return {k.removeprefix(start): torch.from_numpy(stored[k]) for k in stored if k.startswith(start)}


def value(case, name):
    with np.load(GOLDENS) as stored:
        return torch.from_numpy(stored[f"{case}/{name}"])


def close(found, right):
    assert found.keys() == right.keys()
    for name, one in found.items():
        torch.testing.assert_close(one, right[name], atol=1e-10, rtol=1e-10)


def gradients(loss, weights):
    return dict(zip(weights, torch.autograd.grad(loss, [*weights.values()]), strict=True))


@golden
@pytest.mark.parametrize("case", range(3))
def test_l2_sp_is_that_of_its_program(case):
    """tllib's SPRegularization, half the squared distance, and its L2Regularization for the head."""
    weights = {k: w.requires_grad_() for k, w in parts(f"l2sp/{case}", "current").items()}
    found = distance_penalty(weights, parts(f"l2sp/{case}", "start"))
    close({"": found.detach()}, {"": value(f"l2sp/{case}", "penalty")})
    close(gradients(found, weights), parts(f"l2sp/{case}", "grad"))
    norm = distance_penalty(weights, {k: torch.zeros_like(w) for k, w in weights.items()})
    close({"": norm.detach()}, {"": value(f"l2sp/{case}", "l2_norm_penalty")})


@golden
@pytest.mark.parametrize("case", range(3))
def test_ewc_is_that_of_its_program(case):
    """moskomule/ewc.pytorch: no half in the penalty, and predicted labels; and the formula with given labels."""
    case = f"ewc/{case}"
    start = {k: w.requires_grad_() for k, w in parts(case, "start").items()}

    def logits(x):
        return functional.linear(
            ACTIVATION(functional.linear(x, start["0.weight"], start["0.bias"])), start["2.weight"], start["2.bias"]
        )

    x, y = value(case, "X"), value(case, "y")
    chosen = {"fisher_empirical_formula": y, "fisher_predicted_label": logits(x).argmax(1)}
    for name, labels in chosen.items():
        losses = (functional.cross_entropy(logits(x[i : i + 1]), labels[i : i + 1]) for i in range(len(x)))
        close(diagonal_fisher(start, losses), parts(case, name))
    weights = {k: w.requires_grad_() for k, w in parts(case, "current").items()}
    found = distance_penalty(weights, {k: w.detach() for k, w in start.items()}, parts(case, "fisher_predicted_label"))
    close({"": 2 * found.detach()}, {"": value(case, "penalty")})
    close({k: 2 * g for k, g in gradients(found, weights).items()}, parts(case, "grad"))


ACTIVATION = torch.tanh


def test_the_gradient_is_that_of_autograd():
    rng = torch.Generator().manual_seed(0)
    shapes = {"a": (3, 4), "b": (5,), "c": (2, 1, 2)}
    now, start, f = (
        {k: torch.rand(shape, generator=rng, dtype=torch.float64) for k, shape in shapes.items()} for _ in range(3)
    )
    weights = {k: w.requires_grad_() for k, w in now.items()}
    for importance in (None, f):
        ours = distance_penalty(weights, start, importance)
        plain = sum(((1.0 if importance is None else f[k]) * (w - start[k]) ** 2).sum() / 2 for k, w in weights.items())
        close({"": ours.detach()}, {"": plain.detach()})
        close(gradients(3 * ours, weights), gradients(3 * plain, weights))


def moved(run, start):
    """The distance of the encoder's blocks from their first weights."""
    before, after = load_file(start / "model.safetensors"), load_file(run.path / "model.safetensors")
    shared = [k for k in after if "layer" in k or k.startswith("h.")]
    names = {k: next(n for n in before if k.endswith(n) or n.endswith(k)) for k in shared}
    return sum(float((after[k] - before[n]).square().sum()) for k, n in names.items())


FAST = SHORT | {"learning_rate": 1e-3, "dropout": 0.0}
NEW, OLD = pairs(16, 9), praise(16, 9)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_l2_sp_holds_the_encoder_where_it_was(family, tiny_model, tmp_path):
    model = tiny_model(family)
    plain = train(OLD, model, tmp_path / "plain", **FAST)
    none = train(OLD, model, tmp_path / "none", penalty="l2-sp", penalty_strength=0, **FAST)
    held = train(OLD, model, tmp_path / "held", penalty="l2-sp", penalty_strength=100.0, **FAST)
    assert same_weights(plain.path, none.path)
    assert moved(held, model) < 0.3 * moved(plain, model)
    added = held.rows[held.rows["metric"] == "added-loss"]
    assert (added["term"] == "l2-sp").all()
    assert (added["split"] == "train").all()
    assert (added["value"] >= 0).all()
    assert added["value"].max() > 0
    assert "added-loss" not in set(plain.rows["metric"])


@pytest.mark.slow
def test_the_head_has_its_own_factor(tiny_bert, tmp_path):
    how = {"penalty": "l2-sp", "penalty_strength": 0, "weight_decay": 0.0} | FAST
    sizes = []
    for beta in (0.0, 1e3):
        run = train(OLD, tiny_bert, tmp_path / str(beta), head_penalty=beta, **how)
        sizes.append(sum(float((w.detach() ** 2).sum()) for w in load_learner(run.path)[0].head.parameters()))
    assert sizes[1] < 0.98 * sizes[0]


@pytest.fixture(scope="module")
def old(tiny_bert, tmp_path_factory):
    """A run on an old task, "praise", and a file with which its task is found again."""
    folder = tmp_path_factory.mktemp("old")
    for name in ("train", "dev"):
        lines = [f"{e.text}\t{('bad', 'good')[e.label]}" for e in OLD.split(name)]
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n")
    (folder / "praise.toml").write_text(
        'text = "text"\nlabel = "label"\n\n[splits]\ntrain = "train.tsv"\ndev = "dev.tsv"\n'
    )
    return train(OLD, tiny_bert, folder / "run", **FAST).path, folder / "praise.toml"


@pytest.mark.slow
def test_ewc_after_another_task(old, tmp_path):
    """Sequential adaptation: the run is the model, its task and head give the information."""
    run, file = old
    how = {"penalty": "ewc", "fisher_task": str(file), "fisher_examples": 6} | FAST
    plain = train(NEW, run, tmp_path / "plain", **FAST)
    none = train(NEW, run, tmp_path / "none", penalty_strength=0, **how)
    assert same_weights(plain.path, none.path)
    held = train(NEW, run, tmp_path / "held", penalty_strength=1e5, **how)
    assert moved(held, run) < moved(plain, run)
    with pytest.raises(Stop):
        train(NEW, run, tmp_path / "stopped", penalty_strength=1e5, progress=stopping(3), **how)
    resumed = train(NEW, run, tmp_path / "stopped", penalty_strength=1e5, run_name="held", **how)
    same(held, resumed)


@pytest.mark.parametrize(
    ("task", "head"),
    [
        (OLD, "auto"),
        pytest.param(count(8, 6), "auto", marks=pytest.mark.slow),
        pytest.param(tags(16, 6), "softmax", marks=pytest.mark.slow),
        (tags(16, 6), "crf"),
        pytest.param(animals(8, 6), "auto", marks=pytest.mark.slow),
        pytest.param(amounts(8, 6), "auto", marks=pytest.mark.slow),
    ],
    ids=["classes", "numbers", "tags", "crf", "several-labels", "several-numbers"],
)
def test_the_information_is_that_of_the_likelihood(task, head, tiny_bert, tmp_path):
    """By finite differences of log p along one weight: words and labels are summed, a number has variance 1."""
    run = train(task, tiny_bert, tmp_path / "run", head=head, **SHORT | {"epochs": 1}).path
    name = "encoder.encoder.layer.1.output.LayerNorm.bias"
    found = fisher_of_run(run, task, "dev", examples=3, seed=1)[name]
    learner = load_learner(run)[0].double()
    weight = dict(learner.named_parameters())[name]
    data = TextData(task, task.split("dev").sample(3, 1), text_reader(run, learner.encoder.config, None), apart=False)
    squares = []
    for i in range(3):
        batch = data.__getitems__([i])
        count_of = batch["labels"].numel() if task.kind.several else int((batch["labels"] != -100).sum())
        known = 1 if head == "crf" else count_of * (0.5 if batch["labels"].is_floating_point() else 1)

        def loss(batch=batch, known=known):
            labels = batch["labels"].double() if batch["labels"].is_floating_point() else batch["labels"]
            return float(learner(labels, batch["first"])["loss"]) * known

        with torch.no_grad():
            weight[2] += 1e-3
            above = loss()
            weight[2] -= 2e-3
            below = loss()
            weight[2] += 1e-3
        squares.append(((above - below) / 2e-3) ** 2)
    assert float(found[2]) == pytest.approx(np.mean(squares), rel=2e-3)  # float32 against float64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalty": "ewc", "penalty_strength": 1.0}, "EWC needs old data: give --fisher-task"),
        ({"penalty": "l2-sp"}, "the penalty l2-sp needs its factor"),
        ({"penalty": "l3"}, "penalty is 'l3'; it must be one of l2-sp, ewc"),
        ({"penalty_strength": 1.0}, "penalty_strength is 1.0, which has an effect only with penalty;"),
        (
            {"penalty": "l2-sp", "penalty_strength": 1.0, "fisher_task": "cola"},
            "fisher_task is 'cola', which has an effect only with penalty ewc",
        ),
        ({"penalty": "l2-sp", "penalty_strength": -1.0}, "penalty_strength is -1.0; it must be 0 or more"),
        ({"penalty": "l2-sp", "penalty_strength": 1.0, "regime": "feature-extraction"}, "a frozen encoder"),
        ({"fisher_data_dir": "there"}, "fisher_data_dir is .* which has an effect only with fisher_task"),
        ({"penalty": "l2-sp", "penalty_strength": 1.0, "method": "lora"}, "the method lora trains new ones"),
        ({"mixout": 0.5, "method": "adapter"}, "the method adapter trains new ones"),
        ({"mixout": 0.5, "reinit_top": 1}, "reinit_top replaces some"),
    ],
)
def test_options_that_do_not_fit(options, message):
    with pytest.raises(UsageError, match=message):
        TrainOptions(**options)


def test_old_data_that_do_not_fit(old, tiny_bert):
    run, _ = old
    with pytest.raises(UsageError, match="is not a run of probekit train"):
        fisher_of_run(tiny_bert, praise())
    with pytest.raises(UsageError, match="whose labels differ from those of pairs"):
        fisher_of_run(run, pairs())
    with pytest.raises((DataError, UsageError)):
        fisher_of_run(run, praise(), "nowhere")


def test_numbers_are_not_predicted(tiny_bert, tmp_path):
    run = train(count(8, 6), tiny_bert, tmp_path / "run", **SHORT | {"epochs": 1}).path
    with pytest.raises(UsageError, match="predicted labels are for classes and tags"):
        fisher_of_run(run, count(), labels=FisherLabels.PREDICTED)
