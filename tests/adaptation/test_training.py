"""The training itself: the same seed gives the same bytes, faults are told plainly, options do what they say."""

import json
import logging
import random
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from lessons import SHORT, count, pairs, praise, same_weights, tags, weights
from torch.optim.lr_scheduler import LambdaLR

from probekit.adaptation.data.batches import Batches
from probekit.adaptation.data.text import TextData
from probekit.adaptation.options import Hyperparameters, TrainOptions
from probekit.adaptation.runs.evaluation import load_learner
from probekit.adaptation.runs.folder import RESUME
from probekit.adaptation.runs.predictions import predict_batches
from probekit.adaptation.runs.run import open_run
from probekit.adaptation.train import train
from probekit.adaptation.training.checkpointing import Checkpointing, save_steps
from probekit.adaptation.training.fine_tuning import prepare_fine_tuning
from probekit.errors import DataError, NonFiniteError, UsageError
from probekit.models.loading import text_reader
from probekit.runtime import no_progress
from probekit.tasks.task import Split, Task

ONE = SHORT | {"epochs": 1}


def changed(task, split, **fields):
    """The task with its fourth example of a split changed; ``all`` changes every one."""
    every = fields.pop("every", False)
    examples = tuple(
        replace(e, **{k: v(e) if callable(v) else v for k, v in fields.items()}) if every or i == 3 else e
        for i, e in enumerate(task.split(split))
    )
    return Task(task.name, task.kind, {**task.splits, split: Split(split, examples)}, task.label_names, task.metrics)


def test_the_same_seed_gives_the_same_bytes_and_leaves_the_generators_alone(tiny_bert, tmp_path):
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(3)
    before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    one = train(praise(), tiny_bert, tmp_path / "one", **SHORT)
    after = random.getstate(), np.random.get_state()[1], torch.get_rng_state()  # noqa: NPY002
    assert before[0] == after[0]
    assert (before[1] == after[1]).all()
    assert torch.equal(before[2], after[2])
    torch.manual_seed(99)
    random.seed(99)
    two = train(praise(), tiny_bert, tmp_path / "two", save_at="1,2", **SHORT)  # checkpoints change nothing
    assert same_weights(one.path, two.path)
    assert one.metrics == two.metrics
    other = train(praise(), tiny_bert, tmp_path / "other", seed=1, **SHORT)
    assert not same_weights(one.path, other.path)
    for name in ("model.safetensors", "head.safetensors"):
        assert (one.path / name).read_bytes() == (two.path / name).read_bytes()


def test_a_run_before_leaves_nothing_behind(tiny_bert, tmp_path):
    """Mixed precision is kept in singletons of accelerate: the next run must not find it there."""
    first = train(praise(), tiny_bert, tmp_path / "a", **ONE)
    half = train(praise(), tiny_bert, tmp_path / "b", dtype="bfloat16", **ONE)
    again = train(praise(), tiny_bert, tmp_path / "c", **ONE)
    assert same_weights(first.path, again.path)
    assert not same_weights(first.path, half.path)
    assert half.metrics["loss"] == pytest.approx(first.metrics["loss"], abs=0.05)
    assert all(w.dtype == np.float32 for w in weights(half.path).values())


def test_it_is_quiet(tiny_bert, tmp_path, capfd):
    train(praise(), tiny_bert, tmp_path / "run", **ONE)
    out = capfd.readouterr()
    assert out.out == ""
    assert out.err == ""


@pytest.mark.parametrize(("rate", "where"), [(1e6, "the loss is not finite at step"), (1e30, "the loss on dev is")])
def test_a_loss_that_is_no_number(rate, where, tiny_bert, tmp_path):
    epochs, size = (5, 8) if rate == 1e6 else (1, 40)
    options = {"learning_rate": rate, "epochs": epochs, "batch_size": size, "warmup": 0, "schedule": "constant"}
    with pytest.raises(NonFiniteError, match=rf"{where}.* of .*learning rate of {rate:.0e}".replace("+", r"\+")):
        train(praise(), tiny_bert, tmp_path / "run", **SHORT | options)
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_weights_that_are_no_numbers(tiny_bert, tmp_path):
    import shutil

    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(tiny_bert, tmp_path / "broken")
    state = load_file(folder / "model.safetensors")
    state["encoder.layer.1.output.dense.weight"][0, 0] = torch.nan
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(NonFiniteError, match=r"the loss is not finite at step 1 of 5, at a learning rate of 5e-05"):
        train(praise(), folder, tmp_path / "run", warmup=0.0, **ONE)


