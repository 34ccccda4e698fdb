"""One pass without a cache: it says what a cache would say, and parts and interruptions do not change it."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from builders import word_task

import probekit
from probekit.activations import cache_activations
from probekit.activations.writing.reading import Reading
from probekit.analyses.stream.accumulate import marks_of
from probekit.analyses.stream.layers import erasers_of
from probekit.analyses.stream.state import read_state
from probekit.errors import DataError, UsageError
from probekit.models import load_encoder
from probekit.probes.protocol.selection import Estimator, Problem, select
from probekit.probes.solvers.mass_mean import SHRINKAGES
from probekit.probes.solvers.ridge import ALPHAS
from probekit.similarity import cka
from probekit.tasks.task import Split, Task

QUICK = {"resamples": 0, "controls": 0, "chunk": 64}
SIZES = {"train": 400, "dev": 60}


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return load_encoder(tiny_bert, device="cpu")


@pytest.fixture(scope="module")
def caches(encoder, tmp_path_factory):
    """The vectors of the two tasks by kind and split, and their caches."""
    folder, found = tmp_path_factory.mktemp("caches"), {}
    for kind in ("classification", "regression"):
        for split in SIZES:
            found[kind, split] = folder / f"{kind}.{split}.h5"
            cache_activations(encoder, word_task(kind, SIZES), split, out=found[kind, split]).close()
    return found


@pytest.fixture(scope="module")
def state(encoder, tmp_path_factory):
    """The state of a pass over classes, and its result."""
    path = tmp_path_factory.mktemp("state") / "whole.npz"
    how = {**QUICK, "analysis": ("mass-mean", "cka"), "state": path}
    return path, probekit.stream(encoder, word_task(sizes=SIZES), **how)


def vectors(path, layer):
    with probekit.ActivationCache(path) as cache:
        return np.asarray(cache.layer(layer), np.float64), cache.labels.copy()


@pytest.mark.parametrize(
    ("kind", "estimator", "how"),
    [
        pytest.param("regression", "ridge", {"alphas": (10.0,)}, marks=pytest.mark.slow),
        ("classification", "mass-mean", {"shrinkages": (0.1,)}),
    ],
)
def test_what_probe_says_of_caches(encoder, caches, kind, estimator, how):
    found = probekit.stream(encoder, word_task(kind, SIZES), analysis=(estimator,), **QUICK, **how).predictions[0]
    pair = (caches[kind, "train"], caches[kind, "dev"])
    [penalties] = how.values()
    cached = probekit.probe(*pair, estimator=estimator, penalties=penalties, resamples=0, controls=0).predictions[0]
    ours, theirs = (one.take((one.fits["estimator"] == estimator).to_numpy(bool)) for one in (found, cached))
    assert (ours.ids == theirs.ids).all()
    assert np.abs(ours.predicted - theirs.predicted).max() < 1e-6
    if estimator == "mass-mean":  # 2.4e-7 was measured: probabilities are float32
        assert np.abs(ours.probabilities - theirs.probabilities).max() < 1e-6


def test_penalties_are_those_of_folds_of_a_cache(encoder, caches):
    """The folds are another division than a cache's, so the same procedure gets these."""
    for kind, estimator, grid in (
        ("regression", Estimator.RIDGE, ALPHAS[::-1]), ("classification", Estimator.MASS_MEAN, SHRINKAGES),
    ):  # fmt: skip
        task = word_task(kind, SIZES)
        found = probekit.stream(encoder, task, analysis=(str(estimator),), **QUICK).predictions[0]
        reading = Reading(task, "mean", None, None, ())
        every, spec = np.ones(400, dtype=bool), {"seed": 0, "folds": 5, "bins": 2}
        marks = marks_of(task.split("train").examples, reading, every, spec)
        for layer in range(1, 4):
            x, y = vectors(caches[kind, "train"], layer)
            rows = np.flatnonzero(marks.fold >= 0)
            classes = 2 if kind == "classification" else 0
            problem = Problem(x.astype(np.float32), rows, y[rows][None], classes, marks.fold[rows], estimator, grid)
            chosen = select(problem, None)
            mine = found.fits[found.fits["layer"] == layer].iloc[0]
            assert mine["penalty"] == chosen.setting[0]
            assert mine["held_out"] == pytest.approx(chosen.held_out[0], rel=1e-5)


