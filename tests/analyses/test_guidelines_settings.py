"""Several settings: names, findings against closed form, recommendation, sizes, refusals, and false recommendations."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from probekit.activations.writing.request import data_digest
from probekit.adaptation.options import Hyperparameters
from probekit.analyses.guidelines import guidelines
from probekit.analyses.guidelines.measure import difference
from probekit.analyses.guidelines.sentences import overview
from probekit.analyses.guidelines.several_settings import findings, recommend
from probekit.errors import UsageError
from probekit.recipe import Recipe
from probekit.rows import make_rows, write_rows
from probekit.statistics.multiplicity import holm
from probekit.statistics.predictions import Predictions
from probekit.tables import table as table_of

LABELS = ("no", "yes")


def table(predicted):
    predicted = np.atleast_2d(predicted)
    ids = np.arange(predicted.shape[1]).astype(str)
    fits = pd.DataFrame({"fit": range(len(predicted))})
    return Predictions(fits, ids, np.ones(len(ids), int), predicted, ("accuracy",), label_names=LABELS)


@pytest.fixture
def run(tmp_path):
    """Leaves the folder of a finished run with some options, and returns it."""

    def make(predicted, *, seed=0, size=100, trained=1000, task="cola", variant="", folder=None, failed="", **options):
        how = Hyperparameters(seed=seed, **options)
        said = table(predicted)
        count = len(list(tmp_path.glob("*")))
        folder = tmp_path / (folder or f"run-{count}")
        card = {
            "format": "probekit-run/1", "run": folder.name, "model": "tiny", "task": task, "variant": variant,
            "complete": not failed, "regime": str(how.regime), "splits": ["train", "dev"],
            "examples": [size, len(said.ids)], "head": {"head": "linear"}, "command": "probekit train …",
            "target": {"kind": "classification", "label_names": LABELS, "metrics": ["accuracy"], "paired": False},
            "encoder": {"weights_digest": "w", "tokenizer_digest": "t", "random_weights": None},
            "parameters": {"trained": trained, "all": 1000},
            "cost": {"cpu_seconds": 10.0 + seed, "peak_memory": 2 << 20},
            "identity": json.loads(json.dumps(how.numbers())) | {"data": [f"{task} {size}", task], "splits": ["train"]},
        }  # fmt: skip
        if failed:
            card["failed"] = failed
        if str(how.regime) == "feature-extraction":
            card["identity"]["data"] = [data_digest(one, LABELS) for one in card["identity"]["data"]]
        said.write(folder / "dev.examples.parquet")
        (folder / "probekit.json").write_text(json.dumps(card))
        return folder

    return make


def right(n, share, seed=0):
    """1 for a share of n examples, in an order of chance."""
    return np.random.default_rng(seed).permutation((np.arange(n) < round(share * n)).astype(int))


def less(predicted, count):
    """The same, but this many fewer are right."""
    found = predicted.copy()
    found[np.flatnonzero(found)[:count]] = 0
    return found


def several(run, shares, n=2000, **more):
    """Runs of full fine-tuning, LoRA and BitFit with two seeds; how many examples fewer than full each has right."""
    ways = ({}, {"method": "lora", "trained": 50}, {"method": "bitfit", "trained": 10})
    sure = right(n, 0.8)
    return [
        run(less(sure, count), seed=seed, **{**way, **more})
        for way, count in zip(ways, shares, strict=True)
        for seed in (0, 1)
    ]


def test_the_cheapest_that_is_not_worse_is_recommended(run):
    rows = guidelines(*several(run, (0, 2, 200)), resamples=1000).rows
    found = rows[rows["finding"].notna()].set_index("variant")
    assert found["finding"].to_dict() == {"lora": "not worse", "bitfit": "worse"}
    assert found["value"].to_dict() == pytest.approx({"lora": -0.001, "bitfit": -0.1})
    assert set(found["reference"]) == {"fine-tuning"}
    least = np.fmin(found["p"], found["p_worse"]).to_numpy()
    assert found["p_adjusted"].tolist() == pytest.approx(holm(least).tolist())
    (best,) = rows[rows["prefer"].notna()].to_dict("records")
    assert (best["prefer"], best["confidence"], best["variant"]) == ("lora", "high", "fine-tuning")
    assert "lora is not worse than fine-tuning by 0.01 or more in accuracy" in best["why"]
    assert "has 5 % of its trained weights" in best["why"]
    costs = rows[rows["variant"] == "lora"].set_index("metric")["value"]
    assert costs["trained-parameters"] == 50
    assert costs["cpu-seconds"] == 10.5  # the median of 10 and 11
    assert costs["peak-memory"] == 2 << 20
    assert overview(rows) == [f"cola, tiny, 100 training examples: use lora (high). {best['why']}"]


def test_the_mean_and_its_interval_over_examples_and_seeds(run):
    """Examples: shares right in a binomial; seeds: Student's t with one degree of freedom."""
    n = 1000
    several = [run(right(n, share, 1), seed=s, method="lora", trained=5) for s, share in enumerate((0.80, 0.81, 0.82))]
    rows = guidelines(*several, run(right(n, 0.8)), resamples=5000).rows
    row = rows[(rows["variant"] == "lora") & (rows["metric"] == "accuracy")].iloc[0]
    assert row["value"] == pytest.approx(0.81)
    assert row["sd"] == pytest.approx(0.01)
    alone = rows[(rows["variant"] == "fine-tuning") & (rows["metric"] == "accuracy")].iloc[0]
    half = stats.norm.ppf(0.975) * np.sqrt(0.16 / n)
    assert (alone["ci_high"] - alone["ci_low"]) / 2 == pytest.approx(half, rel=0.1)
    assert row["ci_high"] - row["ci_low"] > 2 * stats.t.ppf(0.975, 2) * 0.01 / np.sqrt(3)


