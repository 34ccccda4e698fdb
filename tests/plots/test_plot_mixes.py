"""Weights of scalar mixes: what stands in the Axes is what stands in the rows of trainings."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from test_plot_layers import labels, line

from probekit.cli import main
from probekit.errors import UsageError
from probekit.plots import layer_panels, mix_panels, mix_weights, plot, save
from probekit.rows import make_rows, write_rows


def run(weights, task="cola", head="bcn", seed=0, name=None, **own):
    """Rows of one training: the even mix after the first epoch, which is not kept, then ``weights``, which is."""
    base = {
        "task": task, "split": "dev", "model": "org/tiny", "checkpoint": name or f"{task}.feature-extraction.{seed}",
        "representation": "tokens", "regime": "feature-extraction", "head": head, "trained_on": task, "estimator": "",
        "target": "gold", "metric": "mix-weight", "seed": seed, "n": 408, "analysis": "train",
    } | own  # fmt: skip
    first = [base | {"layer": i, "value": 1 / len(weights), "step": 9, "kept": False} for i in range(len(weights))]
    last = [base | {"layer": i, "value": w, "step": 18, "kept": True} for i, w in enumerate(weights)]
    other = base | {"metric": "accuracy", "layer": None, "value": 0.8, "step": 18, "kept": True}
    return [*first, *last, other]


@pytest.fixture
def ax():
    return Figure().subplots()


def test_the_weights_kept_over_the_even_mix(ax):
    assert mix_weights(make_rows(run([0.2, 0.5, 0.1, 0.2])), ax=ax) is ax
    np.testing.assert_array_equal(line(ax, "tiny").get_xdata(), [0, 1, 2, 3])
    np.testing.assert_array_equal(line(ax, "tiny").get_ydata(), [0.2, 0.5, 0.1, 0.2])
    np.testing.assert_array_equal(line(ax, "even mix").get_ydata(), [0.25, 0.25])
    assert labels(ax) == ["tiny", "even mix"]
    assert ax.get_ylabel() == "Weight in the mix"
    assert ax.get_ylim()[0] == 0
    assert not ax.collections


def test_mixes_next_to_even_look_so(ax):
    mix_weights(make_rows(run([0.26, 0.25, 0.25, 0.24])), ax=ax)
    assert ax.get_ylim() == (0, 0.5)


def test_seeds_are_one_curve_within_their_range(ax):
    rows = make_rows([*run([0.2, 0.8]), *run([0.4, 0.6], seed=1), *run([0.6, 0.4], seed=2)])
    mix_weights(rows, ax=ax)
    assert labels(ax) == ["tiny", "even mix", "range of 3 seeds"]
    np.testing.assert_allclose(line(ax, "tiny").get_ydata(), [0.4, 0.6])
    [band] = ax.collections
    assert {(x, round(y, 9)) for x, y in band.get_paths()[0].vertices} == {(0, 0.2), (0, 0.6), (1, 0.4), (1, 0.8)}


def test_other_runs_of_one_head_are_curves_of_their_own(ax):
    a, b = {"variant": "a"}, {"variant": "b"}
    rows = [*run([0.2, 0.8], **a), *run([0.7, 0.3], **b), *run([0.5, 0.5], seed=1, **b)]
    mix_weights(make_rows(rows), ax=ax)
    assert labels(ax) == ["tiny, a feature-extraction", "tiny, b feature-extraction", "even mix", "range of 2 seeds"]
    named = mix_weights(make_rows([*run([0.2, 0.8]), *run([0.5, 0.5], name="other")]), ax=Figure().subplots())
    assert labels(named) == ["tiny, cola.feature-extraction.0", "tiny, other", "even mix"]
    np.testing.assert_allclose(line(ax, "tiny, b feature-extraction").get_ydata(), [0.6, 0.4])


def test_panels_of_tasks_tell_heads_apart():
    esim = "esim"
    rows = make_rows([*run([0.2, 0.8]), *run([0.3, 0.3, 0.4], "mrpc", esim), *run([0.1, 0.9], "sst2")])
    cola, mrpc, sst2 = mix_panels(rows).axes
    assert labels(mrpc) == [f"tiny, feature-extraction {esim}", "even mix"]
    blue, other, same = (line(ax, labels(ax)[0]).get_color() for ax in (cola, mrpc, sst2))
    assert blue == same != other
    assert line(mrpc, "even mix").get_ydata()[0] == pytest.approx(1 / 3)
    assert [t.get_text() for t in cola.figure.legends[0].get_texts()] == ["BCN", esim.upper(), "even mix"]


def test_what_can_not_be_drawn_is_told(ax):
    rows = run([0.2, 0.8])
    with pytest.raises(UsageError, match="no mix-weight by layer; expected rows of probekit train"):
        mix_weights(make_rows(rows[-1:]), ax=ax)
    with pytest.raises(UsageError, match="tiny has two weights for layer 0; were the same rows given twice"):
        mix_weights(make_rows(rows + rows), ax=ax)
    with pytest.raises(UsageError, match="mix_weights draws one task.*cola, sst2; use mix_panels"):
        mix_weights(make_rows(rows + run([1.0], "sst2")), ax=ax)
    with pytest.raises(UsageError, match="not metrics; use mix_panels, or probekit plot mix"):
        layer_panels(make_rows(rows))


@pytest.mark.slow
def test_the_command_and_the_same_bytes_for_the_same_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = write_rows(make_rows([*run([0.2, 0.8]), *run([0.3, 0.7], seed=1)]), "a.parquet", {})
    assert main(["plot", "mix", str(rows)]) == 0
    assert capsys.readouterr().out.split() == ["figures/mix.pdf", "figures/mix.png", "figures/mix.caption.txt"]
    outs = ["a.svg", "a.pdf", "a.png"]
    assert main(["plot", "mix", str(rows), "--width", "column", *(x for out in outs for x in ("--out", out))]) == 0
    first = [Path(out).read_bytes() for out in outs]
    save(mix_panels(make_rows([*run([0.2, 0.8]), *run([0.3, 0.7], seed=1)]), width=3.3), outs)
    assert first == [Path(out).read_bytes() for out in outs]
    wide = float(re.search(r'width="([\d.]+)pt"', Path("a.svg").read_text())[1])
    assert wide == pytest.approx(3.3 * 72)
    assert main(["plot", "mix", str(rows), "--width", "broad"]) == 2
    assert "column, page, text or a number of inches" in re.sub(r"[│\s]+", " ", capsys.readouterr().err)


def test_panels_share_a_scale_and_say_nothing_of_dev(tmp_path):
    rows = make_rows([*run([0.1, 0.2, 0.7]), *run([0.3, 0.3, 0.4], task="sst2")])
    figure = plot("mix", rows, out=tmp_path / "mix.png", dpi=40)
    assert len({ax.get_ylim() for ax in figure.axes}) == 1
    assert not any("n =" in text.get_text() for ax in figure.axes for text in ax.texts)
    assert "Mix weight (CoLA; SST-2)." in (tmp_path / "mix.caption.txt").read_text()
