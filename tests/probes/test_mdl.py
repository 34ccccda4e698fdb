"""Description length by layer: the rows, the controls, the study and the command."""

import numpy as np
import pytest
from builders import word_caches

from probekit.activations import ActivationCache
from probekit.analyses.mdl import mdl
from probekit.errors import NonFiniteError, UsageError
from probekit.probes.codes.mdl import mdl_rows
from probekit.probes.codes.online import online_code
from probekit.probes.codes.options import CodeOptions
from probekit.probes.codes.variational import variational_code
from probekit.probes.protocol.labels import Labels
from probekit.rows import layer_labels, read_card, read_rows

ABOUT = {"task": "toy", "split": "train", "model": "toy", "representation": "mean"}
CS = (0.01, 1.0)


def toy(n=300, d=8, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    x = rng.normal(size=(n, d)).astype(np.float32)
    return {"0": x, "1": lambda: x + np.eye(d, dtype=np.float32)[0] * 3 * y[:, None].astype(np.float32)}, y


def targets(rows):
    """Targets in their order, with the number of the draw."""
    pairs = zip(rows["target"], rows["draw"].astype("string").fillna(""), strict=True)
    return list(dict.fromkeys(f"{target} {draw}".strip() for target, draw in pairs))


def test_rows_of_the_online_code():
    layers, y = toy()
    rows = mdl_rows(layers, y, about=ABOUT, options=CodeOptions(controls=2, penalties=CS, orders=1))
    assert targets(rows) == ["gold", "shuffled 0", "shuffled 1", "uniform", "prior"]
    assert rows["metric"].unique().tolist() == [
        "codelength-bits", "bits-per-example", "compression", "compression-over-prior", "saved-bits",
        "portion-bits-per-example",
    ]  # fmt: skip
    gold = rows.assign(layer=layer_labels(rows))[rows["target"] == "gold"].set_index(["layer", "metric"])["value"]
    assert gold["0", "compression"] == pytest.approx(1, abs=0.05)
    assert gold["1", "compression"].item() > 2  # measured 2.5
    noise = rows[(rows["target"] != "gold") & (rows["metric"] == "compression")]["value"]
    assert (noise < 1.02).all()
    assert gold["1", "compression-over-prior"].item() == pytest.approx(gold["1", "compression"].item(), rel=0.02)
    assert rows[rows["target"] == "gold"]["ci_low"].isna().all()  # of one order
    code = online_code(layers["1"](), y, Cs=CS)
    whole = rows[(rows["layer"] == 1) & (rows["target"] == "gold") & (rows["portion"] == -1)].set_index("metric")
    assert whole.loc["codelength-bits", "value"] == pytest.approx(code.bits[0])
    assert whole.loc["bits-per-example", "value"] == pytest.approx(code.bits[0] / 300)
    assert whole.loc["compression", "value"] == pytest.approx(300 / code.bits[0])
    assert whole["penalty"].unique().tolist() == [CS[code.best[0]]]
    assert whole["penalty_bits"].iloc[0] == pytest.approx(code.portions[0].sum(1).min())
    assert whole["converged"].all()
    part = rows[(rows["layer"] == 1) & (rows["target"] == "gold") & (rows["portion"] >= 0)]
    assert (part["value"] * part["n"]).sum() == pytest.approx(code.bits[0])
    assert part["sent"].tolist() == (code.ends / 300).tolist()


def test_several_orders_give_a_mean_and_an_interval():
    layers, y = toy()
    x, how = layers["1"](), {"penalties": CS, "controls": 1, "seed": 5}
    rows = mdl_rows({"1": x}, y, about=ABOUT, options=CodeOptions(**how, orders=3))
    codes = [online_code(x, y, Cs=CS, seed=seed) for seed in (5, (5, 1), (5, 2))]
    bits = np.array([code.bits[0] for code in codes])
    prior = np.array([code.prior_bits[0] for code in codes])
    gold = rows[(rows["target"] == "gold") & (rows["portion"] == -1)].set_index("metric")
    assert gold.loc["codelength-bits", "value"] == pytest.approx(bits.mean())
    assert gold.loc["saved-bits", "value"] == pytest.approx((prior - bits).mean())
    assert gold.loc["compression-over-prior", "value"] == pytest.approx(np.exp(np.log(prior / bits).mean()))
    each = np.mean([code.each[0] for code in codes], axis=0)
    variance = (2 + 1 / 3) * bits.var(ddof=1) + 300 * each.var(ddof=1)  # over orders, and over examples
    low, high = gold.loc["codelength-bits", ["ci_low", "ci_high"]]
    assert high - bits.mean() == pytest.approx(bits.mean() - low)
    assert 1.96 < (high - low) / 2 / np.sqrt(variance) < 4.31  # t of 2 degrees of freedom to many
    assert (gold["ci_low"] < gold["value"]).all()
    assert (gold["value"] < gold["ci_high"]).all()
    assert gold["p_adjusted"].max() < 1e-6
    assert rows.loc[rows["target"] == "shuffled", "ci_low"].isna().all()
    alone = mdl_rows({"1": x}, y, about=ABOUT, options=CodeOptions(**how, orders=1))
    same = [own[own["target"] == "shuffled"]["value"].tolist() for own in (rows, alone)]
    assert same[0] == same[1]
    with pytest.raises(UsageError, match="orders is 0; it must be 1 or more"):
        CodeOptions(orders=0)


def test_a_code_of_noise_saves_nothing():
    """Labels of which three in ten are of one class: shorter than the uniform code, and no shorter than the prior's."""
    layers, _ = toy()
    y = (np.random.default_rng(1).random(300) < 0.3).astype(int)
    rows = mdl_rows({"0": layers["0"]}, y, about=ABOUT, options=CodeOptions(penalties=CS, controls=0))
    gold = rows[(rows["target"] == "gold") & (rows["portion"] == -1)].set_index("metric")
    code = rows[rows["metric"] == "codelength-bits"].set_index("target")["value"]
    assert gold.loc["compression", "value"] > 1.05
    assert gold.loc["compression-over-prior", "value"] < 1.01
    assert gold["p_adjusted"].min() > 0.05
    assert code["uniform"] == 300
    counts = np.bincount(y)
    exact = -np.log2(counts / 300) @ counts
    assert exact < code["prior"] < exact + 12  # nothing is known of the first, and shares are learnt


def test_the_priors_code_is_the_one_of_krichevsky_and_trofimov():
    """Label by label, as fine as fractions can be, it is the closed form, which the variational code stands beside."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 2)).astype(np.float32), rng.integers(3, size=40)
    fine = online_code(x, y, Cs=[1e-3], classes=3, fractions=tuple(np.arange(1, 41) / 40))
    assert fine.prior_bits[0] == pytest.approx(variational_code(x, y, classes=3, steps=1).prior_bits[0])
    assert fine.each.sum() == pytest.approx(fine.bits[0])  # of one penalty exactly


def test_rows_of_the_variational_code(monkeypatch):
    layers, y = toy()
    quick = lambda *args, **more: variational_code(*args, **more, steps=200)  # noqa: E731
    monkeypatch.setattr("probekit.probes.codes.mdl.variational_code", quick)
    rows = mdl_rows(layers, y, about=ABOUT, targets={"coin": 1 - y}, options=CodeOptions(code="variational"))
    assert set(rows["code"]) == {"variational"}
    one = rows[(rows["layer"] == 1) & (rows["target"] == "coin")].set_index("metric")
    assert one.loc["compression", "value"] > 2
    parts = one["weight_bits"].iloc[0] + one["label_bits"].iloc[0]
    assert one.loc["codelength-bits", "value"] == pytest.approx(parts)


def test_unlabelled_rows_words_and_control_tasks():
    layers, y = toy()
    x = layers["0"]
    types = np.arange(300) % 40
    junk = np.full((5, 8), np.nan, dtype=np.float32)  # of rows without a label nothing is asked
    labels = Labels(np.append([-1] * 5, y), np.arange(305) // 6, np.append([0] * 5, types))
    rows = mdl_rows(
        {"0": np.vstack([junk, x])}, labels, about=ABOUT, options=CodeOptions(controls=1, penalties=CS), classes=3
    )
    assert targets(rows) == ["gold", "shuffled 0", "control-task 0", "uniform", "prior"]
    whole = rows[rows["portion"] == -1]
    assert set(whole["n"]) == {300}
    assert set(whole["left_out"]) == {5}
    assert whole["uniform_bits"].iloc[0] == pytest.approx(300 * np.log2(3))
    assert (rows[rows["portion"] == 0]["n"] <= 6).all()  # one sentence


def test_bad_input():
    layers, y = toy()
    with pytest.raises(UsageError, match=r"numbers \(regression\)"):
        mdl_rows(layers, y.astype(float), about=ABOUT)
    with pytest.raises(UsageError, match="target late must label the same rows as the gold labels"):
        mdl_rows(layers, y, about=ABOUT, targets={"late": np.where(np.arange(300) < 5, -1, y)})
    with pytest.raises(
        UsageError, match=r"layer 0: vectors must have the shape \(n, d\) with n = 299 labels, not \(300, 8\)"
    ):
        mdl_rows(layers, y[1:], about=ABOUT)
    layers["0"][3, 3] = np.nan
    with pytest.raises(NonFiniteError, match="layer 0 contains NaN"):
        mdl_rows(layers, y, about=ABOUT)


@pytest.fixture(scope="module")
def caches(tiny_model, tmp_path_factory):
    folder, bert = tmp_path_factory.mktemp("caches"), tiny_model("bert")
    kinds = ("classification", "sequence-labelling", "regression")
    return {kind: word_caches(folder, bert, kind, sizes={"train": 200})[0] for kind in kinds}


def test_the_command(caches, tmp_path, call):
    path, out = caches["classification"], tmp_path / "rows.parquet"
    result = call("mdl", path, "--layers", "3,0", "--controls", 2, "--out", out)  # in the order of the model
    assert result.status == 0
    assert "95 % interval" in result.out
    assert "shuffled" in result.out
    assert "without vectors: uniform code " in result.out
    assert "not shown to be shorter" not in result.out
    rows = read_rows(out)
    assert layer_labels(rows).unique().tolist() == ["0", "3"]
    assert targets(rows) == ["gold", "shuffled 0", "shuffled 1", "uniform", "prior"]
    assert set(rows["analysis"]) == {"mdl"}
    with ActivationCache(path) as cache:
        assert read_card(out)["reads"][0]["digest"] == cache.spec_id
        again = mdl(cache, layers=[0, -1], controls=2).rows
    assert again["value"].tolist() == rows["value"].tolist()
    best = again[(again["metric"] == "compression") & (again["layer"] == 0)].groupby("target")["value"].max()
    assert best["gold"] > 1.3 > 1.1 > best["shuffled"]  # the mean of the embeddings holds the word


def test_a_layer_that_holds_nothing_is_named(caches, monkeypatch, call):
    with ActivationCache(caches["classification"]) as cache:
        labels = np.random.default_rng(0).permutation(cache.labels)
    monkeypatch.setattr(ActivationCache, "labels", labels)
    told = call("mdl", caches["classification"], "--layers", "0", "--controls", "0")
    assert "not shown to be shorter than the prior code: layer 0" in told.out + told.err


def test_words_are_sent_by_sentence(caches):
    rows = mdl(caches["sequence-labelling"], layers=[0], controls=1, groups="none").rows
    whole = rows[rows["metric"] == "compression"].set_index("target")["value"]
    assert list(whole.index) == ["gold", "shuffled", "control-task", "uniform", "prior"]
    assert whole["gold"] > 5  # the embedding is the word
    assert whole["gold"] > 2 * whole["shuffled"]
    assert rows["n"].iloc[0] == 1000
    with pytest.raises(UsageError, match="leave out --pooling"):
        mdl(caches["sequence-labelling"], pooling="mean")


def test_what_has_no_code(caches, tmp_path, call):
    with pytest.raises(UsageError, match="regression is a regression task"):
        mdl(caches["regression"])
    with pytest.raises(UsageError, match="no layer 9"):
        mdl(caches["classification"], layers=[9])
    with pytest.raises(UsageError, match="no pooling 'last'"):
        mdl(caches["classification"], pooling="last")
    with pytest.raises(UsageError, match="code is 'prequential'; it must be one of online, variational"):
        mdl(caches["classification"], code="prequential")
    for words, why in ((("--code", "prequential"), "online"), (("--out", tmp_path / "rows.txt"), ".parquet or .csv")):
        refused = call("mdl", caches["classification"], *words)
        assert refused.status == 2
        assert why in refused.err
