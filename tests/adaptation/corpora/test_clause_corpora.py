"""DisSent: clauses and markers from parses, from patterns, and from files."""

from __future__ import annotations

import pytest

from probekit.adaptation.pretraining.corpora.clauses import MARKERS, as_sentence, clause_pair, row
from probekit.adaptation.pretraining.corpora.corpus import CORPORA, load_corpus
from probekit.adaptation.pretraining.corpora.dissent import clauses_from_parses
from probekit.adaptation.pretraining.corpora.kinds import CorpusKind
from probekit.errors import DataError, UsageError
from probekit.tasks.files.readers import read_conllu


def conllu(words: str, text: str = "", document: str = "") -> str:
    """A sentence from ``form/head/relation`` words."""
    lines = [f"# newdoc id = {document}"] if document else []
    lines += [f"# text = {text}"] if text else []
    for i, word in enumerate(words.split(), start=1):
        form, head, relation = word.rsplit("/", 2)
        lines.append(f"{i}\t{form}\t_\t_\t_\t_\t{head}\t{relation}\t_\t_")
    return "\n".join(lines) + "\n\n"


BECAUSE = conllu(
    "The/2/det dog/3/nsubj barked/0/root because/7/mark the/6/det door/7/nsubj opened/3/advcl ./3/punct",
    "The dog barked because the door opened.",
)
FRONTED = conllu(
    "When/4/advmod the/3/det door/4/nsubj opened/8/advcl ,/4/punct the/7/det dog/8/nsubj:pass barked/0/root ./8/punct"
)
AND = conllu("The/2/det dog/3/nsubj barked/0/root ,/7/punct and/7/cc it/7/nsubj left/3/conj quickly/7/advmod ./3/punct")
PREVIOUS = conllu("We/2/nsubj waited/0/root there/2/advmod ./2/punct", document="a")
BUT = conllu("But/3/cc nobody/3/nsubj came/0/root early/3/advmod ./3/punct", "But nobody came early.")
SO = conllu("It/2/nsubj rained/0/root hard/2/advmod ,/7/punct so/7/advmod we/7/nsubj stayed/2/parataxis home/7/obj")
NO_SUBJECT = conllu("He/2/nsubj sang/0/root before/4/mark leaving/2/advcl the/6/det house/4/obj")
RELATIVE = conllu(
    "a/2/det man/0/root who/4/nsubj left/2/acl:relcl it/4/obj because/8/mark she/8/nsubj came/4/advcl early/8/advmod"
)
CUT = conllu(
    "I/2/nsubj tell/0/root ,/7/punct if/7/mark you/7/nsubj so/7/advmod wish/2/advcl ,/7/punct the/10/det truth/2/obj"
)
NESTED = conllu(
    "You/2/nsubj wait/0/root here/2/advmod and/11/cc if/7/mark you/7/nsubj ask/11/advcl it/7/obj ,/7/punct "
    "they/11/nsubj leave/2/conj"
)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (BECAUSE, [("The dog barked.", "The door opened.", "because")]),
        (FRONTED, [("The dog barked .", "The door opened .", "when")]),
        (AND, [("The dog barked .", "It left quickly .", "and")]),
        (SO, [("It rained hard.", "We stayed home.", "so")]),
        (NO_SUBJECT, []),
        (RELATIVE, []),
        (CUT, []),
        (NESTED, [("You wait here.", "If you ask it , they leave.", "and")]),
    ],
)
def test_clauses_from_one_parse(tmp_path, sentence, expected):
    (tmp_path / "a.conllu").write_text(sentence)
    assert list(clauses_from_parses(read_conllu(tmp_path / "a.conllu"))) == expected


def test_the_previous_sentence_is_the_first_clause_within_a_document(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text(PREVIOUS + BUT)
    assert list(clauses_from_parses(read_conllu(path))) == [("We waited there.", "Nobody came early.", "but")]
    fragment = conllu("Nice/2/amod dogs/0/root all/2/advmod", document="a")
    path.write_text(fragment + BUT)
    assert list(clauses_from_parses(read_conllu(path))) == []
    path.write_text(PREVIOUS * 21 + BUT.replace("# text", "# newdoc id = b\n# text") + PREVIOUS.replace("= a", "= c"))
    corpus = load_corpus(f"dissent:{path}")
    assert [row for split in corpus.splits for row in corpus.splits[split]()] == []


def test_a_treebank_and_a_single_file(tmp_path):
    for split, count in (("train", 3), ("dev", 2), ("test", 1)):
        text = "".join(BECAUSE.replace("# text", f"# newdoc id = {i}\n# text") for i in range(count))
        (tmp_path / f"en_toy-ud-{split}.conllu").write_text(text)
    corpus = load_corpus(f"dissent:{tmp_path}")
    assert corpus.kind is CorpusKind.CLAUSES
    assert {split: len(list(rows())) for split, rows in corpus.splits.items()} == {"train": 3, "dev": 2, "test": 1}
    single = load_corpus("dissent:en_toy-ud-train.conllu", tmp_path)
    assert {split: len(list(rows())) for split, rows in single.splits.items()} == {"train": 2, "dev": 1}
    with pytest.raises(DataError, match="number of documents: 1; at least 2"):
        load_corpus("dissent:en_toy-ud-test.conllu", tmp_path)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The dog had barked, and we were awake.", ("The dog had barked.", "We were awake.", "and")),
        ("The dog had barked and we were awake.", None),
        ("I was happy because the dog had slept.", ("I was happy.", "The dog had slept.", "because")),
        ("I was happy because of the dog.", None),
        ("We will wait here ; so they can find us .", ("We will wait here .", "They can find us .", "so")),
        ("If Mary had come, the dog would know.", ("The dog would know.", "Mary had come.", "if")),
        ("She looked as if she had slept.", None),
        ("I went home to see if they were in.", None),
        ("He had left before the war and they knew.", None),
        ("He had left the house before they came back.", ("He had left the house.", "They came back.", "before")),
        ('"We can go now, but you must be quiet.', ("We can go now.", "You must be quiet.", "but")),
        ("It was late; the dog had slept, but we were up: it was June.", ("The dog had slept.", "We were up.", "but")),
        ("Though the old man, and she too.", None),
    ],
)
def test_clauses_from_patterns(sentence, expected):
    assert clause_pair(sentence) == expected


