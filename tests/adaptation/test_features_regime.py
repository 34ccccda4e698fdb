"""Feature extraction, through the front door: heads on cached layers, and the mix of these layers."""

from dataclasses import replace

import numpy as np
import pytest
from lessons import SHORT, count, pairs, praise, same_weights, tags, weights

from probekit.activations import ActivationCache, cache_activations
from probekit.adaptation.runs.evaluation import predict_run
from probekit.adaptation.train import train, train_on_caches
from probekit.errors import CacheMismatch, DataError, UsageError
from probekit.rows import layer_labels
from probekit.tasks.task import Split, Task

SMALL = SHORT | {"regime": "feature-extraction"}


@pytest.fixture(scope="module")
def caches(tiny_model, tmp_path_factory):
    """Paths of the caches of train and dev."""
    folder, made = tmp_path_factory.mktemp("caches"), {}

    def make(task, family="bert", splits=("train", "dev"), **how):
        key = (task.name, family, splits, str(how))
        if key not in made:
            made[key] = []
            for split in splits:
                path = folder / f"{len(made)}-{split}.h5"
                cache_activations(tiny_model(family), task, split, out=path, **how).close()
                made[key].append(path)
        return made[key]

    return make


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "options", "metric", "least"),
    [
        (praise(160, 80), {"head": "linear", "learning_rate": 3e-2}, "accuracy", 0.75),
        pytest.param(count(160, 80), {"head": "linear", "learning_rate": 3e-2}, "pearson", 0.6, marks=pytest.mark.slow),
        pytest.param(praise(160, 80), {"head": "bcn", "hidden_size": 8}, "accuracy", 0.75, marks=pytest.mark.slow),
        (tags(160, 60), {"head": "bilstm-crf", "hidden_size": 8, "learning_rate": 1e-2}, "span-f1", 0.6),
    ],
    ids=["linear", "number", "bcn", "bilstm-crf"],
)
def test_it_learns(task, options, metric, least, tiny_bert, tmp_path):
    options = {"epochs": 10, "learning_rate": 5e-3, "dropout": 0.0} | options
    run = train(task, tiny_bert, tmp_path / "run", caches=tmp_path / "caches", **SMALL | options)
    assert run.metrics[metric] > least  # measured with seed 0; chance is 0.5, 0, and below 0.4


@pytest.mark.slow
def test_the_papers_heads_are_the_default(tiny_bert, tmp_path):
    for task, head in ((praise(16, 6), "bcn"), (pairs(16, 6), "esim"), (tags(16, 6), "bilstm-crf")):
        run = train(
            task, tiny_bert, tmp_path / head, caches=tmp_path / "caches", hidden_size=4, **SMALL | {"epochs": 1}
        )
        assert run.card["head"]["head"] == head
        with ActivationCache(run.card["caches"][0]) as cache:
            assert cache.spec["tokens"] == "piece"
            assert cache.poolings == ()
            assert cache.spec["sentences"] == 1
            assert cache.spec["pairs"] == ("joint" if head == "esim" else None)


@pytest.mark.parametrize(
    ("family", "head", "pairs_are"),
    [("gpt2", "esim", "separate"), pytest.param("bert", "pair", "separate", marks=pytest.mark.slow)],
)
def test_pairs_are_read_apart_where_nothing_parts_them_or_the_head_wants_that(
    family, head, pairs_are, tiny_model, tmp_path
):
    options = SMALL | {"epochs": 1, "head": head} | ({"hidden_size": 4} if head == "esim" else {})
    run = train(pairs(16, 6), tiny_model(family), tmp_path / "run", caches=tmp_path / "caches", **options)
    with ActivationCache(run.card["caches"][0]) as cache:
        assert cache.spec["pairs"] == pairs_are
    assert run.card["head"]["pairs_apart"]


