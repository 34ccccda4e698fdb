"""``probekit plot``: files of rows in, files of figures out."""

import re
from pathlib import Path

import pytest
from test_plot_differences import records as differences
from test_plot_layers import controlled, records, statistics, tuned_on
from test_relation_plots import crossed, points, said

from probekit.cli import main
from probekit.errors import UsageError
from probekit.plots import plot
from probekit.rows import make_rows, write_rows


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    selective = records(metric="selectivity(matthews)")[1:]
    parts = {"cola": [*records(), *selective], "sst2": records("sst2"), "sum": statistics(), "minus": differences()}
    return {name: str(write_rows(make_rows(part), tmp_path / f"{name}.parquet", {})) for name, part in parts.items()}


def test_layers(files, capsys):
    assert main(["plot", "layers", files["cola"], files["sst2"]]) == 0
    assert capsys.readouterr().out.split() == [
        *("figures/layers.pdf", "figures/layers.png", "figures/layers.caption.txt")
    ]
    asked = ["--metric", "selectivity(matthews)", "--out", "a.svg"]
    assert main(["plot", "layers", files["cola"], *asked]) == 0
    assert "Selectivity" in Path("a.svg").read_text()
    assert main(["plot", "layers", files["cola"], "--summary", files["sum"], "--out", "b.svg"]) == 0
    assert "centre of gravity" in Path("b.svg").read_text()


def test_differences(files, capsys):
    assert main(["plot", "differences", files["minus"], "--level", "0.15", "--out", "a.svg"]) == 0
    assert "p &gt; 0.15)" in Path("a.svg").read_text()
    assert main(["plot", "differences", files["cola"]]) == 2
    assert "plot differences needs rows of probekit compare" in capsys.readouterr().err


def test_other_rows_of_the_files_are_left_out(files, tmp_path, capsys):
    """Each plot takes its own; where there is none, all, for which it has words."""
    both = str(write_rows(make_rows([*records(), *differences(), *crossed()]), tmp_path / "both.parquet", {}))
    for name, asked in (("layers", "cola"), ("differences", "minus")):
        assert main(["plot", name, both, "--out", "a.svg"]) == 0
        assert main(["plot", name, files[asked], "--out", "b.svg"]) == 0
        said = [re.findall("<text.*?</text>", Path(f).read_text(), re.S) for f in ("a.svg", "b.svg")]
        assert set(said[0]) == set(said[1])
    assert main(["plot", "relation", files["cola"]]) == 2
    assert "these rows lack the columns corpus, of_metric, x" in capsys.readouterr().err


def test_relation_and_transfer_are_as_wide_as_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lost = [r | {"metric": "lost(accuracy)"} for r in crossed() if r["trained_on"] != r["domain"]]
    rows = make_rows([*crossed(), *lost, *points(), said("pearson", -0.5, 0.4)])
    write_rows(rows, tmp_path / "table.parquet", {})
    for words, shown in (
        (["relation"], "Pearson"), (["relation", "--transfer"], "trained on"), (["transfer"], "Evaluated on")
    ):  # fmt: skip
        assert main(["plot", *words, "table.parquet", "--width", "text", "--out", "a.svg"]) == 0
        drawn = Path("a.svg").read_text()
        assert 'width="453.6pt"' in drawn  # 6.3 inches
        assert shown in drawn
    assert main(["plot", "transfer", "table.parquet", "--width", "wide"]) == 2


def test_what_is_not_there_is_said(files, capsys):
    assert main(["plot", "layers", files["sst2"], "--metric", "selectivity(matthews)"]) == 2
    assert "the rows of sst2 have no 'selectivity(matthews)'; they have matthews" in capsys.readouterr().err
    assert main(["plot", "layers", files["sst2"], "--summary", files["sum"]]) == 2
    assert "the summary has no rows of matthews on sst2" in capsys.readouterr().err
    assert main(["plot", "layers", files["cola"], "--summary", files["sst2"]]) == 2
    assert "these rows are not a summary" in capsys.readouterr().err
    assert main(["plot", "layers", files["minus"]]) == 2
    assert "use layer_differences, or probekit plot differences" in capsys.readouterr().err


def test_names_title_and_place_of_the_legend(files, capsys):
    names = ["--names", "cola=Corpus $1", "--names", "tiny=MiniLM", "--names", "95 % interval=Spread"]
    assert (
        main(["plot", "layers", files["cola"], files["sst2"], *names, "--title", "Two $tasks", "--out", "a.svg"]) == 0
    )
    shown = re.findall("<text[^>]*>([^<]*)", Path("a.svg").read_text())
    assert {"Corpus $1", "SST-2", "MiniLM", "Spread", "Two $tasks"} <= set(shown)
    assert not {"cola", "CoLA", "sst2", "tiny", "95 % interval"} & set(shown)
    assert main(["plot", "layers", files["cola"], "--names", "cora=C", "--out", "a.svg"]) == 2
    assert "this figure contains no name 'cora'; did you mean cola?" in capsys.readouterr().err
    assert main(["plot", "layers", files["cola"], "--names", "cola", "--out", "a.svg"]) == 2
    assert "RAW=SHOWN, such as cola=CoLA, not 'cola'" in capsys.readouterr().err
    assert main(["plot", "layers", files["cola"], "--names", "cola=A", "--names", "cola=B", "--out", "a.svg"]) == 2
    assert "names has 'cola' twice; give each name once." in capsys.readouterr().err


