"""The page: what stands in it, that nothing of the data is markup, and that the same files give the same bytes."""

import json
import os
import re
import shlex
import shutil

import numpy as np
import pandas as pd
import pytest
from pages import SCRIPT, cells, curve, domain, evidence, page, record, save, trained, training, undrawn

from probekit import plots
from probekit.errors import DataError, UsageError
from probekit.files import slug
from probekit.report import report
from probekit.report.caveats import of_rows
from probekit.report.curves import best_layers, by_layer
from probekit.report.markdown import markdown
from probekit.report.sections import by_section
from probekit.report.summary import regimes, trained_rows
from probekit.report.svg import embed
from probekit.report.tables import LARGEST, number, table
from probekit.rows import Result, card_path, make_rows, read_rows


@pytest.fixture
def squares(monkeypatch):
    """Of what is not about figures."""
    undrawn(monkeypatch)


@pytest.mark.usefixtures("squares")
def test_best_layers_and_their_noise(tmp_path):
    html = page([*curve([0.5, 0.7, 0.6]), *curve([0.52, 0.51, 0.5], random_weights=0)], tmp_path)
    best, random = cells(html, "Best layer of each curve")
    assert (best["best layer"], best["value"], best["interval"]) == ("1", "0.700", "0.650 – 0.750")
    assert (best["noise"], best["verdict"]) == ("0.450 – 0.550", "above noise")
    assert (random["curve"], random["verdict"]) == ("tiny, random weights", "not above noise (interval)")
    assert "Diagnostic classifiers, not above noise (interval)." in html
    assert "<li>CoLA, tiny, layers 0, 2</li>" in html  # and not the random weights, which are a control themselves


@pytest.mark.usefixtures("squares")
def test_what_came_out_stands_first(tmp_path):
    """The verdicts of the evidence cards, as text, once each, before tables and figures; the curve is in both files."""
    told = ["CoLA: layer 2 <is> best.", "CoLA: layer 1 is not above noise."]
    for name in ("a", "b"):
        save(curve([0.5, 0.7]), tmp_path / f"{name}.parquet")
        card = json.loads(card_path(tmp_path / f"{name}.parquet").read_text())
        card_path(tmp_path / f"{name}.parquet").write_text(json.dumps(card | {"verdict": told}))
    html = report(tmp_path / "a.parquet", tmp_path / "b.parquet", out=tmp_path / "p.html").read_text()
    first = html.index("<li>CoLA: layer 2 &lt;is&gt; best.</li><li>CoLA: layer 1 is not above noise.</li>")
    assert html.count("layer 2 &lt;is&gt; best") == 1
    assert html.index('id="summary"') < first < html.index("Best layer of each curve") < html.index("<figure>")


@pytest.mark.usefixtures("squares")
def test_a_page_says_how_many_families_it_has_and_corrects_them_together(tmp_path):
    """Two tasks, each with p .03 at one layer: named, or not if both count; a bag of word pieces is a third family."""
    bag = record(None, 0.5, representation="bag-of-pieces", estimator="logistic")
    paths = []
    for task, more in (("cola", []), ("rte", [bag])):
        rows = [record(0, 0.9, task=task, p=0.03, p_adjusted=0.03), *(one | {"task": task} for one in more)]
        paths.append(Result(make_rows(rows)).save(tmp_path / f"{task}.parquet").path)
    pages = {}
    for family in ("sentence", "report"):
        pages[family] = report(*paths, out=tmp_path / "p.html", family=family).read_text()
    assert pages["sentence"].count("beats permuted labels") == 2
    assert "answer 3 families of questions, each corrected for itself at 5 %" in pages["sentence"]
    assert "about 14 % of such pages" in pages["sentence"]
    assert pages["report"].count("layer 0 beats permuted labels") == 0
    assert pages["report"].count("no layer beats permuted labels") == 2
    assert "corrected over all 3 families of questions" in pages["report"]
    with pytest.raises(UsageError, match="family is 'page'; it must be one of sentence, report"):
        report(*paths, out=tmp_path / "p.html", family="page")


@pytest.mark.usefixtures("squares")
def test_curves_of_several_files_are_judged_together(tmp_path):
    """p is corrected for the curves of both files; with a curve twice, the cards speak."""
    for name, model in (("a", "tiny"), ("b", "large"), ("c", "tiny")):
        path = save([record(0, 0.9, model=model, p=0.02, p_adjusted=0.02)], tmp_path / f"{name}.parquet")
        told = ["CoLA: layer 0 beats chance."] if name == "a" else []
        card_path(path).write_text(json.dumps(json.loads(card_path(path).read_text()) | {"verdict": told}))

    def verdicts(names):
        html = report(*(tmp_path / f"{name}.parquet" for name in names), out=tmp_path / "p.html").read_text()
        return re.findall("<li>(.*?)</li>", re.search('<ul class="verdicts">(.*?)</ul>', html).group(1))

    assert verdicts("a") == verdicts("abc") == ["CoLA: layer 0 beats chance."]
    assert len(both := verdicts("ab")) == 2
    assert all("over 2 layers = .040" in sentence for sentence in both)