def test_the_weights_of_the_mix_are_rows_by_layer(caches, tmp_path):
    run = train_on_caches(*caches(praise(), tokens=True), tmp_path / "run", head="linear", learning_rate=0.1, **SHORT)
    rows = run.rows[run.rows["metric"] == "mix-weight"]
    assert layer_labels(rows).tolist() == ["0", "1", "2", "3"] * 2
    assert rows["layer"].tolist() == [0, 1, 2, 3] * 2
    assert set(rows["split"]) == {"dev"}
    assert np.allclose(rows.groupby("step")["value"].sum(), 1)
    kept = rows[rows["kept"]]["value"].to_numpy()
    logits = weights(run.path)["head.safetensors:mix.scalar_parameters"]
    assert np.allclose(kept, np.exp(logits) / np.exp(logits).sum(), atol=1e-6)
    assert kept.std() > 1e-3
    gamma = run.rows[(run.rows["metric"] == "mix-gamma") & run.rows["kept"]]["value"]
    assert gamma.item() == pytest.approx(float(weights(run.path)["head.safetensors:mix.gamma"][0]))
    assert run.card["layers"] == ["0", "1", "2", "3"]


def test_chosen_layers(caches, tmp_path):
    run = train_on_caches(*caches(praise()), tmp_path / "run", head="linear", layers=[-1, "0"], **SHORT)
    assert run.card["layers"] == ["3", "0"]
    assert weights(run.path)["head.safetensors:mix.scalar_parameters"].shape == (2,)
    rows = run.rows[run.rows["metric"] == "mix-weight"]
    assert layer_labels(rows).tolist() == ["3", "0"] * 2
    with pytest.raises(UsageError, match="has no layer 17; it has 0, 1, 2, 3"):
        train_on_caches(*caches(praise()), tmp_path / "other", head="linear", layers=[17], **SHORT)


@pytest.mark.parametrize("family", ["gpt2", pytest.param("t5", marks=pytest.mark.slow)])
def test_the_final_norm_is_a_layer_like_others(family, caches, tmp_path):
    run = train_on_caches(*caches(praise(), family), tmp_path / "run", head="linear", **SHORT)
    assert run.card["layers"] == ["0", "1", "2", "3", "final_norm"]
    assert "final_norm" in set(layer_labels(run.rows))


def test_pooled_or_not_the_function_is_the_same(caches, tmp_path):
    options = SHORT | {"head": "linear", "save_at": "0"}
    pooled = train_on_caches(*caches(praise()), tmp_path / "a", **options)
    pieces = train_on_caches(*caches(praise(), tokens=True, pooling=[]), tmp_path / "b", **options)
    before = [run.rows[(run.rows["step"] == 0) & (run.rows["metric"] == "log-loss")] for run in (pooled, pieces)]
    assert before[0]["value"].item() == pytest.approx(before[1]["value"].item(), rel=1e-5)
    assert same_weights(pooled.path / "step-0", pieces.path / "step-0")


