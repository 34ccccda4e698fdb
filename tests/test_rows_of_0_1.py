"""Rows that version 0.1 wrote, a small file of each kind: they are read in today's columns, and drawn as before."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from probekit import plots
from probekit.plots.curves import plot_rows
from probekit.report.sections import by_section
from probekit.rows import COLUMNS, layer_labels, read_rows

FOLDER = Path(__file__).parent / "rows_of_0_1"
ANALYSES = {
    "compare": "compare",
    "compare-best": "compare",
    "domains": "domains",
    "evaluate": "evaluate",
    "guidelines": "guidelines",
    "mdl": "mdl",
    "mdl-variational": "mdl",
    "mi": "mi",
    "probe": "probe",
    "probe-words": "probe",
    "summary": "summary",
    "table-regimes": "train",
    "train-feature-extraction": "train",
    "train-fine-tune": "train",
    "transfer": "transfer",
}


def read(name):
    return read_rows(FOLDER / f"{name}.parquet")


def test_there_is_a_file_of_each_kind():
    assert {path.stem for path in FOLDER.glob("*.parquet")} == set(ANALYSES)


@pytest.mark.parametrize(("name", "analysis"), ANALYSES.items())
def test_what_they_hold_is_not_changed(name, analysis):
    rows, before = read(name), pd.read_parquet(FOLDER / f"{name}.parquet")
    assert set(rows["analysis"]) == {analysis}
    assert list(rows.columns[: len(COLUMNS)]) == list(COLUMNS)
    for column in ("value", "ci_low", "ci_high"):
        wanted = before[column] if column in before else pd.Series(np.nan, before.index)
        np.testing.assert_array_equal(rows[column], wanted.astype(float))
    for column in ("task", "split", "model"):
        assert rows[column].tolist() == before[column].fillna("").tolist()
    layers = before["layer_name"] if "layer_name" in before else before["task"].map(lambda _: "")
    assert layer_labels(rows).tolist() == layers.fillna("").tolist()
    assert not rows["target"].str.contains(r"\d$").any()
    assert not rows["estimator"].str.match("(fine-tune|feature-extraction) [a-z]").any()


def test_what_was_taken_away_of_transfers_is_a_column():
    rows, before = read("transfer"), pd.read_parquet(FOLDER / "transfer.parquet")
    alone = before["of_metric"].astype("string").str.endswith("without effects of single domains").fillna(value=False)
    assert alone.any()
    assert (rows["adjust"].eq("effects").fillna(value=False) == alone).all()
    assert not rows["of_metric"].astype("string").str.contains("without").any()


def test_draws_of_controls():
    rows, before = read("probe"), pd.read_parquet(FOLDER / "probe.parquet")
    single = before["target"].str.fullmatch(r"shuffled-\d")
    assert single.any()
    assert set(rows.loc[single.to_numpy(), "target"]) == {"shuffled"}
    told = before.loc[single, "target"].str[-1].astype(int).tolist()
    assert rows.loc[single.to_numpy(), "draw"].tolist() == told
    assert rows.loc[~single.to_numpy(), "draw"].isna().all()


def test_random_weights_and_runs():
    rows = read("probe")
    assert set(rows["random_weights"].dropna()) == {0, 1}
    own = rows[rows["checkpoint"] == "acceptability.fine-tune.0"]
    assert set(own["regime"]) == {"fine-tune"}
    assert set(own["run_seed"]) == {0}
    told = plot_rows(rows).drop_duplicates("run")
    assert told["run"].tolist() == ["", "random weights", "random weights 1", "fine-tuned on acceptability"]
    assert told["random"].tolist() == [False, True, True, False]


def test_regimes_heads_and_variants():
    for name, regime, head in (
        ("train-fine-tune", "fine-tune", "linear"),
        ("train-feature-extraction",) * 2 + ("bcn",),
    ):
        rows = read(name)
        regime = regime.removeprefix("train-")
        assert (set(rows["regime"]), set(rows["head"]), set(rows["estimator"])) == ({regime}, {head}, {""})
        assert set(rows["trained_on"]) == set(rows["task"])
    rows = read("evaluate")
    assert set(rows["trained_on"]) == {"mnli:fiction"}
    assert set(rows["variant"]) == {"joint"}


def test_differences_name_their_metric():
    assert set(read("compare")["metric"]) == {"difference(matthews)"}
    assert len(plots.difference_rows(read("compare-best"))) == 8
    assert set(plots.transfer_values(plots.transfer_rows(read("transfer")).query("head == 'linear'")).columns) == {
        "fiction", "government", "slate", "telephone", "travel"
    }  # fmt: skip


def test_every_figure_can_be_worked_out():
    assert set(plots.curve_rows(read("probe"))["role"]) == {"curve", "control", "line"}
    assert "control task (random tags by word type)" in set(plots.curve_rows(read("probe-words"))["label"])
    assert set(plots.curve_rows(read("mi").query("estimator == 'edge'"))["role"]) == {"curve", "control"}
    assert len(plots.curve_rows(read("mdl")))
    assert plots.mix_rows(read("train-feature-extraction"))["mean"].sum() == pytest.approx(1)
    assert plots.domain_values(read("domains")).index.tolist() == plots.domain_values(read("domains")).columns.tolist()
    points, said = plots.relation_rows(read("transfer"))
    assert set(said["metric"]) == {"pearson", "spearman", "kendall"}
    assert not points["x"].isna().any()


def test_they_stand_in_their_sections():
    every = pd.concat([read(name) for name in ANALYSES])
    assert set(by_section(every)) == set("train probe mi mdl compare summary domains transfer guidelines".split())
