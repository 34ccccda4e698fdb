"""One command from a model and a task to caches, probes, a page and the verdict."""

import json
import re
import shlex
from html import unescape

import pytest
from pages import undrawn

import probekit
from probekit.cli import main
from probekit.errors import UsageError
from probekit.rows import read_rows

TASK = "grammar:sentiment"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_quick_look_says_so_and_is_not_done_again(here, tiny_bert, capsys, monkeypatch):
    undrawn(monkeypatch)
    words = ["run", str(tiny_bert), TASK, "--quick", "--limit", "40", "--out", "look"]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "sentiment: " in told
    assert "shuffled labels (" not in told  # no probe was fitted on them
    assert re.search(r"sentiment: .* beats? permuted labels \(.*p adjusted", told)
    assert "No probe was trained on shuffled labels; p comes from permuting" in told
    assert "Quick look: the penalty was chosen on one held-out part of train" in told
    assert told.endswith("look/quick.html\n")
    assert "Quick look" in (here / "look/quick.html").read_text()
    [rows] = (here / "look/rows").glob("probe-*mean.parquet")
    assert set(read_rows(rows)["target"]) == {"gold"}
    card = json.loads(rows.with_name(f"{rows.name}.json").read_text())
    assert card["verdict"][-2].startswith("Quick look")
    assert main(words) == 0
    assert "6 reused" in capsys.readouterr().out