def test_names_tell_settings_apart(run):
    said = right(500, 0.8)
    ways = [
        {}, {"learning_rate": 1e-4}, {"method": "lora"}, {"method": "lora", "rank": 4},
        {"penalty": "l2-sp", "penalty_strength": 0.1}, {"order": "head,blocks:top-down"}, {"variant": "mine"},
        {"regime": "feature-extraction"},
    ]  # fmt: skip
    rows = guidelines(*(run(said, **way) for way in ways), resamples=1000).rows
    assert list(dict.fromkeys(rows["variant"])) == [
        "fine-tuning, learning rate 5e-05", "fine-tuning, learning rate 0.0001", "lora, rank 8", "lora, rank 4",
        "penalty l2-sp", "order head,blocks:top-down", "mine", "feature extraction",
    ]  # fmt: skip


def test_a_teacher_for_each_seed_is_one_setting_and_two_for_a_seed_are_two(run):
    said = right(500, 0.8)
    full = [run(said, seed=seed) for seed in (0, 1)]
    pairs = [run(said, seed=seed, variant="small", teacher=str(full[seed])) for seed in (0, 1)]
    rows = guidelines(*full, *pairs, resamples=1000).rows
    assert list(dict.fromkeys(rows["variant"])) == ["fine-tuning", "small"]
    assert rows.loc[(rows["variant"] == "small") & (rows["metric"] == "accuracy"), "runs"].tolist() == [2]
    crossed = [run(said, seed=seed, variant="small", teacher=str(full[1 - seed])) for seed in (0, 1)]
    rows = guidelines(*full, *pairs, *crossed, resamples=1000).rows
    assert set(rows["variant"]) == {"fine-tuning", *(f"small, teacher {one.name}" for one in full)}


def test_one_seed_of_each_cannot_tell(run):
    sure = right(2000, 0.8)
    runs = [run(sure), run(sure, method="lora", trained=50), run(less(sure, 500), method="bitfit", trained=10)]
    rows = guidelines(*runs, resamples=1000).rows
    assert set(rows["finding"].dropna()) == {"cannot tell"}
    (best,) = rows[rows["prefer"].notna()].to_dict("records")
    assert best["prefer"] == "cannot tell"
    assert best["caveat"].startswith("One seed of each setting: the results hold only for these trained models.")


