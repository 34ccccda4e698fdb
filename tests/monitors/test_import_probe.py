"""Coefficients of scikit-learn as kept probes: its probabilities, a card with metrics, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

import probekit
from probekit.analyses.import_probe import class_names, read_coefficients
from probekit.errors import DataError, UsageError
from probekit.tasks.task import Example, Split, Task, TaskKind

KINDS = ("four", "two", "number", "several", "unlabelled")


def task(kind: str) -> Task:
    """Texts with a label that their words say."""
    rng, animals = np.random.default_rng(0), ("cat", "dog", "bird", "fish")
    splits = {}
    for split, n in (("train", 60), ("dev", 60)):
        found = []
        for i in range(n):
            which = int(rng.integers(4))
            words = [*rng.choice(["the", "a", "old", "sat", "ran"], 3), animals[which]]
            label = {
                "two": which % 2,
                "four": which,
                "number": which / 2,
                "several": (which % 2, which // 2),
                "unlabelled": -1,
            }[kind]
            found.append(Example(f"{split}{i}", " ".join(rng.permutation(words)), label=label))
        splits[split] = Split(split, tuple(found))
    names = {"two": ("no", "yes"), "four": animals, "several": ("odd", "high")}.get(kind, ())
    kinds = {"number": TaskKind.REGRESSION, "several": TaskKind.MULTI_LABEL}
    return Task(kind, kinds.get(kind, TaskKind.CLASSIFICATION), splits, names)


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    folder = tmp_path_factory.mktemp("caches")
    encoder = probekit.load_encoder(tiny.tiny_model("bert", folder / "tiny"), device="cpu")
    return {
        (kind, split): probekit.cache_activations(encoder, task(kind), split, out=folder / f"{kind}.{split}.h5")
        for kind in KINDS for split in ("train", "dev")
    }  # fmt: skip


def written(path, model, **more):
    names = ("coef_", "intercept_", "classes_")
    np.savez(path, **({name: getattr(model, name) for name in names if hasattr(model, name)} | more))
    return path


HOW = {"layer": 2, "resamples": 100}


@pytest.mark.parametrize("kind", ["two", "four"])
@pytest.mark.parametrize("scaled", [True, False])
def test_probabilities_are_those_of_scikit_learn(kind, scaled, caches, tmp_path):
    train, dev = caches[kind, "train"], caches[kind, "dev"]
    x, x_dev = (np.asarray(cache.layer(2), np.float32) * 1 for cache in (train, dev))
    scaler = StandardScaler().fit(x)
    of = scaler.transform if scaled else lambda x: x
    names = np.array(train.spec["label_names"])
    model = LogisticRegression(C=10, max_iter=300).fit(of(x), names[train.labels])
    more = {"mean_": scaler.mean_, "scale_": scaler.scale_} if scaled else {}
    path = written(tmp_path / "coef.npz", model, **more, classes_=model.classes_.astype(str))
    result = probekit.import_probe(path, dev, keep=tmp_path / "kept", **HOW)
    probe = probekit.load_probe(tmp_path / "kept")
    assert list(probe.classes) == model.classes_.tolist()
    right = model.predict_proba(of(x_dev).astype(float))
    # logits are float32: of one of size 14, the last digit is 1e-6, and so is the relative error of a small probability
    np.testing.assert_allclose(probe.predict_proba(x_dev), right, rtol=1e-6, atol=1e-7)
    right = (model.predict(of(x_dev)) == names[dev.labels]).mean()
    first = probe.card["metrics"][0]
    assert (first["metric"], first["value"]) == ("accuracy", pytest.approx(right))
    assert first["ci_low"] <= right <= first["ci_high"]
    assert 0 < first["null_mean"] < 1
    assert first["value_unseen"] is None  # what the coefficients were fitted on is not known
    assert probe.card["train"]["file"] == "coef.npz"
    assert probe.card["dev"]["n"] == 60
    assert probe.card["encoder"]["pooling"] == "mean"
    assert ("thresholds" in probe.card) == (kind == "two")
    assert sum(one["n"] for one in probe.card["reliability"]) == 60
    again = probekit.apply(tmp_path / "kept", dev, layer=2, resamples=100)
    assert again.rows.set_index("metric")["value"]["accuracy"] == pytest.approx(right)
    assert again.rows["kept"].iloc[0] == pytest.approx(right)
    assert "value_unseen" not in again.rows or again.rows["value_unseen"].isna().all()
    assert result.recipe.function == "import_probe"


def test_classes_by_number_and_numbers_and_texts_without_labels(caches, tmp_path):
    train, dev = caches["four", "train"], caches["four", "dev"]
    model = LogisticRegression(max_iter=300).fit(train.layer(2), train.labels)
    for about in ({}, {"classes_": np.arange(4)}):
        path = written(tmp_path / "coef.npz", model, **about)
        assert probekit.import_probe(path, dev, **HOW).probe().classes == tuple(dev.spec["label_names"])
    ridge = Ridge().fit(caches["number", "train"].layer(2), caches["number", "train"].labels)
    probe = probekit.import_probe(written(tmp_path / "ridge.npz", ridge), caches["number", "dev"], **HOW).probe()
    x = caches["number", "dev"].layer(2)
    np.testing.assert_allclose(probe.predict(x), ridge.predict(x), rtol=1e-5)
    assert probe.card["metrics"][0]["value"] is not None
    path = written(tmp_path / "named.npz", model, classes_=np.array(["a", "b", "c", "d"]))
    probe = probekit.import_probe(path, caches["unlabelled", "dev"], **HOW).probe()
    assert (probe.classes, probe.card["metrics"]) == (("a", "b", "c", "d"), [])
    np.testing.assert_allclose(probe.predict_proba(x), model.predict_proba(x), rtol=1e-5)
    with pytest.raises(UsageError, match="classes_ has a, b, c, d; the cache has"):
        probekit.import_probe(path, dev, **HOW)


def test_several_labels_of_a_text(caches, tmp_path):
    train, dev = caches["several", "train"], caches["several", "dev"]
    models = [LogisticRegression(max_iter=300).fit(train.layer(2), y) for y in train.label_values.T]
    about = {name: np.concatenate([getattr(one, name) for one in models]) for name in ("coef_", "intercept_")}
    np.savez(tmp_path / "coef.npz", **about)
    probe = probekit.import_probe(tmp_path / "coef.npz", dev, **HOW).probe()
    right = np.stack([one.predict_proba(dev.layer(2))[:, 1] for one in models], 1)
    np.testing.assert_allclose(probe.predict_proba(dev.layer(2)), right, rtol=1e-5)
    assert (probe.kind, probe.classes) == ("multi-label", ("odd", "high"))
    assert probe.card["metrics"][0]["ci_low"] is not None


def test_numbers_that_could_mean_two_things():
    assert class_names(np.array([1, 0]), ["no", "yes"], 1) == ["yes", "no"]
    assert class_names(np.array([0, 1]), ["0", "1"], 1) == ["0", "1"]
    assert class_names(np.array([1, 2, 3]), ["1", "2", "3"], 3) == ["1", "2", "3"]
    with pytest.raises(UsageError, match="could be meant in two ways"):
        class_names(np.array([0, 1]), ["1", "0"], 1)
    with pytest.raises(UsageError, match="3 rows of coefficients for 2 classes"):
        class_names(None, ["no", "yes"], 3)
    with pytest.raises(UsageError, match="1 rows of coefficients for 0 classes"):
        class_names(None, [], 1)


GOOD = {"coef_": np.ones((1, 3)), "intercept_": np.zeros(1)}


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"coef_": None}, "lacks coef_"),
        ({"classes_": np.array(["a", None], dtype=object)}, "pickled and are not opened"),
        ({"coef_": np.full((1, 3), np.nan)}, "coef_ must hold finite numbers"),
        ({"coef_": np.array([["a", "b", "c"]])}, "coef_ must hold finite numbers, not <U1"),
        ({"intercept_": np.zeros(2)}, "do not fit each other: coef_ .1, 3., intercept_ .2,."),
        ({"mean_": np.zeros(4)}, "do not fit each other"),
        ({"coef_": np.ones((1, 1, 3))}, "do not fit each other"),
        ({"scale_": np.zeros(3)}, "scale_ is 0 somewhere"),
        ({"classes_": np.array([0.5, 1.5])}, "classes_ must be texts or whole numbers"),
    ],
)
def test_files_that_are_refused(arrays, why, tmp_path):
    content = {name: array for name, array in (GOOD | arrays).items() if array is not None}
    np.savez(tmp_path / "coef.npz", **content)
    with pytest.raises(DataError, match=why):
        read_coefficients(tmp_path / "coef.npz")


def test_files_that_are_too_large_or_no_npz(tmp_path):
    np.savez_compressed(tmp_path / "coef.npz", **GOOD | {"coef_": np.zeros((1, 1 << 27), np.int8)})
    with pytest.raises(DataError, match=r"take 2\.1 GB or so"):
        read_coefficients(tmp_path / "coef.npz")
    (tmp_path / "coef.npz").write_bytes(b"\x80\x04pickle")
    np.save(tmp_path / "coef.npy", np.zeros(3))
    for name, why in (("coef.npz", "is no .npz file"), ("coef.npy", "is no .npz file"), ("none.npz", "no such file")):
        with pytest.raises(DataError, match=why):
            read_coefficients(tmp_path / name)


def test_vectors_that_do_not_fit(caches, tmp_path, call):
    np.savez(tmp_path / "coef.npz", **GOOD)
    with pytest.raises(UsageError, match="coef_ reads vectors of 3 dimensions; those of layer 2 of"):
        probekit.import_probe(tmp_path / "coef.npz", caches["two", "dev"], **HOW)
    dev = caches["two", "dev"]
    np.savez(tmp_path / "coef.npz", coef_=np.ones((1, dev.layer(2).shape[1])), intercept_=0.5)
    said = call(
        "import-probe", str(tmp_path / "coef.npz"), str(dev.path), "--layer", "2", "--keep", str(tmp_path / "k")
    )
    assert said.status == 0
    assert "accuracy" in said.out
    assert str(tmp_path / "k") in said.out
    assert probekit.load_probe(tmp_path / "k").layer == "2"
    said = call("import-probe", str(tmp_path / "coef.npz"), str(dev.path), "--keep", str(tmp_path))
    assert (said.status, "choose another folder" in said.err) == (2, True)
