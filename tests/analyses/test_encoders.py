"""Encoders compared on target tasks: the line Single-Task, seeds, correlations, mixtures, and their tables."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import probekit
from probekit.adaptation.pretraining.options import PRETRAIN
from probekit.analyses.encoders import SINGLE_TASK, diagnostic_scores, encoder_scores, mixture_scores, task_correlations
from probekit.analyses.glue import MEASURED, WNLI, glue_score
from probekit.errors import UsageError
from probekit.rows import make_rows
from probekit.rows.selection import select
from probekit.tables import published


def run(task, metric, value, model, *, seed=0, **more):
    return {
        "analysis": "train", "task": task, "trained_on": task, "split": "dev", "model": model, "metric": metric,
        "checkpoint": f"{model}-{task}-{seed}", "regime": "feature-extraction", "head": "max-mlp", "variant": "",
        "n": 100, "representation": "tokens", "estimator": "", "target": "gold", "value": value,
        "ci_low": value - 0.02, "ci_high": value + 0.02, "kept": True, "seed": seed, "step": 10,
    } | more  # fmt: skip


def runs(model, values, **more):
    """Runs of an encoder with a value for each task."""
    return [run(t, m, value, model, **more) for t, value in values.items() for m in MEASURED[t]]


def pretraining(model, on, *, seed=0, sampling="uniform", scaling="uniform", values=None):
    """The kept validation of a pretraining."""
    return [
        run(task, "accuracy", value, model, seed=seed, regime=PRETRAIN, trained_on="+".join(on), head="", split="dev",
            headline=True, sampling=sampling, scaling=scaling, examples=100)
        for task, value in zip(on, values or [0.5] * len(on), strict=True)
    ]  # fmt: skip


EVEN = dict.fromkeys(MEASURED, 0.5)


def of(found, model, task):
    (one,) = found[(found["model"] == model) & (found["task"] == task)].to_dict("records")
    return one


def test_single_task_is_the_diagonal():
    rows = [*runs("random", EVEN), *runs("C", EVEN | {"cola": 0.7}), *runs("R", {"rte": 0.9})]
    rows += [*pretraining("C", ["cola"]), *pretraining("R", ["rte"]), *pretraining("both", ["cola", "rte"])]
    rows += runs("both", EVEN | {"cola": 0.1})
    found = encoder_scores(make_rows(rows))
    assert list(dict.fromkeys(found["model"])) == [SINGLE_TASK, "random", "C", "both"]  # R has only its own task
    assert (of(found, SINGLE_TASK, "cola")["value"], of(found, SINGLE_TASK, "rte")["value"]) == (0.7, 0.9)
    assert "glue" not in set(found[found["model"] == SINGLE_TASK]["task"])  # it lacks tasks
    assert of(found, "random", "glue")["value"] == pytest.approx((8 * 0.5 + WNLI) / 9)
    every = make_rows([*rows, *(row for t in MEASURED for row in runs(t, {t: 0.6}) + pretraining(t, [t]))])
    whole = encoder_scores(every[~every["model"].isin(["C", "R"])])
    assert of(whole, SINGLE_TASK, "glue")["value"] == pytest.approx((8 * 0.6 + WNLI) / 9)


def test_a_task_on_which_two_encoders_are_pretrained_is_not_single_task():
    rows = [*runs("C", EVEN | {"cola": 0.7}), *pretraining("C", ["cola"]), *runs("R", EVEN), *pretraining("R", ["rte"])]
    twice = make_rows([*rows, *runs("C 600", EVEN | {"cola": 0.1}), *pretraining("C 600", ["cola"])])
    single = encoder_scores(twice).query("model == @SINGLE_TASK")
    assert list(single["task"].replace("wnli", "")) == ["rte", ""]
    note = f"{SINGLE_TASK} has no run on cola, because C and C 600 are pretrained on it only."
    assert note in probekit.table("glue", twice).to_markdown()
    chosen = probekit.table("glue", twice, models=("C", "R"))
    pd.testing.assert_frame_equal(chosen.rows, encoder_scores(make_rows(rows)))


def test_a_table_of_some_models_and_variants():
    rows = [*runs("org/a", EVEN), *runs("org/a", EVEN, variant="n=100"), *runs("b", {"cola": 0.3}, variant="n=100")]
    rows = make_rows([*rows, *pretraining("b", ["rte"]), *pretraining("c", ["rte"])])
    found = probekit.table("glue", rows, models=["a"], variants=[""])
    assert found.rows["metric"].eq("glue-score").all()
    expected = glue_score(make_rows(runs("org/a", EVEN)))
    pd.testing.assert_frame_equal(found.rows[list(expected)], expected)
    kept = select(rows, ["b"], ["n=100"])
    assert list(zip(kept["model"], kept["regime"], strict=True)) == [("b", "feature-extraction"), ("b", PRETRAIN)]
    domains = make_rows([run("x", "js-distance", 0.1, "", regime="")])
    assert len(select(domains, ["a", "b"][:0], ["n=100"][:0])) == 1
    with pytest.raises(UsageError, match="the rows have no model 'd'; there are 'a', 'b', 'c', 'org/a'"):
        select(rows, ["d"])
    with pytest.raises(UsageError, match="the rows have no variant 'n=10'; did you mean 'n=100'"):
        select(rows, variants=["n=10"])


@pytest.mark.slow
def test_encoders_that_lack_a_task_are_named():
    draw = np.random.default_rng(3)
    rows = [r for i in range(6) for r in runs(f"e{i}", dict(zip(MEASURED, draw.uniform(0.4, 0.6, 8), strict=True)))]
    expected = task_correlations(make_rows(rows), draws=19, resamples=0)
    rows += [*runs("some", {"cola": 0.3, "rte": 0.4}), *runs("none", {"rte": 0.4, "cola": 0.1})]
    found = task_correlations(make_rows(rows), draws=19, resamples=0)
    np.testing.assert_allclose(found["value"], expected["value"])  # the mean is over all eight tasks
    lacking = "Encoders left out, and the tasks that they lack: some and none (sst2, mrpc, qqp, stsb, mnli and qnli)."
    assert lacking in found["caution"].iloc[0]
    assert lacking in probekit.table("task-correlations", make_rows(rows)).to_markdown()
    text = probekit.table("glue", make_rows(rows)).to_markdown()
    assert "none has no run on SST-2, MRPC, QQP, STS-B, MNLI, QNLI, so there is no GLUE score." in text
    assert "Without some, none, the mean has more tasks (--models chooses encoders)." in text
    whole = probekit.table("glue", make_rows([r for r in rows if r["task"] != "qnli"]), models=("e1",)).to_markdown()
    assert "No encoder has a run on QNLI, so there is no GLUE score." in whole
    assert "Without" not in whole


def test_the_mean_has_its_standard_deviation_over_seeds():
    shifts = [0.0, 0.01, 0.05]
    rows = [row for seed, x in enumerate(shifts) for row in runs("random", dict.fromkeys(EVEN, 0.5 + x), seed=seed)]
    found = encoder_scores(make_rows([*rows, *runs("other", EVEN)]))
    assert of(found, "random", "glue")["sd"] == pytest.approx(np.std(shifts, ddof=1) * 8 / 9)
    assert np.isnan(of(found, "other", "glue")["sd"])
    text = probekit.table("glue", make_rows([*rows, *runs("other", EVEN)])).to_markdown()
    assert (
        f"Standard deviation of the mean over seeds: random {100 * np.std(shifts, ddof=1) * 8 / 9:.1f} (3 seeds)"
        in text
    )


def of_paper():
    """The 40 encoders of Table 1 as rows."""
    paper = published("bowman-2018/1")
    paper = paper[(paper["split"] == "dev") & (paper["task"] != "average")]
    names = ["task", "metric", "value", "model", "variant"]
    return make_rows(
        [run(t, m, x / 100, model, variant=variant) for t, m, x, model, variant in paper[names].itertuples(index=False)]
    )


@pytest.mark.slow
def test_the_correlations_of_the_paper():
    """From the rounded numbers of Table 1; the paper does not say which encoders it used."""
    found = task_correlations(of_paper(), draws=99, resamples=0)
    paper = published("bowman-2018/2").replace("average", "glue")
    theirs = {frozenset(pair): r for *pair, r in paper[["model", "task", "value"]].itertuples(index=False)}
    off = [row.value - theirs[frozenset((row.task, row.other_task))] for row in found.itertuples()]
    assert len(off) == 36
    assert (found["n"] == 40).all()
    assert np.mean(np.abs(off)) < 0.08
    assert np.max(np.abs(off)) < 0.27  # CoLA and MNLI: .65 in the paper, .38 from its Table 1
    sts = found[(found["task"] == "cola") & (found["other_task"] == "stsb")]["value"].item()
    assert sts < 0  # the odd one out


@pytest.mark.slow
def test_correlations_are_pearson_s_over_the_means_of_seeds():
    draw = np.random.default_rng(1)
    values = {f"e{i}": dict(zip(MEASURED, draw.uniform(0.4, 0.6, 8), strict=True)) for i in range(9)}
    shift = [-0.1, 0.1]
    rows = [
        r for m, v in values.items() for s in (0, 1) for r in runs(m, {t: x + shift[s] for t, x in v.items()}, seed=s)
    ]
    found = task_correlations(make_rows([*rows, *runs(SINGLE_TASK, EVEN)]), draws=999, resamples=200)
    table = pd.DataFrame(values).T
    for row in found[found["other_task"] != "glue"].itertuples():
        assert row.value == pytest.approx(stats.pearsonr(table[row.task], table[row.other_task])[0])
        assert row.ci_low < row.value < row.ci_high
    again = task_correlations(glue_score(make_rows(rows)), draws=999, resamples=200)
    pd.testing.assert_frame_equal(found, again)
    with_mean = found[found["other_task"] == "glue"]
    assert with_mean["p"].isna().all()
    assert found.loc[found.index.difference(with_mean.index), "p"].notna().all()


def test_encoders_of_the_line_single_task_are_no_points_of_a_correlation():
    """They have one task; with them, no task would be common to all encoders, and the mean would be missing."""
    draw = np.random.default_rng(2)
    rows = [r for i in range(6) for r in runs(f"e{i}", dict(zip(MEASURED, draw.uniform(0.4, 0.6, 8), strict=True)))]
    expected = task_correlations(make_rows(rows), draws=99, resamples=100)
    assert "glue" in set(expected["other_task"])
    for model, task in (("M", "mrpc"), ("R", "rte")):
        rows += [*runs(model, {task: 0.5}), *pretraining(model, [task])]
    found = task_correlations(make_rows(rows), draws=99, resamples=100)
    shown = ["task", "other_task", "value", "ci_low", "ci_high", "p", "n"]
    pd.testing.assert_frame_equal(found[shown], expected[shown])


@pytest.mark.slow
def test_p_is_uniform_where_tasks_are_unrelated():
    """12 encoders, 150 simulations of 28 pairs: 4,200 p-values, clustered by simulation. Takes 3 minutes."""
    draw, shares = np.random.default_rng(0), []
    for _ in range(150):
        rows = [r for i in range(12) for r in runs(f"e{i}", dict(zip(MEASURED, draw.normal(0, 0.1, 8), strict=True)))]
        p = task_correlations(make_rows(rows), draws=99, resamples=0)["p"].dropna()
        shares.append(float((p <= 0.05).mean()))
    error = np.std(shares, ddof=1) / len(shares) ** 0.5
    assert abs(np.mean(shares) - 0.05) < 3 * error
    assert error < 0.005


def test_few_encoders_have_no_correlations():
    rows = make_rows([row for i in range(4) for row in runs(f"e{i}", EVEN)])
    with pytest.raises(UsageError, match="4 encoders with runs on the same 8 tasks; .* 5 encoders or more"):
        task_correlations(rows)


def test_mixtures_are_means_over_tasks_then_seeds():
    rows = pretraining("a", ["sst2", "rte"], values=[0.8, 0.6]) + pretraining(
        "a", ["sst2", "rte"], seed=1, values=[0.9, 0.7]
    )
    rows += pretraining("b", ["sst2", "rte"], sampling="power-0.75", scaling="proportional", values=[0.5, 0.5])
    rows += pretraining("c", ["sst2"])
    found = mixture_scores(make_rows(rows))
    assert list(zip(found["sampling"], found["scaling"], found["value"].round(9), found["seeds"], strict=True)) == [
        ("uniform", "uniform", 0.75, 2), ("power-0.75", "proportional", 0.5, 1),
    ]  # fmt: skip
    assert found["sd"].iloc[0] == pytest.approx(0.1 / 2**0.5)
    table = probekit.table("mixtures", make_rows(rows), published="bowman-2018/5")
    assert "| sst2, rte | uniform | 75.0 ± 7.1 |  |" in table.to_markdown()
    assert "| *GLUE, published* | *uniform* | *69.1* | *69.7* | *69.8* |" in table.to_markdown()
    message = (
        r"no mixtures of objectives in pretraining; they contain pretraining on one objective \(sst2\) and runs on "
        r"tasks \(rte\)\. A mixture is trained by probekit pretrain-encoder --on TASK,TASK"
    )
    with pytest.raises(UsageError, match=message):
        mixture_scores(make_rows([*pretraining("c", ["sst2"]), *runs("c", {"rte": 0.5})]))


def test_mixtures_of_different_models_are_not_pooled():
    on = ["sst2", "rte"]
    rows = pretraining("a", on, values=[0.8, 0.6]) + pretraining("a", on[::-1], seed=1, values=[0.7, 0.9])
    other = pretraining("b", on, scaling="proportional", values=[0.1, 0.1])
    found = mixture_scores(make_rows([*rows, *other]))
    assert list(zip(found["model"], found["task"], found["value"].round(9), found["seeds"], strict=True)) == [
        ("a", "sst2+rte", 0.75, 2), ("b", "sst2+rte", 0.1, 1),
    ]  # fmt: skip
    lines = probekit.table("mixtures", make_rows([*rows, *other])).to_markdown()
    assert "| sst2, rte | uniform | 75.0 ± 7.1 | 10.0 |" in lines
    same = pretraining("b", on, seed=2, values=[0.1, 0.1])
    lines = probekit.table("mixtures", make_rows([*rows, *same])).to_markdown()
    assert "| sst2, rte (a) | uniform | 75.0 ± 7.1 |\n| sst2, rte (b) | uniform | 10.0 |" in lines
    longer = [row | {"step": 20} for row in pretraining("a", on, values=[0.9, 0.9])]
    with pytest.raises(
        UsageError, match=r"several runs of a on sst2\+rte have the same sampling, loss scaling and seed"
    ):
        mixture_scores(make_rows([*rows, *longer]))
    pd.testing.assert_frame_equal(mixture_scores(make_rows(rows * 2)), mixture_scores(make_rows(rows)))


def test_a_mixture_with_a_perplexity_has_no_mean():
    rows = pretraining("a", ["sst2", "language-model:books.txt"])
    rows[1]["metric"] = "perplexity"
    with pytest.raises(UsageError, match="has an objective whose metric is a perplexity, which falls"):
        mixture_scores(make_rows(rows))


def test_a_diagnostic_set_by_category():
    of = {"analysis": "evaluate", "trained_on": "mnli", "split": "test", "headline": True}
    values = (("ax-b", 0.1), ("ax-b:logic", 0.2))
    rows = [run(t, "matthews", x + 0.1 * s, "random", seed=s, **of) for t, x in values for s in (0, 1)]
    found = diagnostic_scores(make_rows([*rows, run("mnli", "accuracy", 0.5, "random", headline=True)]))
    assert list(zip(found["task"], found["value"].round(9), found["seeds"], strict=True)) == [
        ("ax-b", 0.15, 2), ("ax-b:logic", 0.25, 2),
    ]  # fmt: skip
    text = probekit.table("diagnostic", make_rows(rows), published="bowman-2018/6").to_markdown()
    assert "| model (× 100) | all | logic |" in text
    assert "| random | 15.0 [13.0, 17.0] | 25.0 [23.0, 27.0] |" in text
    assert "| *random, published* |  | 12.5 |" in text
    assert "not comparable with R3" in text
    with pytest.raises(UsageError, match="no results on a diagnostic set"):
        diagnostic_scores(make_rows([run("mnli", "accuracy", 0.5, "random", headline=True)]))


@pytest.mark.slow
def test_tables_show_the_paper_s_numbers_beside_and_read_their_rows_again(tmp_path):
    rows = of_paper()
    one = probekit.table("glue", rows, published="bowman-2018/1", rows_out=tmp_path / "one.parquet").to_markdown()
    assert "| *random, published* | *Baselines* | 16.9 | 84.3 |" in one
    assert "| 56.3 | 68.2 |" in one
    two = rows[rows["task"].isin(["cola", "sst2"])]
    part = probekit.table("glue", two, published="bowman-2018/1").to_markdown()
    assert "| *random, published* | *Baselines* | 16.9 | 84.3 | 50.6 |" in part
    assert probekit.table("glue", tmp_path / "one.parquet", published="bowman-2018/1").to_markdown() == one
    two = probekit.table("task-correlations", rows, published="bowman-2018/2", rows_out=tmp_path / "two.parquet")
    text = two.to_markdown()
    assert "Pearson's r over 40 encoders" in text
    assert "| *SST-2, published* | *+0.62* |" in text
    assert "†" in text
    again = probekit.table("task-correlations", tmp_path / "two.parquet", published="bowman-2018/2")
    assert again.to_markdown() == text
