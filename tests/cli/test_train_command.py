"""``probekit train`` and ``probekit evaluate``: what they print, leave and refuse."""

import re
from pathlib import Path

import pytest

from probekit.adaptation.heads.spec import HEADS
from probekit.adaptation.options import Hyperparameters
from probekit.adaptation.runs.folder import read_card
from probekit.cli import main
from probekit.rows import layer_labels, read_rows
from probekit.rows import read_card as evidence_of

QUICK = ["--epochs", "1", "--limit", "24", "--device", "cpu", "--batch-size", "8"]


def run(*words):
    return main(["train", *map(str, words), *QUICK])


@pytest.fixture(scope="module")
def praise(tmp_path_factory):
    """The file of a task of 24 examples, and 30 for dev: 600, as grammar:sentiment has, take seconds to read."""
    folder = tmp_path_factory.mktemp("task")
    for split, n in (("train", 24), ("dev", 30)):
        lines = [f"{('bad', 'good')[i % 2]} cat {i}\t{('bad', 'good')[i % 2]}" for i in range(n)]
        (folder / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines]))
    (folder / "praise.toml").write_text(
        'name = "praise"\nmetrics = ["accuracy"]\n[splits]\ntrain = "train.tsv"\ndev = "dev.tsv"\n'
    )
    return folder / "praise.toml"


@pytest.fixture
def told(capsys):
    """What a command printed: its lines, and what it said of errors."""

    def read():
        out, err = capsys.readouterr()
        return out.splitlines(), err

    return read


def test_fine_tuning_and_evaluating(praise, tiny_bert, tmp_path, told):
    out = tmp_path / "run"
    words = ["--task", praise, "--model", tiny_bert, "--out", out, "--save-at", "2", "--test", "dev"]
    assert run(*words) == 0
    lines, _ = told()
    assert lines[0] == str(out)
    assert lines[1] == f"praise, {tiny_bert.name}, fine-tune with the head linear"
    assert re.fullmatch(r"dev: accuracy \d\.\d{4}, loss \d\.\d{4} \(step 3 of 3, kept: best\)", lines[2])
    assert lines[3].split(" (")[0] == lines[2].split(" (")[0]  # tested on dev, too
    answer = r"dev, constant prediction \(most frequent class of train\): accuracy 0\.\d{4}, log-loss 0\.\d{4}"
    assert re.fullmatch(answer, lines[4])
    assert re.fullmatch(r"\d+\.\d s of training and evaluation", lines[5])
    card = read_card(out)
    assert card["identity"]["batch_size"] == 8
    assert card["examples"] == [24, 30]
    assert evidence_of(out / "rows.parquet")["recipe"]["arguments"]["epochs"] == 1
    assert run(*words) == 0
    assert told()[0] == lines
    for folder in (out / "step-2", out):
        assert main(["evaluate", str(folder), "--split", "dev", "--device", "cpu"]) == 0
        (line, interval, constant), _ = told()
        assert constant == lines[4]
        numbers = ", ".join(f"{k} {v:.4f}" for k, v in read_card(folder)["metrics"].items())
        assert line == f"{card['task']} dev, {card['examples'][1]:,} examples: {numbers}"
        assert interval.startswith("accuracy: 95 % interval ")
    rows = read_rows(out / "rows.parquet")
    (row,) = rows[(rows["split"] == "dev") & rows["kept"] & (rows["metric"] == "accuracy")].to_dict("records")[:1]
    assert interval == f"accuracy: 95 % interval {row['ci_low']:.4f} to {row['ci_high']:.4f}"


