"""``probekit domains``: from texts to rows, tables, counts to merge, and one sentence for what is wrong."""

import gzip
import inspect
import json
import re

import numpy as np
import pandas as pd
import pytest

import probekit
from probekit.cli import main
from probekit.domains import count_domains
from probekit.domains.corpora import corpus_digest
from probekit.domains.divergence import js_divergence
from probekit.domains.terms import load_counts
from probekit.errors import UsageError
from probekit.rows import read_card, read_rows
from probekit.tasks import load_task

COMMON = "the of and to in a is that it was for on with as".split()
OWN = {"sea": "ship whale sail wave harbour".split(), "law": "court judge claim statute appeal".split()}
QUICK = ["--resamples", "100", "--draws", "19"]


def sentences(name, n, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join([*rng.choice(COMMON, 6), *rng.choice(OWN[name], 3)]).capitalize() for _ in range(n)]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sea").mkdir()
    (tmp_path / "sea/one.txt").write_text("\n\n".join(sentences("sea", 60)), encoding="utf-8")
    (tmp_path / "sea/two.txt.gz").write_bytes(gzip.compress("\n\n".join(sentences("sea", 40, 1)).encode()))
    lines = (json.dumps({"id": i, "body": text}) for i, text in enumerate(sentences("law", 80)))
    (tmp_path / "law.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def test_from_texts_to_rows_and_tables(folder, capsys):
    out = folder / "rows.parquet"
    texts = [f"sea={folder / 'sea'}", f"law={folder / 'law.jsonl'}", "--field", "body"]
    also = ["--measure", "js-divergence, vocabulary-overlap", "--explain", "sea,law", "--top", "3", "--seed", "5"]
    assert main(["domains", *texts, *also, *QUICK, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "2 domains, 24 terms" in shown
    assert "sea, law: the terms that make up" in shown
    assert "(all other terms)" in shown
    rows = read_rows(out)
    terms = count_domains({"sea": sentences("sea", 60) + sentences("sea", 40, 1), "law": sentences("law", 80)}, seed=5)
    p, q = terms.distributions
    gold = rows[(rows["target"] == "gold") & (rows["metric"] == "js-divergence")].iloc[0]
    assert gold["raw"] == pytest.approx(js_divergence(p, q), abs=1e-12)
    assert gold["ci_low"] < gold["value"] < gold["raw"]
    assert gold["p"] == 0.05  # none of 19 draws is as far
    assert (gold["documents_a"], gold["documents_b"]) == (100, 80)
    explained = rows[rows["metric"] == "js-contribution"]
    assert len(explained) == 4
    assert explained["value"].sum() == pytest.approx(gold["raw"])
    assert set(explained["term"][:3]) <= {*OWN["sea"], *OWN["law"]}
    card = read_card(out)
    read = card["reads"][0]
    assert (read["kind"], read["domain"], read["digest"]) == ("corpus", "sea", corpus_digest(folder / "sea")[0])
    assert gold[["tokens_a", "pruned_a", "terms"]].tolist() == [900, 0, 24]
    assert card["recipe"]["arguments"]["seed"] == 5
    assert set(rows["analysis"]) == {"domains"}


def test_a_command_a_call_and_a_recipe_leave_the_same(folder, tmp_path):
    texts = [f"sea={folder / 'sea'}", f"law={folder / 'law.jsonl'}"]
    asked = {"field": "body", "measure": "js-divergence,kl", "explain": [("sea", "law")], "resamples": 100, "draws": 19}
    called = probekit.domains(*texts, **asked, top=2, cased=True, out=tmp_path / "called.parquet")
    words = ["--field", "body", "--measure", "js-divergence,kl", "--explain", "sea,law", "--top", "2", "--cased"]
    assert main(["domains", *texts, *words, *QUICK, "--out", str(tmp_path / "typed.parquet")]) == 0
    assert main([*called.recipe.words()[1:-2], "--out", str(tmp_path / "again.parquet")]) == 0
    called.recipe.run(out=tmp_path / "run.parquet")
    cards = [read_card(tmp_path / f"{name}.parquet") for name in ("called", "typed", "again", "run")]
    for card in cards:
        card["recipe"].pop("leaves")
        for key in ("rows", "words", "seconds", "created"):
            card.pop(key)
    assert cards[1:] == cards[:1] * 3
    for name in ("typed", "again", "run"):
        pd.testing.assert_frame_equal(read_rows(tmp_path / f"{name}.parquet"), called.rows)


def test_the_package_takes_the_calls_of_the_function(folder):
    assert probekit.domains.count_domains is count_domains
    assert "measure" in inspect.signature(probekit.domains).parameters
    with pytest.raises(UsageError, match="has no parameter 'mesure'; did you mean measure"):
        probekit.domains("a=b", mesure="kl")


def test_where_it_is_counted_is_no_part_of_the_recipe(folder, tmp_path):
    asked = {"resamples": 100, "draws": 19, "counts": tmp_path / "counts.parquet"}
    result = probekit.domains(f"sea={folder / 'sea'}", **asked)
    assert result.recipe.leaves == {"counts": str(tmp_path / "counts.parquet")}
    assert load_counts(tmp_path / "counts.parquet")[0].name == "sea"


@pytest.mark.slow
def test_halves_that_were_counted_apart_give_the_whole(folder, tmp_path, capsys):
    law = [f"law={folder / 'law.jsonl'}", "--field", "body"]
    for name, path in (("one", "sea/one.txt"), ("two", "sea/two.txt.gz")):
        assert main(["domains", f"sea={folder / path}", "--counts", str(tmp_path / f"{name}.parquet"), *QUICK]) == 0
    assert main(["domains", *law, "--counts", str(tmp_path / "law.parquet"), *QUICK]) == 0
    parts = [str(tmp_path / f"{name}.parquet") for name in ("one", "two", "law")]
    kept = ["--sizes", *QUICK, "--counts", str(tmp_path / "all.parquet"), "--out"]
    assert main(["domains", *parts, *kept, str(tmp_path / "merged.csv")]) == 0
    assert (
        main(["domains", f"sea={folder / 'sea'}", *law, "--sizes", *QUICK, "--out", str(tmp_path / "whole.csv")]) == 0
    )
    assert (tmp_path / "merged.csv").read_text() == (tmp_path / "whole.csv").read_text()
    assert "js-divergence-by-size" in (tmp_path / "whole.csv").read_text()
    assert [(c.name, c.documents) for c in load_counts(tmp_path / "all.parquet")] == [("sea", 100), ("law", 80)]
    capsys.readouterr()
    assert main(["domains", parts[0], *law, "--seed", "1", *QUICK]) == 2
    assert "differ in their settings (seed 0 and 1)" in capsys.readouterr().err


def test_the_domains_of_a_task(tmp_path, capsys):
    lines = [f"{text}\t{text}s\t{int(name == 'sea')}\t{name}" for name in OWN for text in sentences(name, 30)]
    (tmp_path / "train.tsv").write_text("\n".join(["a\tb\tlabel\twhere", *lines]), encoding="utf-8")
    (tmp_path / "t.toml").write_text(
        'name = "t"\ntext = "a"\npair = "b"\ndomain = "where"\n[splits]\ntrain = "train.tsv"\n', encoding="utf-8"
    )
    out = tmp_path / "rows.parquet"
    assert main(["domains", "--task", str(tmp_path / "t.toml"), *QUICK, "--out", str(out)]) == 0
    gold = read_rows(out).query("target == 'gold'").iloc[0]
    assert (gold["domain_a"], gold["domain_b"], gold["n"]) == ("law", "sea", 60)
    assert gold["tokens_a"] == 30 * 18  # both sentences
    read = read_card(out)["reads"][0]
    task = load_task(str(tmp_path / "t.toml"))
    assert (read["kind"], read["split"], read["digest"]) == ("data", "train", task.split("train").digest())
    assert (
        main(["domains", "--task", "grammar:sentiment", "--split", "dev", f"own={tmp_path / 'train.tsv'}", *QUICK]) == 2
    )
    assert "the domain 'own' is a single document" in capsys.readouterr().err


def test_a_tokenizer_of_the_hub_s_kind(folder, tiny_bert, tmp_path, capsys):
    import tokenizers

    out = tmp_path / "counts.parquet"
    command = ["domains", f"sea={folder / 'sea'}", "--tokenizer", str(tiny_bert), "--counts", str(out), *QUICK]
    assert main(command) == 0
    [counts] = load_counts(out)
    backend = tokenizers.Tokenizer.from_file(str(tiny_bert / "tokenizer.json"))
    backend.no_truncation()
    texts = sentences("sea", 60) + sentences("sea", 40, 1)
    expected = [backend.encode(text, add_special_tokens=False).tokens for text in texts]
    assert counts.tokens == sum(map(len, expected))
    assert set(counts.terms) == {term for terms in expected for term in terms}
    assert counts.settings["tokenizer"].startswith(tiny_bert.name)
    (tmp_path / "empty").mkdir()
    assert main(["domains", f"sea={folder / 'sea'}", "--tokenizer", "./none", *QUICK]) == 2
    assert "'./none' is not a tokenizer" in capsys.readouterr().err


def test_stop_words_and_the_mass_outside(folder, tmp_path):
    (tmp_path / "stop.txt").write_text("The\nof\n\n", encoding="utf-8")
    texts = [f"sea={folder / 'sea'}", f"law={folder / 'law.jsonl'}", "--field", "body", *QUICK]
    out = tmp_path / "rows.parquet"
    assert main(["domains", *texts, "--stop-words", str(tmp_path / "stop.txt"), "--out", str(out)]) == 0
    left_out = read_rows(out).query("target == 'gold'").iloc[0]
    words = " ".join(sentences("law", 80)).lower().split()
    assert left_out["outside_b"] == pytest.approx((words.count("the") + words.count("of")) / len(words))


WRONG = {
    "nothing": ([], "no text was given; write NAME=PATH"),
    "no name": (["{0}/sea"], "has no domain name; write NAME="),
    "twice": (["a={0}/sea", "a={0}/law.jsonl"], "several domains are called 'a'"),
    "missing": (["a={0}/none.txt"], "none.txt: there is no such file or folder"),
    "no field": (["a={0}/law.jsonl"], "law.jsonl, line 1: there is no field 'text'; the fields are 'id', 'body'"),
    "one document": (["a={0}/sea", "b={0}/b.txt"], "the domain 'b' is a single document"),
    "undecodable": (["a={0}/sea", "b={0}/bad.txt"], "bad.txt: byte 0xe9 at offset 3 is not UTF-8"),
    "unknown pair": (["a={0}/sea", "--explain", "a,c"], "cannot explain the unknown domain 'c'; the domains are a"),
    "no pair": (["a={0}/sea", "--explain", "a"], "explain must be two different domains A,B"),
    "no split": (["a=hub:some/set"], "lacks a split; write hub:REPO@SPLIT"),
    "no task": (["a={0}/sea", "--split", "dev"], "--data-dir and --split belong to --task"),
    "measure": (["a={0}/sea", "b={0}/sea", "--measure", "l7"], "unknown measure 'l7'"),
    "no other": (
        ["a={0}/sea", "--measure", "proxy-a-distance"],
        "proxy-a-distance compares pairs of domains; give two",
    ),
    "document": (
        ["a={0}/sea", "--document", "page"],
        '"page" for --document. Choose from: "paragraph", "line", "file"',
    ),
    "counts": (["{0}/x.parquet"], "x.parquet: cannot be read"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_one_sentence(folder, capsys, case):
    (folder / "b.txt").write_text("all in one document", encoding="utf-8")
    (folder / "bad.txt").write_bytes(b"caf\xe9")
    arguments, message = WRONG[case]
    assert main(["domains", *(a.format(folder) for a in arguments), *QUICK]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_hypotheses_of_a_premise_are_one_document(tmp_path):
    """Read apart they would count as documents that tell the same: three of each premise, and its words three times."""
    pairs = [(f"{genre} premise{i} .", f"hypothesis{i}{k} .") for genre in OWN for i in range(4) for k in range(3)]
    rows = [f"{p}\t{h}\t{p.split()[0]}\tyes" for p, h in pairs]
    (tmp_path / "train.tsv").write_text("\n".join(["a\tb\tgenre\tlabel", *rows, rows[0]]) + "\n")
    told = 'text = "a"\npair = "b"\ndomain = "genre"\nlabel = "label"\n[splits]\ntrain = "train.tsv"\n'
    (tmp_path / "task.toml").write_text(told)
    assert (
        main(["domains", "--task", str(tmp_path / "task.toml"), *QUICK, "--counts", str(tmp_path / "c.parquet")]) == 0
    )
    for counts in load_counts(tmp_path / "c.parquet"):
        assert counts.documents == 4
        assert counts.tokens == 4 * (2 + 3)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["c.parquet", "./c.parquet"], "c.parquet is given twice"),
        (
            ["none=none.txt", "--measure", "nonsense"],
            "unknown measure 'nonsense'; it must be one of js-divergence, .*proxy-a-distance",
        ),
        (["none=none.txt", "--measure", ""], "unknown measure ''"),
        (["none=none.txt", "--counts", "c.txt"], "--counts must be a separate .parquet file"),
        (["none=none.txt", "--counts", "c.parquet", "--out", "c.parquet"], "--counts must be a separate .parquet file"),
    ],
)
def test_what_is_told_before_anything_is_read(words, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["domains", *words]) == 2
    assert re.search(says, " ".join(capsys.readouterr().err.split()))


def test_options_that_a_file_of_counts_cannot_follow_are_refused(folder, tmp_path, capsys):
    counts = str(tmp_path / "sea.parquet")
    assert main(["domains", f"sea={folder / 'sea'}", "--counts", counts, "--seed", "3", *QUICK]) == 0
    capsys.readouterr()
    for given, says in (
        (["--cased"], "--cased contradicts {}, which was counted with lower 1, not 0"),
        (["--tokenizer", "whitespace"], "tokenizer word, not whitespace"),
        (["--document", "line"], "unit paragraph, not line"),
        (["--blocks", "10"], "blocks 1000, not 10"),
    ):
        assert main(["domains", counts, *given, *QUICK]) == 2
        assert says.format(counts) in capsys.readouterr().err
    out = tmp_path / "rows.csv"
    same = ["--blocks", "1000", "--document", "paragraph", "--tokenizer", "word"]
    assert main(["domains", counts, *same, "--seed", "8", *QUICK, "--out", str(out)]) == 0
    assert (read_rows(out)["seed"] == 8).all()


def test_likeness_is_shown_the_nearest_first_and_infinity_as_such(tmp_path, capsys):
    rng = np.random.default_rng(0)
    words = {"a": "one two three four".split(), "b": "one two three five".split(), "c": "six seven".split()}
    for name, own in words.items():
        text = "\n".join(" ".join(rng.choice(own, 8)) for _ in range(20))
        (tmp_path / name).write_text(text, encoding="utf-8")
    sources = [f"{name}={tmp_path / name}" for name in words]
    measures = "js-similarity,bhattacharyya,cosine"
    assert main(["domains", *sources, "--document", "line", "--measure", measures, *QUICK]) == 0
    shown = capsys.readouterr().out
    alike, apart, cosine = shown.split("95 % interval")[1:]
    assert alike.index("a – b") < alike.index("a – c")
    assert "≥ 95 %" in alike
    for table in (apart, cosine):
        assert table.index("a – b") < table.index("a – c")
        assert "≤ 95 %" in table
    assert "∞" in apart
    assert "inf" not in shown


def test_one_tiny_corpus_does_not_stop_the_others(folder, tmp_path, capsys):
    (tmp_path / "tiny.txt").write_text("\n".join(sentences("sea", 5)), encoding="utf-8")
    (tmp_path / "large.txt").write_text("\n".join(sentences("law", 3000)), encoding="utf-8")
    (tmp_path / "other.txt").write_text("\n".join(sentences("sea", 900, 3)), encoding="utf-8")
    sources = [f"{name}={tmp_path / name}.txt" for name in ("tiny", "large", "other")]
    out = tmp_path / "rows.csv"
    command = ["domains", *sources, "--document", "line", "--blocks", "100", *QUICK, "--out", str(out)]
    assert main(command) == 0
    assert "tiny – large: no null: a block of large holds 30 documents" in capsys.readouterr().out
    rows = read_rows(out).query("target == 'gold'").set_index(["domain_a", "domain_b"])
    assert np.isnan(rows.loc[("tiny", "large"), "p"])
    assert rows.loc[("large", "other"), "p"] == 0.05


@pytest.mark.parametrize(("few", "least"), [(["--resamples", "1"], 100), (["--draws", "5"], 19)])
def test_too_few_draws_are_refused_before_anything_is_read(few, least, capsys):
    assert main(["domains", "a=none", *few]) == 2
    assert f"it must be {least} or more, or 0 for none" in capsys.readouterr().err