@pytest.fixture(scope="module")
def plainly_stored(caches, tmp_path_factory):
    out = tmp_path_factory.mktemp("plain") / "run"
    return train_on_caches(*caches(tags(), tokens=True, pooling=[]), out, head="bilstm", hidden_size=4, **SHORT)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"store": "bfloat16"}, marks=pytest.mark.slow),
        pytest.param({"store": "float16"}, marks=pytest.mark.slow),
        pytest.param({"compress": True}, marks=pytest.mark.slow),
        {"tokens": True, "token_level": "word-first"},
        pytest.param({"tokens": True, "token_level": "word-mean"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_however_the_cache_was_stored(how, caches, plainly_stored, tmp_path):
    how = {"tokens": True, "pooling": []} | how
    run = train_on_caches(*caches(tags(), **how), tmp_path / "run", head="bilstm", hidden_size=4, **SHORT)
    if how["tokens"] is True:
        assert run.metrics["loss"] == pytest.approx(plainly_stored.metrics["loss"], abs=2e-3)
    else:
        assert np.isfinite(run.metrics["loss"])
    if "compress" in how:
        assert same_weights(run.path, plainly_stored.path)


@pytest.mark.slow
def test_a_small_window(caches, tmp_path):
    """Seven examples at a time: as many steps, other batches, every example still read."""
    paths = caches(praise(), tokens=True, pooling=[])
    whole = train_on_caches(*paths, tmp_path / "a", head="bcn", hidden_size=4, **SHORT)
    some = train_on_caches(*paths, tmp_path / "b", head="bcn", hidden_size=4, window=30_000, **SHORT)
    assert whole.card["total_steps"] == some.card["total_steps"] == 10
    assert not same_weights(whole.path, some.path)


@pytest.mark.slow
def test_bfloat16_and_layer_norm(caches, tmp_path):
    paths = caches(tags(), tokens=True, pooling=[])
    options = SHORT | {"head": "bilstm-crf", "hidden_size": 4}
    run = train_on_caches(*paths, tmp_path / "a", dtype="bfloat16", **options)
    assert np.isfinite(run.metrics["loss"])
    norm = train_on_caches(*paths, tmp_path / "b", layer_norm=True, **options)
    assert norm.card["head"]["layer_norm"]
    linear = SHORT | {"head": "linear", "layer_norm": True}
    with pytest.raises(UsageError, match="has no token vectors"):  # the norm of a layer cannot be taken of the pooled
        train_on_caches(*caches(praise()), tmp_path / "c", **linear)


@pytest.mark.parametrize(
    ("first", "second", "options", "error", "message"),
    [
        ((praise(), {}), (praise(), {"splits": ("train", "train")}), {}, CacheMismatch, "both caches hold the same"),
        ((praise(), {}), (praise(), {"family": "gpt2"}), {}, CacheMismatch, "model is 'bert' in .* 'gpt2' in"),
        ((praise(), {}), (praise(), {"random_weights": 1}), {}, CacheMismatch, "the first was made with"),
        ((praise(), {}), (praise(), {"max_length": 5}), {}, CacheMismatch, "cut_at is None"),
        ((praise(), {}), (count(), {}), {}, CacheMismatch, "the task is praise in the first and count in"),
        ((pairs(), {}), (pairs(), {"pairs": "separate"}), {}, CacheMismatch, "pairs is 'joint'"),
        ((praise(), {}), (praise(), {}), {"head": "bcn"}, UsageError, "has no token vectors; create a cache with"),
        ((praise(), {}), (praise(), {}), {"pooling": "first"}, UsageError, "the pooling first; it has mean"),
        ((praise(), {}), (praise(), {}), {"pooling": "max"}, UsageError, "has no token vectors"),
        ((praise(), {}), (praise(), {}), {"pooling": "pooler"}, UsageError, "the output of the encoder's pooler"),
        ((praise(), {}), (praise(), {}), {"head": "crf"}, UsageError, "the head 'crf' is for sequence-labelling"),
        ((praise(), {}), (praise(), {}), {"head": "esim"}, UsageError, "'esim' reads pairs in one sequence or"),
        ((pairs(), {}), (pairs(), {}), {"head": "esim"}, UsageError, "has no token vectors"),
        ((praise(), {}), (praise(), {}), {"layers": []}, UsageError, "layers is empty"),
        (
            (tags(), {"tokens": True, "pooling": []}),
            (tags(), {"tokens": True, "token_level": "word-first", "pooling": []}),
            {"head": "softmax"}, CacheMismatch, "tokens is 'piece' in .* 'word-first' in",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(first, second, options, error, message, caches, tmp_path):
    (task, how), (other, more) = first, second
    one, two = caches(task, **how)[0], caches(other, **more)[1]
    with pytest.raises(error, match=message):
        train_on_caches(one, two, tmp_path / "run", **SHORT | {"head": "linear"} | options)
    assert not (tmp_path / "run").exists()


def test_unlabelled_examples(caches, tmp_path):
    t = praise()
    dev = Split("dev", tuple(replace(e, label=None) if i == 2 else e for i, e in enumerate(t.split("dev"))))
    task = Task("open", t.kind, {**t.splits, "dev": dev}, t.label_names, t.metrics)
    with pytest.raises(DataError, match="1 of 21 examples of open, dev, have no label"):
        train_on_caches(*caches(task), tmp_path / "run", head="linear", **SHORT)


def test_open_caches_stay_open(caches, tmp_path):
    one, two = caches(praise())
    with ActivationCache(one) as a, ActivationCache(two) as b:
        run = train_on_caches(a, b, tmp_path / "run", head="linear", test=two, **SHORT)
        assert len(a.layer(0)) == 40
        assert len(b.labels) == 21
    assert run.test is not None
    assert run.test["loss"] == pytest.approx(run.metrics["loss"], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("regime", ["feature-extraction", "fine-tune"])
def test_a_checkpoint_is_not_taken_for_the_pretrained_model(regime, tiny_bert, tmp_path):
    quick = SHORT | {"epochs": 1}
    tuned = train(praise(), tiny_bert, tmp_path / "cola", save_at="4", **quick).path / "step-4"
    options = quick | {"regime": regime, "head": "linear"}
    options |= {"caches": tmp_path / "caches"} if regime == "feature-extraction" else {}
    plain = train(praise(), tiny_bert, tmp_path / "plain", **options)
    again = train(praise(), tuned, tmp_path / "again", **options)
    name = tiny_bert.name
    assert set(plain.rows["model"]) == {name}
    assert set(again.rows["model"]) == {again.card["model"]} == {f"{name}@cola-step-4"}
    assert (again.card["encoder"]["checkpoint"], again.card["encoder"]["step"]) == ("cola", 4)
    assert plain.card["encoder"].get("checkpoint") is None
    if regime == "fine-tune":  # a checkpoint of a checkpoint
        cache = cache_activations(again.path, praise(), "dev", out=f"{tmp_path}/", pooling="mean")
        assert (cache.spec["model"], cache.spec["checkpoint"]) == (f"{name}@cola-step-4", "again")
    else:
        one, two = plain.card["caches"][0], again.card["caches"][1]
        with pytest.raises(
            CacheMismatch, match="do not belong together: checkpoint is None in the first and 'cola' in the second"
        ):
            train_on_caches(one, two, tmp_path / "mixed", head="linear", **quick)


@pytest.mark.slow
def test_only_the_layers_that_are_mixed_are_kept_as_asked(tiny_bert, tmp_path):
    task = praise(24, 12)
    options = SMALL | {"epochs": 2, "head": "bcn", "hidden_size": 4}
    small = {"layers": (1, -1), "store": "float16", "compress": True, "caches": tmp_path / "small"}
    run = train(task, tiny_bert, tmp_path / "run", **options | small)
    with ActivationCache(run.card["caches"][0]) as cache:
        assert cache.layers == ("1", "3")
        assert cache.spec["store"] == "float16"
        assert cache._checked.dataset("/tokens/1").chunks
    with ActivationCache(run.card["caches"][1]) as cache, ActivationCache(
        cache_activations(tiny_bert, task, "dev", tokens=True, pooling=(), out=tmp_path / "all.h5").path
    ) as whole:  # fmt: skip
        for layer in cache.layers:
            np.testing.assert_array_equal(cache.tokens(layer).values, whole.tokens(layer).values.astype(np.float16))
    assert run.card["layers"] == ["1", "3"]
    again = predict_run(tmp_path / "run", task, "dev", model=tiny_bert, caches=tmp_path / "evaluated")
    assert again.metrics == run.metrics
    single = train(task, tiny_bert, tmp_path / "one", layers=(-2,), caches=tmp_path / "one-caches", **options)
    assert single.card["layers"] == ["2"]


def test_caches_that_are_there_are_taken(tiny_bert, tiny_model, tmp_path):
    task, options = praise(24, 12), SMALL | {"epochs": 2, "head": "linear"}
    first = train(task, tiny_bert, tmp_path / "first", caches=tmp_path / "caches", **options)
    made = tuple(first.card["caches"])
    second = train(task, tiny_bert, tmp_path / "second", cache=made, **options)
    assert same_weights(first.path, second.path)
    assert first.metrics == second.metrics
    with pytest.raises(CacheMismatch, match="split is 'dev', expected 'train'"):
        train(task, tiny_bert, tmp_path / "third", cache=made[::-1], **options)
    with pytest.raises(CacheMismatch, match="weights_digest is"):
        train(task, tiny_model("gpt2"), tmp_path / "third", cache=made, **options)
    with pytest.raises(UsageError, match="--cache needs one cache each for train, dev, test; 2 are given"):
        train(task, tiny_bert, tmp_path / "third", cache=made, test="test", **options)
    with pytest.raises(UsageError, match="are for feature extraction"):
        train(task, tiny_bert, tmp_path / "third", cache=made)
    with pytest.raises(UsageError, match="has no layer '7'"):
        cache_activations(tiny_bert, task, "dev", layers=(7,), out=tmp_path / "seven.h5")