@pytest.mark.parametrize(
    ("task", "options", "error", "message"),
    [
        (changed(praise(), "train", every=True, label=0), {}, DataError, r"dev has labels that .* lack \(good\)"),
        (changed(praise(), "train", label=None), {}, DataError, "1 of 40 examples of praise, train, have no label"),
        (changed(praise(), "dev", label=None), {}, DataError, "1 of 21 examples of praise, dev, have no label"),
        (changed(praise(), "test", every=True, label=None), {"test": "test"}, DataError, "13 of 13 .* test, have no"),
        (changed(count(), "dev", label=None), {}, DataError, "1 of 21 examples of count, dev, have no label"),
        (changed(tags(), "dev", every=True, label=None), {}, DataError, "of tags, dev, have no label"),
        (changed(tags(), "train", every=True, label=lambda e: tuple(min(x, 1) for x in e.label)), {}, DataError, "I-X"),
        (praise(), {"dev": "train"}, UsageError, "to evaluate on, 'train', is also the training split"),
        (praise(), {"test": "train"}, UsageError, "to test on, 'train', is also the training split"),
        (praise(), {"dev": "exam"}, UsageError, "praise has no split 'exam'"),
        (praise(), {"limit": 0}, UsageError, "limit is 0"),
        (praise(dev=0), {}, UsageError, "praise dev has no examples"),
        (praise(), {"head": "crf"}, UsageError, "the head 'crf' is for sequence-labelling"),
        (tags(), {"head": "linear"}, UsageError, "'linear' is for classification, multi-label, multi-output, regr"),
        (praise(), {"head": "esim"}, UsageError, "the head 'esim' reads pairs in one sequence or separately"),
        (pairs(), {"pairs": "separate", "head": "bcn"}, UsageError, "'bcn' reads single sentences or pairs in one"),
        (praise(), {"pairs": "separate"}, UsageError, "praise has no sentence pairs"),
        (praise(), {"head": "bcn", "pooling": "mean"}, UsageError, "pooling applies only to the heads linear"),
        (praise(), {"pooling": "middle"}, UsageError, "unknown pooling 'middle'"),
        (praise(), {"hidden_size": 4}, UsageError, "the head 'linear' has no option 'hidden_size'"),
        (praise(), {"learning_rat": 4}, UsageError, "did you mean learning_rate"),
        (praise(), {"schedule": "steep"}, UsageError, "schedule is 'steep'; it must be one of"),
        (praise(), {"regime": "both"}, UsageError, "regime is 'both'; it must be one of"),
        (praise(), {"caches": "x"}, UsageError, "are for feature extraction"),
        (praise(), {"epochs": 0}, UsageError, "epochs is 0; it must be 1 or more"),
        (praise(), {"warmup": 1.0}, UsageError, "warmup is 1.0"),
        (praise(), {"save_at": "sometimes"}, UsageError, "save_at is 'sometimes'"),
        (praise(), {"save_at": "3,99"}, UsageError, "save_at contains step 99; the run has steps 0 to 10"),
        (praise(), {"dtype": "float16"}, UsageError, "float16 training needs a GPU, not cpu"),
        (praise(), {"device": "abacus"}, UsageError, "unknown device 'abacus'"),
        (praise(), {"report_to": "nobody"}, UsageError, "report_to is 'nobody': nobody is not supported"),
        (praise(), {"max_length": 2}, UsageError, "max_length is 2"),
        (changed(pairs(), "train", pair=""), {"pairs": "separate", "model": "gpt2"}, UsageError, "example '3'"),
        (changed(praise(), "train", text=""), {"model": "gpt2"}, UsageError, "has no pieces after tokenization"),
    ],
)  # fmt: skip
def test_what_is_refused(task, options, error, message, tiny_model, tmp_path):
    options = SHORT | options
    model = tiny_model(options.pop("model", "bert"))
    with pytest.raises(error, match=message):
        train(task, model, tmp_path / "run", **options)
    assert not list(tmp_path.glob("run/*.safetensors"))