def test_ridge_of_classes_is_least_squares_on_indicators(encoder, caches):
    task = word_task(sizes=SIZES)
    found = probekit.stream(encoder, task, analysis=("ridge",), alphas=(10.0,), **QUICK).predictions[0]
    x, y = vectors(caches["classification", "train"], 2)
    x_dev, y_dev = vectors(caches["classification", "dev"], 2)
    known = y >= 0
    path = probekit.RidgePath(alphas=10.0, standardise=True).fit(x[known], np.eye(2)[y[known]])
    scores = np.einsum("tkcd,nd->nt", path.coef_, x_dev) + path.intercept_[:, 0, 0]
    at = int(np.flatnonzero((found.fits["layer"] == 2).fillna(value=False))[0])
    assert (found.predicted[at] == scores.argmax(1)[y_dev >= 0]).all()
    shares = found.probabilities[int((found.fits["layer"] <= 2).fillna(value=False).sum())]
    assert (shares.argmax(1) == found.predicted[at]).all()
    assert found.log_loss[at] == pytest.approx(-np.log(shares[np.arange(len(shares)), found.gold[at]]), abs=1e-5)
    assert found.log_loss[at].mean() < np.log(2)


def test_similarity_is_that_of_arrays(state, caches):
    rows = state[1].rows
    for metric, debiased in (("cka", True), ("cka-biased", False)):
        for a, b in ((0, 3), (2, 1), (3, 3)):
            x, y = (vectors(caches["classification", "train"], layer)[0] for layer in (a, b))
            of = rows[(rows["metric"] == metric) & (rows["layer"] == a) & (rows["layer_b"] == b)]
            assert of["value"].item() == pytest.approx(cka(x, y, debiased=debiased), abs=1e-9)
            assert of["n"].item() == 400
    result = replace(state[1], rows=rows[rows["analysis"] == "similarity"])
    assert "of neighbouring layers" in result.verdict[0]
    assert result.plot().axes[0].images


def test_erasers_remove_what_is_linear(state, caches):
    for layer, eraser in erasers_of(read_state(state[0])).items():
        x, y = vectors(caches["classification", "train"], layer)
        known = y >= 0
        erased, onehot = eraser(x[known]), np.eye(2)[y[known]]
        cross = (erased - erased.mean(0)).T @ (onehot - onehot.mean(0)) / known.sum()
        assert eraser.rank == 1
        assert np.abs(cross).max() < 1e-9  # 1.4e-10 was measured, of .1 before
        left = ((erased - erased.mean(0)) ** 2).sum() / ((x[known] - x[known].mean(0)) ** 2).sum()
        assert eraser.variance == pytest.approx(1 - left, abs=1e-6)  # directions of rounding only are whitened, too


def test_erasers_are_written(encoder, tmp_path):
    path = tmp_path / "erasers.npz"
    result = probekit.stream(encoder, word_task(sizes=SIZES), analysis=("leace",), erasers=path, **QUICK)
    assert "LEACE takes 1 dimension and" in result.verdict[0]
    with np.load(path) as file:
        projection = file["2/projection"]
        assert np.abs(projection @ projection - projection).max() < 1e-6
        assert file["2/mean"].shape == projection[0].shape
    (other := tmp_path / "mine.npz").write_bytes(b"something else")
    with pytest.raises(UsageError, match="is not a file of erasers"):
        probekit.stream(encoder, word_task(sizes=SIZES), analysis=("leace",), erasers=other, **QUICK)
    with pytest.raises(UsageError, match="is not the state of a stream"):
        probekit.stream(encoder, word_task(sizes=SIZES), state=other, **QUICK)


def test_parts_merge_in_any_order(encoder, state, tmp_path):
    task, how = word_task(sizes=SIZES), {**QUICK, "analysis": ("mass-mean", "cka")}
    names = [str(tmp_path / f"{i}.npz") for i in (1, 2, 3)]
    for i, name in enumerate(names, 1):
        assert probekit.stream(encoder, task, part=f"{i}/3", state=name, **how).rows.empty
    whole = read_state(state[0])
    for order in permutations(names):
        found = probekit.merge_streams(*order)
        assert found.counts == whole.counts
        for name, value in whole.sums.arrays.items():
            assert np.abs(found.sums.arrays[name] - value).max() <= 1e-12 * max(1, np.abs(value).max()), name
        assert all((found.sample.columns[name] == value).all() for name, value in whole.sample.columns.items())
    result = probekit.stream(encoder, task, merge=tuple(names), **how)
    assert np.abs(result.rows["value"] - state[1].rows["value"]).max() < 1e-9
    with pytest.raises(UsageError, match="is the state of part 1/3; give another --state"):
        probekit.stream(encoder, task, part="2/3", state=names[0], **how)
    with pytest.raises(UsageError, match="the parts 2/3 are missing"):
        probekit.stream(encoder, task, merge=(names[0], names[2]), **how)
    with pytest.raises(UsageError, match="each part of one division may be there once"):
        probekit.merge_streams(names[0], names[0])
    with pytest.raises(UsageError, match="state of another job: seed is 0 in the file and 1 now"):
        probekit.stream(encoder, task, merge=tuple(names), seed=1, **how)