def test_a_run_that_is_not_better_than_the_constant_prediction_is_a_caveat(tmp_path):
    def caveats(constant):
        run, *others = training("cola.fine-tune.0", "fine-tune linear", 0.5)
        fixed = {"estimator": "majority", "kept": False, "headline": False, "value": constant}
        rows = make_rows([run | {"headline": True}, *others, run | fixed])
        return [(one.what, one.where) for one in of_rows(by_section(rows), {})]

    what = "Training: not shown to be better than the constant prediction."
    where = ["cola.fine-tune.0, CoLA dev: accuracy 0.500 [0.480, 0.520], constant 0.480"]
    assert (what, where) in caveats(0.48)
    assert what not in dict(caveats(0.479))
    worse = what.replace("not shown to be better", "worse")
    assert worse not in dict(caveats(0.52))
    assert worse in dict(caveats(0.521))
    assert what not in dict(caveats(0.521))


def test_points_tell_their_values(tmp_path):
    """By titles of the SVG; as many as there are points, each with the value it is drawn at."""
    rows = [*curve([0.5, 0.7, 0.6]), *curve([0.52, 0.51, 0.5], random_weights=0)]
    html = page(rows, tmp_path)
    told = re.findall("<use [^>]*><title>([^<]*)</title></use>", html)
    assert {t.split(" (")[0] for t in told} >= {f"tiny, layer {i}: {v:.3f}" for i, v in enumerate((0.5, 0.7, 0.6))}
    assert "tiny, random weights, layer 2: 0.500 (0.450 to 0.550), not above noise (interval)" in told
    drawn = plots.plot("layers", make_rows(rows), out=tmp_path / "f.svg")
    file = (tmp_path / "f.svg").read_text()
    assert re.findall("<use [^>]*><title>([^<]*)</title></use>", file) == told
    plots.save(drawn, [tmp_path / "g.svg"])
    assert (tmp_path / "g.svg").read_text() == file


def test_the_control_that_is_reached_is_named():
    """Layers above shuffled labels that reach the control task are not said to be like shuffled labels."""
    rows = [*curve([0.9]), record(0, 0.88, target="control-task", ci_low=0.8, ci_high=0.95)]
    rows = make_rows([row | ({"p_adjusted": 0.004} if row["target"] == "gold" else {}) for row in rows])
    layers = {section: by_layer(part) for section, part in by_section(rows).items()}
    assert list(layers["probe"]["verdict"]) == ["interval reaches control task"]
    said = [caution.what for caution in of_rows(by_section(rows), layers)]
    assert any("not above the control task (possibly memorised)" in what for what in said)
    assert not any("shuffled" in what for what in said)


def test_less_is_better_where_it_is():
    losses = by_layer(make_rows([record(i, v, metric="log-loss") for i, v in enumerate([0.7, 0.3, 0.5])]))
    assert next(best_layers(losses))["layer"] == "1"


def test_verdicts_and_cautions():
    rows = make_rows(
        [
            *[record(i, v) | {"why": "the reason"} for i, v in enumerate([0.9, np.nan])],
            *curve([0.9], task="few"),
            record(0, np.nan, task="mi", metric="mutual-information", ci_low=0, ci_high=1)
            | {"undetermined": "too few", "warning": "w"},
        ]
    ).assign(n=lambda r: r["n"].where(r["task"] != "few", 20))  # fmt: skip
    sections = by_section(rows)
    layers = {section: by_layer(part) for section, part in sections.items()}
    assert list(layers["probe"]["verdict"]) == ["no control", "no value", "above noise"]
    said = {caution.what: caution.where for caution in of_rows(sections, layers)}
    no_control = "Diagnostic classifiers: there is no control (permuted or shuffled labels) to compare with."
    assert said[no_control] == ["CoLA, tiny, layer 0"]
    assert said["Diagnostic classifiers: values have no interval."] == ["CoLA, tiny, layer 0: the reason"]
    assert said["Diagnostic classifiers: fewer than 100 examples."] == ["few dev: n = 20"]
    assert said["Mutual information: the estimate is undetermined."] == ["mi, tiny, layer 0: too few"]
    assert said["Mutual information: warnings of the estimator."] == ["w (1 row)"]