def test_patterns_over_a_text_file(tmp_path):
    document = "We waited for an hour.\nBut he never came.\nThe dog had barked, and we were awake.\n"
    other = "But they were too late.\nNothing here\n"
    (tmp_path / "a.txt").write_text("\n".join([document, other] * 20))
    corpus = load_corpus("dissent:a.txt", tmp_path)
    found = [row for split in corpus.splits for row in corpus.splits[split]()]
    assert len(found) == 40
    assert ("We waited for an hour.", "He never came.", "but") in found
    assert {row[2] for row in found} == {"and", "but"}


def test_the_form_of_a_clause():
    assert as_sentence(", and so on ;") == "And so on."
    assert as_sentence("`` we went home '' .") == "We went home."
    assert as_sentence("") == as_sentence(" . ") == ""
    assert row("a b c", "d e f", "and") == ("A b c.", "D e f.", "and")
    assert row("a b c", "d e", "and") is None
    assert row("a b c", "d " * 51, "and") is None
    assert row("a ( b c", "d e f", "and") is None
    assert row('a " b c', "d e f", "and") is None
    assert len(MARKERS) == 8


HEADER = "sentence1\tsentence2\tmarker\ttype\n"


def test_files_of_clauses(tmp_path):
    folder = tmp_path / "discourse_markers"
    folder.mkdir()
    for name in ("train", "dev", "test"):
        (folder / f"{name}.tsv").write_text(f'{HEADER}{name} "a\tb\thowever\tx\n\tb\tso\tx\na\tb\tso\tx\n\n')
    corpus = load_corpus("dissent", tmp_path)
    assert corpus.kind is CorpusKind.CLAUSES
    for split in ("train", "dev", "test"):
        assert list(corpus.splits[split]()) == [(f'{split} "a', "b", "however"), ("a", "b", "so")]
    by_folder = load_corpus("dissent:discourse_markers", tmp_path)
    assert list(by_folder.splits["dev"]()) == list(corpus.splits["dev"]())


def test_a_single_file_of_clauses(tmp_path):
    path = tmp_path / "mine.tsv"
    path.write_text("marker\tsentence2\tsentence1\n" + "".join(f"so\tb{i}\ta{i}\n" for i in range(20)))
    corpus = load_corpus(f"dissent:{path}")
    assert {split: len(list(rows())) for split, rows in corpus.splits.items()} == {"train": 19, "dev": 1}
    first, second, marker = next(corpus.splits["train"]())
    assert (first[0], second[0], marker) == ("a", "b", "so")


def test_clauses_in_the_layout_of_jiant(tmp_path):
    folder = tmp_path / "DisSent" / "wikitext"
    folder.mkdir(parents=True)
    for name in ("train", "valid", "test"):
        (folder / f"wikitext.dissent.big.{name}").write_text("A b .\tC d .\t0\nE f .\tG h .\t7\n")
    for place in (folder, tmp_path / "DisSent", tmp_path):
        corpus = load_corpus("dissent", place)
        assert list(corpus.splits["dev"]()) == [("A b .", "C d .", "0"), ("E f .", "G h .", "7")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sentence1\tmarker\na\tso\n", r"line 1: there is no column 'sentence2'; expected sentence1, "),
        (f"{HEADER}a\tb\tso\tx\na\tb\n", "line 3: found 2 columns, expected at least 3 between tabs"),
    ],
)
def test_damaged_files_of_clauses(tmp_path, text, message):
    (tmp_path / "train.tsv").write_text(text)
    (tmp_path / "dev.tsv").write_text(HEADER)
    corpus = load_corpus("dissent", tmp_path)
    with pytest.raises(DataError, match=message):
        list(corpus.splits["train"]())


def test_unknown_names():
    with pytest.raises(UsageError, match=r"unknown corpus 'wikitex-103'; did you mean wikitext-103"):
        load_corpus("wikitex-103")
    with pytest.raises(UsageError, match=r"unknown corpus 'disent'; did you mean dissent\?"):
        load_corpus("disent")
    with pytest.raises(UsageError, match=r"'multi30k-en-it'; did you mean multi30k-en-fr or multi30k-en-de"):
        load_corpus("skip-thought:multi30k-en-it")
    assert len(CORPORA) == 17
