"""Intervals of metrics against a loop over resamples, against theory, and where a table has nothing to draw."""

import numpy as np
import pytest
from scipy import stats

from probekit.errors import UsageError
from probekit.metrics import metric
from probekit.statistics import bootstrap
from probekit.statistics.bootstrap import METRICS, band, bounds, estimates, intervals, replicates, statistics

NUMBERS = ("pearson", "spearman", "rmse", "quadratic-kappa")
OTHERS = ("answers", "responses", "scores")
NAMED = [name for name in METRICS if name != "log-loss" and metric(name).needs not in OTHERS]


def draw(name, n=60):
    rng = np.random.default_rng(5)
    if name == "span-f1":
        tags = np.array(["O", "B-PER", "I-PER", "B-LOC"], dtype=object)
        sentences = [rng.integers(4, size=rng.integers(1, 6)) for _ in range(n)]
        gold, guess = np.empty(n, dtype=object), np.empty(n, dtype=object)
        gold[:] = [list(tags[s]) for s in sentences]
        guess[:] = [list(tags[np.where(rng.random(len(s)) < 0.8, s, 0)]) for s in sentences]
        return gold, guess
    if name in NUMBERS:
        gold = np.round(rng.normal(size=n) * 3)  # with ties
        return gold, gold + rng.normal(size=n)
    classes = 2 if name in ("f1", "micro-f1") else 4
    gold = rng.integers(classes, size=n)
    return gold, np.where(rng.random(n) < 0.7, gold, rng.integers(classes, size=n))


@pytest.mark.parametrize("name", NUMBERS)
def test_all_at_once_equals_one_by_one(name):
    gold, guess = draw(name)
    score = metric(name).function
    once = replicates(gold, guess[None], name, score=score, resamples=200, seed=3)
    loop = replicates(gold, guess[None], "unknown", score=score, resamples=200, seed=3)
    np.testing.assert_allclose(once, loop, atol=1e-9)  # sums in another order


@pytest.mark.parametrize("name", [n for n in NAMED if n not in NUMBERS])
def test_weights_are_copies_and_pseudo_examples_are_examples(name):
    """Whole weights: the metric of every example so many times, and of the pseudo-examples so many times."""
    gold, guess = draw(name)
    parts = list(statistics(gold, guess[None], name))
    [(units, one)] = parts
    weights = np.random.default_rng(0).integers(0, 4, size=(5, units.count))
    copies = [np.repeat(np.arange(60), w) for w in weights]
    drawn = [metric(name).function(gold[i], guess[i]) for i in copies]
    masses = np.zeros((5, len(one.pseudo.mass)))
    np.testing.assert_allclose(one.posterior(weights, [(masses, "both")])[0][0], drawn, atol=1e-12)
    if name in ("accuracy", "token-accuracy"):  # the second pseudo-example is wrong
        masses[:, 1] = 60
        half = one.posterior(np.ones_like(weights), [(masses, "both")])[0][0]
        np.testing.assert_allclose(half, np.mean(gold == guess) / 2, atol=1e-12)


def test_sixty_right_answers_are_not_certainty():
    """Jeffreys' ends, .959 of the beta distribution alone, with some room: the mass of a wrong answer is 1."""
    gold = (np.arange(60) < 6).astype(int)
    for name, least in (("accuracy", 0.93), ("matthews", 0.6), ("f1", 0.6), ("macro-f1", 0.75)):
        low, high = bounds(gold, gold[None], name).ci[0]
        assert least < low < 0.97
        assert high == 1


def test_one_predicted_class_is_not_certainty():
    gold = (np.arange(60) < 6).astype(int)
    low, high = bounds(gold, np.zeros((1, 60), int), "matthews").ci[0]
    assert low < 0 < 0.2 < high
    low, high = bounds(gold, np.zeros((1, 60), int), "f1").ci[0]
    assert low == 0
    assert 0.2 < high < 0.8


def test_pseudo_examples_weigh_little_among_many():
    """Two of 2,000: the interval of accuracy is that of Jeffreys."""
    gold = np.ones(2000, dtype=int)
    low, high = bounds(gold, (np.arange(2000) < 1900).astype(int)[None], "accuracy", resamples=4000).ci[0]
    np.testing.assert_allclose([low, high], stats.beta(1900.5, 100.5).ppf([0.025, 0.975]), atol=0.001)