@pytest.mark.parametrize("apart", [pytest.param(False, marks=pytest.mark.slow), True], ids=["beside", "data-dir"])
def test_a_task_of_ones_own_is_found_again(apart, tiny_bert, tmp_path, told, monkeypatch):
    files = tmp_path / "files" if apart else tmp_path
    files.mkdir(exist_ok=True)
    for split, n in (("train", 24), ("dev", 9), ("exam", 8)):
        lines = [f"{('bad', 'good')[i % 2]} cat\t{i % 2}" for i in range(n)]
        (files / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines]))
    (tmp_path / "mine.toml").write_text('[splits]\ntrain = "train.tsv"\ndev = "dev.tsv"\nexam = "exam.tsv"\n')
    monkeypatch.chdir(tmp_path)
    where = ["--data-dir", "files"] if apart else []
    assert run("--task", "mine.toml", *where, "--model", tiny_bert, "--out", "run", "--test", "exam") == 0
    assert read_card("run")["task"] == "mine"
    monkeypatch.chdir("/")
    told()
    assert main(["evaluate", str(tmp_path / "run"), "--split", "exam", "--device", "cpu"]) == 0
    assert f"accuracy {read_card(tmp_path / 'run')['test']['accuracy']:.4f}" in told()[0][0]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "exam.tsv").write_text("text\tlabel\n")
    assert main(["evaluate", str(tmp_path / "run"), "--split", "exam", "--data-dir", str(tmp_path / "other")]) == 2
    assert str(tmp_path / "other") in told()[1]


@pytest.mark.slow
def test_the_checkpoints_are_models_of_every_command(tiny_bert, tmp_path, told):
    out = tmp_path / "run"
    task = ["--task", "grammar:sentiment"]
    assert run(*task, "--model", tiny_bert, "--out", out, "--save-at", "log-spaced") == 0
    steps = sorted(out.glob("step-*"))
    assert [s.name for s in steps] == ["step-0", "step-1", "step-2", "step-3"]
    told()
    for step in steps[::3]:
        cached = ["cache-activations", "--model", str(step), *task, "--split", "dev", "--limit", "9"]
        assert main([*cached, "--out", str(tmp_path / f"{step.name}.h5"), "--device", "cpu"]) == 0
        assert main(["verify", str(tmp_path / f"{step.name}.h5")]) == 0


def test_feature_extraction(tiny_bert, tmp_path, told):
    out = tmp_path / "run"
    words = ["--task", "grammar:similarity", "--model", tiny_bert, "--out", out, "--caches", tmp_path / "caches"]
    words += ["--regime", "feature-extraction", "--head", "linear", "--layers", "0, -1"]
    assert run(*words) == 0
    lines, _ = told()
    assert lines[1].endswith("feature-extraction with the head linear")
    assert re.fullmatch(r"layers: 0 0\.\d{3}, 3 0\.\d{3}", lines[4])
    assert lines[3].startswith(
        "dev, constant prediction (mean of train): pearson 0.0000, spearman 0.0000, mean-squared-err"
    )
    assert run(*words) == 0
    assert told()[0] == lines
    assert set(layer_labels(read_rows(out / "rows.parquet"))) == {"", "0", "3"}
    cache = Path(read_card(out)["caches"][1])
    assert cache.parent == tmp_path / "caches"
    assert main(["evaluate", str(out), "--cache", str(cache), "--device", "cpu"]) == 0
    (line, *intervals, constant), _ = told()
    assert constant == lines[3]
    assert line.endswith(" examples: " + ", ".join(f"{k} {v:.4f}" for k, v in read_card(out)["metrics"].items()))
    assert [text.partition(":")[0] for text in intervals] == list(read_card(out)["metrics"])[:-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task", "grammar:nonsense"], "unknown task 'grammar:nonsense'"),
        (["--head", "crf"], "the head 'crf' is for sequence-labelling"),
        (["--regime", "both"], 'Invalid value "both" for --regime. Choose from: "fine-tune", "feature-extraction"'),
        (["--optimizer", "sgd"], 'Invalid value "sgd" for --optimizer. Choose from: "adamw", "bert-adamw"'),
        (["--save-at", "soon"], "--save-at is 'soon'; it must be steps such as 10,20,50"),
        (["--test", "exam"], "has no split 'exam'; it has train, dev"),
        (["--learning-rate", "fast"], "--learning-rate is 'fast'; it must be a number"),
        (["--layers", "0"], "are for feature extraction"),
        (["--dtype", "float16"], "float16 training needs a GPU"),
        (["--learning-rate", "1e9", "--epochs", "4", "--warmup", "0"], "the loss is not finite at step"),
        (["--model", "/nowhere/at/all"], "there is no folder /nowhere/at/all; give a hub id, or a folder"),
        (["--report-to", "nobody"], "nobody is not supported"),
    ],
    ids=lambda x: x[0][2:] if isinstance(x, list) else "",
)
def test_errors_are_one_line(words, message, praise, tiny_bert, tmp_path, told):
    given = {"--task": str(praise), "--model": str(tiny_bert), "--out": str(tmp_path / "run")}
    given |= dict(zip(QUICK[::2], QUICK[1::2], strict=True))
    given |= dict(zip(words[::2], words[1::2], strict=True))
    assert main(["train", *(x for pair in given.items() for x in pair)]) == 2
    lines, err = told()
    assert lines == []
    assert err.count("\n") == 1
    assert message in err
    assert not list(tmp_path.glob("run/*.safetensors"))


