"""``probekit guidelines``, from trained models to what it prints, leaves and refuses."""

import json
from pathlib import Path

import pytest

from probekit.cli import main
from probekit.rows import read, read_card, read_rows

QUICK = ["--epochs", "1", "--batch-size", "8", "--device", "cpu"]


@pytest.fixture(scope="module")
def runs(tiny_bert, tmp_path_factory):
    """Two seeds of fine-tuning and one of feature extraction, of a task with a dozen examples."""
    folder = tmp_path_factory.mktemp("runs")
    for split in ("train", "dev"):
        lines = [f"{('bad', 'good')[i % 2]} cat {split}\t{i % 2}" for i in range(12)]
        (folder / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines]))
    (folder / "mine.toml").write_text('[splits]\ntrain = "train.tsv"\ndev = "dev.tsv"\n')
    fx = ["--regime", "feature-extraction", "--head", "linear", "--caches", folder / "caches"]
    for name, more in (("a", []), ("b", ["--seed", 1]), ("c", fx)):
        words = [*QUICK, "--task", folder / "mine.toml", "--model", tiny_bert, "--out", folder / name, *more]
        assert main(["train", *map(str, words)]) == 0
    return [str(folder / name) for name in "abc"]


def test_it_prints_and_writes(runs, tmp_path, capsys):
    out = tmp_path / "rows.parquet"
    capsys.readouterr()
    assert main(["guidelines", *runs, "--out", str(out), "--resamples", "1000", "--margin", "0.02"]) == 0
    told = capsys.readouterr().out
    (row,) = read_rows(out).to_dict("records")
    assert row["fine_tune_seeds"] == 2
    values = [json.loads(Path(run, "probekit.json").read_text())["metrics"]["accuracy"] for run in runs]
    assert row["value"] == pytest.approx((values[0] + values[1]) / 2 - values[2])
    assert f"mine: {row['prefer']}. {row['why']}" in told
    assert f"mine: {row['caveat']}" in told
    assert row["caveat"].startswith("One seed of feature extraction:")
    assert ", single sentences: " in told
    recipe = read_card(out)["recipe"]
    assert recipe["function"] == "guidelines"
    assert recipe["arguments"] == {"runs": runs, "margin": 0.02, "resamples": 1000}
    assert read(out).recipe.run().rows["why"].tolist() == [row["why"]]


def test_one_regime_only(runs, capsys):
    assert main(["guidelines", runs[2]]) == 0
    assert "cannot tell. There is no run with fine-tuning." in capsys.readouterr().out


def test_refusals_are_one_sentence(runs, tmp_path, capsys):
    for words, told in (
        ([tmp_path], "is not a run: it has no probekit.json"),
        ([runs[0], runs[0]], "is given twice"),
        ([runs[0], runs[2], "--split", "test"], "not all evaluated on test"),
        ([runs[0], "--out", tmp_path / "rows.txt"], "rows.txt'; it must end in .parquet or .csv"),
    ):
        assert main(["guidelines", *map(str, words)]) == 2
        error = capsys.readouterr().err
        assert told in error
        assert error.count("\n") == 1