def test_an_interrupted_pass_continues(encoder, state, tmp_path):
    class Stop(Exception):
        pass

    def stop(stage, done, total, **more):
        if done >= 256:
            raise Stop

    how = {**QUICK, "analysis": ("mass-mean", "cka"), "state": tmp_path / "state.npz", "save_every": 1}
    with pytest.raises(Stop):
        probekit.stream(encoder, word_task(sizes=SIZES), progress=stop, **how)
    begun = read_state(how["state"])
    assert 0 < begun.chunks < 7
    assert not begun.complete
    probekit.stream(encoder, word_task(sizes=SIZES), **how)
    found, whole = read_state(how["state"]), read_state(state[0])
    assert all((found.sums.arrays[name] == value).all() for name, value in whole.sums.arrays.items())
    assert all((found.sample.columns[name] == value).all() for name, value in whole.sample.columns.items())
    assert found.counts == whole.counts


def test_damage_is_told(state, tmp_path):
    raw = bytearray(state[0].read_bytes())
    raw[len(raw) // 2] ^= 1
    (damaged := tmp_path / "damaged.npz").write_bytes(raw)
    with pytest.raises(DataError, match="not a whole state"):
        read_state(damaged)
    with pytest.raises(UsageError, match="part is '5/4'"):
        probekit.stream("minilm", word_task(sizes=SIZES), part="5/4", state=damaged)


@pytest.mark.slow
def test_words_and_separate_pairs(encoder, tmp_path):
    """The rows are those of the cached probe: words, and [u; v; |u - v|; u * v] of pairs."""
    for kind, how, cached_how in (
        ("sequence-labelling", {}, {"pooling": "none", "tokens": True}),
        ("pairs", {"pairs": "separate"}, {"pairs": "separate"}),
    ):
        task, paths = word_task(kind), [tmp_path / f"{kind}.{split}.h5" for split in SIZES]
        for split, path in zip(SIZES, paths, strict=True):
            cache_activations(encoder, task, split, out=path, **cached_how).close()
        found = probekit.stream(encoder, task, analysis=("mass-mean",), shrinkages=(0.5,), **QUICK, **how).predictions[
            0
        ]
        cached = probekit.probe(*paths, estimator="mass-mean", penalties=(0.5,), resamples=0, controls=0).predictions[0]
        ours, theirs = (one.take((one.fits["estimator"] == "mass-mean").to_numpy(bool)) for one in (found, cached))
        assert (ours.ids == theirs.ids).all()
        assert np.abs(ours.probabilities - theirs.probabilities).max() < 1e-4


def test_a_sample_gives_what_sums_cannot(encoder):
    how = {"analysis": ("logistic", "cka"), "resamples": 100, "controls": 1, "sample": 200}
    rows = probekit.stream(encoder, word_task(sizes=SIZES), **how).rows
    accuracy = rows[(rows["metric"] == "accuracy") & (rows["target"] == "gold") & (rows["estimator"] == "logistic")]
    assert accuracy["value"].max() > 0.9
    alike = rows[(rows["metric"] == "cka") & (rows["layer"] != rows["layer_b"])]
    assert ((alike["ci_low"] < alike["value"]) & (alike["value"] < alike["ci_high"])).all()
    assert (alike["p"] < 0.05).all()


@pytest.mark.slow
def test_information_of_a_sample(encoder):
    rows = probekit.stream(encoder, word_task(sizes=SIZES), analysis=("mi",), sample=200, dev=None).rows
    bits = rows[(rows["metric"] == "mutual-information") & (rows["target"] == "gold")]
    assert bits["n"].eq(200).all()
    assert bits["value"].max() > 0.2


def test_what_the_labels_do_not_allow(encoder, tmp_path):
    task = word_task("regression", SIZES)
    with pytest.raises(UsageError, match="mass-mean is for classes, and the labels are numbers; choose ridge"):
        probekit.stream(encoder, task, analysis=("mass-mean",), **QUICK)
    with pytest.raises(UsageError, match="random numbers of controls are spread as in the sample; give a --sample"):
        probekit.stream(encoder, task, sample=0, **QUICK | {"controls": 1})
    with pytest.raises(UsageError, match="has no 'test'; name one with --dev"):
        probekit.stream(encoder, task, dev="test", **QUICK)
    (texts := tmp_path / "texts.jsonl").write_text('{"text": "a good cat"}\n' * 30)
    with pytest.raises(UsageError, match="ridge needs labels, and texts has none; choose cka"):
        probekit.stream(encoder, str(texts), analysis=("ridge",))
    with pytest.raises(UsageError, match="metrics must fit the labels"):
        probekit.stream(encoder, task, metrics="accuracy", **QUICK)
    with pytest.raises(UsageError, match="--part needs --state"):
        probekit.stream(encoder, task, part="1/2")
    with pytest.raises(UsageError, match="did you mean ridge"):
        probekit.stream(encoder, task, analysis=("rigde",))


def test_too_few_groups_or_labels(encoder):
    """What no fold, or no row of the sample, can tell is an error, not a number."""
    task = word_task(sizes=SIZES)
    train, dev = (task.split(name) for name in SIZES)

    def with_train(**changes) -> Task:
        examples = tuple(replace(e, **{k: f(i) for k, f in changes.items()}) for i, e in enumerate(train))
        return replace(task, splits={"train": Split("train", examples), "dev": dev})

    with pytest.raises(UsageError, match="0 rows of the data are labelled; a probe needs labels"):
        probekit.stream(encoder, with_train(label=lambda i: None), **QUICK | {"controls": 1})
    one_group, rare = with_train(group=lambda i: "all"), with_train(label=lambda i: int(i == 7))
    for name in ("ridge", "mass-mean", "logistic"):
        with pytest.raises(UsageError, match="all 399 labelled rows are in one fold"):
            probekit.stream(encoder, one_group, analysis=(name,), **QUICK)
    for name in ("mass-mean", "logistic"):
        with pytest.raises(UsageError, match=f"all 20 rows of the sample have one label; {name} needs a larger"):
            probekit.stream(encoder, rare, analysis=(name,), sample=20, **QUICK)


def test_data_that_do_not_fit_together(encoder, tmp_path):
    """Ids that occur twice, in different chunks; a data set of the hub that shrinks between two runs or parts."""
    examples = word_task(sizes=SIZES).split("train").examples
    rows = [
        json.dumps({"text": e.text, "label": ("no", "yes")[max(e.label or 0, 0)], "key": i})
        for i, e in enumerate(examples)
    ]
    (hub := tmp_path / "hub").mkdir()
    (path := tmp_path / "task.toml").write_text(f'hub = "{hub}"\nlabels = ["no", "yes"]\nid = "key"\n')
    how = {**QUICK, "analysis": ("cka",), "stream": True, "dev": None}

    def data(*kept):
        (hub / "train.jsonl").write_text("\n".join(kept))

    data(*rows[:300], *rows[:10])
    with pytest.raises(UsageError, match="10 of the 310 rows of the sample have the id of another row"):
        probekit.stream(encoder, str(path), **{**how, "chunk": 100})
    states = [tmp_path / f"{i}.npz" for i in (1, 2)]
    for i, (state, kept) in enumerate(zip(states, (rows[:200], rows[:120]), strict=True), 1):
        data(*kept)
        probekit.stream(encoder, str(path), part=f"{i}/2", state=state, **how)
    with pytest.raises(UsageError, match="the parts do not end together: .*1.npz has 128 examples, but 120 of the 184"):
        probekit.merge_streams(*states)

    def stop(stage, done, total, **more):
        if done >= 192:
            raise KeyboardInterrupt

    data(*rows[:300])
    with pytest.raises(KeyboardInterrupt):
        probekit.stream(encoder, str(path), state=tmp_path / "cut.npz", save_every=1, progress=stop, **how)
    data(*rows[:100])
    with pytest.raises(UsageError, match="has no example 128 any more, which was read before the interruption"):
        probekit.stream(encoder, str(path), state=tmp_path / "cut.npz", **how)


def test_texts_without_labels(encoder, tmp_path):
    """A file of texts is read a chunk at a time; CKA needs no labels."""
    examples = word_task(sizes=SIZES).split("train").examples
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{e.text}\n" for e in examples))
    rows = probekit.stream(encoder, str(texts), **QUICK).rows
    whole = probekit.stream(encoder, word_task(sizes=SIZES), analysis=("cka",), **QUICK).rows
    assert np.abs(rows["value"] - whole["value"]).max() < 1e-12


@pytest.mark.slow
def test_killed_passes_end_with_the_same_sums(tiny_bert, tmp_path):
    script = Path(__file__).with_name("killing_streams.py")
    path = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(script.parents[1])])}
    done = subprocess.run(
        [sys.executable, str(script), str(tiny_bert), str(tmp_path), "15"], capture_output=True, text=True, env=path
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["equal"], done.stderr
    assert found["errors"] == 0, done.stderr
    assert found["kills"] >= 5
    assert found["stages"] >= 2