def test_what_decides_is_the_cost(run):
    assert recommend({"a": 3, "b": 2, "c": 1}, {"b": "better", "c": "worse"}, "a") == "b"
    assert recommend({"a": 3, "b": 2, "c": 1}, {"b": "worse", "c": "worse"}, "a") == "a"
    assert recommend({"a": 3, "b": 2, "c": 1}, {"b": "worse", "c": "cannot tell"}, "a") == "cannot tell"
    assert recommend({"a": 3, "b": 3}, {"b": "not worse"}, "a") == "cannot tell"  # not cheaper
    assert recommend({"a": 3}, {"b": "not worse"}, "a") == "cannot tell"  # its cost is not known
    with pytest.raises(UsageError, match="cost is 'money'"):
        guidelines(*several(run, (0, 0, 0)), cost="money")


def test_the_reference_is_chosen(run):
    runs = several(run, (0, 2, 200))
    rows = guidelines(*runs, reference="bitfit", resamples=1000).rows
    assert set(rows["reference"]) == {"bitfit"}
    assert set(rows["finding"].dropna()) == {"better"}
    with pytest.raises(UsageError, match="there is no setting 'lorra'; did you mean lora"):
        guidelines(*runs, reference="lorra", resamples=1000)
    few = guidelines(*runs[2:], resamples=1000).rows  # no full fine-tuning: the one with the most trained weights
    assert set(few["reference"]) == {"lora"}


@pytest.mark.slow
def test_sizes_say_from_which_on(run):
    runs = [
        one
        for size, counts in ((100, (0, 200, 300)), (1000, (0, 2, 300)), (5000, (0, 2, 2)))
        for one in several(run, counts, size=size)
    ]
    rows = guidelines(*runs, resamples=1000).rows
    said = overview(rows)
    assert [line.split(": ")[0] for line in said[:3]] == [
        f"cola, tiny, {size} training examples" for size in ("100", "1,000", "5,000")
    ]
    on = "examples on (of 100, 1,000, 5,000)."
    assert said[3:] == [
        f"cola, tiny: lora is not worse than fine-tuning by 0.01 or more from 1,000 {on}",
        f"cola, tiny: bitfit is not worse than fine-tuning by 0.01 or more from 5,000 {on}",
    ]
    assert rows.loc[rows["prefer"].notna(), "prefer"].tolist() == ["fine-tuning", "lora", "bitfit"]


def test_one_setting_at_several_sizes_is_a_learning_curve(run):
    given = [run(right(200, share), seed=s, size=size) for size, share in ((100, 0.7), (400, 0.8)) for s in (0, 1)]
    rows = guidelines(*given, resamples=1000).rows
    assert rows[rows["metric"] == "accuracy"].set_index("examples")["value"].to_dict() == {100: 0.7, 400: 0.8}
    assert [said.partition(". ")[0] for said in overview(rows)] == [
        f"cola, tiny, {size} training examples: cannot tell" for size in (100, 400)
    ]
    assert "| 400 | fine-tuning | 0.800 [" in table_of("adaptation", rows).text


def test_a_folder_of_seeds_counts_as_its_runs_and_failures_are_counted(run, tmp_path):
    sure = right(2000, 0.8)
    for seed in (0, 1):
        run(sure, seed=seed, method="lora", trained=50, folder=f"many/seed-{seed}")
    run(sure, seed=2, method="lora", trained=50, folder="many/seed-2", failed="the loss is NaN")
    asked = {"recipe": Recipe("train", {"seeds": 3}, {"seed": 0}).to_json()}
    write_rows(make_rows([]), tmp_path / "many" / "rows.parquet", asked)
    full = [run(sure, seed=0), run(sure, seed=1)]
    constant = {"analysis": "train", "task": "cola", "split": "dev", "model": "tiny", "representation": "tokens",
                "estimator": "majority", "target": "gold", "metric": "accuracy", "value": 0.8, "n": 2000}  # fmt: skip
    write_rows(make_rows([constant]), full[0] / "rows.parquet", {})
    rows = guidelines(*full, tmp_path / "many", resamples=1000).rows
    failed = rows[rows["metric"] == "failed-runs"].set_index("variant")
    assert failed["value"].to_dict() == pytest.approx({"fine-tuning": 1 / 2, "lora": 1 / 3})
    assert rows["finding"].dropna().tolist() == ["cannot tell"]  # the mean leaves out the run that diverged
    assert rows["caveat"].dropna().str.contains("Runs of lora diverged").any()