def test_why_there_is_no_interval():
    gold = np.arange(30.0)
    found = bounds(gold, np.stack([gold, 0 * gold, gold**2]), "pearson")
    assert list(found.why) == ["the correlation is exact", "the predictions are all the same", ""]
    assert np.isnan(found.ci[:2]).all()
    assert np.isfinite(found.ci[2]).all()
    assert bounds(0 * gold, gold[None], "pearson").why[0] == "undefined on these examples"
    assert bounds(gold, gold[None], "rmse").why[0] == "all examples have the same error"
    groups = np.arange(30) % 4
    assert "4 groups" in bounds(gold > 9, gold[None] > 9, "accuracy", groups=groups).why[0]
    for name in ("matthews", "macro-f1"):
        assert "of one class" in bounds(np.zeros(60, int), np.zeros((1, 60), int), name).why[0]
    none = np.zeros(60, int)
    found = bounds(none, np.stack([none, np.eye(60, dtype=int)[0]]), "f1")
    assert list(found.why) == ["no example is, or is called, of class 1", ""]
    assert np.isnan(found.ci[0]).all()
    assert np.isfinite(found.ci[1]).all()
    many = np.arange(30) % 5
    assert bounds(many, many[None], "macro-f1").why[0] == "fewer than 10 examples a class"
    assert not bounds(gold, gold[None], "rmse", resamples=0).why[0]


@pytest.mark.parametrize("resamples", [1, 99, -1])
def test_few_resamples_are_refused(resamples):
    with pytest.raises(UsageError, match="100 or more, or 0 for no intervals"):
        bounds(np.zeros(9, int), np.zeros((1, 9), int), "accuracy", resamples=resamples)


def test_heavy_tails_are_wider_than_percentiles():
    errors = np.random.default_rng(1).standard_t(3, size=60)
    found = bounds(errors, np.zeros((1, 60)), "rmse")
    low, high = intervals(found.resampled)[0]
    assert found.ci[0, 0] > 0
    assert found.ci[0, 1] - found.value[0] > 1.3 * (high - found.value[0])
    assert found.ci[0, 1] - found.ci[0, 0] > high - low


def test_an_rmse_that_few_examples_carry_has_a_warning():
    rng = np.random.default_rng(1)
    errors, groups = rng.normal(size=300), np.arange(300) // 5
    outlier = np.where(np.arange(300) == 7, 40, errors)
    for of in (None, groups):
        found = bounds(np.zeros(300), np.stack([errors, outlier]), "rmse", groups=of)
        assert found.warning[0] == ""
        assert "few examples carry most of the squared error" in found.warning[1]
    assert not bounds(np.zeros(300), outlier[None], "rmse", resamples=0).warning[0]
    assert not bounds(errors, outlier[None], "pearson").warning[0]


def test_a_band_holds_all_fits_and_is_no_wider_than_bonferroni():
    rng = np.random.default_rng(0)
    gold = rng.integers(2, size=500)
    same, own = rng.random(500) < 0.2, rng.random((10, 500)) < 0.05
    found = bounds(gold, np.where(same | own, 1 - gold, gold), "accuracy")
    both = band(found.value, found.ci, found.resampled)
    ratio = (both[:, 1] - both[:, 0]) / (found.ci[:, 1] - found.ci[:, 0])
    assert ratio.min() == pytest.approx(ratio.max())
    assert 1.1 < ratio[0] < stats.norm.ppf(1 - 0.025 / 10) / stats.norm.ppf(0.975)
    one = bounds(gold, gold[None] * 0, "accuracy")
    np.testing.assert_allclose(band(one.value, one.ci, one.resampled), one.ci, atol=0.02)


def interval(gold, guess, score, *, name, **options):
    """Lower and upper bound of one fit."""
    return tuple(bounds(gold, guess[None], name, score=score, **options).ci[0])


def test_a_metric_that_is_not_what_its_name_says_is_looped_over():
    gold, guess = draw("accuracy")
    low, high = interval(gold, guess, lambda t, p: 10 + np.mean(t == p), name="accuracy", resamples=100)
    assert 10 < low < high < 11


def test_width_follows_the_binomial():
    n, p = 2000, 0.8
    gold = np.ones(n, dtype=int)
    low, high = interval(gold, (np.arange(n) < p * n).astype(int), metric("accuracy").function, name="accuracy")
    half = 1.96 * np.sqrt(p * (1 - p) / n)
    assert (low, high) == pytest.approx((p - half, p + half), abs=0.002)  # 1,000 resamples: spread of a bound 0.0006


