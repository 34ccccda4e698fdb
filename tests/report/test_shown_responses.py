"""Responses in the report: drawn with a seed, the same prompts for all runs, and as text."""

import numpy as np
import pytest
from markupsafe import escape
from pages import SCRIPT, cells, save, training

from probekit.errors import UsageError
from probekit.report import report
from probekit.report.responses import responses
from probekit.rows import make_fits
from probekit.statistics.predictions import Predictions


def spoken(folder, n=20, run="dd", split="dev", prompts=True):
    """The folder of a run: rows with chrF, and the responses to n prompts."""
    folder.mkdir(parents=True, exist_ok=True)
    kept, *_ = training(run, "fine-tune response", 0.3, task="dailydialog", split=split)
    save([kept | {"metric": "chrf"}], folder / "rows.parquet")
    texts = [np.array([f"{what} {i}" for i in range(n)], dtype=object) for what in ("prompt", "reference", run)]
    texts[0][3] = SCRIPT
    about = {"task": "dailydialog", "split": split, "model": "mini", "checkpoint": run, "target": "gold"}
    found = Predictions(
        make_fits([about]), np.array([f"{split}-{i}" for i in range(n)]), texts[1], texts[2][None], ("chrf",),
        prompts=texts[0] if prompts else None,
    )  # fmt: skip
    found.write(folder / f"{split}.examples.parquet")
    return folder


def shown(*runs, count=5, seed=0):
    """The rows of the table of some runs, as mappings."""
    made = list(responses([str(run / "rows.parquet") for run in runs], count, seed))
    return [
        dict(zip([c.name for c in one.columns], [c.text for c in row], strict=True)) for one in made for row in one.rows
    ]


def test_predictions_keep_their_prompts(tmp_path):
    found = Predictions.read(spoken(tmp_path / "dd") / "dev.examples.parquet")
    assert found.prompts.tolist()[2:5] == ["prompt 2", SCRIPT, "prompt 4"]
    assert found.take([0]).prompts.tolist() == found.prompts.tolist()
    assert found.frame()["prompt"].tolist() == found.prompts.tolist()
    assert Predictions.read(spoken(tmp_path / "a", prompts=False) / "dev.examples.parquet").prompts is None


def test_prompts_are_drawn_and_shown_with_reference_and_response(tmp_path):
    rows = shown(spoken(tmp_path / "dd"))
    assert len(rows) == 5
    for row in rows:
        number = row["example"].removeprefix("dev-")
        assert (row["reference"], row["response"]) == (f"reference {number}", f"dd {number}")
        assert row["prompt"] == (SCRIPT if number == "3" else f"prompt {number}")
    assert rows == shown(tmp_path / "dd") != shown(tmp_path / "dd", seed=1)
    assert len(shown(tmp_path / "dd", count=50)) == 20
    assert shown(tmp_path / "dd", count=0) == []


def test_the_page_holds_them_as_text(tmp_path):
    html = report(spoken(tmp_path / "dd", n=6), out=tmp_path / "page.html", responses=6).read_text()
    assert len(cells(html, "Responses to prompts drawn at random, at most 6 of each split (seed 0).")) == 6
    assert "split dev; run dd" in html
    assert SCRIPT not in html
    assert f">{escape(SCRIPT)}</td>" in html
    with pytest.raises(UsageError, match="responses is -1"):
        report(tmp_path / "dd", out=tmp_path / "page.html", responses=-1)


def test_runs_answer_the_same_prompts(tmp_path):
    rows = shown(*(spoken(tmp_path / run, run=run) for run in ("dd", "other")), count=3)
    assert [row["run"] for row in rows] == ["dd", "other"] * 3
    assert all(a["prompt"] == b["prompt"] for a, b in zip(rows[::2], rows[1::2], strict=True))


def test_long_texts_are_cut_and_runs_without_prompts_left_out(tmp_path):
    assert shown(spoken(tmp_path / "dd", prompts=False)) == []
    file = spoken(tmp_path / "long") / "dev.examples.parquet"
    found = Predictions.read(file)
    long = np.array(["x" * 5000] * 20, dtype=object)
    Predictions(found.fits, found.ids, found.gold, long[None], found.metrics, prompts=found.prompts).write(file)
    assert {row["response"] for row in shown(tmp_path / "long")} == {"x" * 1000 + " …"}