@pytest.mark.slow
def test_the_commands_that_are_printed_run(here, tiny_bert, capsys):
    words = ["run", str(tiny_bert), TASK, "--quick", "--limit", "40", "--out", "look"]
    assert main([*words, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not (here / "look").exists()
    assert [shlex.split(line)[1] for line in lines] == [
        *("cache-activations", "cache-activations", "probe", "plot", "summary", "report")
    ]
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0, line
    made = read_rows(next((here / "look/rows").glob("probe-*mean.parquet")))
    assert main([*words[:-1], "other"]) == 0
    again = read_rows(next((here / "other/rows").glob("probe-*mean.parquet")))
    assert made.equals(again)


@pytest.mark.slow
def test_poolings_layers_and_precision_reach_the_caches(here, tiny_bert, capsys):
    options = ["--pooling", "last,mean", "--dtype", "bf16", "--layers", "0,1-2", "--batch-tokens", "512"]
    assert main(["run", str(tiny_bert), TASK, "--quick", *options, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    caches = [line for line in lines if line.startswith("probekit cache-activations")]
    assert len(caches) == 2
    for line in caches:
        for words in ("--pooling last,mean", "--dtype bfloat16", "--layers 0,1,2", "--batch-tokens 512"):
            assert words in line
    probes = [line for line in lines if line.startswith("probekit probe")]
    assert ["--pooling last" in line for line in probes] == [True, False]
    assert ["--pooling mean" in line for line in probes] == [False, True]
    result = probekit.run(
        tiny_bert, TASK, pooling=("last", "mean"), dtype="bf16", layers="1-2", limit=40, quick=True, out="look"
    )
    of_layers = result.rows[result.rows["site"] != ""]
    assert set(zip(of_layers["representation"], of_layers["layer"], strict=True)) == {
        ("last", 1), ("last", 2), ("mean", 1), ("mean", 2),
    }  # fmt: skip
    assert {probekit.ActivationCache(path).spec["dtype"] for path in (here / "look/caches").iterdir()} == {"bfloat16"}
    for refused, message in ({"dtype": "bf8"}, "dtype is 'bf8'"), ({"batch_tokens": 0}, "batch_tokens is 0"):
        with pytest.raises(UsageError, match=message):
            probekit.run(tiny_bert, TASK, **refused)


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["grammar:paraphrase", "--quick"]], ids=["whole", "quick"])
def test_the_report_says_what_was_printed(here, tiny_bert, capsys, more):
    """Of two poolings, whose p-values are corrected together; probes first, tasks in the order of the command."""
    words = ["run", str(tiny_bert), TASK, *more, "--pooling", "last,mean", "--limit", "40", "--out", "look"]
    assert main(words) == 0
    *_, printed, page = capsys.readouterr().out.strip().split("\n\n")
    assert "sentiment: last: " in printed
    assert "sentiment: mean: " in printed
    assert ("paraphrase: " in printed) == bool(more)
    html = (here / page).read_text()
    [told] = re.findall('<ul class="verdicts">(.*?)</ul>', html)
    assert [unescape(sentence) for sentence in re.findall("<li>(.*?)</li>", told)] == printed.splitlines()


@pytest.mark.slow
def test_a_whole_run_has_its_controls(here, tiny_bert):
    result = probekit.run(tiny_bert, TASK, limit=40)
    assert set(result.rows["analysis"]) == {"probe", "mi"}
    assert set(result.rows["random_weights"].dropna()) == {0}
    assert result.rows["target"].eq("shuffled").any()
    assert result.recipe.function == "run"
    assert any("with random weights" in sentence for sentence in result.verdict)
    assert not any("quick" in sentence for sentence in result.verdict)
    [folder] = (here / "probekit-run").iterdir()
    cards = [json.loads(path.read_text()) for path in (folder / "rows").glob("[pm]*.parquet.json")]
    assert sorted(text for card in cards for text in card["verdict"]) == sorted(result.verdict)
    assert folder.name.endswith("-grammar-sentiment")
    assert (folder / "report.html").is_file()
    assert [p.name for p in (folder / "rows").glob("summary*.parquet")] == ["summary.parquet"]


def test_what_cannot_be_run_is_told_before_anything_is_made(here, tiny_bert):
    with pytest.raises(UsageError, match="unknown task 'rtee'"):
        probekit.run(tiny_bert, "rtee")
    with pytest.raises(UsageError, match="expected one or more of mean"):
        probekit.run(tiny_bert, TASK, pooling="median")
    with pytest.raises(probekit.ProbekitError, match="no-such-model"):
        probekit.run("no-such-model", TASK)
    with pytest.raises(UsageError, match="rte is a task, and the model comes first: probekit run minilm rte"):
        probekit.run("rte", "minilm")
    with pytest.raises(
        UsageError, match="includes random weights already: probekit run minilm rte. For them only, use"
    ):
        probekit.run("random:minilm", "rte")
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    ("dev", "told"),
    [
        (
            "good words,\nbad words,\n",
            r"of dev .dev.csv. has a label, and probes need labels. Name a labelled file for dev in mine.toml",
        ),
        (
            "film 1,yes\nfilm 2,no\n",
            "every text of dev is also in train, .* Name a file with other texts for dev in mine",
        ),
    ],
)
def test_data_that_show_nothing_are_told_before_anything_is_made(here, tiny_bert, dev, told):
    (here / "train.csv").write_text("text,label\n" + "".join(f"film {i},{('yes', 'no')[i % 2]}\n" for i in range(30)))
    (here / "dev.csv").write_text(f"text,label\n{dev}")
    (here / "mine.toml").write_text('[splits]\ntrain = "train.csv"\ndev = "dev.csv"\n')
    with pytest.raises(UsageError, match=told):
        probekit.run(tiny_bert, "mine.toml")
    assert not (here / "probekit-run").exists()


def test_a_limit_is_for_train_and_dev(here, tiny_bert, capsys):
    (here / "train.csv").write_text("text,label\n" + "".join(f"film {i},{('yes', 'no')[i % 2]}\n" for i in range(30)))
    (here / "dev.csv").write_text("text,label\na,yes\nb,no\n")
    (here / "mine.toml").write_text('[splits]\ntrain = "train.csv"\ndev = "dev.csv"\n')
    assert main(["run", str(tiny_bert), "mine.toml", "--limit", "2", "--dry-run"]) == 0
    assert capsys.readouterr().out.count("--limit 2") == 4  # of train and dev, trained and random


def test_files_of_others_stay(here, tiny_bert):
    (here / "look").mkdir()
    (here / "look/study.json").write_text("mine")
    with pytest.raises(UsageError, match=r"is not what a study notes of itself"):
        probekit.run(tiny_bert, TASK, quick=True, limit=40, out="look")
    assert (here / "look/study.json").read_text() == "mine"


def test_words_in_context_are_read_as_words(here, tiny_bert, capsys):
    """Without a pooling the two marked words are read, with one the whole texts; tasks of spans are read as spans."""
    rows = [f"the cat {i} sees,a dog and a cat {i * i},4:7,12:15,{'TF'[i % 2]},{i}\n" for i in range(20)]
    for split, some in (("train", rows[:14]), ("dev", rows[14:])):
        (here / f"{split}.csv").write_text(f"one,two,at,at2,label,n\n{''.join(some)}")
        targets = '[{"span1": [1, 2], "label": "x"}, {"span1": [0, 1], "label": "y"}]'
        lines = [f'{{"text": "the cat {i} {split}", "targets": {targets}}}\n' for i in range(12)]
        (here / f"{split}.jsonl").write_text("".join(lines))
    columns = 'text = "one"\npair = "two"\nspan = "at"\npair_span = "at2"\ngroups = "n"\n'
    (here / "wic.toml").write_text(f'{columns}[splits]\ntrain = "train.csv"\ndev = "dev.csv"\n')
    head = 'type = "span-labelling"\ntargets = "targets"\nunit = "words"\n'
    (here / "spans.toml").write_text(f'{head}[splits]\ntrain = "train.jsonl"\ndev = "dev.jsonl"\n')

    def told(*words):
        assert main(["run", str(tiny_bert), *words, "--dry-run"]) == 0
        lines = capsys.readouterr().out.splitlines()
        return (
            [line for line in lines if line.split()[1] in names] for names in (["cache-activations"], ["probe", "mi"])
        )

    caches, analyses = told("wic.toml")
    assert all("--positions span" in line and "--tokens" in line for line in caches)
    assert ["--span mean" in line for line in analyses] == [True, True]
    caches, analyses = told("wic.toml", "--pooling", "mean")
    assert not any("--tokens" in line or "--span" in line for line in (*caches, *analyses))
    caches, analyses = told("spans.toml")
    assert all("--tokens" in line and "--positions" not in line for line in caches)
    assert ["--span mean" in line for line in analyses] == [True, True]
    result = probekit.run(tiny_bert, "wic.toml", quick=True, layers="1", out="look")
    probes = result.rows[result.rows["site"] != ""]
    assert set(probes["representation"]) == {"mean"}
    assert "cosine" in set(result.rows["representation"])


def test_rows_of_other_options_are_kept(here, tiny_bert, caplog):
    how = {"quick": True, "layers": "1", "out": "look"}
    first = probekit.run(tiny_bert, TASK, limit=40, **how)
    [rows] = (here / "look/rows").glob("probe-*mean.parquet")
    probekit.run(tiny_bert, TASK, limit=30, **how)
    assert "made with other options or data are kept in look/replaced" in caplog.text
    assert set(read_rows(rows)["n"]) == {30}
    [kept] = (here / "look/replaced").glob(f"*/rows/{rows.name}")
    before = probekit.read(kept)
    assert set(before.rows["n"]) == {40}
    assert before.card["recipe"]["function"] == "probe"
    assert len(before.predictions[0].ids) == 40
    assert before.rows["value"].equals(first.rows["value"])
