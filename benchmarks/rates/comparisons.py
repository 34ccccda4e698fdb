"""Cases of ``probekit compare``: from features through fits to p-values, corrected over layers."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from calibration import case

from probekit.probes.protocol.diagnostic import evaluate_layers
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.options import ProbeOptions
from probekit.statistics.comparisons import compare_predictions
from probekit.statistics.options import CompareOptions
from probekit.statistics.predictions import Predictions

LEVEL = 0.05
FALSE = "false positives"
DRAWS = 400


def probed(rng, train, dev, y, y_dev, metrics, *, kind="classification", controls=1, names=(), how=None, **labels):
    """Predictions of probes on layers, a list of (n, d) each for train and dev; ``how``: further options of probes."""
    about = {"task": "t", "split": "dev", "model": "m", "representation": "mean"}
    layers = [{str(i): x for i, x in enumerate(part)} for part in (train, dev)]
    given = [Labels(y, **{k: v[0] for k, v in labels.items()}), Labels(y_dev, **{k: v[1] for k, v in labels.items()})]
    penalties = (1e-3, 1e-2, 0.1, 1.0) if kind != "regression" else (1.0, 10.0, 100.0, 1e3)
    ratio = metrics[0] in ("matthews", "f1", "macro-f1")  # by log-loss such probes answer the majority class, always
    options = ProbeOptions(**{
        "controls": controls, "penalties": penalties, "folds": 3, "resamples": 0, "threads": 1,
        "seed": int(rng.integers(1 << 30)), "choose_by": metrics[0] if ratio else "log-loss", **(how or {}),
    })  # fmt: skip
    question = Question(kind, metrics, names, about)
    return evaluate_layers(layers[0], given[0], layers[1], given[1], question, options=options)


def found(rng, e, other=None, **options) -> bool:
    """Whether any difference is found, corrected over the layers."""
    how = CompareOptions(resamples=DRAWS, seed=int(rng.integers(1 << 30)), **options)
    return bool(compare_predictions(e, other, options=how)["p_adjusted"].min() <= LEVEL)


def classes(rng, n, share):
    """Labels with a class 1 of this share, at least two of each."""
    y = (rng.random(n) < share).astype(np.int64)
    y[:4] = [0, 0, 1, 1]
    return y


def noise_layers(rng, n, d, layers):
    """Layers that resemble their neighbours and know nothing."""
    z = [rng.normal(size=(n, d))]
    for _ in range(layers - 1):
        z.append(0.8 * z[-1] + 0.6 * rng.normal(size=(n, d)))
    return z


def noise(rng, *, n, share, metric, d=20, layers=3):
    """Labels that features know nothing of."""
    y, y_dev = classes(rng, n, share), classes(rng, n, share)
    e = probed(rng, noise_layers(rng, n, d, layers), noise_layers(rng, n, d, layers), y, y_dev, (metric, "accuracy"))
    return found(rng, e, against="shuffled", tails="better", metric=metric)


for share, n, metric, before in (
    (0.02, 1043, "matthews", ""),
    (0.05, 600, "matthews", ""),
    (0.1, 300, "matthews", "8.3 % (400 runs)"),
    (0.3, 300, "matthews", "7.2 % (400 runs)"),
    (0.5, 300, "matthews", ""),
    (0.05, 300, "f1", ""),
    (0.3, 300, "f1", ""),
    (0.1, 300, "macro-f1", ""),
    (0.5, 300, "accuracy", "3.5 % (200 runs)"),
    (0.3, 300, "log-loss", "18.5 % (200 runs)"),
    (0.05, 300, "log-loss", ""),
):
    case(
        f"compare/shuffled, {metric}, n {n}, class share {share:g}", FALSE, before=before, runs=400 if before else 100
    )(partial(noise, n=n, share=share, metric=metric))


def majority(rng, *, n, share, cluster, d=20, layers=7):
    """Is a layer that knows nothing better than the most frequent class? Clusters are copies with noise."""
    units = n // cluster
    (y, y_dev), groups = (
        (classes(rng, units, share).repeat(cluster) for _ in range(2)),
        np.arange(units).repeat(cluster),
    )
    train, dev = (
        [np.repeat(x, cluster, 0) + 0.1 * rng.normal(size=(n, d)) for x in noise_layers(rng, units, d, layers)]
        for _ in range(2)
    )
    e = probed(rng, train, dev, y, y_dev, ("accuracy",), groups=(groups, groups))
    return found(rng, e, against="majority", tails="better")


for n, share, cluster in ((100, 0.5, 1), (300, 0.5, 1), (300, 0.3, 1), (144, 0.5, 12)):
    of = "" if cluster == 1 else f", groups of {cluster}"
    case(f"compare/majority, accuracy, n {n}, class share {share:g}{of}", FALSE, runs=400)(
        partial(majority, n=n, share=share, cluster=cluster)
    )


def numbers(rng, *, metric, n=300, d=20, layers=3):
    """Numbers with heavy tails, of which features know nothing."""
    y, y_dev = (rng.standard_t(3, size=n) for _ in range(2))
    train, dev = noise_layers(rng, n, d, layers), noise_layers(rng, n, d, layers)
    e = probed(rng, train, dev, y, y_dev, ("pearson", "spearman", "rmse"), kind="regression")
    return found(rng, e, against="shuffled", tails="better", metric=metric)


for metric in ("pearson", "spearman", "rmse"):
    case(f"compare/shuffled, {metric}, n 300", FALSE, runs=100)(partial(numbers, metric=metric))


def few_calls(rng, *, calls, n, share, layers, metric="matthews"):
    """Layers that call exactly so many examples class 1, with controls that call as many."""
    gold = (rng.random(n) < share).astype(np.int64)
    said = np.zeros((3 * layers, n), dtype=np.int64)
    for row in said:
        row[rng.choice(n, calls, replace=False)] = 1
    labels = np.stack([gold] * layers + [rng.permutation(gold) for _ in range(2) for _ in range(layers)])
    fits = pd.DataFrame(
        [
            {"task": "t", "split": "dev", "model": "m", "layer": i, "target": target, "draw": draw}
            for target, draw in (("gold", None), ("shuffled", 0), ("shuffled", 1))
            for i in range(layers)
        ]
    )
    e = Predictions(fits, np.arange(n).astype(str), labels, said, (metric,))
    return found(rng, e, against="shuffled", tails="better")


for calls, n, share, layers, metric, before in (
    (2, 1043, 0.3, 7, "matthews", ""),
    (3, 1043, 0.3, 7, "matthews", "23 % (7 layers, about 3 calls)"),
    (10, 1043, 0.3, 7, "matthews", "41 % (1 % called positive)"),
    (20, 1043, 0.3, 7, "matthews", "21 % (2 % called positive)"),
    (40, 1043, 0.3, 7, "matthews", ""),
    (3, 300, 0.1, 4, "f1", ""),
    (10, 300, 0.1, 4, "f1", ""),
):
    case(f"compare/shuffled, {metric}, n {n}, {calls} calls, {layers} layers", FALSE, before=before, runs=400)(
        partial(few_calls, calls=calls, n=n, share=share, layers=layers, metric=metric)
    )


def equal_layers(
    rng, *, n, share, metric, layers=3, d=10, train=15_000, kind="classification", strength=0.6, against="layer-0"
):
    """Layers that know equally much of the labels, each in noise of its own: held against the first, or the best."""

    def made(rows):
        y = rng.standard_t(4, size=rows) if kind == "regression" else classes(rng, rows, share)
        return y, [strength * y[:, None] * (np.arange(d) == 0) + rng.normal(size=(rows, d)) for _ in range(layers)]

    (y, x), (y_dev, x_dev) = made(train), made(n)
    metrics = ("pearson", "spearman", "rmse") if kind == "regression" else (metric, "accuracy")
    e = probed(rng, x, x_dev, y, y_dev, metrics, kind=kind, controls=0)
    return found(rng, e, against=against, metric=metric)


for share, n, metric in (
    (0.1, 300, "matthews"),
    (0.3, 1043, "matthews"),
    (0.1, 300, "f1"),
    (0.3, 300, "macro-f1"),
    (0.3, 300, "accuracy"),
    (0.3, 300, "log-loss"),
):
    case(f"compare/layers, {metric}, n {n}, class share {share:g}", FALSE, runs=100)(
        partial(equal_layers, n=n, share=share, metric=metric, strength=1.0)
    )
for share, n, metric in ((0.1, 300, "matthews"), (0.3, 1043, "matthews"), (0.1, 300, "f1"), (0.3, 300, "accuracy")):
    for strength, known in ((1.0, ""), (0.0, ", noise")):
        case(f"compare/best of 7, {metric}, n {n}, class share {share:g}{known}", FALSE, runs=200)(
            partial(equal_layers, n=n, share=share, metric=metric, strength=strength, layers=7, against="best")
        )
for metric in ("pearson", "spearman", "rmse"):
    case(f"compare/layers, {metric}, n 300", FALSE, runs=100)(
        partial(equal_layers, n=300, share=0, metric=metric, kind="regression")
    )


def two_models(rng, *, n, share, metric, layers=4, d=10, train=15_000, cluster=1, kind="classification"):
    """Two models whose layers know equally much, rising from layer to layer, each in noise of its own (`compare A B`).

    ``cluster``: so many dev examples, declared as a group, share their label and most of their noise.
    """
    strengths = np.linspace(0.3, 1.2, layers)

    def made(rows, size=1):
        of = np.arange(rows) // size
        y = (rng.standard_t(4, size=rows) if kind == "regression" else classes(rng, rows, share))[of]

        def noise():
            shared = rng.normal(size=(rows, d))[of]
            return shared if size == 1 else np.sqrt(0.9) * shared + np.sqrt(0.1) * rng.normal(size=(rows, d))

        models = [[s * y[:, None] * (np.arange(d) == 0) + noise() for s in strengths] for _ in range(2)]
        return y, models, of

    (y, x, of), (y_dev, x_dev, of_dev) = made(train), made(n, cluster)
    metrics = ("pearson", "spearman", "rmse") if kind == "regression" else (metric, "accuracy")
    groups = {"groups": (of, of_dev)} if cluster > 1 else {}
    a, b = (probed(rng, x[i], x_dev[i], y, y_dev, metrics, kind=kind, controls=0, **groups) for i in range(2))
    return found(rng, a, b, metric=metric)


for share, n, metric, cluster in (
    (0.3, 300, "accuracy", 1),
    (0.1, 300, "matthews", 1),
    (0.3, 1043, "matthews", 1),
    (0.3, 300, "macro-f1", 1),
    (0.3, 300, "log-loss", 1),
    (0.3, 400, "accuracy", 4),
    (0.3, 400, "matthews", 4),
):
    grouped = f", groups of {cluster}" * (cluster > 1)
    case(f"compare/two models, {metric}, n {n}, class share {share:g}{grouped}", FALSE, runs=100)(
        partial(two_models, n=n, share=share, metric=metric, cluster=cluster)
    )
case("compare/two models, pearson, n 300", FALSE, runs=100)(
    partial(two_models, n=300, share=0, metric="pearson", kind="regression")
)


NAMES = ("O", "B-X", "I-X")


def sentences(rng, count, d, layers, *, whole):
    """Words of sentences of 3 to 20 words, features and tags having nothing in common but the sentence's bounds.

    ``whole``: features and tags of a sentence are alike, so that words are no evidence of their own.
    """
    length = rng.integers(3, 21, size=count)
    of = np.repeat(np.arange(count), length)
    tags = np.zeros(len(of), dtype=np.int64)
    rich = rng.random(count) < 0.4
    start = np.cumsum(length) - length
    for s in range(count):
        at = start[s]
        while at < start[s] + length[s]:
            if rng.random() < (0.5 if rich[s] else 0.05) if whole else rng.random() < 0.2:
                size = min(int(rng.integers(1, 4)), start[s] + length[s] - at)
                tags[at], tags[at + 1 : at + size] = 1, 2
                at += size
            at += 1
    own = 0.5 if whole else 1.0
    x = [rng.normal(size=(count, d))[of] * whole + own * rng.normal(size=(len(of), d)) for _ in range(layers)]
    return tags, x, of


def words(rng, *, metric, whole, count=150, d=20, layers=3):
    """Tags of words that features know nothing of."""
    (y, x, of), (y_dev, x_dev, of_dev) = (sentences(rng, count, d, layers, whole=whole) for _ in range(2))
    metrics = ("span-f1", "token-accuracy", "macro-f1")
    e = probed(rng, x, x_dev, y, y_dev, metrics, kind="sequence-labelling", names=NAMES, groups=(of, of_dev))
    return found(rng, e, against="shuffled", tails="better", metric=metric)


for metric in ("span-f1", "macro-f1", "token-accuracy", "log-loss"):
    for whole in (False, True):
        case(f"compare/shuffled, words, {metric}{', sentences alike' * whole}", FALSE, runs=100)(
            partial(words, metric=metric, whole=whole)
        )


def copies(rng, *, metric, n=300, d=20, layers=3):
    """A fifth of the rows in pairs with the same features and label, told as groups."""

    def made():
        y = classes(rng, n, 0.3)
        group = np.concatenate([np.repeat(np.arange(n // 10), 2), np.arange(n // 10, n // 10 + n - 2 * (n // 10))])
        first = np.unique(group, return_index=True)[1]
        return y[first][group], [x[first][group] for x in noise_layers(rng, n, d, layers)], group

    (y, x, of), (y_dev, x_dev, of_dev) = made(), made()
    e = probed(rng, x, x_dev, y, y_dev, (metric,), groups=(of, of_dev))
    return found(rng, e, against="shuffled", tails="better", metric=metric)


for metric in ("matthews", "accuracy"):
    case(f"compare/shuffled, {metric}, a fifth of the rows in pairs", FALSE, runs=100)(partial(copies, metric=metric))


def control_tasks(rng, *, metric, count=100, layers=3, draws=3):
    """Gold labels and control tasks that are predicted equally well, sentence by sentence better or worse."""
    length = rng.integers(3, 21, size=count)
    of = np.repeat(np.arange(count), length)
    gold = rng.choice(3, p=(0.7, 0.2, 0.1), size=((1 + draws), 1, len(of)))
    easy = rng.normal(size=((1 + draws), layers, count))[..., of] + rng.normal(size=((1 + draws), layers, len(of)))
    said = np.where(easy > 0, gold, rng.choice(3, p=(0.7, 0.2, 0.1), size=easy.shape)).reshape(-1, len(of))
    about = {"task": "t", "split": "dev", "model": "m"}
    fits = [
        {**about, "layer": layer, "target": "control-task" if i else "gold", "draw": i - 1 if i else None}
        for i in range(1 + draws)
        for layer in range(layers)
    ]
    labels = np.repeat(gold[:, 0], layers, axis=0)
    e = Predictions(pd.DataFrame(fits), np.arange(len(of)).astype(str), labels, said, (metric,), of)
    return found(rng, e, against="control-task")


def initialisations(rng, *, seeds, n=600, layers=3, points=0.02):
    """A trained model that is as good as random ones are on average, these being better or worse seed by seed."""
    gold, hard = rng.integers(2, size=n), rng.normal(size=(layers, n))
    luck = np.append(0.0, points / 0.4 * 1.22 * rng.normal(size=seeds))  # the slope of the share that is right
    own = rng.normal(size=(1 + seeds, layers, n))
    said = np.where(hard + 0.7 * own + luck[:, None, None] > 0, gold, 1 - gold).reshape(-1, n)
    about = {"task": "t", "split": "dev", "model": "m", "representation": "mean", "target": "gold"}
    fits = [
        {**about, "layer": layer, "checkpoint": f"random-{s}" if s else "", "random_weights": s if s else None}
        for s in range(1 + seeds)
        for layer in range(layers)
    ]
    e = Predictions(pd.DataFrame(fits), np.arange(n).astype(str), gold, said, ("accuracy",))
    return found(rng, e, against="random")


for seeds in (2, 3, 5):
    case(f"compare/random, accuracy, {seeds} initialisations", FALSE, runs=400)(partial(initialisations, seeds=seeds))


for metric in ("accuracy", "macro-f1"):
    case(f"compare/control-task, {metric}, sentences", FALSE, runs=400)(partial(control_tasks, metric=metric))
