"""Metrics by domain beside distances: means, differences, correlations and tables, from rows that are made up."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from probekit.analyses.regimes import by_seeds, regime_study, run_numbers
from probekit.analyses.transfer import domain_study as study_of_domains
from probekit.errors import UsageError
from probekit.rows import fit_labels, make_rows
from probekit.rows.upgrade import upgrade
from probekit.tables import Table, published, regimes


def domain_table(rows, beside=None, **how):
    found = study_of_domains(rows, **how)
    return Table(regimes.domain_table(found, beside), found).to_markdown(), found


def regime_table(rows, beside=None):
    found = regime_study(rows)
    return Table(regimes.regime_table(found, beside), found).to_markdown(), found


DOMAINS = ("telephone", "government", "travel", "fiction", "slate")
FAR = dict(zip(DOMAINS, (0.30, 0.25, 0.2, 0.1, 0.15), strict=True))
REGIMES = {"fine-tune linear": 0.02, "feature-extraction esim": 0.0}


def accuracy(domain, estimator, seed, on=None):
    value = 0.6 + 0.5 * FAR[domain] ** 2 + REGIMES[estimator] * (1 + FAR[domain]) + 0.01 * seed
    return value - (0 if on in (None, domain) else 0.1 * abs(FAR[domain] - FAR[on]) + 0.002 * DOMAINS.index(on))


def domain_study(rows, **how):
    """The rows, by how their estimators are shown."""
    found = study_of_domains(rows, **how)
    return found.assign(estimator=fit_labels(found))


def run_row(domain, estimator, seed, on=None, **more):
    regime, head = estimator.split()
    value = accuracy(domain, estimator, seed, on)
    return {
        "task": f"mnli:{on or domain}", "split": "dev", "model": "m", "checkpoint": f"mnli-{domain}.{regime}.{seed}",
        "step": 9, "layer": None, "representation": "tokens", "estimator": "", "target": "gold",
        "regime": regime, "head": head, "variant": "", "headline": more.get("kept", True) and "metric" not in more,
        "metric": "accuracy", "value": value, "ci_low": value - 0.02, "ci_high": value + 0.02, "seed": seed, "n": 100,
        "kept": True, "trained_on": f"mnli:{domain}",
    } | more  # fmt: skip


def distance(a, b, value):
    return {
        "task": "domains", "split": "", "model": "", "layer": None, "representation": "terms", "estimator": "plug-in",
        "target": "gold", "metric": "js-divergence", "value": value, "ci_low": value - 0.01, "ci_high": value + 0.01,
        "n": 10, "domain_a": a, "domain_b": b,
    }  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    """Two seeds of each regime on each domain, evaluated on all; earlier epochs and losses between them."""
    records = []
    for domain in DOMAINS:
        for estimator in REGIMES:
            for seed in (0, 1):
                records.append(
                    run_row(domain, estimator, seed, kept=False, step=3, value=0.1, ci_low=None, ci_high=None)
                )
                records.append(run_row(domain, estimator, seed))
                records.append(
                    run_row(domain, estimator, seed, metric="log-loss", value=1.0, ci_low=None, ci_high=None)
                )
                records += [run_row(domain, estimator, seed, on=other) for other in DOMAINS if other != domain]
        records.append(distance("wiki", domain, FAR[domain]))
        records.append(distance(domain, "novels", 0.5 - FAR[domain]))
    for i, a in enumerate(DOMAINS):
        records += [distance(a, b, abs(FAR[a] - FAR[b])) for b in DOMAINS[i + 1 :]]
    return make_rows(records)


def test_what_of_runs_counts(rows):
    found = run_numbers(rows)
    assert len(found) == 5 * 2 * 2 * 5
    assert set(found["metric"]) == {"accuracy"}
    home = pd.DataFrame(by_seeds(found[found["task"] == found["trained_on"]]))
    assert len(home) == 10
    assert set(home["seeds"]) == {2}
    one = home[(home["task"] == "mnli:travel") & (home["regime"] == "fine-tune")].iloc[0]
    values = [accuracy("travel", "fine-tune linear", seed) for seed in (0, 1)]
    assert one["value"] == pytest.approx(np.mean(values))
    assert one["sd"] == pytest.approx(np.std(values, ddof=1))


def test_points_and_their_correlations(rows):
    found = domain_study(rows, resamples=200)
    points = found[(found["corpus"] == "wiki") & found["x"].notna()].set_index(["metric", "estimator", "domain"])
    assert len(points) == 15
    for domain in DOMAINS:
        gain = points.loc[("difference(accuracy)", "fine-tune - feature-extraction", domain)]
        assert gain["value"] == pytest.approx(0.02 * (1 + FAR[domain]))
        assert (gain["x"], gain["x_metric"]) == (FAR[domain], "js-divergence")
    told = found[(found["corpus"] == "wiki") & found["of_metric"].notna()]
    assert len(told) == 9
    r = told[(told["of_metric"] == "accuracy") & (told["estimator"] == "feature-extraction esim")].set_index("metric")
    x = [FAR[d] for d in DOMAINS]
    y = [np.mean([accuracy(d, "feature-extraction esim", s) for s in (0, 1)]) for d in DOMAINS]
    assert r.loc["pearson", "value"] == pytest.approx(stats.pearsonr(x, y).statistic)
    assert r.loc["spearman", "value"] == pytest.approx(1)
    assert r.loc["spearman", "p"] == pytest.approx(2 / 120)  # of all orders only this and its reverse
    assert r["exact"].all()
    assert r.loc["kendall", "caution"].startswith("5 points carry little")
    assert found[(found["corpus"] == "novels") & (found["metric"] == "spearman")]["value"].max() == pytest.approx(-1)


def test_what_transfers(rows):
    found = domain_study(rows, resamples=200)
    cells = found[(found["corpus"] == "") & (found["metric"] == "accuracy")]
    assert len(cells) == 2 * 25
    lost = found[found["metric"] == "lost(accuracy)"].set_index(["estimator", "trained_on", "domain"])
    assert len(lost) == 2 * 20
    one = lost.loc[("fine-tune linear", "travel", "slate")]
    here, there = (np.mean([accuracy(*way, s, on="slate") for s in (0, 1)]) for way in (
        ("slate", "fine-tune linear"), ("travel", "fine-tune linear")
    ))  # fmt: skip
    assert one["value"] == pytest.approx(here - there)
    assert one["x"] == pytest.approx(abs(FAR["travel"] - FAR["slate"]))
    told = found[(found["of_metric"] == "lost(accuracy)") & (found["estimator"] == "fine-tune linear")]
    assert told["adjust"].value_counts().to_dict() == {"in-domain": 3, "effects": 3}
    told = told[told["adjust"] == "in-domain"]
    r = told.set_index("metric").loc["pearson"]
    own = lost.loc["fine-tune linear"]
    assert r["value"] == pytest.approx(stats.pearsonr(own["x"], own["value"]).statistic)
    assert r["n"] == 20
    assert r["p"] >= 1 / 120
    assert "20 points from 5 domains are not 20 independent ones" in r["caution"]


def test_tables(rows):
    paired = make_rows([
        run_row("travel", "fine-tune linear", 0) | {
            "metric": "difference(accuracy)", "estimator": "fine-tune - feature-extraction", "seed": None,
            "value": 0.02 * 1.2, "ci_low": -0.01, "ci_high": 0.05, "kept": None, "trained_on": None, "headline": None,
            "regime": "", "head": "",
        }
    ])  # fmt: skip
    text, found = domain_table(pd.concat([rows, paired], ignore_index=True), "peters-2019/6", resamples=200)
    lines = text.splitlines()
    assert lines[0] == "| mnli, m | " + " | ".join(DOMAINS) + " |"  # the paper's order
    assert [line.split(" | ")[0].strip("| *") for line in lines[2:10]] == [
        "feature extraction, esim", "fine-tuning, linear", "Δ fine-tuning", "divergence from novels",
        "divergence from wiki", "published (BERT-base): feature extraction", "published (BERT-base): Δ fine-tuning",
        "published (BERT-base): divergence from pretraining text, no unit named",
    ]  # fmt: skip
    assert "+2.4 [-1.0, +5.0]" in lines[4]
    assert lines[9].endswith("| 0.21 | 0.18 | 0.14 | 0.09 | 0.09 |")
    assert "Means over 2 seeds" in text
    assert "carry little" in text
    assert "trained on ↓" in text
    assert len(found)
    text, found = regime_table(rows, "peters-2019/6")
    assert text.splitlines()[0].startswith("| model | × 100 | mnli:telephone (accuracy, dev) |")


def test_models_stay_apart(rows):
    other = rows[rows["task"].str.startswith("mnli")].assign(model="other")
    other["value"] -= 0.1
    both = make_rows(pd.concat([rows, other], ignore_index=True))
    found = domain_study(both, resamples=100)
    assert set(found["model"]) == {"m", "other"}
    one, two = (
        found[(found["model"] == name) & (found["corpus"] == "wiki") & found["x"].notna()] for name in ("m", "other")
    )
    plain = ~one["metric"].str.startswith("difference").to_numpy()
    assert two["value"].to_numpy()[plain] == pytest.approx(one["value"].to_numpy()[plain] - 0.1)
    text, table = regime_table(both)
    lines = [line.split(" | ")[0].strip("| ") for line in text.splitlines()[2:8]]
    assert lines == ["m"] * 3 + ["other"] * 3
    assert set(table["seeds"]) == {2}


def test_domains_that_were_not_trained_are_no_corpora(rows):
    less = rows[~rows["task"].isin(["mnli:slate"]) & ~(rows["trained_on"] == "mnli:slate")]
    told = less.assign(
        task_a=less["domain_a"].map(lambda name: "mnli" if name in DOMAINS else ""),
        task_b=less["domain_b"].map(lambda name: "mnli" if name in DOMAINS else ""),
    )
    found = domain_study(make_rows(told), resamples=100)
    assert set(found["corpus"].dropna()) == {"wiki", "novels", ""}


def test_tasks_stay_apart(rows):
    mine = rows[rows["task"].str.startswith("mnli")]
    names = {c: mine[c].str.replace("mnli", "other") for c in ("task", "trained_on", "checkpoint")}
    both = make_rows(pd.concat([rows, mine.assign(**names, value=1 - mine["value"])], ignore_index=True))
    found = domain_study(both, resamples=100)
    told = found[(found["corpus"] == "wiki") & (found["metric"] == "pearson")].set_index(
        ["task", "of_metric", "estimator"]
    )
    assert len(told) == 6
    assert (told["n"] == 5).all()
    plain = told["value"].xs("accuracy", level="of_metric")
    assert plain["other"].to_numpy() == pytest.approx(-plain["mnli"].to_numpy())


def test_variants_stay_apart(rows):
    mine = rows[rows["task"].str.startswith("mnli")]
    both = make_rows(pd.concat([rows, mine.assign(variant="wide", value=mine["value"] - 0.1)], ignore_index=True))
    text, found = domain_table(both, resamples=100)
    found = found.assign(estimator=fit_labels(found))
    assert "fine-tune linear, wide" in set(found["estimator"])
    labels = [line.split(" | ")[0].strip("| ") for line in text.splitlines()[2:8]]
    assert labels[:2] == ["feature extraction, esim", "feature extraction, esim, wide"]
    assert labels[4:] == ["Δ fine-tuning", "Δ fine-tuning, wide"]
    assert (
        not found[found["x"].notna() & (found["corpus"] == "wiki")].duplicated(["domain", "metric", "estimator"]).any()
    )


def test_one_regime_and_one_task(rows):
    """Tables 3 to 5: variants of one regime, of which there may be a single line each."""
    alone = rows[(rows["task"] == "mnli:fiction") & rows["checkpoint"].isin(["mnli-fiction.fine-tune.0"])]
    wide = alone.assign(variant="wide", value=alone["value"] - 0.1)
    text, found = regime_table(make_rows(pd.concat([alone, wide], ignore_index=True)))
    lines = text.splitlines()
    value = accuracy("fiction", "fine-tune linear", 0)
    assert [line.split(" [")[0] for line in lines[2:4]] == [
        f"| m | fine-tuning, linear | {100 * value:.1f}",
        f"| m, wide | fine-tuning, linear | {100 * value - 10:.1f}",
    ]
    assert "Δ" not in text
    assert set(found["seeds"]) == {1}


def test_tasks_with_heads_of_their_own_share_a_line(rows):
    mine = rows[rows["task"].isin(["mnli:fiction", "mnli:slate"]) & (rows["trained_on"] == rows["task"])]
    other = mine["task"].eq("mnli:slate") & mine["regime"].eq("feature-extraction")
    mine = mine.assign(head=mine["head"].mask(other, "bcn"))
    text, _ = regime_table(make_rows(mine))
    labels = [line.split(" | ")[1] for line in text.splitlines()[2:5]]
    assert labels == ["feature extraction, esim, bcn", "fine-tuning, linear", "Δ fine-tuning"]
    assert all(line.count("[") == 2 for line in text.splitlines()[2:4])  # a number in each cell


@pytest.mark.parametrize(
    ("checkpoint", "learned", "variant"),
    [
        ("mrpc.fine-tune.0", "mrpc", ""),
        ("mrpc.joint.fine-tune.0", "mrpc", "joint"),
        ("mrpc.b.2.fine-tune.0", "mrpc", ""),  # several models
        ("mrpc.b.2.joint.fine-tune.0", "mrpc", "joint"),
        ("mnli-fiction.fine-tune.0", "mnli:fiction", ""),
        ("my.task.joint.fine-tune.0", "folder/my.task.toml", "joint"),
        ("mrpc2.joint.fine-tune.0", "mrpc", "joint"),  # a file by another name than its task
        ("a-folder-of-mine", "mrpc", ""),
    ],
)
def test_the_variant_of_old_rows_is_what_a_run_s_name_says_beside_task_and_model(checkpoint, learned, variant):
    old = {
        "task": "mnli:travel", "split": "dev", "model": "b.2", "checkpoint": checkpoint, "trained_on": learned,
        "estimator": "fine-tune linear", "target": "gold", "metric": "accuracy", "value": 0.5, "kept": True,
        "representation": "tokens", "n": 9,
    }  # fmt: skip
    (row,) = upgrade(pd.DataFrame([old])).to_dict("records")
    assert (row["variant"], row["regime"], row["head"], row["headline"]) == (variant, "fine-tune", "linear", True)


def test_the_number_of_a_run_does_not_depend_on_the_order_of_rows():
    """Two models in runs of one name; accuracy, which is the main metric, stood in no fixed order beside f1."""
    shared = {"split": "dev", "checkpoint": "mrpc.0", "layer": None, "representation": "tokens", "estimator": "",
              "regime": "fine-tune", "head": "linear", "target": "gold", "n": 9, "seed": 0, "kept": True}  # fmt: skip
    numbers = {"a": {"accuracy": 0.81, "f1": 0.88}, "b": {"f1": 0.71, "accuracy": 0.81}}
    rows = make_rows(
        shared | {"task": "mrpc", "trained_on": "mrpc", "model": model, "metric": name, "value": value,
                  "headline": name == "accuracy"}
        for model, told in numbers.items()
        for name, value in told.items()
    )  # fmt: skip
    for some in (rows, rows.iloc[::-1], rows.sort_values("metric", ascending=False)):
        found = run_numbers(some)
        assert set(found["metric"]) == {"accuracy"}
        assert dict(zip(found["model"], found["value"], strict=True)) == {"a": 0.81, "b": 0.81}
    old = rows.drop(columns=["analysis", "headline", "regime", "head", "variant"]).assign(estimator="fine-tune linear")
    old = upgrade(pd.concat([old[old["model"] == "a"], old[old["model"] == "b"].iloc[::-1]]).reset_index(drop=True))
    assert set(run_numbers(old)["metric"]) == {"accuracy"}


def test_published_numbers_are_the_paper_s_and_none_is_worked_out(rows):
    """Table 2 has no differences in the transcription: 84.8 - 78.1 is not printed as if the paper had it."""
    mine = rows[(rows["task"] == "mnli:slate") & (rows["trained_on"] == "mnli:slate")].assign(task="mrpc")
    text, _ = regime_table(make_rows(mine.assign(trained_on="mrpc")), "peters-2019/2")
    told = [line.split(" | ")[1:] for line in text.splitlines() if "BERT-base, published" in line]
    assert told == [["*feature extraction*", "78.1 |"], ["*fine-tuning*", "84.8 |"]]
    assert "Table 2 (test)" in text


@pytest.mark.parametrize(
    ("table", "task", "wanted"),
    [
        (3, "sick-e", {"ELMo, bi-attention": "83.8", "ELMo, no bi-attention": "70.9"}),
        (4, "sick-r", {"BERT-base, joint": "86.4", "BERT-base, separate": "86.8"}),
        (
            5,
            "conll2003",
            {
                "ELMo, BiLSTM + CRF": "95.5", "ELMo, CRF": "91.9 95.1", "ELMo, CRF + gradual unfreezing": "95.5",
                "ELMo, BiLSTM + CRF + gradual unfreezing": "95.2",
            },
        ),
    ],
)  # fmt: skip
def test_variants_of_the_paper_stand_beside_ours(rows, table, task, wanted):
    mine = rows[(rows["task"] == "mnli:slate") & (rows["trained_on"] == "mnli:slate")].assign(task=task)
    text, _ = regime_table(make_rows(mine.assign(trained_on=task)), f"peters-2019/{table}")
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if ", published*" in line]
    found: dict[str, list[str]] = {}
    for name, _, value in cells:
        found.setdefault(name.strip("*").removesuffix(", published"), []).append(value)
    assert {name: " ".join(sorted(values)) for name, values in found.items()} == wanted
    assert f"Table {table} (dev)" in text


def test_published_numbers_of_other_tasks_get_columns_of_their_own(rows):
    mine = rows[(rows["task"] == "mnli:slate") & (rows["trained_on"] == "mnli:slate")].assign(task="wnut17")
    text, _ = regime_table(make_rows(mine.assign(trained_on="wnut17")), "peters-2019/5")
    head, *lines = (line.strip("|").split("|") for line in text.splitlines() if line.startswith("|"))
    assert [one.strip() for one in head[2:]] == ["wnut17 (accuracy, dev)", "conll2003 (span-f1, dev, published)"]
    assert all(len(line) == 4 for line in lines)
    told = [line for line in lines if "published" in line[0]]
    assert all(not line[2].strip() for line in told)
    assert [line[3].strip() for line in told] == ["95.5", "91.9", "95.5", "95.2", "95.1"]
    assert text.endswith("from ours. conll2003: mean of five seeds.\n")


def test_all_published_numbers_are_those_of_the_transcription():
    """Number by number, where the transcription is here: none differs, none is left out."""
    path = Path(__file__).parents[2] / "../shared/published/peters-2019.csv"
    if not path.is_file():
        pytest.skip("the transcription is absent")
    theirs = pd.read_csv(path, dtype={"table": str}).fillna("")
    rows = {"fine-tune minus feature-extraction": "difference", "": "js-divergence"}
    key = theirs["table"], theirs["model"], theirs["task"], theirs["regime"].replace(rows), theirs["variant"]
    wanted = dict(zip(zip(*key, strict=True), theirs["value"], strict=True))
    found = {}
    for table in sorted(set(theirs["table"])):
        for one in published(f"peters-2019/{table}").to_dict("records"):
            variant = one["variant"] or (one["row"] if one["row"] in ("difference", "js-divergence") else "")
            found[table, one["model"], one["task"], one["row"], variant] = one["value"]
    assert found == wanted
    assert len(found) == len(theirs)


def test_what_is_lacking_is_told(rows):
    with pytest.raises(UsageError, match="contain no runs on single domains"):
        domain_study(rows[rows["task"] == "domains"])
    with pytest.raises(UsageError, match="lack the js-divergence between fiction, government.* and a corpus"):
        domain_study(rows[~rows["domain_a"].isin(["wiki"]) & ~rows["domain_b"].isin(["novels"])])
    with pytest.raises(UsageError, match="between slate and wiki"):
        domain_study(rows[~((rows["domain_a"] == "wiki") & (rows["domain_b"] == "slate"))])
    twice = make_rows(pd.concat([rows, make_rows([distance("wiki", "slate", 0.9)])]))
    with pytest.raises(UsageError, match="two values of js-divergence between wiki and slate"):
        domain_study(twice)
    with pytest.raises(UsageError, match="there is no corpus|no published numbers"):
        published("peters-2019/9")