def test_the_table_shows_saved_rows(run, tmp_path):
    result = guidelines(*several(run, (0, 2, 200)), resamples=1000)
    result.save(tmp_path / "rows.parquet")
    made = table_of("adaptation", tmp_path / "rows.parquet")
    lines = made.text.splitlines()
    assert lines[0] == "**cola dev, tiny**"
    lines = lines[2:]
    assert [line.split(" | ")[:2] for line in lines[2:5]] == [
        ["| 100", name] for name in ("fine-tuning", "lora", "bitfit")
    ]
    assert "-0.001 [" in lines[3]
    assert "| not worse | 50 | 10.5 | 2 |" in lines[3]
    assert len(result.verdict) == 1
    with pytest.raises(UsageError, match="compare no settings"):
        table_of("adaptation", make_rows(result.rows.drop(columns="reference")))


def false_recommendations(*, worlds, seeds, n, margin, settings=6, points=0.015, naive=False, seed=0):
    """Share of worlds in which one of the settings, all truly worse by the margin, is recommended."""
    slope, spread = 0.2335, 1.0  # of the share that is right, by the threshold
    base = stats.norm.ppf(0.8)
    low = stats.norm.ppf(0.8 - margin)
    wrong = 0
    for world in range(worlds):
        rng = np.random.default_rng([seed, world])
        hard = rng.normal(size=n)
        scale = np.sqrt(1 + 0.25 + (points / slope) ** 2) * spread

        def fits(threshold, rng=rng, hard=hard, scale=scale):
            luck = points / slope * rng.normal(size=(seeds, 1))
            return (scale * threshold + hard + luck + 0.5 * rng.normal(size=(seeds, n)) > 0).astype(int)

        reference = fits(base)
        others = [fits(low) for _ in range(settings)]
        if naive:  # the best of them on these examples, as if it had been chosen before
            others = [max(others, key=np.mean)]
        first = np.arange(2 * seeds) < seeds
        found = findings(
            [difference(table(np.r_[one, reference]), first, "accuracy", resamples=1000, seed=world) for one in others],
            margin,
        )
        wrong += any(one.found in ("not worse", "better") for one in found)
    return wrong / worlds


@pytest.mark.slow
def test_a_naive_choice_of_the_best_is_wrong_more_often():
    """The control of the simulation: choosing first and testing then, without a correction, is biased."""
    how = {"worlds": 200, "seeds": 3, "n": 300, "margin": 0.03}
    assert false_recommendations(**how) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 200)
    assert false_recommendations(**how, naive=True) > false_recommendations(**how)


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "n"), [(2, 500), (3, 500), (5, 500), (3, 1500)])
def test_false_recommendations(seeds, n):
    """All six settings are worse by exactly the margin: at most .05 of the worlds recommend one of them."""
    worlds = 400
    rate = false_recommendations(worlds=worlds, seeds=seeds, n=n, margin=0.02)
    print(f"{seeds} seeds, {n} examples: {rate:.3f} ± {np.sqrt(rate * (1 - rate) / worlds):.3f}")
    assert rate <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / worlds)


def test_failed_runs_are_not_recommended(run):
    """Every run predicts one class: equal to the reference on each example, and no better than the constant."""
    same = np.ones(200, dtype=int)
    runs = [run(same, seed=s, **more) for more in ({}, {"method": "bitfit", "trained": 10}) for s in (0, 1)]
    for folder in runs:
        about = {"analysis": "train", "task": "cola", "split": "dev", "metric": "accuracy", "value": 1.0, "n": 200}
        about |= {"model": "tiny", "representation": "tokens", "target": "gold", "layer": None}
        write_rows(make_rows([about | {"estimator": "majority", "kept": True}]), folder / "rows.parquet", {})
    rows = guidelines(*runs, resamples=1000).rows
    assert rows["finding"].dropna().tolist() == ["cannot tell"]
    (row,) = rows[rows["prefer"].notna()].to_dict("records")
    assert row["prefer"] == "cannot tell"
    assert "All runs of fine-tuning, bitfit failed" in row["caveat"]


def test_several_tasks_are_a_setting(run):
    runs = [run(right(200, 0.8), also="mrpc"), run(right(200, 0.8)), run(right(200, 0.8), method="bitfit", trained=10)]
    assert set(guidelines(*runs, resamples=1000).rows["reference"]) == {"fine-tuning"}