def test_pages_are_all_or_none_and_those_of_a_longer_figure_go(tmp_path):
    rows = make_rows([row for i in range(6) for row in records(f"t{i}")])
    draw = {"out": tmp_path / "a.svg", "columns": 1, "width": "column", "legend": "none"}
    (tmp_path / "a-2.svg").write_text("mine")
    with pytest.raises(UsageError, match="a-2.svg"):
        plot("layers", rows, **draw)
    assert not (tmp_path / "a.svg").exists()
    (tmp_path / "a-2.svg").unlink()
    plot("layers", rows, names={"t5": "Last"}, **draw)
    pages = ["a-2.caption.txt", "a-2.svg", "a.caption.txt", "a.svg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == pages
    assert "Last" in (tmp_path / "a-2.svg").read_text()
    plot("layers", rows[rows["task"] == "t0"], **draw)
    assert sorted(path.name for path in tmp_path.iterdir()) == pages[2:]


@pytest.mark.parametrize("width", ["column", pytest.param("text", marks=pytest.mark.slow)])
def test_a_long_title_is_wrapped_to_the_figure(files, width):
    words = (
        "Which layers of a small sentence encoder, trained on paraphrases, separate objective from subjective sentences"
    )
    bare, titled = (plot("layers", files["cola"], width=width, title=title) for title in (None, words))
    bare.draw_without_rendering()
    titled.draw_without_rendering()
    [title] = titled.texts
    assert title.get_text().split() == words.split()
    assert title.get_window_extent().x1 < titled.bbox.x1
    assert titled.axes[0].get_window_extent().height == pytest.approx(bare.axes[0].get_window_extent().height, rel=0.1)


def test_a_legend_beside_below_and_none(files):
    def drawn(legend, width):
        figure = plot("layers", files["cola"], legend=legend, width=width, names={"tiny": "MiniLM"})
        figure.draw_without_rendering()
        return figure

    below, right, none = (drawn(legend, 6.3) for legend in ("below", "right", "none"))
    assert [f.get_figwidth() for f in (below, right, none)] == pytest.approx([6.3] * 3)
    assert not none.legends
    [legend] = right.legends
    assert legend.get_window_extent().x0 >= right.axes[0].get_window_extent().x1
    assert below.legends[0].get_window_extent().y1 <= below.axes[0].get_window_extent().y0
    assert below.get_figheight() > none.get_figheight()
    with pytest.raises(UsageError, match="a legend at the right needs a figure width of at least 3.25 inches"):
        drawn("right", 3.0)


def test_a_legend_takes_less_than_a_quarter_of_a_column(tmp_path):
    """With all that a probe of three models has in it."""
    tested = {"p_adjusted": 0.5}
    rows = [row | tested for row in controlled(band=(0.3, 0.6))]
    rows += [row | tuned_on("cola", 0) for row in rows] + controlled(random_weights=0)
    free = {"bag-of-pieces": "logistic", "length": "logistic"}
    rows += [records()[0] | {"representation": name, "estimator": how} for name, how in free.items()]
    figure = plot("layers", make_rows([*rows, records()[0]]), width="column")
    figure.draw_without_rendering()
    [legend] = figure.legends
    assert len(legend.get_texts()) == 9
    assert legend.get_window_extent().height < figure.bbox.height / 4


def test_intervals_are_called_what_the_card_says(tmp_path):
    recipe = {"function": "probe", "arguments": {"level": 0.9}, "defaults": {}}
    path = write_rows(make_rows(controlled()), tmp_path / "rows.parquet", {"recipe": recipe})
    [legend] = plot("layers", path).legends
    told = [t.get_text() for t in legend.get_texts()]
    assert "90 % interval" in told
    assert "shuffled labels: middle 90 %" in told
    both = [
        t.get_text()
        for t in plot(
            "layers",
            path,
            write_rows(
                make_rows(controlled(task="mrpc")),
                tmp_path / "b.parquet",
                {"recipe": recipe | {"arguments": {"level": 0.8}}},
            ),
        )
        .legends[0]
        .get_texts()
    ]
    assert "interval" in both


@pytest.mark.slow
def test_a_caption_stands_beside_each_figure(files):
    """Of what is drawn: metric, data and n, estimator, intervals, controls; words of one's own stay."""
    write_rows(make_rows(controlled()), "a.parquet", {})
    plot("layers", "a.parquet", files["sst2"], out=("f.svg", "f.png"), names={"tiny": "MiniLM"})
    said = Path("f.caption.txt").read_text()
    for words in (
        "Matthews correlation (CoLA, dev, n = 1,043; SST-2, dev, n = 1,043)", "MiniLM; logistic probes",
        "95 % intervals", "Shuffled labels: the band shows the middle 95 %", "3 draws", "not a test", "majority class",
    ):  # fmt: skip
        assert words in said
    plot("layers", files["sst2"], out="f.svg")
    other = Path("f.caption.txt").read_text()
    assert "Shuffled labels" not in other
    Path("f.caption.txt").write_text("My own words.")
    plot("layers", "a.parquet", out="f.svg")
    assert Path("f.caption.txt").read_text() == "My own words."
    plot("differences", files["minus"], out="d.svg")
    assert "Thick bars: 95 % intervals for a single layer; thin bars: for all" in Path("d.caption.txt").read_text()
