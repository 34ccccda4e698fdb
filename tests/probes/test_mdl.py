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
    rows = mdl_rows(layers, y, about=ABOUT, options=CodeOptions(controls=2, penalties=CS))
    assert targets(rows) == ["gold", "shuffled 0", "shuffled 1"]
    assert rows["metric"].unique().tolist() == [
        "codelength-bits", "bits-per-example", "compression", "portion-bits-per-example",
    ]  # fmt: skip
    gold = rows.assign(layer=layer_labels(rows))[rows["target"] == "gold"].set_index(["layer", "metric"])["value"]
    assert gold["0", "compression"] == pytest.approx(1, abs=0.05)
    assert gold["1", "compression"].item() > 2  # measured 2.5
    noise = rows[(rows["target"] != "gold") & (rows["metric"] == "compression")]["value"]
    assert (noise < 1.02).all()
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
    assert targets(rows) == ["gold", "shuffled 0", "control-task 0"]
    whole = rows[rows["portion"] == -1]
    assert set(whole["n"]) == {300}
    assert set(whole["left_out"]) == {5}
    assert whole["uniform_bits"].iloc[0] == pytest.approx(300 * np.log2(3))
    assert (rows[rows["portion"] == 0]["n"] <= 6).all()  # one sentence


def test_bad_input():
    layers, y = toy()
    with pytest.raises(UsageError, match=r"numbers \(regression\)"):
        mdl_rows(layers, y.astype(float), about=ABOUT)
    with pytest.raises(UsageError, match="target late labels other rows than gold"):
        mdl_rows(layers, y, about=ABOUT, targets={"late": np.where(np.arange(300) < 5, -1, y)})
    with pytest.raises(UsageError, match=r"layer 0: vectors \(300, 8\) do not go with 299 labels"):
        mdl_rows(layers, y[1:], about=ABOUT)
    layers["0"][3, 3] = np.nan
    with pytest.raises(NonFiniteError, match="layer 0 holds NaN"):
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
    assert "compression" in result.out
    assert "shuffled (max)" in result.out
    rows = read_rows(out)
    assert layer_labels(rows).unique().tolist() == ["0", "3"]
    assert targets(rows) == ["gold", "shuffled 0", "shuffled 1"]
    assert set(rows["analysis"]) == {"mdl"}
    with ActivationCache(path) as cache:
        assert read_card(out)["reads"][0]["digest"] == cache.spec_id
        again = mdl(cache, layers=[0, -1], controls=2).rows
    assert again["value"].tolist() == rows["value"].tolist()
    best = again[(again["metric"] == "compression") & (again["layer"] == 0)].groupby("target")["value"].max()
    assert best["gold"] > 1.3 > 1.1 > best["shuffled"]  # the mean of the embeddings holds the word


def test_words_are_sent_by_sentence(caches):
    rows = mdl(caches["sequence-labelling"], layers=[0], controls=1).rows
    whole = rows[rows["metric"] == "compression"].set_index("target")["value"]
    assert list(whole.index) == ["gold", "shuffled", "control-task"]
    assert whole["gold"] > 5  # the embedding is the word
    assert whole["gold"] > 2 * whole["shuffled"]
    assert rows["n"].iloc[0] == 1000
    with pytest.raises(UsageError, match="no pooling to choose"):
        mdl(caches["sequence-labelling"], pooling="mean")


def test_what_has_no_code(caches, tmp_path, call):
    with pytest.raises(UsageError, match="regression asks for numbers"):
        mdl(caches["regression"])
    with pytest.raises(UsageError, match="no layer 9"):
        mdl(caches["classification"], layers=[9])
    with pytest.raises(UsageError, match="no pooling 'last'"):
        mdl(caches["classification"], pooling="last")
    with pytest.raises(UsageError, match="online or variational, not 'prequential'"):
        mdl(caches["classification"], code="prequential")
    for words, why in ((("--code", "prequential"), "online"), (("--out", tmp_path / "rows.txt"), ".parquet or .csv")):
        refused = call("mdl", caches["classification"], *words)
        assert refused.status == 2
        assert why in refused.err
