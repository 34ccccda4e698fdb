"""Runs on several labels or numbers of a text: their losses are torch's, their metrics scikit-learn's."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lessons import SHORT, amounts, animals, praise, tags
from scipy.stats import pearsonr
from sklearn.metrics import f1_score, log_loss, roc_auc_score, root_mean_squared_error
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import probekit
from probekit.activations import cache_activations
from probekit.adaptation.data.batches import Batches
from probekit.adaptation.data.text import TextData
from probekit.adaptation.heads.spec import make_head
from probekit.adaptation.runs.evaluation import predict_run
from probekit.adaptation.search.search import search
from probekit.adaptation.search.space import Space
from probekit.adaptation.signals.teacher import Lesson
from probekit.adaptation.signals.terms import Distillation, disagreement
from probekit.adaptation.train import train
from probekit.errors import DataError, UsageError
from probekit.models.loading import text_reader
from probekit.statistics.predictions import Predictions
from probekit.tasks.task import Example, Split, TaskKind

BOTH = pytest.mark.parametrize("task", [animals(), amounts()], ids=["labels", "numbers"])
KEPT = ("metric", "label", "value", "ci_low", "ci_high", "n", "support")


def gold_of(task, split):
    return task.labels(split).astype(np.int64 if task.name == "animals" else np.float64)


def wide(table, what):
    """Gold values or predictions of a table of pairs of an example and a label, (n, labels)."""
    return np.atleast_2d(getattr(table, what))[0].reshape(-1, len(set(table.of_label.tolist())))


@pytest.fixture(scope="module")
def runs(tiny_bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    how = SHORT | {"learning_rate": 1e-3, "test": "test"}
    return {task.name: train(task, tiny_bert, folder / task.name, **how) for task in (animals(), amounts())}


@BOTH
def test_losses_are_those_of_a_plain_loop(task, tiny_bert, tmp_path):
    still = {"dropout": 0.0, "encoder_dropout": 0.0, "schedule": "constant", "max_grad_norm": 0.0, "weight_decay": 0.0}
    how = SHORT | still | {"learning_rate": 1e-3, "save_at": "0", "keep": "last"}
    run = train(task, tiny_bert, tmp_path / "run", **how)
    start = tmp_path / "run" / "step-0"
    model = AutoModelForSequenceClassification.from_pretrained(start, attention_probs_dropout_prob=0.0)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    assert model.config.problem_type == ("regression" if task.name == "amounts" else "multi_label_classification")
    tokenizer, optimizer = (
        AutoTokenizer.from_pretrained(start),
        torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.0),
    )
    split, labels = task.split("train"), torch.tensor(task.labels("train"), dtype=torch.float32)
    batches = Batches(TextData(task, split, text_reader(start, model.config, None), apart=False), 8)
    losses = []
    for epoch in range(2):
        batches.set_epoch(epoch)
        for rows in batches:
            inputs = tokenizer([split[i].text for i in rows], padding=True, return_tensors="pt")
            loss = model.train()(**inputs, labels=labels[rows]).loss
            losses.append(loss.item())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    ours = run.rows[run.rows["split"] == "train"]["value"].astype(float).tolist()
    assert ours == pytest.approx(losses, abs=1e-5)
    with torch.no_grad():
        inputs = tokenizer([e.text for e in task.split("dev")], padding=True, return_tensors="pt")
        logits = model.eval()(**inputs).logits.numpy()
    said = wide(Predictions.read(run.path / "dev.examples.parquet"), "predicted")
    np.testing.assert_allclose(said, logits if task.name == "amounts" else logits > 0, atol=1e-4)


def test_metrics_of_labels_are_those_of_scikit_learn(runs):
    run, task = runs["animals"], animals()
    found = Predictions.read(run.path / "test.examples.parquet")
    gold, said = wide(found, "gold"), wide(found, "predicted")
    np.testing.assert_array_equal(gold, gold_of(task, "test"))
    assert found.ids[:4].tolist() == ["0/praise", "0/cat", "0/dog", "1/praise"]
    assert found.of_label[:4].tolist() == ["praise", "cat", "dog", "praise"]
    assert found.label_names == ("no", "yes")
    assert found.examples == 13
    shares = found.probabilities[0, :, 1].reshape(-1, 3)
    np.testing.assert_array_equal(shares > 0.5, said)
    loss = np.mean([log_loss(gold[:, k], shares[:, k].astype(np.float64), labels=[0, 1]) for k in range(3)])
    assert run.test == pytest.approx(
        {
            "micro-f1": f1_score(gold, said, average="micro"),
            "macro-f1": f1_score(gold, said, average="macro"),
            "loss": loss,
        },
        abs=1e-6,
    )
    rows = run.rows[(run.rows["split"] == "test") & (run.rows["metric"] == "by-label(f1)")]
    assert rows["label"].tolist() == list(task.label_names)
    assert rows["value"].tolist() == pytest.approx(f1_score(gold, said, average=None).tolist())
    assert rows["support"].tolist() == gold.sum(0).tolist()


def test_metrics_of_numbers_are_means_over_them(runs):
    run, gold = runs["amounts"], gold_of(amounts(), "test")
    said = wide(Predictions.read(run.path / "test.examples.parquet"), "predicted")
    errors = [root_mean_squared_error(gold[:, k], said[:, k]) for k in range(2)]
    pearson = [pearsonr(gold[:, k], said[:, k]).statistic for k in range(2)]
    wanted = {"pearson": np.mean(pearson), "rmse": np.mean(errors), "loss": np.mean(np.square(errors))}
    assert run.test == pytest.approx(wanted, abs=1e-6)
    rows = run.rows[(run.rows["split"] == "test") & (run.rows["metric"] == "by-label(rmse)")]
    assert dict(zip(rows["label"], rows["value"], strict=True)) == pytest.approx(
        dict(zip(("good", "length"), errors, strict=True)), abs=1e-6
    )


@BOTH
def test_evaluating_a_run_again_gives_its_rows(task, runs):
    run = runs[task.name]
    again = probekit.evaluate(run.path, task=[task], split="dev", device="cpu").rows

    def kept(rows):
        return rows[(rows["split"] == "dev") & (rows["kept"] == True)][list(KEPT)].reset_index(drop=True)  # noqa: E712

    one, other = (kept(rows).sort_values(["metric", "label"]).reset_index(drop=True) for rows in (run.rows, again))
    assert (
        one[["metric", "label", "n", "support"]]
        .astype(object)
        .equals(other[["metric", "label", "n", "support"]].astype(object))
    )
    for name in ("value", "ci_low", "ci_high"):
        np.testing.assert_allclose(one[name].astype(float), other[name].astype(float), atol=1e-5)
    constant = again[again["estimator"].isin(("majority", "mean"))].set_index("metric")["value"]
    gold, train_gold = gold_of(task, "dev"), gold_of(task, "train")
    if task.name == "animals":
        shares = train_gold.mean(0)
        said = np.broadcast_to(shares > 0.5, gold.shape).astype(int)
        assert constant["micro-f1"] == pytest.approx(f1_score(gold, said, average="micro"))
        assert constant["log-loss"] == pytest.approx(-np.log(np.where(gold == 1, shares, 1 - shares)).mean())
    else:
        assert constant["mean-squared-error"] == pytest.approx(((gold - train_gold.mean(0)) ** 2).mean())


@BOTH
def test_heads_on_frozen_layers(task, tiny_bert, tmp_path):
    how = {"regime": "feature-extraction", "head": "linear", "caches": tmp_path, "validation": 0.3, "test": "dev"}
    run = train(task, tiny_bert, tmp_path / "run", **SHORT | how)
    agree = pytest.approx(run.test, rel=1e-5, abs=1e-6)
    assert predict_run(run.path, task, "dev", model=tiny_bert, caches=tmp_path, device="cpu").metrics == agree
    assert len(run.card["layers"]) == 4
    gold = wide(Predictions.read(run.path / "validation.examples.parquet"), "gold")
    assert len(gold) == run.card["examples"][1] == 40 - run.card["examples"][0]


@pytest.fixture(scope="module")
def both_seeds(tiny_bert, tmp_path_factory):
    out = tmp_path_factory.mktemp("seeds") / "run"
    return train(animals(), tiny_bert, out, seeds=2, **SHORT | {"learning_rate": 1e-3})


def test_means_over_seeds_are_of_each_label_too(both_seeds):
    rows = both_seeds.rows[(both_seeds.rows["split"] == "dev") & (both_seeds.rows["metric"] == "by-label(f1)")]
    means = rows[rows["seed"].isna()].set_index("label")["value"]
    assert means.to_dict() == pytest.approx(rows[rows["seed"].notna()].groupby("label")["value"].mean().to_dict())
    assert list(both_seeds.metrics) == ["micro-f1", "macro-f1"]


def test_an_ensemble_averages_the_probabilities_of_each_label(both_seeds):
    members = [Predictions.read(run.path / "dev.examples.parquet") for run in both_seeds.runs]
    result = probekit.ensemble(both_seeds.path)
    mean = np.mean([one.probabilities[0, :, 1] for one in members], axis=0)
    (table,) = result.predictions
    np.testing.assert_array_equal(table.predicted[0], mean > 0.5)
    rows = result.rows[result.rows["estimator"] == "ensemble"].set_index("metric")
    gold = wide(members[0], "gold")
    assert rows.loc["micro-f1", "value"] == pytest.approx(f1_score(gold.ravel(), mean > 0.5))
    assert rows.loc["log-loss", "value"] == pytest.approx(log_loss(gold.ravel(), mean.astype(np.float64)), rel=1e-5)
    assert set(result.rows["n"]) == {21}
    files = [run.path / "dev.examples.parquet" for run in both_seeds.runs]
    beside = probekit.compare(*files, resamples=100).rows
    values = [f1_score(gold.ravel(), one.predicted[0]) for one in members]
    assert beside["value"].item() == pytest.approx(values[0] - values[1])
    assert beside["n"].item() == 21


def test_an_ensemble_averages_each_number(runs, tiny_bert, tmp_path):
    other = train(amounts(), tiny_bert, tmp_path / "other", test="test", **SHORT | {"seed": 1, "epochs": 1})
    result = probekit.ensemble(runs["amounts"].path, other.path)
    members = [
        wide(Predictions.read(run / "test.examples.parquet"), "predicted") for run in (runs["amounts"].path, other.path)
    ]
    np.testing.assert_allclose(wide(result.predictions[0], "predicted"), np.mean(members, axis=0), rtol=1e-6)


def paired(task):
    """The task with a second sentence, which says nothing."""
    splits = {n: Split(n, tuple(replace(e, pair="the now") for e in s)) for n, s in task.splits.items()}
    return replace(task, splits=splits)


@pytest.mark.parametrize(
    ("family", "task", "options"),
    [
        ("bert", paired(animals()), {"mix": True, "pooling": "mean"}),
        pytest.param("bert", paired(amounts()), {"pairs": "separate"}, marks=pytest.mark.slow),
        pytest.param("bert", animals(), {"long": "windows", "max_length": 6, "overlap": 1}, marks=pytest.mark.slow),
        pytest.param("gpt2", animals(), {"accumulation": 2}, marks=pytest.mark.slow),
    ],
)
def test_further_ways_to_read_texts(family, task, options, tiny_model, tmp_path):
    run = train(task, tiny_model(family), tmp_path / "run", **SHORT | {"epochs": 1} | options)
    found = predict_run(run.path, task, "dev", device="cpu")
    assert found.metrics == pytest.approx(run.metrics, rel=1e-5, abs=1e-6)
    assert np.stack(found.predictions).shape == (21, len(task.label_names))


def test_a_tuned_checkpoint_is_probed_for_the_same_labels(runs, tmp_path):
    task, caches = animals(), []
    for split in ("train", "dev"):
        cache_activations(runs["animals"].path, task, split, out=tmp_path / f"{split}.h5", layers=["3"]).close()
        caches.append(tmp_path / f"{split}.h5")
    found = probekit.probe(*caches, controls=0, resamples=0)
    rows = found.rows[found.rows["metric"] == "by-label(f1)"]
    assert set(rows["label"]) == set(task.label_names)
    assert set(rows["checkpoint"]) == {"animals"}


def with_labels(task, split, labels):
    """The task with these labels in one split."""
    made = tuple(replace(e, label=label) for e, label in zip(task.split(split), labels, strict=True))
    return replace(task, splits={**task.splits, split: Split(split, made)})


def test_labels_that_no_head_can_learn(tiny_bert, tmp_path, caplog):
    task = animals(8, 6)
    lacking = with_labels(task, "train", [(), *[(0,)] * 6, None])
    with pytest.raises(DataError, match="1 of 8 examples of animals, train, have no label"):
        train(lacking, tiny_bert, tmp_path / "run", **SHORT)
    with pytest.raises(DataError, match="all training examples have the same labels"):
        train(with_labels(task, "train", [(0, 2)] * 8), tiny_bert, tmp_path / "run", **SHORT)
    rare = with_labels(with_labels(task, "train", [(0,), ()] * 4), "dev", [(1,), (0,)] * 3)
    train(rare, tiny_bert, tmp_path / "run", **SHORT | {"epochs": 1})
    assert "no training example has labels of dev (cat), so the head cannot learn them" in caplog.text


def test_other_labels_and_calibration_are_refused(runs):
    names = Split("dev", (Example("a", "good cat", (0,)),))
    other = replace(animals(), splits={"dev": names}, label_names=("one", "two", "three"))
    with pytest.raises(UsageError, match=r"which has the labels praise, cat, dog, but animals has the labels one, two"):
        predict_run(runs["animals"].path, other, "dev")
    with pytest.raises(UsageError, match="--calibrate is for tasks with one class per text; animals is multi-label"):
        probekit.evaluate(runs["animals"].path, task=[animals()], split="test", calibrate=True, device="cpu")


def test_soft_losses_are_means_over_labels():
    torch.manual_seed(0)
    ours, theirs = torch.randn(2, 3), torch.randn(2, 3)
    given = {"first": {"example": torch.tensor([1, 0])}}, {"logits": ours, "loss": torch.tensor(0.25)}, 0, 1
    values = {}
    for kind in (TaskKind.MULTI_LABEL, TaskKind.MULTI_OUTPUT):
        head = make_head("linear", 4, 3, kind=kind, label_names=("a", "b", "c"))
        term = Distillation(Lesson([theirs[1], theirs[0]]), temperature=2.0, share=1.0)
        values[kind] = float(term(SimpleNamespace(head=head), *given)), head.alternatives(ours)
    q, p = theirs.div(2).sigmoid(), ours.div(2).sigmoid()
    kl = q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()
    assert values["multi-label"][0] == pytest.approx(4 * float(kl.mean()) - 0.25, abs=1e-6)
    assert values["multi-output"][0] == pytest.approx(float((ours - theirs).square().mean()) - 0.25, abs=1e-6)
    first, second = head.alternatives(theirs), values["multi-output"][1]
    assert float(disagreement(first, second)) == pytest.approx(float((ours - theirs).square().mean()), abs=1e-6)
    of_labels = torch.stack([torch.zeros_like(theirs), theirs], -1), values["multi-label"][1]
    q, p = theirs.sigmoid(), ours.sigmoid()
    sure = torch.maximum(q, 1 - q) > 0.6
    kl = (q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()) * sure
    assert 0 < sure.sum() < 6
    assert float(disagreement(*of_labels, confidence=0.6)) == pytest.approx(float(kl.mean()), abs=1e-6)


@BOTH
def test_other_signals_beside_several_labels(task, runs, tiny_bert, tmp_path):
    (tmp_path / "slices.toml").write_text("[short]\nwords_at_most = 4\n")
    (tmp_path / "more.txt").write_text("the good cat\na dog\nthe cat was bad\n" * 3)
    both = {"teacher": str(runs[task.name].path), "slices": str(tmp_path / "slices.toml"), "slice_heads": 0.1}
    both |= {"unlabelled": str(tmp_path / "more.txt"), "consistency": "dropout", "lm_loss": 0.1}
    run = train(task, tiny_bert, tmp_path / "run", **SHORT | {"epochs": 1} | both)
    added = run.rows[run.rows["metric"] == "added-loss"]
    assert set(added["term"]) == {"distillation", "slice-heads", "consistency", "language-model"}
    assert np.isfinite(added["value"].astype(float)).all()
    inside = run.rows[(run.rows["slice"] == "short") & run.rows["against"].eq("rest")]
    assert len(inside) == 1
    for option, words in (
        (
            {"pseudo_labels": both["teacher"], "unlabelled": both["unlabelled"]},
            "pseudo_labels are for tasks with one class",
        ),
        *([({"teacher": both["teacher"], "temperature": 3.0}, "temperature is 3")] if task.name == "amounts" else []),
    ):
        with pytest.raises(UsageError, match=words):
            train(task, tiny_bert, tmp_path / "refused", **SHORT | option)


@pytest.mark.parametrize("task", [animals(), praise()], ids=["labels", "classes"])
def test_a_metric_of_scores_chooses_the_epoch(task, tiny_bert, tmp_path):
    task = replace(task, metrics=("auroc", *task.metrics[:1]))
    (tmp_path / "slices.toml").write_text("[short]\nwords_at_most = 4\n")
    how = SHORT | {"epochs": 3, "learning_rate": 1e-3, "slices": str(tmp_path / "slices.toml"), "mix": True}
    run = train(task, tiny_bert, tmp_path / "run", **how)
    table = Predictions.read(run.path / "dev.examples.parquet")
    shares, gold = table.probabilities[0, :, 1], table.gold
    if task.name == "animals":
        shares, gold = shares.reshape(-1, 3), gold.reshape(-1, 3)
    assert list(run.metrics) == ["auroc", task.metrics[1], "loss"]
    assert run.metrics["auroc"] == pytest.approx(roc_auc_score(gold, shares))
    of_dev = run.rows[(run.rows["split"] == "dev") & run.rows["slice"].isna() & run.rows["head"].ne("")]
    values = of_dev[of_dev["metric"] == "auroc"]
    assert len(values) == 3
    assert values.loc[values["kept"], "value"].item() == values["value"].max() == run.metrics["auroc"]
    constant = run.rows[run.rows["estimator"].eq("majority") & run.rows["metric"].eq("auroc")]
    assert (constant["value"] == 0.5).all()
    inside = run.rows[run.rows["against"].eq("rest")]
    assert inside["metric"].tolist() == ["difference(auroc)"]
    short = np.array([len(e.text.split()) <= 4 for e in task.split("dev")])
    parts = [roc_auc_score(gold[rows], shares[rows]) for rows in (short, ~short)]
    assert inside["value"].item() == pytest.approx(parts[0] - parts[1])


def test_a_crf_has_no_scores(tiny_bert, tmp_path):
    with pytest.raises(UsageError, match="auroc needs probabilities, which the head crf does not give"):
        train(replace(tags(), metrics=("auroc",)), tiny_bert, tmp_path / "run", head="crf", **SHORT)


@pytest.mark.slow
def test_a_search_finds_the_best_for_several_labels(tiny_bert, tmp_path):
    task = animals(24, 20)
    for split in ("train", "dev"):
        lines = [f"{e.text}\t{';'.join(task.label_names[k] for k in e.label) or 'none'}" for e in task.split(split)]
        (tmp_path / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    (tmp_path / "t.toml").write_text(
        'label = "label"\nseparator = ";"\n[splits]\ntrain = "train.tsv"\ndev = "dev.tsv"\n'
    )
    asked = Space(
        task=str(tmp_path / "t.toml"),
        model=str(tiny_bert),
        trials=2,
        seeds=2,
        test="",
        space={"epochs": 1, "batch_size": [4, 8]},
    )
    found = search(asked, out=tmp_path / "out", device="cpu")
    means = found.rows[found.rows["runs"].notna() & (found.rows["metric"] == "by-label(f1)")]
    assert set(means["label"]) == {"none", *task.label_names}
    assert found.trials["value"].between(0, 1).all()