def test_equal_warnings_are_told_once_with_their_count():
    """Parts of a warning are counted one by one, unless the same rows have them; whole numbers become no range."""
    told = ["few groups; so; 1.13 bits are possible", "few groups; so; 0.5 bits are possible", "few groups; so", "300"]
    shared = {"metric": "mutual-information", "ci_low": 0, "ci_high": 1, "left_out_train": 2}
    rows = [*(record(i, 0.1, **shared) | {"warning": text} for i, text in enumerate(told)), *curve([0.9])]
    rows = make_rows([row | {"left_out_train": 2} for row in rows])
    said = {caution.what: caution.where for caution in of_rows(by_section(rows), {})}
    assert said["Mutual information: warnings of the estimator."] == [
        "few groups; so (3 rows)", "0.5–1.13 bits are possible (2 rows)", "300 (1 row)",
    ]  # fmt: skip
    left = "Diagnostic classifiers, Mutual information: examples without a label are excluded from train."
    assert said[left] == ["CoLA: 2"]
    assert len(said) == 2


def test_sections():
    rows = [
        *curve([0.5]), record(None, 0.4, estimator="majority", representation="none"),
        record(0, 0.1, metric="mutual-information"), record(0, 9.0, metric="codelength-bits"),
        record(0, 0.1, metric="difference(accuracy)", against="layer-0", analysis="compare"),
        record(None, 3.0, metric="best-layer", of_metric="accuracy", analysis="summary"),
        record(0, 0.9, metric="cka", analysis="similarity"), record(0, 0.1, metric="rank", analysis="geometry"),
        record(0, 0.1, metric="relative-distance", analysis="movement"),
        record(0, -0.5, metric="logme", analysis="transferability"),
        *training("a", "fine-tune linear", 0.8), domain("x", "y", 0.2),
        record(None, 0.7, metric="pearson", of_metric="accuracy", corpus="wiki", analysis="transfer"),
        record(None, 0.1, metric="difference(accuracy)", prefer="cannot tell", analysis="guidelines"),
        record(None, 1.0, task="alone", analysis="mine"),
    ]  # fmt: skip
    found = {section: len(part) for section, part in by_section(make_rows(rows)).items()}
    others = "mi mdl similarity movement geometry transferability compare summary domains transfer guidelines other"
    assert found == {"train": 3, "probe": 3, **dict.fromkeys(others.split(), 1)}


@pytest.mark.usefixtures("squares")
def test_training_and_domains(tmp_path):
    runs = [*training("a", "fine-tune linear", 0.8), *training("b", "feature-extraction esim", 0.7)]
    terms = domain("x", "z", 0.1, p=0.9, metric="js-contribution", term="the", mostly="x", share=0.1)
    rows = [*runs, domain("x", "y", 0.2), domain("x", "z", 0.1, p=0.3), domain("y", "z", 0.4), terms]
    html = page(rows, tmp_path)
    [row] = cells(html, "Results of the final weights")
    assert (row["feature extraction"], row["fine tuning"]) == ("0.700", "0.800")
    assert (row["interval of feature extraction"], row["interval of fine-tuning"]) == ("0.680 – 0.720", "0.780 – 0.820")
    near, far = cells(html, "The nearest and the farthest")
    assert (near["domain a"], near["domain b"], far["value"]) == ("x", "z", "0.400")
    assert html.count("<li>x and z</li>") == 1  # the p of a term is none


def test_data_stay_text(tmp_path):
    rows = [*curve([0.6, 0.9], task=SCRIPT, model='"><img src=x onerror=alert(1)>'), record(None, 1, task="{{ 7*7 }}")]
    path = save(rows, tmp_path / "r.parquet", evidence(f"make {SCRIPT}"))
    text = tmp_path / "t.md"
    text.write_text(f"# {SCRIPT}\n\n![x](http://example.com/x.png) [y](javascript:alert(1)) <b>no</b>")
    html = report(path, out=tmp_path / "p.html", title=SCRIPT, text=[text]).read_text()
    assert html.count("<script>") == 1  # the page's own
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "<img" not in html
    assert "<b>" not in html
    assert 'href="javascript' not in html
    assert "{{ 7*7 }}" in html
    assert "style=" not in html  # the policy of the page forbids it


@pytest.mark.usefixtures("squares")
def test_the_policy_names_what_is_there(tmp_path):
    import base64
    import hashlib

    html = page(curve([0.5]), tmp_path)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html).group(1)
    for tag in ("script", "style"):
        [inside] = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.S)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy.replace("&#39;", "'")
    assert "default-src 'none'" in policy.replace("&#39;", "'")


def test_same_files_same_bytes_and_no_ids_twice(tmp_path):
    paths = [
        save(curve([0.5, 0.8]), tmp_path / "a.parquet"),
        save(
            [record(i, 0.1, metric="mutual-information", ci_low=0, ci_high=0.2) for i in range(2)], tmp_path / "b.csv"
        ),
    ]
    first = report(*paths, out=tmp_path / "p.html").read_bytes()
    assert report(*paths, out=tmp_path / "p.html").read_bytes() == first
    ids = re.findall(r' id="([^"]*)"', first.decode())
    assert len(ids) == len(set(ids))
    assert first.decode().count("<svg") == 2
    assert set(re.findall(r'(?:href="#|url\(#)([^")]*)', first.decode())) <= set(ids)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "a.parquet",
        "a.parquet.json",
        "b.csv",
        "b.csv.json",
        "p.html",
    ]


