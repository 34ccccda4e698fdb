"""Features of sparse dictionaries in place of vectors: ``--through sae:FOLDER``, from a folder to rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import word_caches
from naive import dictionary_features
from safetensors.numpy import save_file

import probekit
from probekit.analyses.options import VectorOptions
from probekit.analyses.vectors import layer_vectors
from probekit.dictionaries import encode, read_dictionary
from probekit.errors import DataError, UsageError

WIDTH, LATENTS = 32, 48
HOOK = "blocks.1.hook_resid_post"  # layer 2
OLD = {"model_name": "bert", "hook_point": HOOK, "activation_fn_str": "relu", "dtype": "float32"}
NEW = {"metadata": {"model_name": "bert", "hook_name": HOOK, "sae_lens_version": "6.12.1"}}


def arrays(kind: str = "standard", d: int = WIDTH, latents: int = LATENTS, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    found = {"W_enc": normal(d, latents) / 4, "W_dec": normal(latents, d) / 4, "b_dec": normal(d) / 4}
    if kind == "gated":
        return found | {"b_gate": normal(latents), "b_mag": normal(latents), "r_mag": normal(latents) / 2}
    found["b_enc"] = normal(latents) / 2
    if kind == "jumprelu":
        found["threshold"] = normal(latents)
    if kind == "batchtopk":
        found["topk_threshold"] = np.float32([0.7]).reshape(())
    return found


def folder(at: Path, card: dict[str, Any], of: dict[str, np.ndarray], weights: str = "sae_weights.safetensors") -> Path:
    at.mkdir(parents=True, exist_ok=True)
    (at / "cfg.json").write_text(json.dumps(card))
    save_file(of, at / weights)
    return at


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path) -> tuple[Path, ...]:
    where = tmp_path_factory.mktemp("dictionaries")
    return word_caches(where, tiny_bert, pooling="last,mean,max", tokens=True)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, caches: tuple[Path, ...]) -> Path:
    """A dictionary that restores the layer, with the axes and, as latent 70, the direction of the piece "good"."""
    with probekit.ActivationCache(caches[0]) as cache:
        tokens, ids = cache.tokens(2), cache.index("token_ids")
        text = np.repeat(np.arange(len(cache)), tokens.length)
        x, y = tokens.values.astype(float), cache.labels[text]
    good = max(np.unique(ids), key=lambda i: (y[ids == i] == 1).sum() - 9 * (y[ids == i] == 0).sum())
    y = (ids == good).astype(int)
    within = sum(np.cov(x[y == c].T) for c in (0, 1))
    w = np.linalg.solve(within + 1e-3 * np.eye(WIDTH), x[y == 1].mean(0) - x[y == 0].mean(0))
    of = {"W_enc": np.zeros((WIDTH, 80)), "W_dec": np.zeros((80, WIDTH)), "b_enc": np.zeros(80)}
    of["W_enc"][:, :64] = np.concatenate([np.eye(WIDTH), -np.eye(WIDTH)], 1)
    of["W_dec"][:64] = of["W_enc"][:, :64].T
    of["W_enc"][:, 70], of["b_enc"][70] = w, -w @ (x[y == 0].mean(0) + x[y == 1].mean(0)) / 2
    of["b_enc"][71:] = -1
    of["b_dec"] = np.zeros(WIDTH)
    where = tmp_path_factory.mktemp("sae") / "planted"
    return folder(where, {"architecture": "standard", **NEW}, {k: v.astype(np.float32) for k, v in of.items()})


KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "standard": ({"architecture": "standard", **NEW}, "standard"),
    "of the first versions": (OLD, "standard"),
    "without bias": ({**OLD, "apply_b_dec_to_input": False}, "standard"),
    "tanh": ({**OLD, "activation_fn_str": "tanh-relu"}, "standard"),
    "fine-tuned": ({**OLD, "finetuning_scaling_factor": True}, "standard"),
    "gated": ({"architecture": "gated", **NEW}, "gated"),
    "jumprelu": ({"architecture": "jumprelu", "apply_b_dec_to_input": False, **NEW}, "jumprelu"),
    "topk": ({"architecture": "topk", "k": 5, **NEW}, "standard"),
    "topk, lengths": ({"architecture": "topk", "k": 5, "rescale_acts_by_decoder_norm": True, **NEW}, "standard"),
    "topk of before": ({**OLD, "activation_fn_str": "topk", "activation_fn_kwargs": {"k": 7}}, "standard"),
    "batchtopk": ({"architecture": "batchtopk", "k": 5, "rescale_acts_by_decoder_norm": True, **NEW}, "batchtopk"),
    "constant norm": ({**OLD, "normalize_activations": "constant_norm_rescale"}, "standard"),
    "layer norm": ({"architecture": "topk", "k": 6, "normalize_activations": "layer_norm", **NEW}, "standard"),
    "centred": ({**OLD, "model_from_pretrained_kwargs": {"center_writing_weights": True}}, "standard"),
}


@pytest.mark.parametrize("name", KINDS)
def test_features_are_those_of_the_definitions(name, tmp_path, caches):
    card, kind = KINDS[name]
    of = arrays(kind)
    if name == "fine-tuned":
        of["scaling_factor"] = np.random.default_rng(5).uniform(0.5, 2, LATENTS).astype(np.float32)
    sae = folder(tmp_path / "mine", {**card, "d_in": WIDTH, "d_sae": LATENTS}, of)
    with probekit.ActivationCache(caches[1]) as cache:
        found = layer_vectors(cache, VectorOptions(through=f"sae:{sae}", pooling="last"))
        x = cache.layer(2, "last").astype(np.float64)
    features, restored = dictionary_features(card, of, x)
    assert (list(found.layers), found.representation) == (["2"], "last sae:mine")
    np.testing.assert_allclose(np.asarray(found.layers["2"]()), features, atol=3e-5)  # float32 of sums of 32 products
    if name == "centred":
        x = x - x.mean(1, keepdims=True)
    columns = found.group_columns
    unexplained = ((x - restored) ** 2).sum() / ((x - x.mean(0)) ** 2).sum()
    np.testing.assert_allclose(columns["unexplained"], unexplained, rtol=1e-5)
    np.testing.assert_allclose(columns["active"], (features > 0).sum(1).mean())
    np.testing.assert_allclose(columns["dead"], 1 - (features > 0).any(0).mean())


def test_sparsify_and_logarithms_of_thresholds(tmp_path):
    x, of = np.random.default_rng(1).normal(size=(9, WIDTH)).astype(np.float32), arrays()
    theirs = {"encoder.weight": of["W_enc"].T.copy(), "encoder.bias": of["b_enc"], "W_dec": of["W_dec"]}
    sae = folder(tmp_path / "layers.3", {"k": 4, "d_in": WIDTH}, theirs | {"b_dec": of["b_dec"]}, "sae.safetensors")
    features, _ = dictionary_features({"architecture": "topk", "k": 4}, of, x)
    np.testing.assert_allclose(encode(read_dictionary(sae), x)[0].toarray(), features, atol=1e-5)

    of = arrays("jumprelu") | {"threshold": np.full(LATENTS, 0.8, dtype=np.float32)}
    features, _ = dictionary_features({"architecture": "jumprelu"}, of, x)
    of["log_threshold"] = np.log(of.pop("threshold"))
    sae = folder(tmp_path / "log", {"architecture": "jumprelu", **NEW}, of)
    np.testing.assert_allclose(encode(read_dictionary(sae), x)[0].toarray(), features, atol=1e-5)


def test_blocks_of_rows_change_nothing(tmp_path, monkeypatch):
    x = np.random.default_rng(1).normal(size=(50, 2 * WIDTH)).astype(np.float32)
    sae = read_dictionary(folder(tmp_path / "a", OLD, arrays()))
    whole, fit = encode(sae, x, each=2)
    monkeypatch.setattr("probekit.dictionaries.features.CELLS", 7 * LATENTS)
    parts, fit_too = encode(sae, x, each=2)
    np.testing.assert_allclose(parts.toarray(), whole.toarray(), atol=1e-6)
    assert whole.shape == (50, 2 * LATENTS)
    np.testing.assert_allclose(fit_too.unexplained, fit.unexplained)
    left, _ = encode(sae, x[:, :WIDTH])
    np.testing.assert_allclose(left.toarray(), whole.toarray()[:, :LATENTS], atol=1e-6)


def test_a_planted_latent_tells_what_no_unit_does(caches, planted, call, tmp_path):
    common = ("--estimator", "k-sparse", "--penalties", "1", "--controls", "0", "--pooling", "max", "--layers", "2")
    status = call("probe", *caches, *common, "--out", tmp_path / "units.parquet").status
    done = call("probe", *caches, "--through", f"sae:{planted}", *common[:-2], "--out", tmp_path / "sae.parquet")
    assert (status, done.status) == (0, 0), done.err
    units, features = (probekit.read_rows(tmp_path / f"{name}.parquet") for name in ("units", "sae"))
    value = [
        rows[(rows["metric"] == "accuracy") & (rows["layer"] == 2) & (rows["target"] == "gold")]["value"].item()
        for rows in (units, features)
    ]
    assert value[1] > value[0] + 0.15
    of_layer = features[features["layer"] == 2]
    assert set(of_layer["representation"]) == {"max sae:planted"}
    assert "explain 100 % of the layer's variance (dev); " in " ".join(done.out.split())
    card = json.loads((tmp_path / "sae.parquet.json").read_text())
    assert [one["kind"] for one in card["reads"]] == ["cache", "cache", "dictionary"]


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_features_of_pieces_are_pooled(pooling, caches, planted):
    with probekit.ActivationCache(caches[1]) as cache:
        found = layer_vectors(cache, VectorOptions(through=f"sae:{planted}", pooling=pooling))
        tokens, special = cache.tokens(2), cache.special_rows()
        sae = read_dictionary(planted)
        expected = []
        for start, length in zip(tokens.start, tokens.length, strict=True):
            rows = np.arange(start, start + length)
            features = encode(sae, tokens.values[rows[~special[rows]]])[0].toarray()
            expected.append(features.mean(0) if pooling == "mean" else features.max(0))
        np.testing.assert_allclose(np.asarray(found.layers["2"]()), np.array(expected), atol=1e-5)
        if pooling == "mean":  # the dictionary is linear where its first half is read less its second
            features = np.asarray(found.layers["2"]())
            np.testing.assert_allclose(features[:, :32] - features[:, 32:64], cache.layer(2, "mean"), atol=1e-4)


def test_a_planted_latent_is_named(caches, planted, call, tmp_path):
    out, quick = tmp_path / "latents.parquet", ("--draws", "39", "--splits", "8", "--resamples", "100")
    how = ("--through", f"sae:{planted}", "--pooling", "max", "--rankings", "mean-difference", *quick)
    done = call("units", *caches, *how, "--out", out)
    assert done.status == 0, done.err
    rows, said = probekit.read_rows(out), " ".join(done.out.split())
    scores = rows[rows["metric"] == "unit-score"]
    assert scores["unit"].iloc[0] == 70
    assert scores["named"].iloc[0]
    assert (set(scores["layer"]), set(scores["representation"])) == ({2}, {"max sae:planted"})
    assert "Features of sae:planted explain 100 %" in said
    assert [one["kind"] for one in json.loads(out.with_name("latents.parquet.json").read_text())["reads"]] == [
        "cache", "cache", "dictionary",
    ]  # fmt: skip


def test_all_estimators_and_analyses_read_features(caches, planted):
    through = f"sae:{planted}"
    for estimator in ("logistic", "mass-mean", "mlp", "attention", "monitor"):
        pooling = None if estimator in ("attention", "monitor") else "max"
        rows = probekit.probe(
            *caches, through=through, estimator=estimator, pooling=pooling, controls=0, folds=2, penalties=(0.5,)
        ).rows
        assert rows[(rows["layer"] == 2) & (rows["metric"] == "accuracy")]["value"].item() > 0.7
    found = probekit.mi(caches[0], through=through, estimator="knn", controls=0, pooling="last")
    assert (set(found.rows["layer"]), found.reads[-1].kind) == ({2}, "dictionary")
    assert "Features of sae:planted explain 100 %" in " ".join(found.verdict)
    assert probekit.mdl(caches[0], through=through, pooling="last").rows["dictionary"].iloc[0] == "sae:planted"


def test_features_of_very_wide_dictionaries_are_screened(caches, planted, monkeypatch):
    given = {"through": f"sae:{planted}", "pooling": "max", "estimator": "k-sparse", "penalties": (1, 2), "folds": 2}
    whole = probekit.probe(*caches, **given, controls=2)
    monkeypatch.setattr("probekit.probes.solvers.screening.WIDE", 79)
    monkeypatch.setattr("probekit.probes.solvers.screening.KEPT", 70)  # all that vary are kept
    same = probekit.probe(*caches, **given, controls=2)
    np.testing.assert_allclose(same.rows["value"], whole.rows["value"], atol=1e-6)
    monkeypatch.setattr("probekit.probes.solvers.screening.KEPT", 4)
    few = probekit.probe(*caches, **given, controls=0).rows
    assert few[(few["layer"] == 2) & (few["metric"] == "accuracy")]["value"].item() > 0.9
    with pytest.raises(UsageError, match="k-sparse probes can use at most 4 dimensions, not 8"):
        probekit.probe(*caches, **{**given, "penalties": (8,)})


def test_pairs_that_are_read_apart(tmp_path, tiny_bert, planted):
    how = {"pooling": "last,mean", "tokens": True, "pairs": "separate"}
    (path,) = word_caches(tmp_path, tiny_bert, "pairs", name="apart", sizes={"dev": 12}, **how)
    sae = read_dictionary(planted)
    with probekit.ActivationCache(path) as cache:
        found = {p: layer_vectors(cache, VectorOptions(through=f"sae:{planted}", pooling=p)) for p in ("last", "mean")}
        x, mean = cache.layer(2, "last"), cache.layer(2, "mean")
    u, v = (encode(sae, part)[0].toarray() for part in np.split(x, 2, axis=1))
    compared = np.asarray(found["last"].layers["2"]())
    np.testing.assert_allclose(compared, np.concatenate([u, v, abs(u - v), u * v], 1), atol=1e-5)
    of_mean = np.asarray(found["mean"].layers["2"]())
    for side, at in enumerate((0, 80)):
        back = of_mean[:, at : at + 32] - of_mean[:, at + 32 : at + 64]
        np.testing.assert_allclose(back, mean[:, 32 * side : 32 * (side + 1)], atol=1e-4)


def test_words_and_spans(tmp_path, tiny_bert, planted):
    words = word_caches(tmp_path, tiny_bert, "sequence-labelling", name="w")
    with probekit.ActivationCache(words[1]) as cache:
        found = layer_vectors(cache, VectorOptions(through=f"sae:{planted}"))
        sae, x = read_dictionary(planted), cache.layer_words(2)
        features = encode(sae, x)[0].toarray()
        np.testing.assert_allclose(np.asarray(found.layers["2"]()), features, atol=1e-6)
        spans = layer_vectors(cache, VectorOptions(through=f"sae:{planted}", span="ends"))
        known = cache.word_labels >= 0
        np.testing.assert_allclose(
            np.asarray(spans.layers["2"]()), np.concatenate([features, features], 1)[known], atol=1e-6
        )


def test_another_layer_or_model_is_read_only_if_named(caches, tmp_path, caplog):
    other = folder(tmp_path / "other", {**OLD, "model_name": "pythia-70m"}, arrays())
    with pytest.raises(UsageError, match="belongs to the model pythia-70m, and the cache to bert. --layers names"):
        probekit.mi(caches[0], through=f"sae:{other}", pooling="last")
    far = folder(tmp_path / "far", {**OLD, "hook_point": "blocks.9.hook_resid_pre"}, arrays())
    with pytest.raises(UsageError, match=r"belongs to layer 9 \(blocks.9.hook_resid_pre\), and the cache holds 0, 1"):
        probekit.mi(caches[0], through=f"sae:{far}", pooling="last")
    silent = folder(tmp_path / "silent", {"architecture": "standard"}, arrays())
    with pytest.raises(UsageError, match="does not say to which layer it belongs"):
        probekit.mi(caches[0], through=f"sae:{silent}", pooling="last")
    with probekit.ActivationCache(caches[0]) as cache:
        found = layer_vectors(cache, VectorOptions(through=f"sae:{far}", pooling="last", layers=(1,)))
        assert list(found.layers) == ["1"]
        assert "sae:far belongs to layer 9" in caplog.text
        assert "layer 1 is read, as --layers asks" in caplog.text
        with pytest.raises(UsageError, match="a dictionary describes one layer, and --layers names 2"):
            layer_vectors(cache, VectorOptions(through=f"sae:{far}", pooling="last", layers=(1, 2)))


def test_a_dictionary_that_does_not_fit_is_a_warning(caches, tmp_path, caplog):
    sae = folder(tmp_path / "noise", OLD, arrays())
    found = probekit.mi(caches[0], through=f"sae:{sae}", estimator="knn", controls=0, pooling="last")
    assert "Such features say little about the layer" in caplog.text
    assert any("worse than the mean of its vectors" in text for text in found.verdict)
    scaled = folder(tmp_path / "scaled", {**OLD, "normalize_activations": "expected_average_only_in"}, arrays())
    probekit.mi(caches[0], through=f"sae:{scaled}", estimator="knn", controls=0, pooling="last")
    assert "its folder does not say by which factor" in caplog.text


def test_pooled_vectors_need_pieces(tmp_path, tiny_bert, planted):
    cache = word_caches(tmp_path, tiny_bert, name="pooled", pooling="mean,last")[0]
    with pytest.raises(UsageError, match=r"not the pooled features. Cache it with --tokens.*give --pooling last"):
        probekit.mi(cache, through=f"sae:{planted}")
    assert len(probekit.mi(cache, through=f"sae:{planted}", pooling="last", estimator="knn", controls=0).rows)


def test_analyses_of_vectors_say_so(caches, planted, tmp_path):
    through = f"sae:{planted}"
    for name, given in {
        "similarity": caches[:1],
        "geometry": caches[:1],
        "edges": caches,
        "structural": caches,
    }.items():
        with pytest.raises(UsageError, match="reads the vectors themselves; leave out --through"):
            getattr(probekit, name)(*given, through=through)
    with pytest.raises(UsageError, match="--keep keeps probes of the vectors of a model"):
        probekit.probe(*caches, through=through, keep=tmp_path / "kept")
    with pytest.raises(UsageError, match="expected sae:FOLDER"):
        probekit.probe(*caches, through=str(planted))


BROKEN: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "architecture": ({"architecture": "transcoder"}, {}, "the architecture 'transcoder' is not known here"),
    "activation": ({"activation_fn_str": "gelu"}, {}, "the activation function 'gelu' is not known here"),
    "normalisation": ({"normalize_activations": "batch"}, {}, "the normalisation 'batch' is not known here"),
    "type": ({"apply_b_dec_to_input": "no"}, {}, "wanted 'apply_b_dec_to_input' of the type bool, found 'no'"),
    "k": ({"architecture": "topk", "k": 0}, {}, "wanted k of topk between 1 and 48"),
    "keyword": ({"activation_fn_kwargs": {"postact": "x"}}, {}, "has 'postact'; only k is known here"),
    "head": ({"hook_head_index": 3}, {}, "a dictionary of a single head is not read"),
    "said size": ({"d_sae": 64}, {}, r"W_enc has the shape \(32, 48\), and cfg.json says d_sae = 64"),
    "shape": ({}, {"W_dec": np.zeros((48, 31), np.float32)}, r"W_dec has the shape \(48, 31\), and other arrays have"),
    "axes": ({}, {"b_dec": np.zeros((32, 1), np.float32)}, r"b_dec is torch.float32 \(32, 1\); wanted numbers"),
    "whole numbers": ({}, {"b_dec": np.zeros(32, np.int64)}, "b_dec is torch.int64"),
    "nan": ({}, {"b_enc": np.full(48, np.nan, np.float32)}, "b_enc contains NaN or infinity"),
    "missing": ({}, {"b_enc": None}, "the array b_enc is missing; it has W_dec, W_enc, b_dec"),
    "factors": ({}, {"scaling_factor": np.full(48, 2, np.float32)}, "it has scaling_factor, and cfg.json says"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_not_known_or_does_not_fit_is_refused(name, tmp_path):
    card, other, why = BROKEN[name]
    of = {key: array for key, array in (arrays() | other).items() if array is not None}
    with pytest.raises((UsageError, DataError), match=why):
        read_dictionary(folder(tmp_path / "x", {**OLD, **card}, of))


def test_files_that_are_not_read(tmp_path, caches):
    with pytest.raises(UsageError, match="there is no folder"):
        read_dictionary(tmp_path / "none")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "ae.pt").write_bytes(b"x")
    with pytest.raises(UsageError, match="holds no dictionary.*ae.pt is not read: such files can contain programs"):
        read_dictionary(tmp_path / "old")
    sae = folder(tmp_path / "release" / "blocks.1.hook_resid_post", OLD, arrays())
    with pytest.raises(UsageError, match="Name one of the folders in it: blocks.1.hook_resid_post"):
        read_dictionary(sae.parent)
    (sae / "cfg.json").write_text("[1]")
    with pytest.raises(DataError, match="wanted an object, found list"):
        read_dictionary(sae)
    (sae / "cfg.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read as JSON"):
        read_dictionary(sae)
    (sae / "cfg.json").unlink()
    (tmp_path / "card.json").write_text(json.dumps(OLD))
    (sae / "cfg.json").symlink_to(tmp_path / "card.json")
    with pytest.raises(DataError, match="it is a link, which probekit does not follow"):
        read_dictionary(sae)
    narrow = folder(tmp_path / "narrow", OLD, arrays(d=16))
    with pytest.raises(UsageError, match="describes vectors of 16 numbers, and these have 32"):
        probekit.mi(caches[0], through=f"sae:{narrow}", pooling="last")
