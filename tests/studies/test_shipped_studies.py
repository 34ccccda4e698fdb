"""The studies that come along: each plans on small files in the official layouts, and asks for what its paper did."""

from __future__ import annotations

import importlib
import json
import re
import shutil

import h5py
import numpy as np
import pytest
from safetensors.torch import load_file
from tiny_elmo import tiny_elmo

from probekit.files import slug
from probekit.studies.catalogue import shipped
from probekit.studies.file import read_study
from probekit.studies.plan import check_steps, study_steps
from probekit.tables import published

SPLITS = ("train", "dev", "test")
PAIR = "the cat sat\tthe dog ran"


def write(path, *lines):
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with six examples a split of each task that the studies name."""
    root = tmp_path_factory.mktemp("data")
    write(root / "CoLA/train.tsv", *[f"a\t{i % 2}\t\tthe cat {i}" for i in range(6)])
    write(root / "CoLA/dev.tsv", *[f"a\t{i % 2}\t\tthe dog {i}" for i in range(6)])
    for split in ("train_5500", "TREC_10"):
        write(root / f"trec/{split}.label", *[f"{kind}:x what is {split} ?" for kind in ("HUM", "NUM") * 6])
    for split in SPLITS:
        known = split != "test"
        write(root / f"SST-2/{split}.tsv", "sentence\tlabel" if known else "index\tsentence",
              *[f"good {split} {i}\t{i % 2}" if known else f"{i}\tgood {i}" for i in range(6)])  # fmt: skip
        write(root / f"mrpc/{split}.tsv", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
              *[f"{i % 2}\t{i}\t9{i}\t{split} {PAIR}" for i in range(6)])  # fmt: skip
        write(root / f"STS-B/sts-{split}.csv", *[f"news\tf\t2015\t{i}\t{i / 2}\t{split} {PAIR}" for i in range(6)])
        name = {"train": "train", "dev": "trial", "test": "test_annotated"}[split]
        write(root / f"sick/SICK_{name}.txt", "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment",
              *[f"{i}\t{split} {PAIR}\t{1 + i / 2}\tNEUTRAL" for i in range(6)])  # fmt: skip
        words = ("-DOCSTART- -X- O O\n", *["EU NNP I-NP B-ORG\nrejects VBZ I-VP O\n"] * 6)
        name = {"train": "eng.train", "dev": "eng.testa", "test": "eng.testb"}[split]
        write(root / f"conll2003/{name}", *words)
        name = {"train": "wnut17train.conll", "dev": "emerging.dev.conll", "test": "emerging.test.annotated"}[split]
        write(root / f"wnut17/{name}", *["Ann\tB-person\nran\tO\n"] * 6)
    classes = ("entailment", "neutral", "contradiction")
    genres = ("telephone", "government", "travel", "fiction", "slate")
    for part in ("train", "dev_matched"):
        write(root / f"mnli/{part}.tsv", "genre\tsentence1\tsentence2\tgold_label",
              *[f"{genre}\t{part} {PAIR}\t{label}" for genre in genres for label in classes])  # fmt: skip
    for split in ("train", "dev"):
        write(root / f"qqp/{split}.tsv", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
              *[f"{i}\t1{i}\t2{i}\t{split} {i} {PAIR}\t{i % 2}" for i in range(6)])  # fmt: skip
        for task, labels, head in (
            ("qnli", ("entailment", "not_entailment"), "index\tquestion\tsentence\tlabel"),
            ("rte", ("entailment", "not_entailment"), "index\tsentence1\tsentence2\tlabel"),
            ("wnli", ("0", "1"), "index\tsentence1\tsentence2\tlabel"),
        ):
            lines = [f"{i}\t{split} {i} {PAIR}\t{labels[i % 2]}" for i in range(6)]
            write(root / f"{task}/{split}.tsv", head, *lines)
    for name, classes in (
        ("sentence_length", "12"),
        ("word_content", "cat dog".split()),
        ("tree_depth", "23"),
        ("bigram_shift", "OI"),
        ("past_present", ("PAST", "PRES")),
        ("subj_number", ("NN", "NNS")),
    ):
        lines = [f"{split}\t{classes[i % 2]}\tthe {split} {i}" for split in ("tr", "va", "te") for i in range(6)]
        write(root / f"senteval_style_from_ewt/{name}.txt", *lines)
    write(root / "novels/one.txt", "once upon a time")
    corpora(root)
    return root


def corpora(root):
    """The corpora of Bowman et al. (2018) in their layouts, and the stand-ins, with a few sentences each."""
    article = ["", " = Cats = ", "", " The cat sat . It ran because it saw the dog . "]
    for size in ("2", "103"):
        for split in ("train", "valid", "test"):
            write(root / f"wikitext-{size}/wiki.{split}.tokens", *article * 3)
    for kind, name in (
        ("training", "news.en-00001-of-00100"), ("heldout", "news.en.heldout-00000-of-00050"),
        ("heldout", "news.en.heldout-00001-of-00050"),
    ):  # fmt: skip
        place = root / "1-billion-word" / f"{kind}-monolingual.tokenized.shuffled" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        write(place, "The cat sat .", "The dog ran .")
    for name, other, parts in (
        ("wmt14_en_de", "de", ("train", "newstest2013", "newstest2014")),
        ("wmt17_en_ru", "ru", ("train", "newstest2016", "newstest2017")),
        ("multi30k_en_de", "de", ("train", "val", "test_2016_flickr")),
    ):
        for part in parts:
            for language in ("en", other):
                write(root / f"{name}/{part}.{language}", "the cat sat", "the dog ran")
    for split in ("train", "val", "test"):
        write(
            root / f"reddit/{split}.csv", *[f"{i}\t{i}\tthe cat sat {'a' * i}\tthe dog ran {'a' * i}" for i in range(4)]
        )
    write(
        root / "twitter/TwitterConvCorpus.txt", *[line for i in range(30) for line in (f"cat {i}", "the dog ran", "")]
    )
    for split in ("train", "dev", "test"):
        write(root / f"dissent/{split}.tsv", "sentence1\tsentence2\tmarker", "it ran\tit saw\tbecause", "a\tb\tbut")
    write(root / "text_books/sentences_four_books.txt", *["the cat sat .", "the dog ran ."] * 30)
    pair = {"sentence1": "the cat sat", "sentence2": "the cat ran", "label": "entailment", "logic": "Negation"}
    write(root / "glue_diagnostic/superglue_AX-b.jsonl", *[json.dumps(pair | {"idx": str(i)}) for i in range(4)])
    columns = ("Lexical Semantics", "Predicate-Argument Structure", "Logic", "Knowledge", "Domain")
    columns += ("Premise", "Hypothesis")
    write(root / "glue_diagnostic/diagnostic-full.tsv", "\t".join([*columns, "Label"]),
          *[f"\t\tNegation\t\tNews\tthe cat {i}\tthe dog\tneutral" for i in range(4)])  # fmt: skip


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    return "elmo:{},{}".format(*tiny_elmo(tmp_path_factory.mktemp("elmo")))


def steps_of(name, data, model, monkeypatch, tmp_path, elmo=""):
    monkeypatch.chdir(tmp_path)
    asked = read_study(name)
    changes = ['domains.0.corpora={novels = "novels", wikitext = "novels"}'] if asked.domains else []
    changes += [f'encoders.{encoder}.elmo="{elmo}"' for encoder, given in asked.encoders.items() if "elmo" in given]
    asked = read_study(name, models=dict.fromkeys(asked.models, model), changes=changes)
    steps = study_steps(asked, data)
    check_steps(asked, steps)
    return asked, {step.name: step for step in steps}


LONG = ("friends-small", "friends-full", "adaptation-small")  # to plan


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in LONG else []) for n in shipped("study")]
)
def test_every_study_plans(name, data, tiny_bert, elmo, monkeypatch, tmp_path):
    model = elmo if "ELMo" in read_study(name).models else str(tiny_bert)
    asked, steps = steps_of(name, data, model, monkeypatch, tmp_path, elmo)
    assert {step.name: step.error for step in steps.values() if step.error} == {}
    seeds = {name: len(block.seeds) for block in asked.pretrain for name in block.on}
    assert sum(step.function == "train" for step in steps.values()) == sum(
        len(block.tasks) * len(block.regimes) * seeds.get(model, len(block.seeds))
        for block in asked.train
        for model in block.models or [*asked.models, *seeds]
    )


def arguments(steps):
    return {name: step.arguments for name, step in steps.items() if step.function == "train"}


@pytest.mark.parametrize("size", ["full", "small"])
@pytest.mark.parametrize("table", [3, 4, 5])
def test_the_variants_are_the_paper_s_and_no_others(size, table):
    theirs = {(one["variant"], one["row"]) for one in published(f"peters-2019/{table}").to_dict("records")}
    study = read_study(f"table{table}-{size}")
    assert {(block.name, str(regime)) for block in study.train for regime in block.regimes} == theirs
    assert study.table[0].published == f"peters-2019/{table}"
    gradual = {block.name for block in study.train if block.of_regime(block.regimes[0]).get("unfreezing") == "gradual"}
    assert gradual == {variant for variant, _ in theirs if "gradual" in variant}
    if (size, table) == ("full", 5):
        assert all(block.seeds == [0, 1, 2, 3, 4] for block in study.train)


def test_table_2_reads_named_entities_as_the_paper_did(data, tiny_bert, monkeypatch, tmp_path):
    asked, steps = steps_of("table2-full", data, str(tiny_bert), monkeypatch, tmp_path)
    assert asked.models["BERT-base-cased"] == str(tiny_bert)
    assert read_study("table2-full").models["BERT-base-cased"] == "bert-base-cased"
    told = {name: one for name, one in arguments(steps).items() if name.startswith("conll2003")}
    assert len(told) == 10
    assert {one["model_name"] for one in told.values()} == {"BERT-base-cased"}
    assert {one["test"] for one in told.values()} == {"test"}
    assert {one["context"] for one in told.values()} == {"document"}
    assert {(one["regime"], one["head"]) for one in told.values()} == {
        ("fine-tune", "softmax"), ("feature-extraction", "bilstm")
    }  # fmt: skip


def test_elmo_is_unfrozen_gradually_for_words_and_sentiment_only(data, elmo, monkeypatch, tmp_path):
    _, steps = steps_of("table2-elmo-full", data, elmo, monkeypatch, tmp_path)
    gradual = {name.split(".")[0] for name, one in arguments(steps).items() if one.get("unfreezing") == "gradual"}
    assert gradual == {"conll2003", "sst2"}


def test_figure_2_has_both_estimators(data, tiny_bert, monkeypatch, tmp_path):
    _, steps = steps_of("figure2-full", data, str(tiny_bert), monkeypatch, tmp_path)
    found = [step.arguments["estimator"] for step in steps.values() if step.function == "mi"]
    assert len(found) == 9
    assert all(one == ["edge", "edge-4.3.1"] for one in found)


def test_a_test_split_without_labels_is_told_before_anything_is_done(data, tiny_bert, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    models = dict.fromkeys(read_study("table2-full").models, str(tiny_bert))
    steps = study_steps(read_study("table2-full", models=models, changes=["train.1.test=test"]), data)
    wrong = {step.name: step.error for step in steps if step.error}
    assert len(wrong) == 10
    assert all("sst2 test has no labels" in error for error in wrong.values())


def test_a_context_that_there_is_not_is_told_before_anything_is_done(data, tiny_bert, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    changes = ["train.0.options={context = 'document'}"]
    models = dict.fromkeys(read_study("table5-small").models, str(tiny_bert))
    steps = study_steps(read_study("table5-small", models=models, changes=changes), data)
    (error,) = {step.error for step in steps if step.error}
    assert error.startswith("wnut17 has no document boundaries")


def test_a_task_without_dev_is_planned_with_a_part_of_train(data, tiny_bert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine.toml", "[splits]", 'train = "a.tsv"', 'test = "a.tsv"')
    write(tmp_path / "a.tsv", "text\tlabel", *[f"good {i}\t{i % 2}" for i in range(20)])
    write(tmp_path / "study.toml", 'title = "A study"', f'models = {{ tiny = "{tiny_bert}" }}', "[[train]]",
          'tasks = ["mine.toml"]', 'test = "test"', "limit = 12", "data_seed = 3")  # fmt: skip
    asked = read_study(tmp_path / "study.toml")
    steps = [step for step in study_steps(asked) if step.function == "train"]
    check_steps(asked, steps)
    assert all(f"runs/{step.name}/validation.examples.parquet" in step.leaves for step in steps)
    assert {(step.arguments["limit"], step.arguments["data_seed"]) for step in steps} == {(12, 3)}


def test_friends_full_has_the_paper_s_encoders():
    """Every encoder of Table 1 without ELMo, but Single-Task, which is computed."""
    study = read_study("friends-full")
    paper = published("bowman-2018/1")
    theirs = {*paper.loc[(paper["variant"] == "") & (paper["split"] == "dev"), "model"]} - {"Single-Task"}
    assert theirs == {*study.train[0].models}
    assert [study.encoders[name]["config"].get("directions") for name in ("bilstm", "separate")] == [None, "separate"]
    of = {name: (block.encoder, objectives) for block in study.pretrain for name, objectives in block.on.items()}
    for encoder, objectives in of.values():
        assert encoder == "separate" or not any(one.startswith("language-model") for one in objectives)
    assert {len(block.seeds) for block in study.pretrain if {"random", "MNLI"} & {*block.on}} == {5}
    five = {(row.row) for row in published("bowman-2018/5").itertuples()}
    assert len(five) == 12
    for row in five:
        sampling, scaling = (part.split(" ", 1)[1].replace(" ", "-") for part in row.split(", "))
        name = (
            "GLUE" if (sampling, scaling) == ("power-0.75", "uniform") else f"GLUE, sampling {sampling}, loss {scaling}"
        )
        assert name in of


def test_friends_small_pretrains_on_no_more_labels_than_its_targets():
    """Table 5 needs unequal numbers of examples, so its mixtures read more, and no target model uses them."""
    study = read_study("friends-small")
    targets = {model for block in study.train for model in block.models}
    glue = {"cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "rte"}
    for block in study.pretrain:
        for name, objectives in block.on.items():
            if name in targets and glue & {*objectives}:
                assert block.options["limit"] == int((re.search(r" (\d+)$", name) or [0, 2400])[1])
            elif name.startswith("GLUE,"):
                assert name not in targets
                assert block.options["dev_limit"] == 500
    cells = [{"sampling": "power-0.75", "scaling": "uniform"} | block.options for block in study.pretrain
             for name in block.on if name.startswith("GLUE,")]  # fmt: skip
    assert len({(cell["sampling"], cell["scaling"]) for cell in cells}) == len(cells) == 6
    limits = {block.limit: block.name for block in study.train if {*block.tasks} & glue}
    assert limits == {2400: "", 600: "600 examples", 150: "150 examples"}
    assert {block.validation for block in study.train if {*block.tasks} & glue} == {None}


@pytest.mark.parametrize("name", ["friends-small", "friends-full"])
def test_friends_makes_the_tables_that_it_announces(name):
    study = read_study(name)
    announced = {int(n) for n in re.findall(r"\d", re.search(r"Tables ([\d, and]+)", study.about)[1])}
    assert {int(table.published.split("/")[1]) for table in study.table if table.published} == announced


@pytest.mark.slow
def test_friends_full_trains_each_objective_and_some_task_models_for_three_steps(data, monkeypatch, tmp_path):
    """At the paper's sizes: the encoders, the character CNN, all heads. Small are ELMo's LSTMs, which are not read.

    Texts are few and short, so batches have 2 to 15 examples, and vocabularies of outputs a few words. The variants of
    Table 5 have the objectives of GLUE, and are left out.
    """
    options, weights = tiny_elmo(
        tmp_path, lstm={"projection_dim": 512}, embedding={"dim": 16},
        filters=[[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
    )  # fmt: skip
    with h5py.File(weights, "a") as file:  # as narrow as published ones
        names: list[str] = []
        file.visit(names.append)
        for name in names:
            if isinstance(file[name], h5py.Dataset):
                file[name][...] = 0.05 * file[name][...]
    study, steps = steps_of("friends-full", data, "", monkeypatch, tmp_path, f"elmo:{options},{weights}")
    module = importlib.import_module("probekit.adaptation.pretraining.pretrain_encoder")
    train, unmoved = module.train_mixture, []

    def watched(learner, *more):
        before = {name: p.detach().clone() for name, p in learner.named_parameters() if p.requires_grad}
        history = train(learner, *more)
        unmoved.append([name for name, p in learner.named_parameters() if name in before and p.equal(before[name])])
        return history

    monkeypatch.setattr(module, "train_mixture", watched)
    out, seen = tmp_path / "out", set()
    for encoder in ("bilstm", "separate"):
        steps[f"encoder {encoder}.0"].recipe(out).run()
        size = json.loads((out / f"encoders/{encoder}.0/config.json").read_text())
        assert (size["cells"], size["hidden_size"]) == (1024, 2 * 1024 + 512)
    for block in study.pretrain:
        for name, objectives in block.on.items():
            if objectives and "sampling" not in block.options:
                recipe = steps[f"pretrain.{slug(name)}.0"].recipe(out)
                run = recipe.run(steps=3, device="cpu", out=str(tmp_path / "run"))
                for one in objectives:
                    rows = run.rows[(run.rows.task == one) & run.rows.headline]
                    assert rows.step.tolist() == [3]
                    assert np.isfinite(rows.value).all()
                stays = [part for part in unmoved.pop() if len(objectives) == 1 or part.startswith("encoder.")]
                assert stays == [], name
                seen |= {*objectives}
                shutil.rmtree(run.path)
    assert len(seen) == 17
    for task in ("cola", "sst2", "mrpc", "stsb"):  # of medium and large size, the last with attention
        recipe = steps[f"{task}.random.feature-extraction.0"].recipe(out)
        runs = [recipe.run(epochs=n, keep="last", device="cpu", out=str(tmp_path / f"{task}{n}")) for n in (1, 3)]
        first, last = (load_file(run.path / "head.safetensors") for run in runs)
        assert [run.card["total_steps"] for run in runs] == [1, 3]
        stays = [name for name in last if last[name].equal(first[name])]
        assert stays == ["mix.scalar_parameters"], task  # the softmax weight of one layer is 1
        losses = runs[1].rows[runs[1].rows["split"] == "train"].value
        assert len(losses) == 3
        assert np.isfinite(losses).all()