def test_cards(tmp_path):
    known, missing, other, broken = (
        save([record(None, 1.0, analysis="mine")], tmp_path / f"{name}.parquet") for name in "kmob"
    )
    card = json.loads(card_path(known).read_text())
    card |= {"git": "abc-dirty", "versions": {"torch": "9.9", "python": "3"}, "arguments": {"penalties": [1]}}
    card_path(known).write_text(json.dumps(card))
    card_path(missing).unlink()
    card_path(other).write_text('{"rows": {"xxh3_128": "0"}, "command": "wrong"}')
    card_path(broken).write_bytes(b"\xff\xfe")
    html = report(known, missing, other, broken, out=tmp_path / "p.html").read_text()
    assert "probekit make k.parquet" in html
    assert "probekit make m.parquet" not in html
    assert "make wrong" not in html
    assert "m.parquet has no evidence card" in html
    assert "describes other rows than those in o.parquet" in html
    assert "cannot be read as an evidence card" in html
    assert f"<li>{known}</li>" in html  # changed files
    assert "torch 9.9" in html


@pytest.mark.parametrize(
    "body", ["[]", *(pytest.param(body, marks=pytest.mark.slow) for body in ('{"rows": 3}', '{"rows": {}}', "1"))]
)
def test_odd_cards(tmp_path, body):
    path = save([record(None, 1.0, analysis="mine")], tmp_path / "a.parquet")
    card_path(path).write_text(body)
    assert "No evidence card" in report(path, out=tmp_path / "p.html").read_text()


def test_p_is_written_as_in_other_tables():
    told = table(pd.DataFrame({"task": ["a", "b", "c"], "p_adjusted": [0.0004, 0.0121, np.nan]}), "")
    assert [[cell.text for cell in row] for row in told.rows] == [["a", "< .001"], ["b", "0.013"], ["c", ""]]
    assert [row[1].exact for row in told.rows] == ["0.0004", "0.0121", ""]


def test_many_rows_are_cut(tmp_path):
    rows = pd.DataFrame({"layer": range(LARGEST + 1), "value": 0.5})
    assert len(table(rows, "x").rows) == LARGEST
    many = [record(None, i / 9000, task="other") for i in range(LARGEST + 1)]
    assert f"The first {LARGEST:,} of {LARGEST + 1:,} rows are shown; all rows are in {tmp_path}" in page(
        many, tmp_path
    )


def test_no_rows(tmp_path):
    path = save([], tmp_path / "a.parquet")
    assert "there is nothing to show" in report(path, out=tmp_path / "p.html").read_text()


@pytest.mark.slow
def test_a_figure_that_can_not_be_drawn_says_why(tmp_path):
    html = page(curve([0.5, 0.6]) + curve([0.5, 0.6]), tmp_path)
    assert "Not drawn: tiny has two values for layer 0" in html
    many = [row for i in range(25) for row in curve([0.5], task=f"task {i}")]
    assert "Not drawn: 25 panels are too many to read" in page(many, tmp_path)


@pytest.mark.slow
def test_trajectories(tmp_path):
    rows = [row for step in (0, 10, 100) for row in curve([0.5, 0.6 + step / 1000], step=step, checkpoint="run")]
    html = page([*rows, *curve([0.7], task="plain")], tmp_path)
    assert html.count("<svg") == 2
    assert "Training step (not to scale)</text>" in html
    assert "probekit plot trajectory" in html


@pytest.mark.slow
def test_weights_of_mixes(tmp_path):
    mix = {"metric": "mix-weight", **trained("run", "feature-extraction linear")}
    rows = [record(i, w, step=s, kept=s == 9, **mix) for s in (5, 9) for i, w in enumerate([0.2, 0.5, 0.3])]
    html = page(rows, tmp_path)
    assert "run: most weight on layer 1, 0.500." in html
    assert "Weight in the mix</text>" in html
    lost = [{**row, "value": np.nan} for row in rows]
    assert "Weight of each layer" in page(lost, tmp_path)  # drawn or not, there is a page