def test_words_of_a_sentence_are_drawn_together():
    """Ten copies of each example say no more than one: the interval of groups is that of the distinct examples."""
    gold, guess = draw("accuracy", 100)
    tenfold = [np.repeat(y, 10) for y in (gold, guess)]
    score = metric("accuracy").function
    alone = interval(gold, guess, score, name="accuracy", seed=1)
    grouped = interval(*tenfold, score, name="accuracy", seed=1, groups=np.repeat(np.arange(100), 10))
    assert grouped == pytest.approx(alone, abs=1e-12)
    ungrouped = interval(*tenfold, score, name="accuracy", seed=1)
    assert ungrouped[1] - ungrouped[0] < 0.5 * (alone[1] - alone[0])


def test_the_same_seed_draws_the_same_and_another_one_others():
    gold, guess = draw("pearson")
    a, b, c = (interval(gold, guess, metric("pearson").function, name="pearson", seed=s) for s in (0, 0, 1))
    assert a == b != c


def test_undefined_and_unwanted_intervals_are_nan():
    gold = np.zeros(20)
    assert np.isnan(interval(gold, gold + 1, lambda t, p: float("nan"), name="accuracy")).all()
    assert np.isnan(interval(gold, gold, metric("accuracy").function, name="accuracy", resamples=0)).all()


def test_blocks_do_not_change_the_numbers(monkeypatch):
    gold, guess = draw("accuracy")
    score = metric("accuracy").function
    monkeypatch.setattr("probekit.statistics.bootstrap.BLOCK", 60 * 7)
    monkeypatch.setattr("probekit.statistics.bootstrap.KEPT", 0)
    low, high = interval(gold, guess, score, name="accuracy", resamples=100)
    monkeypatch.setattr("probekit.statistics.bootstrap.BLOCK", 1 << 30)
    assert (low, high) == interval(gold, guess, score, name="accuracy", resamples=100)


def many(name, fits=5, n=60):
    """Several fits of one gold: predictions that are more and more often another example's."""
    gold, guess = draw(name, n)
    rng = np.random.default_rng(8)
    rows = [np.where(rng.random(n) < 0.2 * f, rng.permutation(n), np.arange(n)) for f in range(fits)]
    if name == "span-f1":  # the words of a sentence stay where they are
        predicted = np.empty((fits, n), dtype=object)
        for f, i in np.ndindex(fits, n):
            predicted[f, i] = gold[i] if i % 5 < f else guess[i]
        return gold, predicted
    return gold, np.stack([guess[r] for r in rows])


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("name", NAMED)
def test_every_fit_is_what_it_is_alone(name, grouped):
    gold, predicted = many(name)
    groups = np.arange(60) % 20 if grouped else None
    together = replicates(gold, predicted, name, groups=groups, resamples=50)
    own = replicates(np.repeat(gold[None], 5, axis=0), predicted, name, groups=groups, resamples=50)
    alone = [replicates(gold, row[None], name, groups=groups, resamples=50)[0] for row in predicted]
    np.testing.assert_allclose(together, alone, atol=1e-12)
    np.testing.assert_allclose(together, own, atol=1e-12)
    values = estimates(gold, predicted, name)
    np.testing.assert_allclose(values, [metric(name).function(gold, row) for row in predicted], atol=1e-12)


@pytest.mark.parametrize("name", ["accuracy", "matthews", "macro-f1"])
def test_counts_are_exact_whatever_the_block(name, monkeypatch):
    gold, predicted = many(name)
    whole = replicates(gold, predicted, name, resamples=64)
    for block in (1, 60 * 3, 60 * 40):
        monkeypatch.setattr(bootstrap, "BLOCK", block)
        assert (replicates(gold, predicted, name, resamples=64) == whole).all()


def test_span_f1_of_words_is_that_of_sentences():
    gold, predicted = many("span-f1")
    names = ("O", "B-PER", "I-PER", "B-LOC")
    words = [np.concatenate([[names.index(t) for t in tags] for tags in y]) for y in (gold, *predicted)]
    sentence = np.repeat(np.arange(60), [len(tags) for tags in gold])
    by_word = replicates(words[0], np.stack(words[1:]), "span-f1", groups=sentence, label_names=names, resamples=50)
    np.testing.assert_allclose(by_word, replicates(gold, predicted, "span-f1", resamples=50), atol=1e-12)
    with pytest.raises(UsageError, match="sentence of each word"):
        replicates(words[0], np.stack(words[1:]), "span-f1", label_names=names)