def test_what_is_missing(told):
    assert main(["train", "--task", "cola"]) == 2
    assert "--model is missing" in told()[1]


@pytest.mark.slow
def test_another_run_in_the_folder(tiny_bert, tmp_path, told):
    words = ["--task", "grammar:sentiment", "--model", tiny_bert, "--out", tmp_path / "run"]
    assert run(*words) == 0
    assert run(*words, "--seed", "1") == 2
    assert (
        "holds another run: its seed is 0, not 1. Give another --out, or replace that run with --overwrite."
        in told()[1]
    )
    assert run(*words, "--seed", "1", "--overwrite") == 0
    assert read_card(tmp_path / "run")["seeds"] == {"seed": 1}


@pytest.mark.slow
def test_a_run_has_the_name_that_it_is_given(tiny_bert, tmp_path):
    caches = ["--regime", "feature-extraction", "--head", "linear", "--caches", tmp_path / "caches"]
    for regime, more in (("fine", []), ("features", caches)):
        out = tmp_path / regime / "run"
        words = ["--task", "grammar:sentiment", "--model", tiny_bert, "--out", out, *more]
        assert run(*words, "--run-name", regime) == 0
        assert read_card(out)["run"] == regime
        assert set(read_rows(out / "rows.parquet")["checkpoint"]) == {regime}


def test_interrupted_from_the_keyboard(praise, tiny_bert, tmp_path, told, monkeypatch):
    from probekit.adaptation.training.learners import FineTuning

    def stop(*_, **__):
        raise KeyboardInterrupt

    words = ["--task", praise, "--model", tiny_bert, "--out", tmp_path / "run"]
    with monkeypatch.context() as patch:
        patch.setattr(FineTuning, "states", stop)
        assert run(*words) == 130
    assert "run the same command again to resume" in told()[1]
    assert run(*words) == 0


@pytest.mark.slow
def test_what_cannot_be_evaluated(tiny_bert, tmp_path, told):
    assert main(["evaluate", str(tiny_bert)]) == 2
    assert "is not a run: it has no probekit.json" in told()[1]
    out, caches = tmp_path / "run", tmp_path / "caches"
    words = ["--task", "grammar:sentiment", "--model", tiny_bert]
    extract = ["--regime", "feature-extraction", "--head", "linear", "--caches", caches]
    assert run(*words, "--out", out, *extract) == 0
    found = tmp_path / "found.parquet"
    again = ["evaluate", str(out), "--split", "dev", "--caches", str(caches)]
    assert main([*again, "--task", "grammar:sentiment", "--out", str(found)]) == 0
    rows = read_rows(found)
    rows = rows[rows["headline"].astype(bool)].set_index("task")
    card = read_card(out)
    assert rows.loc["grammar:sentiment", "value"] == pytest.approx(card["metrics"]["accuracy"])
    assert set(rows["trained_on"]) == {"grammar:sentiment"}
    assert set(rows["checkpoint"]) == {"run"}
    moved = out.with_name("moved")
    Path(tiny_bert).rename(moved)
    assert main([*again, "--model", str(moved)]) == 0
    assert main(again) == 2
    assert str(tiny_bert) in told()[1]
    moved.rename(tiny_bert)
    assert main([*again, "--task", "grammar:sentiment", "--cache", card["caches"][1]]) == 2
    assert "give one of them" in told()[1]
    assert run(*words, "--out", tmp_path / "fine") == 0
    told()
    assert main(["evaluate", str(tmp_path / "fine"), "--cache", read_card(out)["caches"][1]]) == 2
    assert "reads text; give --task instead of --cache" in told()[1]
    assert main(["evaluate", str(tmp_path / "fine")]) == 2
    assert "has no split 'test'; it has train, dev" in told()[1]


