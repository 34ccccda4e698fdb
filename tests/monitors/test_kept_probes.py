"""Probes that are kept: the arrays say what the fitted probe says, here, in a folder, and with numpy alone."""

from __future__ import annotations

import json
import shutil
from functools import cache

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from scipy.special import log_softmax

import probekit
from probekit.errors import DataError, NonFiniteError, ProbekitError, UsageError
from probekit.files import digest_of_content
from probekit.monitors import Probe, load_probe, load_probes
from probekit.monitors.format import MOST, card_digest
from probekit.monitors.probe import save_probes
from probekit.probes.kept import Weights, stacked, weights_of
from probekit.probes.protocol.options import Estimator
from probekit.probes.protocol.selection import Problem, select
from probekit.probes.solvers.attention import Sequences

N, D = 120, 6


def vectors(seed=0):
    """Dimensions of very unlike sizes, one of them constant."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((N, D)).astype(np.float32) * np.array([1, 900, 0.01, 1, 0, 1], np.float32) + 300
    x[:, 1] += 5000
    return x


def pieces(seed=0):
    rng = np.random.default_rng(seed)
    length = rng.integers(1, 5, size=N)
    values = rng.standard_normal((length.sum(), D)).astype(np.float32)
    return Sequences(values, np.arange(len(values)), np.cumsum(length) - length, length)


@cache
def fitted(estimator, classes, *, absent=False):
    """The probes of gold and of other labels that were chosen, and the vectors."""
    rng = np.random.default_rng(1)
    x = pieces() if estimator in ("attention", "monitor") else vectors()
    rows = np.asarray(x)
    if classes:
        centred = (rows[:, 0] - rows[:, 0].mean()) + rng.standard_normal(N) * 0.3
        gold = np.digitize(centred, np.quantile(centred, np.arange(1, classes) / classes))
        y = np.stack([gold, rng.permutation(gold)])
    else:
        y = np.stack([rows[:, 0] - rows[:, 3], rng.standard_normal(N)]).astype(float)
    settings = {"k-sparse": (2.0, 4.0), "mass-mean": (0.1, 1.0)}.get(estimator, (0.1, 1.0))
    known = classes + 1 if absent else classes
    fold = np.arange(N) % 3
    chosen = select(Problem(x, np.arange(N), y, known, fold, Estimator(estimator), settings), None)
    return chosen.fitted, x, y


CASES = [
    ("logistic", 2), ("logistic", 3), ("mass-mean", 2), ("mass-mean", 3), ("k-sparse", 3), ("mlp", 2), ("mlp", 3),
    ("attention", 2), ("attention", 3), ("monitor", 2),
]  # fmt: skip


@pytest.mark.parametrize(("estimator", "classes"), CASES)
def test_the_arrays_say_what_the_probe_says(estimator, classes):
    probe, x, _ = fitted(estimator, classes)
    for target in (0, 1):
        weights = weights_of(probe, target)
        right = probe.log_proba(x, np.arange(N))[target, 0]
        found = weights.log_proba(weights.logits(x))
        np.testing.assert_allclose(found, right, atol=2e-4, rtol=1e-4)  # right is float32 of products of thousands
        np.testing.assert_allclose(weights.proba(weights.logits(x)), np.exp(found), atol=1e-6)
        some = np.array([7, 3, 50])
        np.testing.assert_array_equal(weights.logits(x, some), weights.logits(x)[some])


def test_numbers_and_classes_without_examples():
    probe, x, _ = fitted("ridge", 0)
    np.testing.assert_allclose(weights_of(probe).logits(x)[:, 0], probe.outcome(x, None, None)[1][0, 0], rtol=1e-4)
    probe, x, _ = fitted("mass-mean", 2, absent=True)
    weights = weights_of(probe)
    found = weights.log_proba(weights.logits(x))
    np.testing.assert_allclose(found, probe.log_proba(x, np.arange(N))[0, 0], atol=2e-4, rtol=1e-4)
    np.testing.assert_allclose(np.exp(found).sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize("estimator", ["logistic", "mlp", "attention", "monitor"])
def test_blocks_are_of_bytes_and_change_no_bit(estimator, monkeypatch):
    probe, x, _ = fitted(estimator, 2)
    weights = weights_of(probe)
    whole = weights.logits(x), None if weights.form in ("mlp", "attention") else weights.of_pieces(np.asarray(x))
    read = []
    centred = Weights._centred
    monkeypatch.setattr(Weights, "_centred", lambda self, some: (read.append(some.shape[0]), centred(self, some))[1])
    monkeypatch.setattr("probekit.probes.kept.BLOCK", 8 * 7 * max(D, weights.arrays.get("b1", np.empty(0)).size))
    np.testing.assert_array_equal(weights.logits(x), whole[0])
    assert max(read) <= 7
    assert len(read) >= N // 7
    if whole[1] is not None:
        np.testing.assert_array_equal(weights.of_pieces(np.asarray(x)), whole[1])
        assert weights.of_pieces(np.asarray(x)[:0]).shape == (0, 1)


def test_labels_side_by_side():
    parts = [weights_of(fitted("mass-mean", 2)[0], target) for target in (0, 1)]
    both, x = stacked([parts[0], -1.5, parts[1]]), vectors()
    logits = both.logits(x)
    for k, one in ((0, parts[0]), (2, parts[1])):
        z = one.logits(x)
        np.testing.assert_allclose(logits[:, k], z[:, 1] - z[:, 0], atol=1e-4, rtol=1e-4)
    assert (logits[:, 1] == -1.5).all()
    assert stacked([weights_of(fitted("mlp", 2)[0]), 0.0]) is None


def card(layer="4", classes=("no", "yes"), **more):
    return {
        "layer": layer, "estimator": "logistic", "kind": "classification", "classes": list(classes),
        "encoder": {"model": "tiny"}, "train": {"task": "toy"}, **more,
    }  # fmt: skip


@pytest.mark.parametrize(("estimator", "classes"), CASES)
def test_a_folder_gives_the_probe_back(estimator, classes, tmp_path):
    weights = weights_of(fitted(estimator, classes)[0])
    x = pieces(3) if weights.by_piece else vectors(3)
    probe = Probe(weights, card(classes=[f"c{k}" for k in range(classes)]))
    assert probe.save(tmp_path / "kept") == tmp_path / "kept"
    again = load_probe(tmp_path / "kept")
    np.testing.assert_array_equal(again.decision_function(x), probe.decision_function(x))
    np.testing.assert_array_equal(again.predict_proba(x), probe.predict_proba(x))
    assert again.card == {**probe.card, "form": weights.form, "width": D} | (
        {"scores": "rolling:10"} if weights.scores else {}
    )
    assert "c0" in repr(again)
    probe.save(tmp_path / "kept")  # in its own place
    assert {p.name for p in (tmp_path / "kept").iterdir()} == {"probe.json", "weights.safetensors"}


def test_numpy_alone_reads_a_folder(tmp_path):
    """The lines of the page on file formats."""
    weights, x = weights_of(fitted("logistic", 3)[0]), vectors(3)
    Probe(weights, card(classes="abc")).save(tmp_path / "kept")
    about = json.loads((tmp_path / "kept" / "probe.json").read_text())["probes"][0]
    part = load_file(tmp_path / "kept" / "weights.safetensors")
    logits = (x - part["4/mean"]) @ part["4/weight"].T + part["4/bias"]
    assert [about["classes"][k] for k in logits.argmax(1)] == ["abc"[k] for k in weights.logits(x).argmax(1)]
    np.testing.assert_allclose(log_softmax(logits, 1), weights.log_proba(weights.logits(x)), atol=1e-3)


def test_several_layers_in_a_folder(tmp_path):
    one, other = (weights_of(fitted("logistic", 2)[0], target) for target in (0, 1))
    metric = {"metric": "accuracy", "value": 0.7}
    probes = [Probe(one, card("0", metrics=[metric | {"value": 0.6}])), Probe(other, card("z.3", metrics=[metric]))]
    save_probes(probes, tmp_path / "kept")
    assert [probe.layer for probe in load_probes(tmp_path / "kept")] == ["0", "z.3"]
    assert load_probe(tmp_path / "kept").layer == "z.3"  # the best
    np.testing.assert_array_equal(load_probe(tmp_path / "kept", 0).direction, one.arrays["weight"][0])
    with pytest.raises(UsageError, match="no probe of layer 5; kept are 0, z.3"):
        load_probe(tmp_path / "kept", layer=5)
    about = json.loads((tmp_path / "kept" / "probe.json").read_text())
    damaged(tmp_path / "kept", None, **about["probes"][1])
    with pytest.raises(DataError, match="two probes of layer z.3"):
        load_probe(tmp_path / "kept")
    with pytest.raises(UsageError, match="one probe of a layer"):
        save_probes([probes[0], probes[0]], tmp_path / "twice")
    assert not (tmp_path / "twice").exists()


def test_nothing_else_is_replaced(tmp_path):
    probe = Probe(weights_of(fitted("logistic", 2)[0]), card())
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="choose another folder"):
        probe.save(tmp_path / "mine")
    probe.save(tmp_path / "kept")
    (tmp_path / "kept" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="choose another folder"):
        probe.save(tmp_path / "kept")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"


def test_kept_probes_are_replaced_by_those_of_the_same_work_alone(tmp_path):
    weights, folder = weights_of(fitted("logistic", 2)[0]), tmp_path / "kept"
    save_probes([Probe(weights, card("1")), Probe(weights, card("2"))], folder)
    with pytest.raises(UsageError, match="keeps probes of the layers 2 too, which would be lost"):
        load_probe(folder, 1).save(folder)
    for key, other in (("encoder", {"model": "b", "weights_digest": "2"}), ("train", {"task": "other"})):
        with pytest.raises(UsageError, match=r"keeps probes of .* and these are of .*; choose another folder"):
            save_probes([Probe(weights, card(layer, **{key: other})) for layer in ("1", "2")], folder)
    assert [probe.layer for probe in load_probes(folder)] == ["1", "2"]
    save_probes([Probe(weights, card(layer, seed=7)) for layer in ("1", "2", "3")], folder)
    assert {probe.card["seed"] for probe in load_probes(folder)} == {7}


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    weights = weights_of(fitted("logistic", 2)[0])
    for about, why in (
        (card(classes=["a", "b", "c"]), "could not be loaded again: layer 4: 1 outputs for 3 classes"),
        (card(temperature=float("nan")), "a card is JSON, without NaN or infinity"),
    ):
        with pytest.raises(UsageError, match=why):
            Probe(weights, about).save(tmp_path / "kept")
        assert not any(tmp_path.iterdir())


def damaged(folder, arrays=None, **changes):
    """A folder whose card, or arrays, were changed, with digests that fit."""
    path = folder / "probe.json"
    about, part = json.loads(path.read_text()), load_file(folder / "weights.safetensors")
    if arrays is not None:
        save_file({k: v for k, v in (part | arrays).items() if v is not None}, folder / "weights.safetensors")
    about["probes"][0] |= changes
    about["weights"] = digest_of_content(folder / "weights.safetensors")
    about["digest"] = card_digest(about)
    path.write_text(json.dumps(about))


LONG = "9" * 5000
BAD = {
    "infinity": ({"4/bias": np.array([np.inf], np.float32)}, {}, "finite float32"),
    "wider": ({}, {"width": 5}, "read vectors of 6 dimensions, and probe.json says 5"),
    "more arrays": ({"5/bias": np.ones(1, np.float32)}, {}, "does not speak of: '5/bias'"),
    "slash": ({}, {"layer": "4/weight"}, "'4/weight' is not a site"),
    "control characters": ({}, {"layer": "4\x1b[2J"}, "is not a site"),
    "another way of writing": ({}, {"layer": "04"}, "'04' is not a site"),
    "digits": ({}, {"layer": LONG}, "is not a site"),
    "model": ({}, {"encoder": {"model": "\x1b[2Jbert"}}, "model must be a text without control characters"),
    "task": ({}, {"train": {"task": 7}}, "task must be a text"),
    "large numbers": ({}, {"metrics": [{"metric": "accuracy", "value": 10**400}]}, "metrics: wanted numbers"),
    "pieces of a mean": ({}, {"form": "monitor", "scores": "rolling:1000000000000"}, "scores is 'rolling"),
    "kind of scores": ({}, {"form": "monitor", "scores": 7}, "scores is '7'"),
    "NaN": ({"4/weight": np.full((1, D), np.nan, np.float32)}, {}, "finite float32"),
    "float64": ({"4/weight": np.ones((1, D))}, {}, "finite float32"),
    "missing": ({"4/bias": None}, {}, "lacks 4/bias"),
    "width": ({"4/mean": np.ones(D + 1, np.float32)}, {"width": D + 1}, "do not fit each other"),
    "classes": ({}, {"classes": ["a", "b", "c"]}, "1 outputs for 3 classes"),
    "form": ({}, {"form": "pickle"}, "wanted a form among linear"),
    "layer": ({}, {"layer": "../../etc"}, "is not a site"),
    "scores": ({}, {"form": "monitor", "scores": "eval"}, "scores is 'eval'"),
    "texts": ({}, {"classes": [1, 2]}, "the classes must be texts that differ"),
    "kind": ({}, {"kind": None}, "wanted 'kind' of the type str"),
    "other kind": ({}, {"kind": "bogus"}, "wanted a 'kind' among"),
    "equal classes": ({}, {"classes": ["a", "a"]}, "texts that differ"),
    "vectors": ({}, {"vectors": []}, "wanted 'vectors' of the type dict"),
    "metrics": ({}, {"metrics": "x"}, "wanted 'metrics' of the type list"),
    "value": ({}, {"metrics": [{"metric": "accuracy", "value": "x"}]}, "metrics: wanted numbers"),
    "threshold": ({}, {"thresholds": [{"rate": 0.1}]}, "thresholds: wanted numbers"),
    "end of a rate": (
        {},
        {"thresholds": [{"rate": 0.1, "threshold": 1.0, "rate_low": "x"}]},
        "thresholds: wanted numb",
    ),
    "rate": ({}, {"thresholds": [{"rate": None, "threshold": 1.0}]}, "thresholds: wanted numbers"),
    "area": ({}, {"auroc": {"value": "x"}}, "auroc: wanted numbers"),
    "no area": ({}, {"auroc": "x"}, "wanted 'auroc' of the type dict"),
    "reliability": ({}, {"reliability": [{"said": "x"}]}, "reliability: wanted numbers"),
    "temperature": ({}, {"temperature": "x"}, "card: wanted numbers"),
    "positions": ({}, {"encoder": {"positions": 5}}, "encoder: positions must be a text, not 5"),
    "pooling": ({}, {"encoder": {"pooling": ["mean"]}}, "encoder: pooling must be a text"),
    "representation": ({}, {"vectors": {"representation": [1]}}, "vectors: representation must be a text"),
    "seen": ({}, {"dev": {"seen_in_train": "x"}}, "dev: seen_in_train must be a whole number"),
}


@pytest.mark.parametrize("case", BAD)
def test_damaged_folders(case, tmp_path):
    arrays, changes, why = BAD[case]
    Probe(weights_of(fitted("logistic", 2)[0]), card()).save(tmp_path / "kept")
    damaged(tmp_path / "kept", arrays or None, **changes)
    with pytest.raises(DataError, match=why):
        load_probe(tmp_path / "kept")


def test_hostile_folders(tmp_path):
    kept = Probe(weights_of(fitted("logistic", 2)[0]), card()).save(tmp_path / "kept")
    (tmp_path / "linked").mkdir()
    shutil.copy(kept / "probe.json", tmp_path / "linked")
    (tmp_path / "linked" / "weights.safetensors").symlink_to(kept / "weights.safetensors")
    with pytest.raises(DataError, match="it is a link"):
        load_probe(tmp_path / "linked")
    with pytest.raises(DataError, match="probe.json is missing"):
        load_probe(tmp_path)
    (kept / "weights.safetensors").write_bytes(b"not arrays")
    with pytest.raises(DataError, match="one of the two files has changed"):
        load_probe(kept)
    for text, why in CARDS.items():
        (kept / "probe.json").write_text(text)
        with pytest.raises(ProbekitError, match=why):
            load_probe(kept)
    with (kept / "probe.json").open("wb") as file:
        file.truncate(MOST + 1)
    with pytest.raises(DataError, match="it has 67,108,865 bytes; a card of probes has at most 67,108,864"):
        load_probe(kept)


DEEP = 100_000
CARDS = {
    "[]": "wanted the format",
    '{"format": "probekit-probe/9"}': "probekit-probe/9",
    "{": "JSON",
    '{"format": "probekit-probe/1", "format": "probekit-probe/1"}': "the key 'format' occurs twice",
    f'{{"format": {"[" * DEEP}{"]" * DEEP}}}': "nested too deeply",
    f'{{"format": {"9" * 5000}}}': "JSON",
    '{"format": "probekit-probe/1", "level": NaN}': "JSON",
    f'{{"format": "probekit-probe/1", "probes": {"[" * 900}{"]" * 900}}}': "probe.json",
    '{"format": "probekit-probe/1", "probes": []}': "a list of probes",
}
"""Contents of probe.json, and why they are refused."""


def test_headers_that_claim_too_much(tmp_path):
    kept = Probe(weights_of(fitted("logistic", 2)[0]), card()).save(tmp_path / "kept")
    array = {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}
    header = json.dumps({"4/mean": array}).encode()
    for content in ((10**12).to_bytes(8, "little") + b"{}", len(header).to_bytes(8, "little") + header):
        (kept / "weights.safetensors").write_bytes(content)
        about = json.loads((kept / "probe.json").read_text())
        about["weights"] = digest_of_content(kept / "weights.safetensors")
        (kept / "probe.json").write_text(json.dumps(about | {"digest": card_digest(about)}))
        with pytest.raises(DataError, match="cannot be read as safetensors"):
            load_probe(kept)


def test_an_edited_card_is_noticed(tmp_path):
    probe = Probe(weights_of(fitted("logistic", 2)[0]), card(metrics=[{"metric": "accuracy", "value": 0.6}]))
    path = probe.save(tmp_path / "kept") / "probe.json"
    kept = path.read_text()
    path.write_text(kept.replace("0.6", "0.9"))
    with pytest.raises(DataError, match="it was edited"):
        load_probe(tmp_path / "kept")
    path.write_text(json.dumps(json.loads(kept)))  # other blanks are no other card
    assert load_probe(tmp_path / "kept").card["metrics"] == probe.card["metrics"]
    without = {key: value for key, value in json.loads(kept).items() if key not in ("digest", "weights")}
    path.write_text(json.dumps(without | {"weights": json.loads(kept)["weights"]}))
    assert load_probe(tmp_path / "kept").layer == "4"  # a card without a digest is one of before
    path.write_text(json.dumps(without))
    with pytest.raises(DataError, match="probe.json says None"):
        load_probe(tmp_path / "kept")


def test_vectors_that_do_not_fit():
    probe = Probe(weights_of(fitted("logistic", 2)[0]), card())
    with pytest.raises(UsageError, match="reads vectors of 6 dimensions; these have 5"):
        probe.predict(np.ones((2, 5), np.float32))
    with pytest.raises(NonFiniteError):
        probe.predict(np.full((2, D), np.inf, np.float32))
    with pytest.raises(UsageError, match="card has no thresholds"):
        probe.threshold(0.01)
    with pytest.raises(UsageError, match="has no direction"):
        _ = Probe(weights_of(fitted("mlp", 2)[0]), card()).direction
    assert probekit.load_probe is load_probe


def test_keeping_probes_that_beat_no_permuted_labels_warns(caches, tmp_path, caplog):
    how = {"controls": 0, "resamples": 100, "layers": "1", "penalties": (1.0,), "folds": 2}
    result = probekit.probe(caches["train"], caches["dev"], **how)
    assert "may be chance" not in caplog.text
    assert result.probe().card["metrics"][0]["p_adjusted"] > 0.05
    probekit.probe(caches["train"], caches["dev"], keep=tmp_path / "kept", **how)
    assert "no probe of layer 1 is shown to beat permuted labels (p > 0.05): the scores may be chance" in caplog.text
