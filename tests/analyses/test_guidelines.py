"""Which regime to prefer: numbers against closed form and another bootstrap, coverage, words, refusals."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from probekit.activations.writing.request import data_digest
from probekit.analyses.guidelines import guidelines
from probekit.analyses.guidelines.measure import Difference, _judge, difference, paired
from probekit.analyses.guidelines.sentences import overview
from probekit.errors import DataError, ModelError, UsageError
from probekit.statistics.comparisons import paired as layers
from probekit.statistics.options import CompareOptions
from probekit.statistics.predictions import Predictions

FT, FX = "fine-tune", "feature-extraction"
LABELS = ("no", "yes")


def table(predicted, gold=None, metrics=("accuracy",), groups=None, names=LABELS):
    """One fit a row of ``predicted``; gold is all 1 unless told."""
    predicted = np.atleast_2d(predicted)
    gold = np.ones(predicted.shape[1], int) if gold is None else gold
    fits = pd.DataFrame({"fit": range(len(predicted))})
    ids = np.arange(predicted.shape[1]).astype(str)
    return Predictions(fits, ids, gold, predicted, metrics, groups, label_names=names)


def rows_of(runs, **options):
    return guidelines(*runs, **options).rows


@pytest.fixture
def run(tmp_path):
    """Leaves the folder of a finished run that said ``predicted``, and returns it."""

    def make(regime, predicted, *, task="cola", seed=0, split="dev", name=None, edit=None, kind=None, **how):
        how = {"names": LABELS, "metrics": ("accuracy",)} | how
        said = table(predicted, **how)
        data = ["train of " + task, "dev of " + task]
        if regime == FX:
            data = [data_digest(one, how["names"]) for one in data]
        card = {
            "format": "probekit-run/1",
            "run": "r",
            "model": "tiny",
            "task": task,
            "complete": True,
            "regime": regime,
            "splits": ["train", "dev", *([split] if split != "dev" else [])],
            "examples": [100, len(said.ids)],
            "head": {"head": "linear" if regime == FT else "esim"},
            "target": {
                "kind": kind or "classification",
                "label_names": list(how["names"]),
                "metrics": list(how["metrics"]),
                "paired": task in ("mrpc", "sick-e"),
            },
            "encoder": {"weights_digest": "w", "tokenizer_digest": "t", "random_weights": None},
            "identity": {"data": data, "epochs": 3, "keep": "best", "seed": seed, "splits": ["train", "dev", None]},
            "command": "probekit train …",
        }
        if edit:
            edit(card)
        folder = tmp_path / (name or f"{task}-{regime}-{seed}")
        said.write(folder / f"{split}.examples.parquet")
        (folder / "probekit.json").write_text(json.dumps(card))
        return folder

    return make


def right(n, share, seed=0):
    """1 for a share of n examples, in an order of chance."""
    return np.random.default_rng(seed).permutation((np.arange(n) < round(share * n)).astype(int))


def world(rng, n, seeds, spread, own=0.5, gap=0.1):
    """What is right (fits, n): an example's difficulty, that for a regime, a seed's luck, and noise."""
    hard, fits = rng.normal(size=n), []
    for which, (count, luck) in enumerate(zip(seeds, spread, strict=True)):
        mine = hard + 0.5 * rng.normal(size=n) + 1.0 + gap * (which == 0)
        fits += [mine + luck * rng.normal() + own * rng.normal(size=n) > 0 for _ in range(count)]
    return np.array(fits).astype(int)


def truth(spread, own=0.5, gap=0.1):
    """The difference of the two accuracies over all examples and seeds."""
    first, second = (
        stats.norm.cdf((1 + g) / np.sqrt(1.25 + s**2 + own**2)) for g, s in zip((gap, 0), spread, strict=True)
    )
    return first - second


def coverage(n, seeds, spread, runs, resamples=1000):
    """Share of intervals that hold the truth."""
    first, held = np.arange(sum(seeds)) < seeds[0], 0
    for k in range(runs):
        said = table(world(np.random.default_rng([k, n]), n, seeds, spread))
        low, high = difference(said, first, "accuracy", resamples=resamples, seed=k).ci
        held += low <= truth(spread) <= high
    return held / runs


def test_one_seed_each_has_about_the_interval_of_compare():
    said = table(world(np.random.default_rng(0), 300, (1, 1), (0, 0)))
    found = difference(said, np.array([True, False]), "accuracy", resamples=2000, seed=3)
    other = layers(said, [(0, [1])], "accuracy", options=CompareOptions(resamples=2000, seed=3))
    assert found.ci == pytest.approx(tuple(other.ci[0]), abs=0.003)  # of a table of both answers; .0013 apart
    assert found.value == pytest.approx(other.value[0], abs=1e-12)
    assert found.p == pytest.approx(2 * (1 + (found.replicates <= 0).sum()) / 2001)
    assert found.p == pytest.approx(other.p[0], abs=0.05)  # of exchanged predictions


def test_several_seeds_are_the_variance_components_of_two_crossed_factors():
    """Closed form: examples' share of the variance / n, and the sample variance over seeds / S, Welch's t."""
    n, seeds = 400, (8, 6)
    rights = world(np.random.default_rng(1), n, seeds, (0.2, 0.1))
    first = np.arange(14) < 8
    found = difference(table(rights), first, "accuracy", resamples=50_000)
    sides = [rights[first], rights[~first]]
    whole = (sides[0].mean(0) - sides[1].mean(0)).var() / n
    within = sum((x - x.mean(0)).var(1).mean() / (len(x) - 1) / n for x in sides)
    errors = [x.mean(1).var(ddof=1) / len(x) for x in sides]
    freedom = sum(errors) ** 2 / (errors[0] ** 2 / 7 + errors[1] ** 2 / 5)
    expected = whole - within + sum(errors) * freedom / (freedom - 2)
    assert found.replicates.var() == pytest.approx(expected, rel=0.03)  # fourth moments of t: spread .01 over seeds
    assert found.value == pytest.approx(sides[0].mean() - sides[1].mean())


def test_a_seed_that_stands_out_widens_the_interval():
    n, first = 500, np.array([True, True, True, False])
    steady = np.stack([right(n, 0.8, s) for s in range(3)] + [right(n, 0.8, 9)])
    lucky = np.stack([right(n, share, s) for s, share in enumerate((0.7, 0.8, 0.9))] + [right(n, 0.8, 9)])
    widths = [np.ptp(difference(table(x), first, "accuracy").ci) for x in (steady, lucky)]
    assert widths[1] > 3 * widths[0]


def test_an_interval_stays_within_what_differences_can_be():
    n, first = 200, np.array([True, True, False, False])
    unlike = np.stack([right(n, share, s) for s, share in enumerate((1.0, 0.5, 0.5, 0.55))])
    found = difference(table(unlike), first, "accuracy")
    assert found.ci == (-1, 1)
    assert np.quantile(found.replicates, 0.975) > 1


@pytest.mark.parametrize(
    ("seeds", "spread"),
    [((3, 3), (0.15, 0.15)), pytest.param((1, 1), (0, 0), id="of these models", marks=pytest.mark.slow)],
)
def test_intervals_hold_the_truth(seeds, spread):
    assert coverage(100, seeds, spread, 60) > 0.85  # 95 % of 60 have a standard error of 2.8 points


def test_an_interval_of_one_seed_does_not_hold_what_seeds_do():
    assert coverage(500, (1, 1), (0.15, 0.15), 40) < 0.75


@pytest.mark.slow
@pytest.mark.parametrize("n", [100, 500])
@pytest.mark.parametrize("spread", [(0.0, 0.0), (0.15, 0.15), (0.15, 0.03)])
@pytest.mark.parametrize("seeds", [(2, 2), (3, 3), (5, 5), (2, 5)])
def test_coverage(n, spread, seeds):
    assert coverage(n, seeds, spread, 1000) > 0.91  # the lowest of 400 runs is .925, of (2, 5) and (.15, .03)


def test_it_says_what_to_prefer(run):
    n = 2000
    sure = right(n, 0.8)
    worse, same, unsure = sure.copy(), sure.copy(), sure.copy()
    worse[np.flatnonzero(sure)[:200]] = 0
    same[np.flatnonzero(sure)[0]] = 0
    unsure[np.flatnonzero(sure)[:100]], unsure[np.flatnonzero(sure == 0)[:95]] = 0, 1
    folders = [
        folder
        for task, a, b in (("cola", sure, worse), ("sst2", worse, sure), ("mrpc", sure, same), ("sick-e", sure, unsure))
        for folder in (run(FT, a, task=task), run(FT, a, task=task, seed=1), run(FX, b, task=task))
    ]  # two seeds that say the same: no variation to add
    rows = rows_of(folders, resamples=2000).set_index("task")
    assert list(rows["prefer"]) == [FT, FX, "either", "cannot tell"]
    assert list(rows["confidence"]) == ["high (one seed)"] * 3 + ["none"]
    assert set(rows["metric"]) == {"difference(accuracy)"}
    assert set(rows["estimator"]) == {"fine-tune - feature-extraction"}
    assert rows.loc["cola", "value"] == pytest.approx(0.1)
    assert rows.loc["cola", ["fine_tune", "feature_extraction"]].tolist() == pytest.approx([0.8, 0.7])
    assert rows["n"].tolist() == [n] * 4
    least = np.fmin(rows["p"], rows["p_equal"]).to_numpy()
    by_hand, so_far = {}, 0.0
    for left, k in zip((4, 3, 2, 1), np.argsort(least, kind="stable"), strict=True):
        so_far = by_hand[k] = max(so_far, min(1, left * least[k]))
    assert rows["p_adjusted"].tolist() == pytest.approx([by_hand[k] for k in range(4)])
    assert rows.loc["cola", "why"].startswith(
        "On the same 2,000 examples of dev, accuracy: fine-tuning (linear head, 2 seeds) 0.800, feature "
        "extraction (esim head, 1 seed) 0.700; the difference, +0.100 (95 % interval "
    )
    assert rows.loc["cola", "why"].endswith("is not 0 (p = 0.004, corrected for 4 tasks).")
    assert "is less than 0.01 in either direction" in rows.loc["mrpc", "why"]
    assert "may be 0 or more than 0.01" in rows.loc["sick-e", "why"]
    caveat = rows["caveat"].iloc[0]
    assert "One seed of feature extraction: it is assumed to vary as much as the seeds of fine-tuning" in caveat
    assert "chosen by their score on dev" in caveat
    assert overview(rows.reset_index()) == [
        "tiny, any task: cannot tell for 1 of 4 (sick-e), either for 1 of 4 (mrpc (one seed)), feature extraction "
        "for 1 of 4 (sst2 (one seed)), fine-tuning for 1 of 4 (cola (one seed)).",
        "tiny, single sentences: feature extraction for 1 of 2 (sst2 (one seed)), fine-tuning for 1 of 2 (cola (one "
        "seed)).",
        "tiny, sentence pairs: cannot tell for 1 of 2 (sick-e), either for 1 of 2 (mrpc (one seed)).",
    ]


def test_what_all_tasks_prefer_is_said_of_the_kind(run):
    good, bad = right(500, 0.9), right(500, 0.6)
    folders = [
        run(regime, p, task=t, seed=s)
        for t, single in (("mrpc", 1), ("sick-e", 2))
        for regime, p, count in ((FT, good, 2), (FX, bad, single))
        for s in range(count)
    ]
    rows = rows_of(folders)
    assert overview(rows) == ["tiny, sentence pairs: use fine-tuning (all 2 tasks; one seed of a regime in 1 of them)."]
    assert overview(rows[:1]) == ["tiny, sentence pairs: use fine-tuning (the only task, mrpc (one seed))."]
    assert overview(rows[1:]) == ["tiny, sentence pairs: use fine-tuning (the only task, sick-e)."]


def test_one_seed_of_each_regime_cannot_tell(run):
    """However large the difference of the two models, and however equal they are."""
    good, bad = right(500, 0.9), right(500, 0.6)
    rows = rows_of([run(FT, good, task="a"), run(FX, bad, task="a"), run(FT, good, task="b"), run(FX, good, task="b")])
    assert rows["prefer"].tolist() == ["cannot tell"] * 2
    assert rows["confidence"].tolist() == ["none"] * 2
    assert rows["p"].iloc[0] < 0.001  # of these two models
    assert rows["p_adjusted"].isna().all()
    assert rows["why"].iloc[0].endswith("instead of the regimes (p < .001, for these two models only).")
    assert (
        rows["caveat"].iloc[0].startswith("One seed of each regime: the result holds only for these two trained models")
    )
    assert overview(rows) == ["tiny, single sentences: cannot tell (all 2 tasks)."]


def test_a_single_seed_varies_as_the_other_side(run):
    """Five seeds that spread by 1.5 points: a single one 2.5 points lower is no evidence, one 15 points lower is."""
    shares = 0.8 + 0.015 * np.array([-1.26, -0.63, 0, 0.63, 1.26])
    hard = np.random.default_rng(0).permutation(2000) / 2000
    several = [run(FT, (hard < share).astype(int), seed=s) for s, share in enumerate(shares)]
    for lower, prefer in ((0.025, "cannot tell"), (0.15, FT)):
        single = run(FX, (hard < 0.8 - lower).astype(int), name=f"fx-{lower}")
        row = rows_of([*several, single]).iloc[0]
        assert row["prefer"] == prefer
    error = np.std(shares, ddof=1) * np.sqrt(1 / 5 + 1)
    half = stats.t.ppf(0.975, 4) * error  # examples add little: the same are right
    assert (row["ci_high"] - row["ci_low"]) / 2 == pytest.approx(half, rel=0.25)


def test_more_tasks_make_each_less_sure(run):
    a = right(400, 0.8)
    b = a.copy()
    b[np.flatnonzero(a)[:20]], b[np.flatnonzero(a == 0)[:8]] = 0, 1  # 20 against 8: p about .02
    one = [run(FT, a), run(FT, a, seed=1), run(FX, b)]
    others = [
        run(r, right(400, 0.8, r == FX), task=t, seed=s)
        for t in ("sst2", "rte", "qnli")
        for r, s in ((FT, 0), (FT, 1), (FX, 0))
    ]
    alone, among = rows_of(one).iloc[0], rows_of(one + others).iloc[0]
    assert alone["prefer"] == FT
    assert alone["confidence"] == "moderate (one seed)"
    assert alone["p"] == among["p"]
    assert among["prefer"] == "cannot tell"


def test_agreement_on_few_examples_is_not_equality(run):
    for n, said in ((100, "cannot tell"), (1000, "either")):
        both = right(n, 0.8)
        row = rows_of([run(r, both, task=f"of {n}", seed=s) for r, s in ((FT, 0), (FT, 1), (FX, 0))]).iloc[0]
        assert (row["value"], row["ci_low"], row["ci_high"]) == (0, 0, 0)
        assert row["prefer"] == said


def test_of_errors_the_smaller_is_better(run):
    gold = np.random.default_rng(0).normal(size=300)
    near, far = gold + 0.1, gold + np.random.default_rng(1).normal(size=300)
    how = {"gold": gold, "metrics": ("rmse", "pearson"), "names": (), "kind": "regression"}
    runs = [run(FT, far, **how), run(FT, far, seed=1, **how), run(FX, near, **how)]
    rows = rows_of(runs)
    assert rows["value"].iloc[0] > 0
    assert rows["prefer"].iloc[0] == FX
    assert rows_of(runs, metric="pearson")["value"].iloc[0] < 0


def test_seeds_are_averaged_and_counted(run):
    runs = [[run(r, right(500, share, s), seed=s) for s in range(3)] for r, share in ((FT, 0.9), (FX, 0.6))]
    row = rows_of([*runs[0], *runs[1]]).iloc[0]
    assert row[["fine_tune_seeds", "feature_extraction_seeds"]].tolist() == [3, 3]
    assert row["confidence"] == "high"
    assert "seed" not in row["caveat"]
    assert "(linear head, 3 seeds) 0.900" in row["why"]
    fewer = rows_of([*runs[0], runs[1][0]]).iloc[0]
    assert fewer["caveat"].startswith("One seed of feature extraction: it is assumed")
    assert paired(runs[0], runs[1]).value == pytest.approx(0.3)


def test_words_are_drawn_by_sentences(run):
    rng = np.random.default_rng(0)
    gold, groups = rng.integers(3, size=600), np.repeat(np.arange(60), 10)
    said = np.where(rng.random(600) < 0.8, gold, 0)
    how = {"gold": gold, "groups": groups, "metrics": ("span-f1", "token-accuracy"), "names": ("O", "B-X", "I-X")}
    folders = [run(r, p, kind="sequence-labelling", **how) for r, p in ((FT, gold), (FX, said))]
    row = rows_of(folders).iloc[0]
    assert (row["n"], row["kind"], row["metric"]) == (60, "word tags", "difference(span-f1)")
    assert "the same 60 sentences of dev" in row["why"]


def test_one_regime_only_is_told(run):
    rows = rows_of([run(FT, right(50, 0.8)), run(FX, right(50, 0.8), task="mrpc")])
    assert rows["prefer"].tolist() == ["cannot tell"] * 2
    assert rows["why"].tolist() == ["There is no run with feature extraction.", "There is no run with fine-tuning."]
    assert rows[["value", "p_adjusted"]].isna().all(axis=None)
    assert overview(rows)[0] == "tiny, any task: cannot tell (all 2 tasks)."


def test_what_is_not_defined_is_not_told(run):
    how = {"metrics": ("pearson",), "gold": np.ones(50), "names": (), "kind": "regression"}
    row = rows_of([run(FT, np.arange(50.0), **how), run(FX, np.arange(50.0), **how)]).iloc[0]
    assert row["prefer"] == "cannot tell"
    assert "undefined on most resamples" in row["why"]


def test_the_last_split_of_all_is_taken(run):
    runs = [run(r, right(50, 0.8), split="test") for r in (FT, FX)]
    row = rows_of(runs).iloc[0]
    assert row["split"] == "test"
    assert "flatters" not in row["caveat"]  # the weights were chosen on dev
    with pytest.raises(DataError, match=r"dev\.examples\.parquet: does not exist"):
        rows_of(runs, split="dev")


def put(*keys, value):
    """An edit of a card."""

    def edit(card):
        for key in keys[:-1]:
            card = card[key]
        card[keys[-1]] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "error", "told"),
    [
        (put("complete", value=False), UsageError, "is not finished; its command resumes it"),
        (lambda card: card.update(complete=False, failed="NaN"), UsageError, "is not finished: NaN"),
        (put("format", value="other/1"), ModelError, "other/1"),
        (put("identity", "data", value=["other", "other"]), UsageError, "have different data: train with 100"),
        (
            put("encoder", "weights_digest", value="v"),
            UsageError,
            "two models with the same name, tiny: weights_digest",
        ),
        (put("splits", value=["train", "exam"]), UsageError, "not all evaluated on the same split"),
    ],
)
def test_runs_that_do_not_go_together_are_refused(edit, error, told, run):
    with pytest.raises(error, match=told):
        rows_of([run(FT, right(50, 0.8)), run(FX, right(50, 0.8), edit=edit)])


def test_other_refusals(run):
    one, two = run(FT, right(50, 0.8)), run(FX, right(50, 0.8))
    with pytest.raises(UsageError, match="no run was given"):
        rows_of([])
    with pytest.raises(UsageError, match="margin is 0"):
        rows_of([one, two], margin=0)
    with pytest.raises(UsageError, match="is given twice"):
        rows_of([one, two, two])
    with pytest.raises(UsageError, match="epochs is 3 and 4"):
        paired([one], [two, run(FX, right(50, 0.8), seed=1, edit=put("identity", "epochs", value=4))])
    with pytest.raises(UsageError, match="was not evaluated with f1, but with accuracy"):
        rows_of([one, two], metric="f1")
    with pytest.raises(UsageError, match="the first and the second were evaluated on different examples"):
        rows_of([one, run(FX, right(49, 0.8))])
    with pytest.raises(UsageError, match="different labels"):
        rows_of([one, run(FX, right(50, 0.8), gold=right(50, 0.5))])
    with pytest.raises(UsageError, match=r"was trained on cola, .* sst2"):
        paired([one], [run(FX, right(50, 0.8), task="sst2")])
    with pytest.raises(UsageError, match="one or more runs on each side"):
        paired([one], [])


def test_equality_is_corrected_for_the_number_of_comparisons():
    """p of a difference of the margin or more is .012, and .06 if there are five such comparisons: Holm's factor."""
    size = np.where(np.arange(999) < 5, 0.06, 0.0)
    one = Difference("accuracy", "dev", 0.8, 0.8, (-0.01, 0.01), (3, 3), 5000, size, 5000)
    assert one.p_equal(0.05) == pytest.approx(0.012)
    for count, prefer in ((1, "either"), (4, "either"), (5, "cannot tell")):
        records = [{"margin": 0.05, "kind": "sentence pairs"} for _ in range(count)]
        _judge(records, [one] * count, [["linear", "linear"]] * count)
        assert [record["prefer"] for record in records] == [prefer] * count
        assert [record["p_adjusted"] for record in records] == pytest.approx([0.012 * count] * count)