def test_studies_and_figures_of_others(tmp_path):
    study = tmp_path / "study"
    path = save(curve([0.5, 0.6]), study / "rows" / "probe.parquet")
    shutil.copy(path, study / "rows" / "probe.examples.parquet")
    for folder in ("figures", "tables"):
        (study / folder).mkdir()
    plain = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect id="a" width="3" height="3"/>{}</svg>'
    (study / "figures" / "one.svg").write_text(plain.format('<script>alert("a")</script>'))
    (study / "figures" / "one.json").write_text('{"caption": "Layers, drawn elsewhere.", "command": "draw it"}')
    (study / "figures" / "two.svg").write_text(plain.format(""))
    (study / "figures" / "two.md").write_text("A square\nof three.")
    (study / "tables" / "t.md").write_text("# Table 2\n\n| task | F1 |\n|---|--:|\n| cola | *0.5* |\n")
    html = report(study, out=tmp_path / "p.html").read_text()
    assert "Layers, drawn elsewhere." in html
    assert "A square of three." in html
    assert '<img alt="Layers, drawn elsewhere." src="data:image/svg+xml;base64,' in html  # as a picture, it can not run
    assert '<rect width="3" height="3" />' in html
    assert "<h3>Table 2</h3>" in html
    assert '<td class="n"><em>0.5</em></td>' in html
    assert html.count("16 rows") == 0
    (study / "figures" / "one.svg").write_text("<svg")
    with pytest.raises(DataError, match=r"one.svg: this is not an SVG file"):
        report(study, out=tmp_path / "p.html")


@pytest.mark.usefixtures("squares")
def test_training_runs_of_a_study(tmp_path):
    save(training("a", "fine-tune linear", 0.8), tmp_path / "runs" / "a" / "rows.parquet")
    save(training("b", "fine-tune linear", 0.7), tmp_path / "runs" / "b" / "rows.parquet")
    html = report(tmp_path, out=tmp_path / "p.html").read_text()
    assert [row["run"] for row in cells(html, "Results of the final weights")] == ["a", "b"]


def study(folder, steps=(), **told):
    """A folder as the runner of studies leaves it: two probes drawn in one figure, a table, and what else is told."""
    probes = [save(curve([0.5, 0.6], task=t), folder / "rows" / f"probe-{t}.parquet") for t in ("cola", "mrpc")]
    save(training(f"cola.{told['title']}", "fine-tune linear", 0.8), folder / "runs" / "a" / "rows.parquet")
    commands = {
        "probe cola": ["probe", "a.h5", "--out", "old/rows/probe-cola.parquet"],
        "probe mrpc": ["probe", "b.h5", "--out", "old/rows/probe-mrpc.parquet"],
        "cola.fine-tune.0": ["train", "cola", "--out", "old/runs/a/rows.parquet"],
        "figure layers": [
            *("plot", "layers", *(f"old/{p.relative_to(folder)}" for p in probes), "--out", "old/figures/layers.svg")
        ],
        "table t": ["table", "regimes", "old/runs/a/rows.parquet", "--out", "old/tables/t.md"],
        "figure before": ["plot", "mix", "old/runs/a/rows.parquet", "--out", "old/figures/before.svg"],
    }
    plots.save(plots.layer_panels(read_rows(*probes)), [folder / "figures" / "layers.svg"])
    shutil.copy(folder / "figures" / "layers.svg", folder / "figures" / "before.svg")
    (folder / "tables").mkdir()
    (folder / "tables" / "t.md").write_text("| task | F1 |\n|---|--:|\n| cola | 0.5 |\n")
    (folder / "steps").mkdir()
    for name, words in commands.items():
        left = {words[-1].removeprefix("old/"): "1 a"}
        record = {"step": name, "digest": "0", "command": ["probekit", *words], "left": left}
        (folder / "steps" / f"{slug(name)}.json").write_text(json.dumps(record))
    names = [{"step": name} for name in (*list(commands)[:3], "table t", "figure before", "figure layers")]
    (folder / "study.json").write_text(json.dumps({**told, "steps": [*names, *steps]}))
    return folder


@pytest.mark.slow
def test_a_study_comes_with_its_own_figures_which_are_not_drawn_again(tmp_path):
    here = study(tmp_path / "s", title="Layers of CoLA", about="What is\nknown <where>.")
    html = report(here, out=tmp_path / "p.html").read_text()
    assert "<h1>Layers of CoLA</h1>" in html
    assert "<p>What is known &lt;where&gt;.</p>" in html
    assert html.count("<svg") == 2
    assert html.index("probekit plot mix") < html.index("probekit plot layers")  # in the study's order
    files = " ".join(str(here / "rows" / f"probe-{task}.parquet") for task in ("cola", "mrpc"))
    assert f"probekit plot layers {files} --out {here}/figures/layers.svg" in html
    assert html.count("<figcaption>Accuracy by layer.") == 1
    assert "CoLA, tiny: best at layer 1 with 0.600, noise 0.500." in html  # in words, for who cannot see it
    assert f"probekit table regimes {here}/runs/a/rows.parquet" in html
    assert [row["value"] for row in cells(html, "Results of the final weights")] == ["0.800"]
    assert "This study is incomplete" not in html
    save(curve([0.7, 0.8], task="sst2"), here / "rows" / "probe-sst2.parquet")
    (here / "study.json").unlink()  # as folders were before there was one: then all that is there counts
    more = report(here, out=tmp_path / "p.html").read_text()
    assert more.count("<svg") == 3
    assert "SST-2</text>" in more[more.index('id="probe"') :]
    assert "CoLA</text>" not in more[more.index('id="probe"') :]