SCHEMES = (["O", "B-X", "I-X", "B-Y", "I-Y"], ["O", "I-X", "I-Y"], ["O", "B-X", "I-X", "E-X", "S-X", "I-Y", "E-Y"])


@pytest.mark.parametrize("names", SCHEMES, ids=["bio", "io", "bioes"])
def test_spans_are_those_of_seqeval_even_of_ill_formed_tags(names):
    rng = np.random.default_rng(2)
    gold, guess = (np.empty(300, dtype=object) for _ in range(2))
    for i in range(300):
        n = rng.integers(1, 9)
        gold[i], guess[i] = (list(rng.choice(names, size=n)) for _ in range(2))
    assert estimates(gold, guess[None], "span-f1")[0] == pytest.approx(metric("span-f1").function(gold, guess))


def test_log_loss_is_the_mean_of_the_losses():
    loss = np.random.default_rng(0).exponential(size=(3, 500)).astype(np.float32)
    gold, predicted = np.zeros(500, dtype=int), np.zeros((3, 500), dtype=int)
    np.testing.assert_allclose(estimates(gold, predicted, "log-loss", log_loss=loss), loss.mean(1), rtol=1e-6)
    low, high = intervals(replicates(gold, predicted, "log-loss", log_loss=loss)).T
    half = 1.96 * loss.std(1) / np.sqrt(500)
    np.testing.assert_allclose([low, high], [loss.mean(1) - half, loss.mean(1) + half], atol=0.02)  # 3 s.d. of a bound
    with pytest.raises(UsageError, match="log_loss"):
        replicates(gold, predicted, "log-loss")


def test_one_value_only_is_defined_as_the_metric_defines_it():
    gold, flat = np.arange(30.0), np.full((1, 30), 0.1)
    for name in ("pearson", "spearman"):
        assert (replicates(gold, flat, name, resamples=20) == 0).all()
        assert np.isnan(replicates(flat[0], gold[None], name, resamples=20)).all()
        assert np.isnan(replicates(gold, gold[None] * np.nan, name, resamples=20)).all()
    assert (estimates(np.zeros(30, int), np.zeros((1, 30), int), "matthews") == 0).all()
    assert (estimates(np.zeros(30, int), np.zeros((1, 30), int), "f1") == 0).all()


def test_undefined_replicates_are_left_out():
    known = np.arange(200.0)[None]
    half = np.concatenate([known, np.full((1, 200), np.nan)], axis=1)
    np.testing.assert_allclose(intervals(half), np.quantile(known, [0.025, 0.975])[None])
    assert np.isnan(intervals(half[:, 1:])).all()


@pytest.mark.parametrize(
    ("gold", "predicted", "metric_name", "said"),
    [
        (np.zeros(3, int), np.zeros((2, 4), int), "accuracy", r"\(2, 4\) and \(1, 3\)"),
        (np.zeros(3, int), np.zeros(3, int), "accuracy", r"predictions \(F, n\)"),
        (np.zeros(3, int), np.zeros((1, 3), int), "acuracy", "unknown metric 'acuracy'"),
    ],
)
def test_what_does_not_go_together_is_said(gold, predicted, metric_name, said):
    with pytest.raises(UsageError, match=said):
        replicates(gold, predicted, metric_name)


def test_groups_of_another_length_are_refused():
    with pytest.raises(UsageError, match="one for each of the 3 rows"):
        replicates(np.zeros(3, int), np.zeros((1, 3), int), "accuracy", groups=np.zeros(2, int))


def test_few_long_sentences_widen():
    """Two long sentences carry most of the spread: less is known than from 40 sentences of one length."""
    right = np.arange(40) % 5 > 0
    even, uneven = np.full(40, 10), np.append(np.full(38, 5), [105, 105])
    uneven_right = np.append(right[:38], [True, False])
    width = []
    for count, of_sentence in ((even, right), (uneven, uneven_right)):
        of = np.repeat(np.arange(40), count)
        guess = of_sentence[of].astype(int)
        found = bounds(np.ones(len(of), int), guess[None], "accuracy", groups=of, seed=0)
        spread = found.resampled.std()
        width.append((found.ci[0, 1] - found.ci[0, 0]) / spread)
    assert width[0] == pytest.approx(2 * 2.02, abs=0.25)  # Student's t with 39 degrees of freedom
    assert width[1] > 1.15 * width[0]