def test_what_is_empty_cut_off_or_unlabelled_is_counted(tiny_bert, tmp_path, caplog):
    task = changed(tags(), "train", label=None)
    task = changed(task, "dev", words=("​", "cat"), label=(0, 1), text="​ cat")  # no piece is left of a zero-width space
    with caplog.at_level(logging.WARNING, logger="probekit"):
        run = train(task, tiny_bert, tmp_path / "run", max_length=5, **ONE)
    cut = sum(max(0, len(e.words) - 3) for e in task.split("train"))  # three pieces between [CLS] and [SEP]
    assert run.card["unread_words"][0] == cut
    assert run.card["unread_words"][1] == 1 + sum(max(0, len(e.words) - 3) for e in task.split("dev"))
    assert run.card["truncated"][0] == sum(len(e.words) > 3 for e in task.split("train"))
    assert f"{cut} words of tags train are truncated" in caplog.text
    empty = train(changed(praise(), "train", text=""), tiny_bert, tmp_path / "empty", **ONE)
    assert empty.card["examples"] == [40, 21]


@pytest.mark.slow
def test_sentences_of_which_no_word_is_left(tiny_bert, tmp_path):
    for head in ("softmax", "crf", "bilstm"):
        task = changed(tags(), "train", words=("​",), label=(1,), text="​")
        options = {"hidden_size": 4} if head == "bilstm" else {}
        run = train(task, tiny_bert, tmp_path / head, head=head, limit=8, **ONE | {"batch_size": 1}, **options)
        assert np.isfinite(run.metrics["loss"])
        assert run.rows["value"].notna().all()


def two_updates(model, out, **options):
    """The weights after an epoch of two updates by plain gradient descent, as near as AdamW's first steps come."""
    head = options.pop("head", {"dropout": 0.0})
    return weights(train(praise(train=16), model, out, **SHORT | {"epochs": 1, "group": False} | options | head).path)


@pytest.mark.slow
def test_batches_are_accumulated(tmp_path):
    import tiny

    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = tiny.tiny_model("bert", tmp_path / "bert", **still)
    whole = two_updates(model, tmp_path / "a", batch_size=8, optimizer="bert-adamw")
    parts = two_updates(model, tmp_path / "b", batch_size=4, accumulation=2, optimizer="bert-adamw")
    rate = 5e-5
    for name in whole:  # an update of Adam is of the size of the rate: a wrong gradient would be as far off
        assert np.abs(whole[name] - parts[name]).max() < 0.02 * rate, name


def test_gradients_of_accumulated_batches(tiny_bert):
    """What the Trainer adds up: the gradient of eight is the mean of those of four and four."""
    task, options = praise(train=8), TrainOptions(dropout=0.0)
    torch.manual_seed(0)
    training = prepare_fine_tuning(tiny_bert, task, task.split("train"), task.split("dev"), options)
    learner, data = training.learner.eval(), training.objectives[0].train

    def gradient(*batches):
        learner.zero_grad()
        for rows in batches:
            batch = data.__getitems__(rows)
            (learner(**batch)["loss"] / len(batches)).backward()
        return {k: p.grad.clone() for k, p in learner.named_parameters() if p.grad is not None}

    whole, halves = gradient(list(range(8))), gradient([0, 1, 2, 3], [4, 5, 6, 7])
    largest = max(float(g.abs().max()) for g in whole.values())
    assert all((whole[k] - halves[k]).abs().max() < 1e-5 * largest for k in whole)


@pytest.mark.parametrize("unfreezing", [pytest.param("all", marks=pytest.mark.slow), "top"])
def test_gradient_checkpointing(unfreezing, tiny_bert, tmp_path):
    options = ONE | {"unfreezing": unfreezing}
    plain = train(praise(), tiny_bert, tmp_path / "plain", **options)
    run = train(praise(), tiny_bert, tmp_path / "run", gradient_checkpointing=True, **options)
    for name, value in weights(plain.path).items():
        assert np.allclose(value, weights(run.path)[name], atol=1e-6), name