def test_help_tells_the_rates_that_are_used(capsys):
    assert main(["train", "--help"]) == 0
    words = " ".join(re.findall(r"[\w.,:;-]+", capsys.readouterr().out))

    def rate(regime, **given):
        return Hyperparameters(regime=regime, **given).learning_rate

    assert "5e-5 for fine-tuning; 1e-3 for feature extraction, 1e-2 with heads without a hidden layer" in words
    plain = ("linear", "softmax", "crf", "pair", "rating")
    for head in HEADS:
        assert rate("fine-tune", head=head) == 5e-5
        assert rate("feature-extraction", head=head) == (1e-2 if head in plain else 1e-3)
    assert rate("feature-extraction", head="linear", learning_rate=0.5) == 0.5


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_help_has_examples(command, capsys):
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Examples" in out
    assert f"probekit {command} " in out


def test_help_has_a_panel_for_each_class_of_options(capsys):
    assert main(["train", "--help"]) == 0
    panels = re.split(r"\n╭─ (.+?) ─+╮\n", capsys.readouterr().out)
    titles, texts = panels[1::2], panels[2::2]
    assert titles[:2] == ["Parameters", "Data and run"]
    inside = dict(zip(titles, texts, strict=True))
    assert "--task" in inside["Parameters"]
    for title, option in (("Head", "--pooling"), ("Training", "--warmup"), ("Optimisation", "--penalty-strength")):
        assert [name for name, text in inside.items() if f"{option} " in text] == [title]


def test_several_labels_and_numbers(tiny_bert, tmp_path, told):
    lines = [f"the {'good ' * (i % 2)}cat {i}\t{i % 2}\t{int(i % 3 == 0)}\t{i % 4}.5" for i in range(30)]
    (tmp_path / "texts.tsv").write_text("\n".join(["text\tpraise\tthird\tmark", *lines]))
    head = '[splits]\ntrain = "texts.tsv"\ndev = "texts.tsv"\n'
    (tmp_path / "labels.toml").write_text('name = "labels"\nlabel = ["praise", "third"]\n' + head)
    (tmp_path / "numbers.toml").write_text('name = "numbers"\ntype = "regression"\nlabel = ["mark", "third"]\n' + head)
    for name, also, metrics in (
        ("labels", "numbers", "micro-f1 .*, macro-f1"),
        ("numbers", "labels", "pearson .*, sp"),
    ):
        out, more = tmp_path / name, ["--also", tmp_path / f"{also}.toml"]
        assert run("--task", tmp_path / f"{name}.toml", "--model", tiny_bert, "--out", out, *more) == 0
        lines, _ = told()
        assert re.match(f"dev: {metrics}", lines[2])
        assert {line.split()[0] for line in lines if "constant prediction" in line} == {"labels", "numbers"}
        tables = [i for i, line in enumerate(lines) if line.endswith("dev: each label alone")]
        assert len(tables) == 2
        assert main(["evaluate", str(out), "--split", "dev", "--device", "cpu"]) == 0
        again, _ = told()
        assert again[0].startswith(f"{name} dev, 30 examples: ")
        at = again.index(f"{name} dev: each label alone")
        assert again[at : at + 6] == lines[tables[0] : tables[0] + 6]
