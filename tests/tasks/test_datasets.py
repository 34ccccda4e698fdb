"""Each dataset from small files in its official layout, every trap of the real ones included."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from probekit.errors import DataError, UsageError
from probekit.tasks import DATASETS, Task, load_task
from probekit.tasks.datasets.ud import bio
from probekit.tasks.task import TaskKind


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    def write(files: dict[str, str]) -> Path:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode())
        return tmp_path

    return write


def texts(task: Task, split: str) -> list[str]:
    return [e.text for e in task.split(split)]


def test_cola(folder: Callable) -> None:
    root = folder(
        {
            "in_domain_train.tsv": "gj04\t1\t\tOne more and I'm\x08 off.\ngj04\t0\t*\tOne more.\n",
            "in_domain_dev.tsv": "gj04\t1\t\tIn.\n",
            "out_of_domain_dev.tsv": "clc95\t0\t \tOut.",
            "test.tsv": "index\tsentence\n0\tBlind.\n",
        }
    )
    task = load_task("CoLA", root)
    assert {s: len(x) for s, x in task.splits.items()} == {
        "train": 2, "dev": 2, "dev-in-domain": 1, "dev-out-of-domain": 1, "test": 1
    }  # fmt: skip
    assert texts(task, "train")[0] == "One more and I'm\x08 off."
    assert task.labels("train").tolist() == [1, 0]
    assert [(e.id, e.text, e.domain) for e in task.split("dev")] == [
        ("dev-0", "In.", "gj04"),
        ("dev-1", "Out.", "clc95"),
    ]
    assert task.labels("test").tolist() == [-1]
    assert task.metrics[0] == "matthews"


def test_cola_errors_name_line_and_column(folder: Callable) -> None:
    root = folder({"train.tsv": "gj04\t1\t\tFine.\ngj04\t2\t\tNot a label.\n"})
    with pytest.raises(DataError, match=r"train.tsv, line 2, column 'label': label '2', expected one of '0', '1'"):
        load_task("cola", root)
    root = folder({"train.tsv": "gj04\t1\t\tFine.\ngj04\t1\tCut.\n"})
    with pytest.raises(DataError, match=r"line 2: found 3 columns, expected 4 \(source, label, mark, sentence\)"):
        load_task("cola", root)


def test_sst2(folder: Callable) -> None:
    files = {
        "SST-2/train.tsv": 'sentence\tlabel\ntwo " words \t1\nnot good \t0\n',
        "SST-2/test.tsv": "index\tsentence\n7\tfine film\n9\tdull\n",
        "SST-2/test_labelled_noheader.tsv": "fine film \t1\ndull \t0\n",
    }
    task = load_task("sst2", folder(files))
    assert texts(task, "train") == ['two " words', "not good"]
    assert [(e.id, e.text, e.label) for e in task.split("test")] == [("7", "fine film", 1), ("9", "dull", 0)]
    files["SST-2/test_labelled_noheader.tsv"] = "fine film \t1\nbright \t0\n"
    with pytest.raises(DataError, match=r"line 2: the text differs from that of the same row"):
        load_task("sst2", folder(files))


def test_mrpc(folder: Callable) -> None:
    header = "#1 ID\t#2 ID\t#1 String\t#2 String\n"
    task = load_task(
        "mrpc",
        folder(
            {
                "msr_paraphrase_train.txt": f'\ufeffQuality\t{header}1\t11\t12\tHe " said .\t" He said .\n'
                "0\t11\t13\ta\tb\n",
                "msr_paraphrase_test.txt": f"\ufeffQuality\t{header}1\t21\t22\tc\td\n",
                "train.tsv": f"\ufeffQuality\t{header}0\t11\t13\ta\tb\n",
                "test.tsv": f"index\t{header}0\t21\t22\tc\td\n",
            }
        ),
    )
    assert list(task.splits) == ["train", "test", "original-train", "original-test"]
    assert [(e.id, e.pair, e.label) for e in task.split("original-train")] == [
        ("11-12", '" He said .', 1),
        ("11-13", "b", 0),
    ]
    assert [(e.id, e.label) for e in task.split("test")] == [("21-22", 1)]
    assert task.metrics == ("accuracy", "f1")


def test_stsb(folder: Callable) -> None:
    header = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
    task = load_task(
        "stsb",
        folder(
            {
                "train.tsv": f"{header}\tscore\n0\tmain-forum\tf\ty\t1\tn\tn\ta\tb\t5.000\n",
                "test.tsv": f"{header}\n3\tmain-news\tf\ty\t1\tn\tn\tc\td\n",
                "sts-test.csv": "main-news\tf\ty\t1\t2.5\t c \td\thttp://x\thttp://y\n",
                "sts-dev.csv": "main-news\tf\ty\t1\t0.2\te\t f\n",
            }
        ),
    )
    assert task.kind is TaskKind.REGRESSION
    assert [(e.id, e.text, e.pair, e.label, e.domain) for s in task.splits.values() for e in s] == [
        ("0", "a", "b", 5.0, "main-forums"),
        ("dev-0", "e", "f", 0.2, "main-news"),
        ("3", "c", "d", 2.5, "main-news"),
    ]


def test_stsb_scores_are_checked(folder: Callable) -> None:
    for score in ("5.1", "nan", "high", ""):
        root = folder({"sts-train.csv": f"main-news\tf\ty\t1\t{score}\ta\tb\n"})
        with pytest.raises(DataError, match=r"line 1, column 'score': found '.*', expected a number from 0 to 5"):
            load_task("stsb", root)


def test_mnli_drops_and_counts_pairs_without_label(folder: Callable) -> None:
    pair = {"sentence1": "a", "sentence2": "b\u2028c", "genre": "fiction"}
    rows = [pair | {"pairID": "1n", "gold_label": "neutral"}, pair | {"pairID": "2x", "gold_label": "-"}]
    header = "index\tpromptID\tpairID\tgenre\tsentence1\tsentence2"
    task = load_task(
        "mnli",
        folder(
            {
                "multinli_1.0_train.jsonl": "\n".join(map(json.dumps, rows)),
                "dev_matched.tsv": f'{header}\tlabel1\tgold_label\n0\t5\t5e\tslate\t"a\tb"\tneutral\tentailment\n',
                "test_mismatched.tsv": f"{header}\n0\t6\t6\tverbatim\tx\ty\n",
                "multinli_0.9_test_matched_unlabeled.jsonl": json.dumps(pair | {"pairID": "7"}),
            }
        ),
    )
    assert [(e.id, e.pair, e.label, e.domain) for e in task.split("train")] == [("1n", "b\u2028c", 1, "fiction")]
    assert [(e.id, e.text, e.label) for e in task.split("dev-matched")] == [("5e", '"a', 0)]
    assert [task.labels(f"test-{half}").tolist() for half in ("matched", "mismatched")] == [[-1], [-1]]
    assert task.notes == ("1 pairs of train without a gold label (-) are left out.",)


def test_a_domain_of_a_task_is_a_task(folder: Callable, tmp_path: Path) -> None:
    rows = "genre\tsentence1\tsentence2\tgold_label\nslate\ta\tb\tneutral\ntravel\tc\td\tneutral\n"
    root = folder({"dev_matched.tsv": rows, "train.tsv": rows.replace("travel", "slate")})
    task = load_task("mnli:travel", root)
    assert task.name == "mnli:travel"
    assert {name: [e.text for e in split] for name, split in task.splits.items()} == {"dev-matched": ["c"]}
    assert load_task("mnli", root).domains == ("slate", "travel")
    with pytest.raises(UsageError, match="mnli has no domain 'fiction'; it has slate, travel"):
        load_task("mnli:fiction", root)
    (tmp_path / "mine.tsv").write_text("text\tlabel\tfrom\na\t0\tx: y\nb\t1\tz\n")
    (tmp_path / "mine.toml").write_text('domain = "from"\n[splits]\ndev = "mine.tsv"\n')
    assert [e.text for e in load_task(f"{tmp_path}/mine.toml:z").split("dev")] == ["b"]
    with pytest.raises(UsageError, match="grammar:sentiment has no domain 'x'"):
        load_task("grammar:sentiment").of_domain("x")


def test_mnli_text_form_has_empty_label_columns(folder: Callable) -> None:
    header = "gold_label\tsentence1\tsentence2\tpromptID\tpairID\tgenre\tlabel1\tlabel2"
    root = folder({"multinli_1.0_train.txt": f"{header}\ncontradiction\ta\tb\t1\t1c\tfiction\tcontradiction\n"})
    assert [(e.id, e.label) for e in load_task("mnli", root).split("train")] == [("1c", 2)]
    root = folder({"multinli_1.0_train.txt": f"{header}\nneutral\ta\tb\t1\t1n\tslate\n"})
    assert [(e.id, e.label) for e in load_task("mnli", root).split("train")] == [("1n", 1)]


def test_mnli_rows_must_reach_their_label(folder: Callable) -> None:
    header = "genre\tsentence1\tsentence2\tlabel1\tgold_label"
    with pytest.raises(DataError, match=r"dev_matched.tsv, line 3: found 3 columns, expected at least 5"):
        load_task("mnli", folder({"dev_matched.tsv": f"{header}\nslate\ta\tb\tneutral\tneutral\nslate\ta\tb\n"}))
    with pytest.raises(DataError, match=r"there is no column 'gold_label'"):
        load_task("mnli", folder({"dev_matched.tsv": "genre\tsentence1\tsentence2\nslate\ta\tb\n"}))


@pytest.mark.parametrize(
    ("name", "header", "rows", "labels"),
    [
        ("rte", "index\tsentence1\tsentence2\tlabel", "0\ta\tb\tentailment\n1\tc\td\tnot_entailment", [0, 1]),
        ("qnli", "index\tquestion\tsentence\tlabel", '0\t"a\tb\tentailment\n1\tc\td"\tnot_entailment', [0, 1]),
        ("wnli", "index\tsentence1\tsentence2\tlabel", "0\ta\tb\t0\n1\tc\td\t1", [0, 1]),
    ],
)
def test_pairs_of_glue(folder: Callable, name: str, header: str, rows: str, labels: list[int]) -> None:
    unlabelled = header.removesuffix("\tlabel")
    task = load_task(name, folder({"dev.tsv": f"{header}\n{rows}", "test.tsv": f"{unlabelled}\n0\te\tf\n"}))
    assert task.labels("dev").tolist() == labels
    assert [e.id for e in task.split("dev")] == ["0", "1"]
    assert task.labels("test").tolist() == [-1]


def test_qqp_counts_rows_cut_short(folder: Callable) -> None:
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    task = load_task("qqp", folder({"train.tsv": f"{header}\n1\t2\t3\ta\tb\t1\n4\t5\t6\tbroken\n7\t8\t9\tc\td\t0\n"}))
    assert [(e.id, e.label) for e in task.split("train")] == [("1", 1), ("7", 0)]
    assert task.notes == ("train: 1 truncated rows are left out.",)


SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"


def test_sick(folder: Callable) -> None:
    root = folder(
        {
            "SICK_train.txt": f"{SICK}\n1\ta\tb\t4.5\tNEUTRAL\n9\tc\td\t1\tENTAILMENT\n",
            "SICK_test_annotated.txt": f"{SICK}\n6\te\tf\t3.3\tCONTRADICTION\n".replace("\n", "\r\n"),
        }
    )
    entailment, relatedness = load_task("sick-e", root), load_task("sick_r", root)
    assert [(e.id, e.label) for s in entailment.splits.values() for e in s] == [("1", 1), ("9", 0), ("6", 2)]
    assert [e.label for s in relatedness.splits.values() for e in s] == [4.5, 1.0, 3.3]


def test_sick_in_one_file(folder: Callable) -> None:
    header = "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\tSemEval_set"
    root = folder({"SICK.txt": f"{header}\n1\ta\tb\tNEUTRAL\t4.5\tTEST\n2\tc\td\tENTAILMENT\t5\tTRAIN\n"})
    task = load_task("sick-e", root)
    assert {s: [e.id for e in x] for s, x in task.splits.items()} == {"train": ["2"], "dev": [], "test": ["1"]}


def test_trec(folder: Callable, tmp_path: Path) -> None:
    folder({"TREC_10.label": "NUM:dist How far is it ?\nDESC:desc What is it ?\n"})
    (tmp_path / "train_5500.label").write_bytes(b"HUM:ind Who was Caf\xe9 ?\nLOC:other Where ?\n")
    assert load_task("trec-6", tmp_path).labels("test").tolist() == [5, 1]
    fine = load_task("trec50", tmp_path)
    assert texts(fine, "train") == ["Who was Café ?", "Where ?"]
    assert fine.label_names[fine.labels("train")[0]] == "HUM:ind"
    assert len(fine.label_names) == 50


@pytest.mark.parametrize("line", ["NUMB:dist How far ?", "NUM:dist", "NUM:far How far ?"])
def test_trec_lines_that_are_not(folder: Callable, line: str) -> None:
    with pytest.raises(DataError, match=r"TREC_10.label, line 2: expected a class such as"):
        load_task("trec-50", folder({"TREC_10.label": f"NUM:dist How far ?\n{line}\n"}))


def test_senteval(folder: Callable) -> None:
    depths = "tr\t11\tIt was deep .\nva\t5\tFlat .\nte\t6\tSo so .\ntr\t5\tanother field\tGo .\n"
    root = folder({"SentEval/data/probing/tree_depth.txt": depths})
    task = load_task("senteval-tree-depth", root)
    assert task.label_names == ("5", "6", "11")
    assert {s: task.labels(s).tolist() for s in task.splits} == {"train": [2, 0], "dev": [0], "test": [1]}
    assert [(e.id, e.text) for e in task.split("train")] == [("train-0", "It was deep ."), ("train-1", "Go .")]
    tense = load_task("senteval_past_present", folder({"senteval/past_present.txt": 'va\tPRES\tHe says " no .\n'}))
    assert list(tense.splits) == ["dev"]
    assert (tense.label_names, tense.labels("dev").tolist()) == (("PAST", "PRES"), [1])


@pytest.mark.parametrize("line", ["tr\tPAST", "tr\tFUTURE\tHe goes .", "dev\tPAST\tHe went .", "tr\tPAST\t ", ""])
def test_senteval_lines_that_are_not(folder: Callable, line: str) -> None:
    root = folder({"past_present.txt": f"tr\tPAST\tHe went .\n{line}\nva\tPAST\tHe went .\n"})
    message = rf"past_present.txt, line 2: expected tr, va or te, one of the classes PAST, PRES .* found {line!r}"
    with pytest.raises(DataError, match=re.escape(message).replace(r"\.\*", ".*")):
        load_task("senteval-past-present", root)


def test_iob1_becomes_bio() -> None:
    assert bio(["I-PER", "I-PER", "B-PER", "O", "I-LOC", "I-ORG"]) == (
        "B-PER", "I-PER", "B-PER", "O", "B-LOC", "B-ORG"
    )  # fmt: skip
    already = ("B-PER", "I-PER", "O", "B-LOC", "B-LOC", "I-LOC")
    assert bio(already) == already


def test_conll2003(folder: Callable) -> None:
    root = folder(
        {
            "eng.train": "-DOCSTART- -X- O O\n\nU.N. NNP I-NP I-ORG\nman NN I-NP O\n\n"
            "-DOCSTART- -X- O O\n\nRome NNP I-NP I-LOC\n",
            "eng.testa": "Paris NNP I-NP B-LOC\n",
        }
    )
    task = load_task("conll2003", root)
    assert [(e.text, e.words) for e in task.split("train")] == [("U.N. man", ("U.N.", "man")), ("Rome", ("Rome",))]
    assert [[task.label_names[t] for t in e.label] for e in task.split("train")] == [["B-ORG", "O"], ["B-LOC"]]
    assert task.notes == ("2 tags of eng.train that begin an entity are changed from I- to B-.",)


def test_wnut17(folder: Callable) -> None:
    task = load_task("wnut17", folder({"wnut17train.conll": "@who\tO\n\t\nParis\tB-location\n#\tO\n\n\n"}))
    assert [e.words for e in task.split("train")] == [("@who",), ("Paris", "#")]
    assert task.labels("train").tolist() == [0, task.label_names.index("B-location"), 0]
    with pytest.raises(DataError, match=r"emerging.dev.conll, line 2: found the tag 'B-city' for word 2"):
        load_task("wnut17", folder({"emerging.dev.conll": "in\tO\nParis\tB-city\n"}))


def test_universal_ner(folder: Callable) -> None:
    text = (
        "# newdoc id = weblog-x\n# sent_id = weblog-x-0001\n# text = Al-Zaman in Rome.\n"
        "1\tAl-Zaman\tB-OTH\t-\tz\n2\tin\tB-O\n3\tRome\tB-LOC\t-\tz\n4\t.\tO\n"
    )
    task = load_task("universal-ner", folder({"en_ewt-ud-dev.iob2": text}))
    (example,) = task.split("dev").examples
    assert (task.name, example.id, example.text, example.domain) == (
        "universal-ner:en_ewt", "weblog-x-0001", "Al-Zaman in Rome.", "weblog"
    )  # fmt: skip
    assert [task.label_names[t] for t in example.label] == ["O", "O", "B-LOC", "O"]


CONLLU = """# sent_id = weblog-1
# text = Don't go
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\t_\t_\t0\troot\t_\t_
2\tn't\tnot\tPART\t_\t_\t1\tadvmod\t_\t_
2.1\tplease\t_\tINTJ\t_\t_\t_\t_\t_\t_
3\tgo\tgo\t_\t_\t_\t1\tccomp\t_\t_
"""


def test_ud(folder: Callable) -> None:
    task = load_task("ud", folder({"UD_English-EWT/en_ewt-ud-train.conllu": CONLLU}))
    (example,) = task.split("train").examples
    assert (task.name, example.id, example.text, example.domain) == ("ud:en_ewt", "weblog-1", "Don't go", "weblog")
    assert example.words == ("Do", "n't", "go")
    assert [task.label_names[t] if t >= 0 else None for t in example.label] == ["AUX", "PART", None]
    assert task.notes == ("train: 1 multiword tokens and 1 empty nodes are left out.",)


def test_ud_treebanks_are_not_mixed(folder: Callable) -> None:
    root = folder({"en_ewt-ud-train.conllu": CONLLU, "de_gsd-ud-dev.conllu": CONLLU})
    with pytest.raises(DataError, match=r"holds several treebanks \(de_gsd, en_ewt\)"):
        load_task("ud", root)
    assert list(load_task("ud:de_gsd", root).splits) == ["dev"]
    with pytest.raises(DataError, match=r"has no file of ud; expected fr_gsd-ud-train.conllu"):
        load_task("ud:fr_gsd", root)


def test_ud_tags_are_checked(folder: Callable) -> None:
    with pytest.raises(DataError, match="line 3: found the tag 'PARTICLE' for word 2"):
        load_task("ud", folder({"en_ewt-ud-train.conllu": CONLLU.replace("PART", "PARTICLE")}))


@pytest.mark.parametrize("name", DATASETS)
def test_missing_files_are_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no file of .*; expected \S+[,.]"):
        load_task(name, tmp_path)
    with pytest.raises(DataError, match=r"does not exist. Give the folder with the files of"):
        load_task(name, tmp_path / "nowhere")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").touch()
    with pytest.raises(DataError, match="is a file, expected a folder"):
        load_task("cola", tmp_path / "train.tsv")


def test_empty_files_are_not_taken_for_data(folder: Callable) -> None:
    with pytest.raises(DataError, match=r"dev.tsv: is empty; expected a header line"):
        load_task("rte", folder({"dev.tsv": ""}))


@pytest.mark.parametrize("name", ["colla", "ssst-2", "grammar:acceptable", "grammar:", ""])
def test_unknown_names(name: str) -> None:
    with pytest.raises(UsageError, match="unknown task"):
        load_task(name)


def test_unknown_names_get_the_closest() -> None:
    with pytest.raises(UsageError, match="did you mean copa or cola"):
        load_task("coal")
    with pytest.raises(UsageError, match="did you mean grammar:acceptability"):
        load_task("grammar:aceptability")


def test_grammar_tasks_are_reached_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probekit.tasks.load.grammar_task", lambda name: f"the task {name}")
    assert load_task("grammar:acceptability") == "the task acceptability"
    with pytest.raises(UsageError, match="reads no files"):
        load_task("grammar:acceptability", tmp_path)


DIAGNOSTIC = """\
Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\tDomain\tPremise\tHypothesis\tLabel
\t\tNegation\t\tArtificial\tThe cat sat on the mat.\tThe cat did not sit on the mat.\tcontradiction
Factivity;Quantifiers\t\tNegation\tWorld knowledge\tNews\tHe knows it.\tIt is so.\tentailment
\t\t\t\tNews\tA.\tB.\tneutral
"""
AXB = """\
{"idx": 0, "label": "not_entailment", "sentence1": "A cat.", "sentence2": "No cat.", "logic": "Negation"}
{"idx": 1, "label": "entailment", "sentence1": "No cat.", "sentence2": "A cat.", "logic": null, "knowledge": "World"}
"""


def test_the_diagnostic_set_and_its_categories(folder) -> None:
    task = load_task("glue-diagnostic", folder({"diagnostic/diagnostic-full.tsv": DIAGNOSTIC}))
    rows = task.split("test")
    assert [e.label for e in rows] == [2, 0, 1]
    assert [e.domain for e in rows] == ["logic", "lexical-semantics; logic; knowledge", None]
    assert task.domains == ("knowledge", "lexical-semantics", "logic")
    assert [e.id for e in task.of_domain("logic").split("test")] == ["test-0", "test-1"]
    assert task.metrics[0] == "matthews"
    assert rows[0].pair == "The cat did not sit on the mat."


def test_axb(folder) -> None:
    task = load_task("ax-b", folder({"AX-b.jsonl": AXB}))
    assert [(e.id, e.label, e.domain) for e in task.split("test")] == [("0", 1, "logic"), ("1", 0, "knowledge")]


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        ("glue-diagnostic", {"diagnostic-full.tsv": DIAGNOSTIC.replace("neutral", "nothing")}, "label 'nothing'"),
        ("glue-diagnostic", {"diagnostic-full.tsv": DIAGNOSTIC.replace("Knowledge", "Know", 1)}, "Knowledge"),
        ("ax-b", {"AX-b.jsonl": AXB.replace('"sentence2": "A cat."', '"sentence2": 3')}, "expected a text"),
    ],
)
def test_a_diagnostic_set_that_is_wrong(name, files, message, folder) -> None:
    with pytest.raises(DataError, match=message):
        load_task(name, folder(files))


def test_diagnostic_sets_are_local() -> None:
    with pytest.raises(DataError, match=r"the one with odd_man_out.txt .* from https://github.com/facebookresearch/"):
        load_task("senteval-odd-man-out")
    with pytest.raises(
        DataError, match=r"glue-diagnostic is read from a folder: give the one with diagnostic-full.tsv"
    ):
        load_task("glue-diagnostic")


def jsonl(*records: dict) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def test_snli_as_released(folder: Callable) -> None:
    keys = ("gold_label", "sentence1_parse", "sentence1", "sentence2", "captionID", "pairID", "label1")
    rows = [("neutral", "(S)", 'A "b', "c", "1", "1n", "neutral"), ("-", "(S)", "d", "e", "2", "2c", "neutral")]
    text = "\n".join("\t".join(row) for row in (keys, *rows)) + "\n"
    for end, content in (("txt", text), ("jsonl", jsonl(*(dict(zip(keys, row, strict=True)) for row in rows)))):
        task = load_task(
            "snli", folder({f"{end}/snli_1.0_{split}.{end}": content for split in ("train", "test")}) / end
        )
        assert [(e.id, e.text, e.pair, e.label) for e in task.split("test")] == [("1n", 'A "b', "c", 1)]
        assert task.notes[0] == "1 pairs of train without a gold label (-) are left out."


def test_hans_and_xnli(folder: Callable) -> None:
    header = "gold_label\tsentence1_parse\tsentence1\tsentence2\tpairID\theuristic\tsubcase\ttemplate"
    row = "non-entailment\t(S)\tThe cat saw it .\tIt saw .\tex0\tlexical_overlap\tln_subj\ttemp1"
    task = load_task("hans", folder({"heuristics_evaluation_set.txt": f"{header}\n{row}\n"}))
    (e,) = task.split("test")
    assert (e.id, e.label, e.domain, e.group) == ("ex0", 1, "lexical_overlap", "ln_subj temp1")
    header = "language\tgold_label\tsentence1\tsentence2\tpromptID\tpairID\tmatch"
    rows = [
        f"{lang}\t{label}\ta {lang}\tb\t1\t{i}\tTrue"
        for lang in ("en", "de")
        for i, label in enumerate(("neutral", "entailment"))
    ]
    task = load_task("xnli:de", folder({"XNLI-1.0/xnli.dev.tsv": "\n".join([header, *rows]) + "\n"}))
    assert [(e.text, e.label, e.group) for e in task.split("dev")] == [("a de", 1, "1"), ("a de", 0, "1")]


def test_paraphrases_by_language_and_in_quotation_marks(folder: Callable) -> None:
    header = "id\tsentence1\tsentence2\tlabel\n"
    root = folder({
        "x-final/en/train.tsv": f'{header}1\ta "b\tc\t1\n2\td\te\t\n',
        "x-final/de/translated_train.tsv": f"{header}1\tf\tg\t0\n",
        "x-final/de/dev_2k.tsv": f"{header}1\th\ti\t1\n",
        "quora_duplicate_questions.tsv": 'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n'
        '"0"\t"1"\t"2"\t"Who said ""no""?"\t"Who\nwas it?"\t"1"\n3\t5\t6\tHow?\t\t0\n',
    })  # fmt: skip
    english, german = load_task("paws-x", root), load_task("paws-x:de", root)
    assert [(e.text, e.label) for e in english.split("train")] == [('a "b', 1), ("d", None)]
    assert (english.name, german.name, german.labels("dev").tolist()) == ("paws-x:en", "paws-x:de", [1])
    quora = load_task("quora", root)
    assert [(e.id, e.text, e.pair, e.label) for e in quora.split("train")] == [
        ("0", 'Who said "no"?', "Who\nwas it?", 1)
    ]
    assert quora.notes == ("1 pairs of train with an empty question are left out.",)


def test_superglue(folder: Callable) -> None:
    root = folder({
        "CB/val.jsonl": jsonl({"premise": "a", "hypothesis": "b", "label": "neutral", "idx": 0}),
        "CB/test.jsonl": jsonl({"premise": "a", "hypothesis": "b", "idx": 0}),
        "BoolQ/train.jsonl": jsonl({"question": "is it", "passage": "It is.", "label": True, "idx": 7}),
        "WSC/val.jsonl": jsonl(
            {"text": "Bo saw Al. He  ran.", "label": False, "idx": 2,
             "target": {"span1_text": "Bo", "span1_index": 0, "span2_text": "he", "span2_index": 3}},
        ),
    })  # fmt: skip
    cb = load_task("cb", root)
    assert (cb.labels("dev").tolist(), cb.labels("test").tolist(), cb.metrics[0]) == ([2], [-1], "macro-f1")
    assert [(e.id, e.text, e.pair, e.label) for e in load_task("boolq", root).split("train")] == [
        ("7", "is it", "It is.", 1)
    ]
    wsc = load_task("wsc", root)
    (e,) = wsc.split("dev")
    assert ([e.text[s.start : s.end] for s in e.targets[0].spans], wsc.labels("dev").tolist()) == (["Bo", "He"], [0])
    bad = {"text": "Bo.", "target": {"span1_text": "Bo", "span1_index": 4}, "label": True}
    with pytest.raises(
        DataError, match=r"val.jsonl, line 1, column 'target': expected span1_text, and span1_index below 1"
    ):
        load_task("wsc", folder({"WSC/val.jsonl": jsonl(bad)}))


def test_choices_and_last_words(folder: Callable) -> None:
    book = "".join(f"{i} Sentence {i} .\n" for i in range(1, 21))
    words = "|".join(f"w{i}" for i in range(10))
    root = folder({
        "swag/val.csv": ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
        '0,v1,9,"He, she","He,",she,gold,"a, b",c,d,e,2\n',
        "CBTest/data/cbtest_CN_valid_2000ex.txt": f"{book}21 The XXXXX .\tw3\t\t{words}\n\n" * 2,
        "lambada_test_plain_text.txt": "he saw the dog\n\n",
        "train_self_original.txt": "1 your persona: i am old.\n2 hi there\thello .\t\ta|b\n3 how ?\tfine\n1 hi\tyes\n",
    })  # fmt: skip
    (e,) = load_task("swag", root).split("dev")
    assert (e.text, e.choices, e.label, e.group) == ("He, she", ("a, b", "c", "d", "e"), 2, "v1")
    cbt = load_task("cbt:CN", root)
    assert [(e.id, e.label, len(e.choices)) for e in cbt.split("dev")] == [("dev-0", 3, 10), ("dev-1", 3, 10)]
    assert cbt.split("dev")[1].text == " ".join(f"Sentence {i} ." for i in range(1, 21)) + " The XXXXX ."
    with pytest.raises(DataError, match=r"line 21: expected 20 numbered .*found 'The XXXXX"):
        load_task("cbt:V", folder({"cbtest_V_train.txt": f"{book}21 The XXXXX .\tno\t\t{words}\n"}))
    assert [(e.text, e.pair) for e in load_task("lambada", root).split("test")] == [("he saw the", "dog")]
    chat = load_task("convai2", root)
    assert [(e.text, e.pair, e.group) for e in chat.split("train")] == [
        ("hi there", "hello .", "0"),
        ("how ?", "fine", "0"),
        ("hi", "yes", "1"),
    ]
    assert chat.notes == ("train: 1 lines of a persona are not part of the texts.",)


def test_trees_with_all_phrases_and_supertags(folder: Callable) -> None:
    root = folder({
        "trees/train.txt": "(3 (2 It) (4 (2 -LRB-) (4 (3 5\\/10) (2 .))))\n",
        "ccg/data/AUTO/00/wsj_0001.auto": "ID=wsj_0001.1 PARSER=GOLD\n(<T S[dcl] 0 2> (<L NP NNP NNP Ann NP>) "
        "(<L S[dcl]\\NP VBZ VBZ sings (S[dcl]\\NP_1)>) )\n",
        "tags/dev.stagged": "Ann|NNP|NP sings|VBZ|S[dcl]\\NP\n",
    })  # fmt: skip
    sst = load_task("sst5", root)
    assert [(e.id, e.text, e.label) for e in sst.split("train")] == [("train-0", "It ( 5/10 .", 3)]
    assert [(e.text, e.label) for e in sst.split("train-phrases")][1:3] == [("It", 2), ("( 5/10 .", 4)]
    assert (len(sst.split("train-phrases")), {e.group for e in sst.split("train-phrases")}) == (7, {"train-0"})
    for place in ("ccg", "tags"):
        task = load_task("ccgbank", root / place)
        (e,) = task.split("dev")
        assert (e.words, [task.label_names[k] for k in e.label]) == (("Ann", "sings"), ["NP", "S[dcl]\\NP"])


def test_reviews_without_a_class(folder: Callable) -> None:
    names = ("train/pos/0_9", "train/neg/1_2", "test/pos/0_8", "train/unsup/0_0", "train/unsup/1_0")
    task = load_task("imdb", folder({f"aclImdb/{name}.txt": f"Review {name}." for name in names}))
    assert {split: task.labels(split).tolist() for split in task.splits} == {
        "train": [0, 1],
        "test": [1],
        "unsup": [-1, -1],
    }


def test_minimal_pairs_in_many_languages(folder: Callable) -> None:
    table = "sen\twrong_sen\tphenomenon\textra\nShe sings.\tShe sing.\tSV-#\t1\n"
    root = folder({"eng/data.tsv": table, "deu/data.tsv": table.replace("She sings.", '"Sie ""singt""."')})
    task = load_task("multiblimp:eng", root)
    assert [(e.text, e.label, e.group) for e in task.split("test")] == [
        ("She sings.", 1, "eng-0"),
        ("She sing.", 0, "eng-0"),
    ]
    assert load_task("multiblimp:SV-#", root).split("test")[0].text == 'Sie "singt".'
