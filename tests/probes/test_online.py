"""The online code: a code indeed, what it is by definition, and what noise takes."""

from itertools import pairwise, product

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.codes.online import FRACTIONS, online_code

CS = (1e-3, 0.1, 10.0)


def toy(n=600, d=12, classes=2, seed=0, signal=2.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)).astype(np.float32) * np.logspace(-1, 1, d, dtype=np.float32) + 3
    gold = (signal * (x[:, :classes] - 3) / x[:, :classes].std(0) + rng.gumbel(size=(n, classes))).argmax(1)
    return x, np.column_stack([gold, rng.permutation(gold)])


def naive(x, y, classes, C, order, ends):
    """The definition, one fit at a time: bits of each portion."""
    x, y, bits = x[order].astype(float), y[order], [ends[0] * np.log2(classes)]
    for sent, end in pairwise(ends):
        scaler = StandardScaler().fit(x[:sent])
        seen = np.unique(y[:sent])
        p = np.zeros((end - sent, classes))
        p[:, seen] = 1
        if len(seen) > 1:
            twice = 2 if len(seen) == 2 < classes else 1  # softmax over two: half the weight, half the penalty
            model = LogisticRegression(C=twice * C, tol=1e-9, max_iter=10000).fit(scaler.transform(x[:sent]), y[:sent])
            p[:, seen] = model.predict_proba(scaler.transform(x[sent:end]))
        p = (sent * p + 0.5) / (sent + classes / 2)
        bits.append(-np.log2(p[np.arange(end - sent), y[sent:end]]).sum())
    return np.array(bits)


@pytest.mark.parametrize(
    ("classes", "d"),
    [(2, 12), pytest.param(4, 12, marks=pytest.mark.slow), pytest.param(3, 90, marks=pytest.mark.slow)],
)
def test_all_at_once_is_each_on_its_own(classes, d):
    x, Y = toy(classes=classes, d=d)
    code = online_code(x, Y, Cs=CS, classes=classes, seed=3)
    order = np.argsort(np.random.default_rng(3).permutation(len(x)))
    assert code.ends.tolist() == [1, 2, 5, 10, 19, 38, 75, 150, 300, 600]
    twin = np.stack([[naive(x, y, classes, C, order, code.ends) for C in CS] for y in Y.T])
    np.testing.assert_allclose(
        code.portions.sum(2), twin.sum(2), atol=1e-4 * len(x)
    )  # measured 7e-5 an example, at C = 10
    assert code.converged.all()


@pytest.mark.parametrize(("n", "classes"), [(6, 2), (4, 3)])
def test_the_lengths_are_those_of_a_code(n, classes):
    """Over all labels that there can be, 2^-length is a distribution (Kraft's inequality, met with equality)."""
    x = np.random.default_rng(0).normal(size=(n, 2)).astype(np.float32)
    Y = np.array(list(product(range(classes), repeat=n))).T
    code = online_code(x, Y, classes=classes, fractions=(0.1, 0.3, 0.5, 0.8, 1.0))
    assert np.exp2(-code.bits).sum() == pytest.approx(1, abs=1e-6)
    assert np.exp2(-code.portions.sum(2)).sum(0) == pytest.approx(1, abs=1e-6)
    assert np.exp2(-code.portions.sum(2).min(1)).sum() > 1.01  # the best C of each is no code


@pytest.mark.parametrize("classes", [2, 5])
def test_random_labels_do_not_compress(classes):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 50)).astype(np.float32)
    code = online_code(x, rng.integers(classes, size=(2000, 4)), classes=classes)
    assert (code.compression > 0.99).all()  # measured 0.993 to 0.998 over classes and seeds
    assert (code.compression < 1).all()


def test_a_planted_signal_does():
    x, Y = toy(n=3000, d=20)
    code = online_code(x, Y)
    gold, control = code.compression
    assert gold > 1.4  # measured 1.57
    assert control < 1
    per_example = code.curve[0] / np.diff(code.ends, prepend=0)
    assert per_example[0] == 1
    assert per_example[-1] < 0.65  # what is left to the noise: measured 0.55


def test_the_mixture_is_close_to_the_best():
    x, Y = toy()
    code = online_code(x, Y, Cs=CS)
    best = code.portions.sum(2).min(1)
    assert (code.bits >= best).all()
    assert (code.bits <= best + np.log2(3)).all()
    assert code.bits == pytest.approx(code.curve.sum(1))
    assert code.uniform_bits == 600
    one = online_code(x, Y[:, 0], Cs=CS[1:2])
    np.testing.assert_allclose(one.curve, one.portions[:, 0], atol=1e-9)


def test_what_comes_later_is_not_looked_at():
    x, Y = toy()
    order = np.argsort(np.random.default_rng(0).permutation(len(x)))
    late = order[300:]
    other, labels = x.copy(), Y.copy()
    other[late], labels[late] = 100 * other[late], 1 - labels[late]
    code, changed = online_code(x, Y), online_code(other, labels)
    np.testing.assert_array_equal(changed.portions[..., :-1], code.portions[..., :-1])
    assert (changed.portions[..., -1] != code.portions[..., -1]).all()


def test_sentences_are_sent_whole():
    x, Y = toy()
    groups = np.arange(600) // 7
    code = online_code(x, Y, groups=groups, fractions=(0.001, 0.01, 0.5, 1))
    assert code.ends.tolist() == [7, 301, 600]  # 0.1 % and 1 % end with the same sentence
    again = online_code(x, Y, groups=groups, fractions=(0.001, 0.01, 0.5, 1))
    assert again.bits.tolist() == code.bits.tolist()
    assert online_code(x, Y, groups=groups, seed=1).bits.tolist() != code.bits.tolist()


def test_small_and_degenerate():
    x, Y = toy(n=10, d=40)
    assert np.isfinite(online_code(x, Y).portions).all()
    same = np.ones((200, 3), dtype=np.float32)
    y = np.random.default_rng(0).integers(2, size=200)
    assert online_code(same, y).compression == pytest.approx(0.98, abs=0.02)  # frequencies only
    assert online_code(same, 0 * y, classes=2).bits < 15  # Krichevsky and Trofimov: about log2(n) / 2 and the start
    late = np.repeat([0, 1, 2], [100, 99, 1])  # a class that comes once is paid for, not impossible
    assert np.isfinite(online_code(same, late).bits).all()


def test_bad_input():
    x, Y = toy()
    with pytest.raises(UsageError, match=r"defined only for classes \(whole numbers\); these labels are float64"):
        online_code(x, Y.astype(float))
    with pytest.raises(UsageError, match=r"vectors must be .*, not \(599, 12\) and \(600, 2\)"):
        online_code(x[1:], Y)
    with pytest.raises(UsageError, match="600 with 2 unlabelled"):
        online_code(x, np.where(np.arange(600)[:, None] == 5, -1, Y))
    with pytest.raises(UsageError, match="largest label is 1, for 1 classes"):
        online_code(x, Y, classes=1)
    with pytest.raises(UsageError, match="fractions must increase"):
        online_code(x, Y, fractions=FRACTIONS[:-1])
    with pytest.raises(UsageError, match="into one portion"):
        online_code(x, Y, groups=np.zeros(600, dtype=int))
    with pytest.raises(UsageError, match="Cs must be positive"):
        online_code(x, Y, Cs=(1.0, 0.0))
    x[3, 3] = np.nan
    with pytest.raises(NonFiniteError):
        online_code(x, Y)