def test_tensorboard(tiny_bert, tmp_path):
    pytest.importorskip("tensorboard")
    run = train(praise(), tiny_bert, tmp_path / "run", report_to="tensorboard", **ONE)
    (events,) = run.path.rglob("*tfevents*")
    assert events.stat().st_size > 500
    assert not (run.path / RESUME).exists()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(events.parent)).Reload()
    (last,) = read.Scalars("eval/accuracy")
    assert last.value == pytest.approx(run.metrics["accuracy"])


def test_rows_say_what_the_loss_was(tiny_bert, tmp_path):
    run = train(praise(), tiny_bert, tmp_path / "run", save_at="0,3", test="test", **SHORT)
    rows = run.rows[run.rows["estimator"] == ""]  # without the constant answer's
    assert set(rows["split"]) == {"train", "dev", "test"}
    assert rows[rows["split"] == "train"]["step"].tolist() == list(range(1, 11))
    assert sorted(set(rows[rows["split"] == "dev"]["step"])) == [0, 3, 5, 10]
    assert set(rows[rows["split"] == "dev"]["n"]) == {21}
    test = rows[rows["split"] == "test"].set_index("metric")["value"]
    assert test["accuracy"] == run.test["accuracy"]
    assert test["log-loss"] == run.test["loss"]
    assert set(rows[rows["kept"]]["step"]) == {run.card["step"]}
    assert rows["epoch"].max() == 2.0
    best = rows[(rows["split"] == "dev") & (rows["metric"] == "accuracy") & rows["step"].isin([5, 10])]
    assert run.metrics["accuracy"] == best["value"].max()


@pytest.mark.slow
def test_the_best_is_kept_or_the_last(tiny_bert, tmp_path):
    options = SHORT | {"epochs": 4, "learning_rate": 1e-3, "save_at": "epochs"}
    best = train(count(), tiny_bert, tmp_path / "best", **options)
    last = train(count(), tiny_bert, tmp_path / "last", keep="last", **options)
    assert last.card["step"] == 20
    assert same_weights(last.path, last.path / "step-20")
    assert same_weights(best.path, best.path / f"step-{best.card['step']}")

    def scores(run):
        rows = run.rows[(run.rows["metric"] == "pearson") & (run.rows["step"] > 0)]
        return rows.set_index("step")["value"]

    assert scores(best).idxmax() == best.card["step"]
    assert scores(best).equals(scores(last))


def test_evaluations_every_few_steps(tiny_bert, tmp_path):
    """Those at saved steps neither count nor step the plateau; the last step is evaluated, too."""
    seen = []
    options = ONE | {"evaluate_every": 2, "save_at": "1,3"}  # five steps
    run = train(praise(), tiny_bert, tmp_path / "run", watcher=lambda i, metrics: seen.append(i), **options)
    assert seen == [1, 2, 3]
    assert set(run.rows[run.rows["split"] == "dev"]["step"].dropna()) == {1, 2, 3, 4, 5}
    assert run.card["step"] in (2, 4, 5)


def test_a_plateau_halves_the_rate_and_ends_the_training(tiny_bert, tmp_path):
    seen = []
    options = SHORT | {
        "epochs": 40, "evaluate_every": 1, "schedule": "plateau", "plateau_patience": 1, "learning_rate": 8e-6,
        "save_at": "1,3",
    }  # fmt: skip
    run = train(
        praise(), tiny_bert, tmp_path / "run", watcher=lambda _, found: seen.append(found["accuracy"]), **options
    )
    best, bad, rate, halved = -1.0, 0, 8e-6, 0
    for value in seen:
        best, bad = (value, 0) if value > best + 1e-4 else (best, bad + 1)
        if bad > 1:
            rate, bad, halved = rate / 2, 0, halved + 1
    assert halved == 4  # 8e-6 / 16 is below 1e-6 for the first time
    assert rate < 1e-6
    assert run.card["total_steps"] == len(seen) < 200


JIANT = Path(__file__).parents[2] / "../shared/goldens/regularisation/jiant_v1.json"