@pytest.mark.usefixtures("squares")
def test_what_failed_of_a_study_stands_above_all(tmp_path):
    steps = [
        {"step": "probe sst2"}, {"step": "probe x", "error": "no such task"}, {"step": "table u"},
        {"step": "probe killed"}, {"step": "probe long ago"}, {"step": "guidelines"}, {"step": "report"},
    ]  # fmt: skip
    here = study(tmp_path / "s", steps, title="t")
    (here / "logs").mkdir()
    (here / "logs" / "probe-sst2.log").write_text("reading\nprobekit: <b>no</b> labels\n")
    (here / "logs" / "probe-killed.log").write_text("layer 3")
    (here / "logs" / "probe-long-ago.log").write_text("rows/probe-long-ago.parquet (12 rows, 0.1 s)")
    os.utime(here / "logs" / "probe-long-ago.log", (0, 0))  # of a run before this one, in which it was skipped
    lost = {"step": "guidelines", "digest": "without ['mrpc.fine-tune.0']"}
    (here / "steps" / "guidelines.json").write_text(json.dumps(lost))
    (here / "steps" / "report.json").write_text(json.dumps({"step": "report", "digest": "without ['probe x']"}))
    html = report(here, out=tmp_path / "p.html").read_text()
    warning = html[html.index("This study is incomplete") : html.index('id="texts"')]
    assert re.findall("<li>(.*?)</li>", warning) == [
        "probe-sst2: &lt;b&gt;no&lt;/b&gt; labels", "probe-x: no such task",
        "table-u: not started, or an input is missing",
        "probe-killed: started, but not finished; its log ends with: layer 3",
        "probe-long-ago: not started, or an input is missing",
        "guidelines: done without mrpc.fine-tune.0",
    ]  # fmt: skip
    (here / "study.json").unlink()  # then logs tell
    html = report(here, out=tmp_path / "p.html").read_text()
    assert "<h1>s</h1>" in html
    assert "<li>probe-sst2: " in html
    assert "probe-x" not in html


@pytest.mark.slow
def test_what_no_step_of_a_study_left_is_not_shown(tmp_path):
    """Rows of a step that failed when it was done again, and of one that the study has no more."""
    here = study(tmp_path / "s", title="t")
    for name in ("sst2", "qnli"):
        save(curve([0.876, 0.875], task=name), here / "rows" / f"probe-{name}.parquet")
    (here / "tables" / "old.md").write_text("All of old.")
    left = {"step": "probe qnli", "digest": "0", "command": [], "left": {"rows/probe-qnli.parquet": "1 a"}}
    (here / "steps" / "probe-qnli.json").write_text(json.dumps(left))
    html = report(here, out=tmp_path / "p.html").read_text()
    assert not re.search("sst2|qnli|0.876|All of old", html)
    assert "3 files of rows, figures or tables in the study&#39;s folder are not shown" in html
    assert "This study is incomplete" not in html
    (here / "steps" / "probe-mrpc.json").unlink()
    html = report(here, out=tmp_path / "p.html").read_text()
    assert "4 files of rows" in html
    assert f"plot layers {here}/rows/probe-cola.parquet --out {here}/figures/layers.svg" in html
    assert "CoLA, tiny: best" in html
    assert "MRPC, tiny: best" not in html
    assert "<li>probe-mrpc: not started" in html
    shutil.rmtree(here / "steps")  # nothing is done: the page says so
    html = report(here, out=tmp_path / "p.html").read_text()
    assert "<h1>t</h1>" in html
    assert html.count("not started, or an input is missing") == 6
    assert "<svg" not in html


@pytest.mark.slow
def test_folders_of_files_and_folders_of_these(tmp_path):
    for name in "ba":
        rows = curve([0.5, 0.6]) if name == "a" else [record(None, 1.0, analysis="mine")]
        save(rows, tmp_path / "all" / name / "probe.parquet")
        save(curve([0.5, 0.6], task="no"), tmp_path / "all" / name / "probe.examples.parquet")
    (tmp_path / "all" / "a" / "t.md").write_text("A *table*.")
    plots.save(plots.layer_panels(make_rows(curve([0.1, 0.2]))), [tmp_path / "all" / "a" / "f.svg"])
    (tmp_path / "all" / "a" / "f.md").write_text("What f shows.")
    (tmp_path / "all" / "data").mkdir()
    (tmp_path / "all" / "data" / "dev.csv").write_text("sentence,label\n")  # has no card: these are no rows
    one = report(tmp_path / "all" / "a", out=tmp_path / "p.html").read_text()
    assert "<h1>a</h1>" in one
    assert "A <em>table</em>" in one
    assert one.count("<svg") == 2
    assert "<figcaption>What f shows." in one
    assert '<article aria-label="f.md">' not in one  # it is a caption
    both = report(tmp_path / "all", tmp_path / "all" / "b", out=tmp_path / "p.html").read_text()
    assert re.findall("<h2>(.*?)</h2>", both) == ["a", "b", "How to read this page"]
    assert ">no<" not in both
    with pytest.raises(UsageError, match="data is a folder without rows"):
        report(tmp_path / "all" / "data", out=tmp_path / "p.html")