def spans_found(found, outside=0, sentences=100):
    """Of each of so many sentences its one span: one word, beside others outside of spans; found by the first ones."""
    one = ["B-X", *["O"] * outside]
    gold, said = np.empty(sentences, dtype=object), np.empty(sentences, dtype=object)
    gold[:] = [one] * sentences
    said[:] = [one if i < found else ["O"] * len(one) for i in range(sentences)]
    return gold, said[None]


@pytest.mark.parametrize("found", [0, 1, 50, 100])
def test_words_outside_of_spans_do_not_change_the_interval_of_span_f1(found):
    """What counts is 100 spans in 100 sentences, however long these are."""
    few, many = (bounds(*spans_found(found, outside), "span-f1").ci for outside in (1, 30))
    np.testing.assert_allclose(few, many, atol=1e-12)


def test_span_f1_of_0_and_of_1_is_as_sure_as_its_spans_allow():
    """0 of 100 sentences: recall is at most 1 - .025**(1/100) = .036, so F1 is at most .07; 100 of 100 likewise."""
    none, every = (bounds(*spans_found(found, 6), "span-f1") for found in (0, 100))
    assert none.value[0] == none.ci[0, 0] == 0 < none.ci[0, 1] < 0.08
    assert every.value[0] == every.ci[0, 1] == 1 > every.ci[0, 0] > 0.93
    assert np.quantile(none.resampled, 0.975) < 0.08  # from which the band of controls comes


def test_spans_of_a_sentence_that_are_alike_count_once():
    """Ten spans in each of ten sentences, none found: ten independent outcomes, not a hundred."""
    gold, said = (np.concatenate([y.reshape(-1)] * 10) for y in spans_found(0, 6, sentences=10))
    apart = bounds(gold, said[None], "span-f1").ci[0, 1]
    together = bounds(gold, said[None], "span-f1", groups=np.tile(np.arange(10), 10)).ci[0, 1]
    assert 0.2 < together < 0.5
    assert apart < 0.08


@pytest.mark.parametrize("name", ["pearson", "spearman", "r2", "mean-absolute-error"])
def test_intervals_of_numbers_know_how_few_groups_carry_the_spread(name: str) -> None:
    """Student's t has few degrees of freedom where 3 of 30 groups are large, and about n with single examples."""
    rng = np.random.default_rng(0)
    of = np.repeat(np.arange(30), np.rint(2 + 40 * (np.arange(30) % 10 == 0)).astype(int))  # 3 of 30 are large
    y, p = rng.normal(size=(2, 30))[:, of] + 0.5 * rng.normal(size=(2, len(of)))
    p += y
    more = {"score": metric(name).function, "resamples": 400}
    reach = []
    for groups in (None, of):
        found = bounds(y, p[None], name, groups=groups, **more)
        assert found.value[0] == pytest.approx(metric(name).function(y, p))
        to = bootstrap.SCALES[name][0]
        reach.append(np.ptp(to(found.ci[0])) / 2 / to(found.resampled[0]).std())
    assert reach[0] < 2.2  # 2.0 for 180 examples
    assert reach[1] > 2.4  # 2.08 for 30 groups of equal weight
    exact = bounds(y, y[None], name, **more)
    assert exact.why[0]
    assert np.isnan(exact.ci).all()


def test_the_influence_of_a_unit_is_what_its_weight_changes() -> None:
    from probekit.statistics._sums import Units, UnitSums, statistic

    rng = np.random.default_rng(1)
    y, p = rng.normal(size=(2, 1, 30))
    units = Units.of_groups(np.repeat(np.arange(10), 3), 30)
    for name in ("pearson", "r2", "mean-absolute-error", "rmse"):
        one = statistic(name, y, p, units)
        assert isinstance(one, UnitSums)
        more = np.ones((10, 10)) + 1e-4 * np.eye(10)
        slope = (one.at(more) - one.at(np.ones((1, 10)))) / 1e-4
        np.testing.assert_allclose(one.influence(), slope, atol=1e-4)
        np.testing.assert_allclose(one.influence().sum(), 0, atol=1e-3)  # a factor of all weights changes nothing
