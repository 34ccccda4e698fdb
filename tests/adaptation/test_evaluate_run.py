"""What a run has learned, evaluated again: the numbers on its card, and on those of its checkpoints."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from lessons import SHORT, count, pairs, praise, tags

import probekit
from probekit.activations import ActivationCache, cache_activations
from probekit.adaptation.runs import evaluation
from probekit.adaptation.runs.evaluation import load_learner, predict_run
from probekit.adaptation.runs.folder import read_card
from probekit.adaptation.runs.run import open_run
from probekit.adaptation.train import train
from probekit.analyses.regimes import run_numbers
from probekit.errors import CacheMismatch, DataError, ModelError, UsageError
from probekit.metrics import metric
from probekit.rows import read
from probekit.statistics.predictions import Predictions
from probekit.tasks import load_task
from probekit.tasks.task import Split, Task

SMALL = SHORT | {"learning_rate": 1e-3, "save_at": "0,4"}


def agree(found, told):
    assert list(found) == list(told)
    assert found == pytest.approx(told, rel=1e-5, abs=1e-6)  # the Trainer evaluates with oneDNN's products


@pytest.mark.parametrize(
    ("family", "task", "options"),
    [
        pytest.param("bert", praise(), {}, marks=pytest.mark.slow),
        pytest.param("t5", count(), {"pooling": "max"}, marks=pytest.mark.slow),
        pytest.param("gpt2", pairs(), {"pairs": "separate"}, marks=pytest.mark.slow),
        ("roberta", tags(), {"head": "crf", "max_length": 7}),
        pytest.param("deberta-v2", pairs(), {}, marks=pytest.mark.slow),
        pytest.param("bert", tags(), {"head": "bilstm-crf", "hidden_size": 5}, marks=pytest.mark.slow),
        pytest.param("bert", pairs(), {"head": "bi-attention"}, marks=pytest.mark.slow),
    ],
    ids=["linear", "number", "pairs", "crf", "joint", "bilstm-crf", "bi-attention"],
)
def test_a_fine_tuned_model(family, task, options, tiny_model, tmp_path):
    run = train(task, tiny_model(family), tmp_path / "run", test="test", **SMALL | options)
    agree(predict_run(run.path, task, "dev", device="cpu").metrics, run.metrics)
    agree(predict_run(run.path, task, "dev", device="cpu", batch_size=5).metrics, run.metrics)
    agree(predict_run(run.path, task, device="cpu").metrics, run.test)
    for step in (0, 4):
        folder = run.path / f"step-{step}"
        agree(
            predict_run(folder, task, "dev", device="cpu").metrics,
            json.loads((folder / "probekit.json").read_text())["metrics"],
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "options"),
    [
        (praise(), {"head": "linear"}),
        (tags(), {"head": "bilstm-crf", "hidden_size": 5, "layers": [1, 3]}),
        (pairs(), {"head": "esim", "hidden_size": 5, "layer_norm": False, "pairs": "joint"}),
        pytest.param(praise(), {"head": "bcn", "hidden_size": 5}, marks=pytest.mark.slow),
    ],
    ids=["linear", "bilstm-crf", "esim", "bcn"],
)
def test_a_head_on_cached_layers(task, options, tiny_bert, tmp_path):
    run = train(
        task, tiny_bert, tmp_path / "run", regime="feature-extraction", caches=tmp_path / "caches", **SMALL | options
    )
    dev = Path(run.card["caches"][1])
    agree(predict_run(run.path, dev, device="cpu").metrics, run.metrics)
    with ActivationCache(dev) as cache:
        step = run.path / "step-4"
        agree(predict_run(step, cache, device="cpu").metrics, read_card(step)["metrics"])
        assert len(cache.labels) == 21  # it stays open


@pytest.fixture(scope="module")
def runs(tiny_bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    options = SHORT | {"epochs": 1}
    fine = train(praise(), tiny_bert, folder / "fine", **options)
    features = train(
        pairs(), tiny_bert, folder / "features", regime="feature-extraction", caches=folder, head="esim",
        hidden_size=4, **options,
    )  # fmt: skip
    pooled = train(
        praise(), tiny_bert, folder / "pooled", regime="feature-extraction", caches=folder, head="linear", **options
    )
    return fine.path, features.path, pooled.path


@pytest.mark.slow
def test_files_of_predictions_hold_probabilities(runs):
    for path in runs:
        said = Predictions.read(path / "dev.examples.parquet")
        np.testing.assert_allclose(said.probabilities.sum(2), 1, rtol=1e-5)
        assert (said.probabilities.argmax(2) == said.predicted).all()
        assert said.log_loss.mean() == pytest.approx(read_card(path)["metrics"]["loss"], rel=1e-4)


def test_unlabelled_words_have_no_probabilities_kept(tiny_bert, tmp_path):
    run = train(tags(), tiny_bert, tmp_path / "run", **SMALL | {"epochs": 1})
    said = Predictions.read(run.path / "dev.examples.parquet")
    assert said.probabilities.shape == (1, len(said.ids), len(said.label_names))
    assert (said.probabilities[0].argmax(1) == said.predicted[0]).all()


def test_what_it_is_ready_to_do(runs):
    learner, card = load_learner(runs[0])
    assert not learner.training
    assert card["regime"] == "fine-tune"
    with torch.no_grad():
        ids = torch.tensor([[2, 7, 3]])
        batch = {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "special": torch.zeros(1, 3, dtype=torch.bool),
        }
        out = learner(torch.tensor([0]), batch | {"token_type_ids": torch.zeros_like(ids)})
    assert out["predictions"].tolist() in ([0], [1])


@pytest.mark.slow
def test_what_does_not_belong_together(runs, tiny_bert, tiny_gpt2, tmp_path):
    fine, features, pooled = runs

    def cache(task, model=tiny_bert, **how):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.h5"
        cache_activations(model, task, "dev", out=path, **how).close()
        return path

    with (
        pytest.raises(UsageError, match="reads text; give a task instead of a cache"),
        ActivationCache(cache(praise())) as c,
    ):
        predict_run(fine, c)
    with pytest.raises(UsageError, match="of bert; give the path of that model"):  # learned from caches, not from text
        predict_run(features, pairs())
    with pytest.raises(CacheMismatch, match=r"model is 'gpt2', expected 'bert'"):
        predict_run(pooled, cache(praise(), tiny_gpt2))
    with pytest.raises(CacheMismatch, match=r"cut_at is 5, expected None"):
        predict_run(pooled, cache(praise(), max_length=5))
    with pytest.raises(CacheMismatch, match=r"pairs is 'separate', expected 'joint'"):
        predict_run(features, cache(pairs(), tokens=True, pairs="separate"))
    with pytest.raises(UsageError, match="has neither vectors of pieces nor the pooling mean"):
        predict_run(pooled, cache(praise(), pooling=["first"]))
    t = praise()
    other = Task(t.name, t.kind, t.splits, ("good", "bad"), t.metrics)
    for run, data in ((fine, other), (pooled, cache(other))):
        with pytest.raises(UsageError, match="was trained on praise, which has .*, but praise has"):
            predict_run(run, data, "dev")
    with pytest.raises(UsageError, match="but count has numbers as labels"):
        predict_run(fine, count(), "dev")
    with pytest.raises(UsageError, match="praise has no split 'exam'"):
        predict_run(fine, praise(), "exam")
    open_ = Split("dev", tuple(replace(e, label=None) for e in t.split("dev")))
    unlabelled = Task(t.name, t.kind, {**t.splits, "dev": open_}, t.label_names, t.metrics)
    for run, data in ((fine, unlabelled), (pooled, cache(unlabelled))):
        with pytest.raises(DataError, match="21 of 21 examples of praise, dev, have no label"):
            predict_run(run, data, "dev")


def test_what_is_no_run(runs, tiny_bert, tmp_path):
    with pytest.raises(ModelError, match=r"is not a run: it has no probekit.json"):
        load_learner(tiny_bert)
    folder = shutil.copytree(runs[0], tmp_path / "run")
    card = json.loads((folder / "probekit.json").read_text())
    (folder / "probekit.json").write_text(json.dumps(card | {"complete": False}))
    with pytest.raises(ModelError, match="is an unfinished run. Run its command again"):
        load_learner(folder)
    (folder / "probekit.json").write_text(json.dumps(card | {"head": card["head"] | {"head": "bcn", "hidden_size": 5}}))
    with pytest.raises(ModelError, match="the weights do not match the model in the card"):
        load_learner(folder)
    (folder / "probekit.json").write_text(json.dumps(card))
    (folder / "head.safetensors").unlink()
    with pytest.raises(ModelError, match=r"has no head.safetensors"):
        load_learner(folder)


def test_the_generators_are_left_alone(runs):
    before = torch.get_rng_state()
    predict_run(runs[0], praise(), "dev", device="cpu")
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("device", ["cpu", "abacus"])
def test_the_device_is_that_of_the_encoder_too(device, runs, tiny_bert, monkeypatch, tmp_path):
    told, cached = [], evaluation.cache_activations
    monkeypatch.setattr(evaluation, "cache_activations", lambda *a, **k: told.append(k["device"]) or cached(*a, **k))
    how = {"model": tiny_bert, "caches": tmp_path, "device": device}
    if device == "cpu":
        predict_run(runs[2], praise(), "dev", **how)
        assert told == ["cpu"]
    else:
        with pytest.raises(UsageError, match="unknown device 'abacus'"):
            predict_run(runs[2], praise(), "dev", **how)
        assert not list(tmp_path.iterdir())  # nothing was cached elsewhere before


@pytest.mark.slow
def test_runs_of_the_version_before(tiny_model, tmp_path, monkeypatch):
    """Runs that probekit 0.1 left: they are evaluated, and the same command finds them finished."""
    monkeypatch.setattr(Split, "sample", lambda split, limit, _=0: Split(split.name, split.examples[:limit]))  # as 0.1
    old = shutil.copytree(Path(__file__).parent / "runs-0.1", tmp_path / "old")
    task = load_task("grammar:sentiment")
    options = {"run_name": "x", "epochs": 1, "batch_size": 8, "limit": 24, "device": "cpu"}
    regimes = {
        "fine-tune": {"test": "dev"},
        "feature-extraction": {"head": "linear", "layers": ["0", "-1"], "caches": tmp_path / "caches"},
    }
    for regime, more in regimes.items():
        card, rows = read_card(old / regime), open_run(old / regime).rows
        assert set(rows["regime"]) == {regime}
        assert set(rows["head"]) == {"linear"}
        assert set(rows["variant"]) == {"joint"}
        (number,) = run_numbers(rows).to_dict("records")
        assert (number["metric"], number["value"]) == ("accuracy", card["metrics"]["accuracy"])
        found = predict_run(old / regime, task, "dev", device="cpu", model=tiny_model("minilm"), caches=tmp_path)
        agree(found.metrics, card["metrics"])
        again = train("grammar:sentiment", tiny_model("minilm"), old / regime, regime=regime, model_name="minilm",
                      **options, **more)  # fmt: skip
        assert again.card == card
        assert again.metrics == card["metrics"]
        with pytest.raises(UsageError, match="holds another run: its seed is 0, not 1"):
            train(
                task, tiny_model("minilm"), old / regime, regime=regime, model_name="minilm", seed=1, **options, **more
            )
    transfer = read(old / "transfer.parquet").rows
    assert run_numbers(transfer)[["analysis", "trained_on", "variant"]].to_numpy().tolist() == [
        ["evaluate", "grammar:sentiment", "joint"]
    ]
    new = probekit.evaluate(old / "fine-tune", split="dev", device="cpu").rows
    assert new["value"].iloc[0] == transfer["value"].iloc[0]


# by domain, and with merged classes ---------------------------------------------------------------------------------

NLI = ("entailment", "neutral", "contradiction")


def inference(names=NLI, metrics=("accuracy",), name="mnli"):
    """Pairs with three classes, or with these two; in the test split each example has one domain, or two."""
    found = pairs(train=48, dev=24)
    merged = [0, 1, 2] if len(names) == 3 else [0, 1, 1]
    splits = {}
    for split, part in found.splits.items():
        domains = ["logic", "logic; knowledge", "knowledge"]
        rows = [replace(e, label=merged[i % 3], domain=domains[i % 3 if i % 2 else 0]) for i, e in enumerate(part)]
        splits[split] = Split(split, tuple(rows))
    return Task(name, found.kind, splits, names, metrics)


@pytest.fixture(scope="module", params=["fine-tune", pytest.param("feature-extraction", marks=pytest.mark.slow)])
def nli(request, tiny_bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("nli")
    frozen = {"caches": folder, "head": "linear"} if request.param == "feature-extraction" else {}
    return train(inference(), tiny_bert, folder / "run", regime=request.param, **SHORT | {"epochs": 6} | frozen), (
        {"model": str(tiny_bert), "caches": folder} if frozen else {}
    )


def by_task(result, metric):
    rows = result.rows[(result.rows["metric"] == metric) & (result.rows["estimator"] == "")]
    return dict(zip(rows["task"], rows["value"], strict=True))


@pytest.mark.slow
def test_a_row_for_each_domain(nli):
    """The same as the evaluation of each TASK:DOMAIN; R3 is the main metric of the task that is evaluated."""
    run, more = nli
    task = inference(metrics=("matthews", "accuracy"), name="glue-diagnostic")
    found = probekit.evaluate(run.path, task=[task], by_domain=True, **more)
    names = ["glue-diagnostic", "glue-diagnostic:knowledge", "glue-diagnostic:logic"]
    assert list(by_task(found, "matthews")) == list(by_task(found, "accuracy")) == names
    assert set(found.rows.loc[found.rows["headline"].astype(bool), "metric"]) == {"matthews"}
    assert list(by_task(found, "log-loss")) == names[:1]
    each = [probekit.evaluate(run.path, task=[task.of_domain(d)], **more) for d in ("knowledge", "logic")]
    for one in each:
        ((name, value),) = by_task(one, "matthews").items()
        assert by_task(found, "matthews")[name] == pytest.approx(value, abs=1e-12)
        n = [rows.loc[rows["task"] == name, "n"].iloc[0] for rows in (found.rows, one.rows)]
        assert n[0] == n[1]
    table = found.predictions[0]
    assert len(table.ids) == 13
    of_all = metric("matthews")(table.gold, table.predicted[0])
    assert by_task(found, "matthews")["glue-diagnostic"] == pytest.approx(of_all)


def test_two_classes_of_which_one_is_the_others(nli):
    """AX-b: a classifier of three classes predicts entailment, or not; the loss is that of the summed probabilities."""
    run, more = nli
    three, two = inference(), inference(("entailment", "not_entailment"), ("matthews", "accuracy"), "ax-b")
    whole = probekit.evaluate(run.path, task=[three], **more).predictions[0]
    found = probekit.evaluate(run.path, task=[two], by_domain=True, **more)
    table = found.predictions[0]
    guess, gold = (np.minimum(x, 1) for x in (whole.predicted[0], whole.gold))
    assert (table.predicted[0] == guess).all()
    assert (table.gold == gold).all()
    assert by_task(found, "matthews")["ax-b"] == pytest.approx(metric("matthews")(gold, guess))
    shares = np.stack([whole.probabilities[0][:, 0], whole.probabilities[0][:, 1:].sum(1)], 1)
    loss = -np.log(shares[np.arange(len(gold)), gold]).mean()
    assert by_task(found, "log-loss")["ax-b"] == pytest.approx(loss, rel=1e-5)
    constant = found.rows[(found.rows["estimator"] == "majority") & (found.rows["metric"] == "accuracy")]
    assert constant["value"].iloc[0] == pytest.approx((gold == 1).mean())  # not_entailment, two of three in train
    with pytest.raises(UsageError, match="which has the classes entailment, neutral"):
        probekit.evaluate(run.path, task=[inference(("same", "not_same"), name="other")], **more)


def test_no_domains(runs):
    with pytest.raises(UsageError, match="the examples of praise test have no domains; leave out --by-domain"):
        probekit.evaluate(runs[0], task=[praise()], by_domain=True)