@pytest.mark.slow
def test_several_studies_have_a_part_each(tmp_path):
    one, two = (study(tmp_path / name, title=f"Study {name}", about=f"About {name}.") for name in "ab")
    alone = save(curve([0.9, 0.8], task="alone"), tmp_path / "alone.parquet")
    again = one / "rows" / "probe-cola.parquet"
    text = tmp_path / "t.md"
    text.write_text("All *in all*.")
    html = report(one, alone, two, again, out=tmp_path / "p.html", title="Both", text=[text]).read_text()
    assert re.findall("<h2>(.*?)</h2>", html) == [
        "Overview", "Study a", "Study b", "Results on alone", "How to read this page"
    ]  # fmt: skip
    assert html.index("All <em>in all</em>") < html.index("<h2>Study a</h2>") < html.index("<p>About a.</p>")
    ids = re.findall(r' id="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]*)', html)) <= set(ids)
    assert html.count("<svg") == 5
    assert [f"checkpoint cola.Study {name}" in html.split("<h2>")[k] for k in (2, 3) for name in "ab"] == [1, 0, 0, 1]
    assert html.count(f'<span class="file">{again}</span>') == 1


@pytest.mark.usefixtures("squares")
def test_regimes_stand_side_by_side(tmp_path):
    rows = []
    for task, name in (("mrpc", "joint"), ("mrpc", "apart"), ("ud:en_ewt", "joint")):
        for regime, value in (("fine-tune", 0.8), ("feature-extraction", 0.7)):
            for seed in (0, 1):
                run = f"{slug(task)}.{name}.{regime}.{seed}"
                more = seed / 100 + (name == "apart") / 10
                own = {"task": task, "variant": name, "seed": seed}
                rows += training(run, f"{regime} linear", value + more, **own)
    found = cells(page(rows, tmp_path), "Results of the final weights")
    assert [(r["task"], r["variant"], r["seed"], r["feature extraction"], r["fine tuning"]) for r in found] == [
        ("MRPC", "joint", "0", "0.700", "0.800"), ("MRPC", "joint", "1", "0.710", "0.810"),
        ("MRPC", "apart", "0", "0.800", "0.900"), ("MRPC", "apart", "1", "0.810", "0.910"),
        ("UD: EWT", "joint", "0", "0.700", "0.800"), ("UD: EWT", "joint", "1", "0.710", "0.810"),
    ]  # fmt: skip


@pytest.mark.slow
def test_commands_draw_the_figures_of_the_page(tmp_path):
    """From files that hold rows of several sections, too."""
    from probekit.cli import main

    mix = {"metric": "mix-weight", **trained("run", "feature-extraction linear")}
    informed = [record(i, 0.1, metric="mutual-information", ci_low=0, ci_high=0.2) for i in range(2)]
    named = [("x", "y"), ("x", "z"), ("y", "z")]
    rows = [
        *curve([0.5, 0.6]), *informed, *curve([0.3, 0.2], metric="codelength-bits"),
        *(record(i, w, step=9, kept=True, **mix) for i, w in enumerate([0.2, 0.8])),
        *(domain(a, b, 0.1 * i, metric=m) for m in ("js-divergence", "kl") for i, (a, b) in enumerate(named, 1)),
    ]  # fmt: skip
    html = page(rows, tmp_path)
    commands = re.findall(r"<code>(probekit plot .*?)</code>", html)
    figures = re.findall(r"<svg.*?</svg>", html, re.S)
    assert [c.split()[2] for c in commands] == ["mix", "layers", "layers", "layers", "domains", "domains"]
    for command, figure in zip(commands, figures, strict=True):
        again = tmp_path / "again.svg"
        words = shlex.split(command)[1:]
        words[words.index("--out") + 1] = str(again)
        assert main(words) == 0
        wanted = [re.sub("<(title|desc).*?</\\1>", "", svg) for svg in (figure, embed(again.read_bytes(), "x", "t"))]
        assert re.findall("<text.*?</text>", wanted[0], re.S) == re.findall("<text.*?</text>", wanted[1], re.S)
        assert re.findall(' d="(.*?)"', wanted[0]) == re.findall(' d="(.*?)"', wanted[1])