@pytest.mark.shared
@pytest.mark.skipif(not JIANT.exists(), reason=f"the recorded decisions are not at {JIANT}")
def test_patience_is_one_evaluation_shorter_than_in_jiant(tiny_bert, tmp_path):
    options, task = TrainOptions(epochs=1, device="cpu"), praise()
    training = prepare_fine_tuning(tiny_bert, task, task.split("train"), task.split("dev"), options)
    scheduler = LambdaLR(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]), lambda step: 1.0)
    for case in json.loads(JIANT.read_text())["early_stopping"]:
        watch = Checkpointing(
            replace(training, options=replace(options, patience=case["patience"] + 1)), tmp_path, lambda *_: None,
            scheduler=scheduler, steps_per_epoch=1, watcher=None, progress=no_progress,
        )  # fmt: skip
        sign, stopped = -1 if case["should_decrease"] else 1, []
        for step, (value, best) in enumerate(zip(case["metric"], case["best_so_far"], strict=True), start=1):
            assert watch._better(step, {"accuracy": sign * value}) == best
            stopped.append(watch.out_of_patience)
        assert stopped == case["out_of_patience"]


def test_steps_at_which_to_save():
    assert save_steps("", 5, 20) == ()
    assert save_steps("7, 3,3", 5, 20) == (3, 7)
    assert save_steps("epochs", 5, 20) == (0, 5, 10, 15, 20)
    assert save_steps("log-spaced", 5, 20) == (0, 1, 2, 4, 8, 16, 20)
    assert save_steps("log-spaced", 5, 16) == (0, 1, 2, 4, 8, 16)
    assert save_steps("log-spaced", 1, 1) == (0, 1)
    for wrong in ("-1", "21", "3;4", "1.5"):
        with pytest.raises(UsageError, match="save_at"):
            save_steps(wrong, 5, 20)


def test_defaults_of_the_regimes():
    assert TrainOptions().learning_rate == 5e-5
    assert TrainOptions(regime="feature-extraction", epochs=None).epochs == 20
    how = TrainOptions(dropout=0.5, epochs=7)
    assert (how.dropout, how.epochs) == (0.5, 7)
    assert {"epochs": 7, "weight_decay": 0.01}.items() <= how.numbers().items()
    assert how.numbers().keys() == {f.name for f in fields(Hyperparameters)} - {"preset"}  # it sets the others


SHARED = """
import sys
sys.path[:0] = {paths!r}
from lessons import praise, tags
from probekit.adaptation.train import train
for make in (praise, tags):
    train(make(41, 23), {model!r}, {out!r} + "/" + make.__name__, epochs=1, batch_size=4, device="cpu", save_at="0")
"""


@pytest.mark.slow  # two processes import torch
def test_two_processes_say_the_dev_loss_of_one(tiny_bert, tmp_path):
    """Of 23 examples in batches of four: what fills up the last batch is in no loss."""
    here = Path(__file__).parent
    (tmp_path / "two.py").write_text(
        SHARED.format(paths=[str(here), str(here.parent)], model=str(tiny_bert), out=str(tmp_path))
    )
    words = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        tmp_path / "two.py",
    ]
    subprocess.run([str(word) for word in words], check=True, timeout=300)
    for make in (praise, tags):
        options = {"epochs": 1, "batch_size": 4, "device": "cpu", "save_at": "0"}
        one = train(make(41, 23), tiny_bert, tmp_path / "one" / make.__name__, **options)
        two = open_run(tmp_path / make.__name__)
        first, second = (
            rows[(rows["step"] == 0) & (rows["split"] == "dev")].set_index("metric")["value"]
            for rows in (one.rows, two.rows)
        )
        np.testing.assert_allclose(first, second[first.index], rtol=1e-6)


def test_shares_of_the_batches_say_together_what_all_say(tiny_bert, tmp_path):
    run = train(tags(24, 13), tiny_bert, tmp_path / "run", **SHORT)
    learner, card = load_learner(run.path)
    task = tags(24, 13)
    reader = text_reader(run.path, learner.encoder.config, card["encoder"]["max_length"])
    data = TextData(task, task.split("dev"), reader, apart=False)
    batches = [*Batches(data, 4, shuffle=False)]
    parts = [predict_batches(learner, data, batches[rank::3], device="cpu") for rank in range(3)]
    whole, losses = predict_batches(learner, data, batches, device="cpu")
    assert sum(loss for _, loss in parts) == pytest.approx(losses)
    merged = {i: one for part, _ in parts for i, one in part.items()}
    assert sorted(merged) == sorted(whole) == list(range(13))
    assert all((merged[i][0] == whole[i][0]).all() for i in merged)