def test_wrong_input(tmp_path):
    path = save(curve([0.5]), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="a report is one HTML page, not .pdf"):
        report(path, out=tmp_path / "a.pdf")
    with pytest.raises(UsageError, match="is a folder; give a file name, such as report.html"):
        report(path, out="")
    (tmp_path / "d.html").mkdir()
    with pytest.raises(UsageError, match="is a folder; give a file name"):
        report(path, out=tmp_path / "d.html")
    with pytest.raises(UsageError, match="expected at least one file of rows"):
        report(out=tmp_path / "p.html")
    with pytest.raises(UsageError, match="is a folder without rows"):
        report(tmp_path / "d.html", out=tmp_path / "p.html")
    with pytest.raises(DataError, match="x.svg: this figure does not exist"):
        report(path, out=tmp_path / "p.html", figure=[tmp_path / "x.svg"])
    (tmp_path / "x.md").write_bytes(b"\xff")
    with pytest.raises(DataError, match="x.md: expected UTF-8 text"):
        report(path, out=tmp_path / "p.html", text=[tmp_path / "x.md"])
    (tmp_path / "no.parquet").write_text("no")
    with pytest.raises(DataError, match="no.parquet: cannot be read as Parquet"):
        report(tmp_path / "no.parquet", out=tmp_path / "p.html")
    assert not (tmp_path / "p.html").exists()


@pytest.mark.parametrize(
    ("value", "fixed", "text"),
    [(0.12345, True, "0.123"), (-0.5, True, "−0.500"), (-0.0001, True, "0.000"), (1e-5, False, "1e−05"),
     (-0.000612, True, "−0.001"), (-0.000836, False, "−0.00084"), (-0.0004, True, "0.000"), (-0.0, True, "0.000"),
     (-0.0, False, "0.000"), (-1234.5, True, "−1,234"), (1234.5, True, "1,234"),
     (2e9, True, "2e+09"), (float("nan"), True, ""), (float("-inf"), True, "−∞")],
)  # fmt: skip
def test_numbers_to_read(value, fixed, text):
    assert number(value, fixed=fixed) == text


def test_tables_keep_exact_numbers():
    rows = pd.DataFrame({"task": ["a", "a"], "value": [1 / 3, 0.5], "ci_low": [0.1, np.nan], "ci_high": [0.2, np.nan]})
    found = table(rows, "x")
    assert found.same == {"task": "a"}
    assert [c.name for c in found.columns] == ["value", "interval"]
    assert found.rows[0][0].exact == repr(1 / 3)
    assert found.rows[0][1].exact == "0.1;0.2"
    assert found.rows[1][1].text == ""


def test_intervals_below_zero_keep_their_sign():
    rows = pd.DataFrame({"value": [-0.000836, 0.5], "ci_low": [-0.0015, -0.0004], "ci_high": [-0.000612, 0.9]})
    assert [[cell.text for cell in row] for row in table(rows, "x").rows] == [
        ["−0.001", "−0.002 – −0.001"], ["0.500", "0.000 – 0.900"],
    ]  # fmt: skip


def test_markdown_headings_stand_under_the_section():
    assert markdown("# a\n\n###### b") == "<h3>a</h3>\n<h6>b</h6>\n"


def test_means_over_runs_are_told_where_the_runs_are_not():
    runs = training("one.fine-tune.0", "fine-tune linear", 0.8)
    mean = runs[0] | {"seeds": 1, "checkpoint": "one"}
    assert trained_rows(make_rows([*runs, mean]))["run"].tolist() == ["one.fine-tune.0"]
    assert trained_rows(make_rows([mean]))["run"].tolist() == ["one"]


def test_differences_of_regimes_are_no_regime():
    runs = [*training("a", "fine-tune linear", 0.8), *training("b", "feature-extraction esim", 0.7)]
    between = runs[0] | {
        "estimator": "fine-tune - feature-extraction",
        "regime": "",
        "head": "",
        "metric": "difference(accuracy)",
        "value": 0.1,
    }
    [row] = regimes(trained_rows(make_rows([*runs, between]))).to_dict("records")
    assert (row["head of fine tuning"], row["fine_tuning"], row["feature_extraction"]) == ("linear", 0.8, 0.7)


@pytest.mark.slow
def test_pages_of_the_explorer_are_linked(tmp_path):
    (tmp_path / "maps").mkdir()
    other = page(curve([0.5, 0.6]), tmp_path)
    sealed = tmp_path / "maps" / "a <b>.html"
    sealed.write_text(other, encoding="utf-8")  # any page that probekit wrote
    html = page(curve([0.5, 0.6]), tmp_path, explore=[str(sealed)])
    assert '<a href="maps/a%20%3Cb%3E.html">a &lt;b&gt;.html</a>' in html
    assert "to explore:" not in other
    sealed.write_text("mine")
    with pytest.raises(UsageError, match="not a page as probekit explore wrote it"):
        page(curve([0.5, 0.6]), tmp_path, explore=[str(sealed)])
