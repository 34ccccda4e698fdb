"""Published files as a model folder: what is written, what is refused, and words that the dictionary lacks."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from safetensors import safe_open
from sklearn.linear_model import LinearRegression
from thoughts import WORDS, gru, publish

from probekit.errors import DataError, ModelError, UsageError
from probekit.models.folder import weight_files
from probekit.models.options import LoadOptions
from probekit.models.skip_thoughts.encoder import load_skip_thoughts
from probekit.models.skip_thoughts.files import convert_skip_thoughts, read_dictionary, read_vectors, regress


def written(folder):
    tensors = {}
    for file in weight_files(folder):
        with safe_open(file, framework="numpy") as opened:
            tensors |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a mapping)
    return tensors


class TestConvert:
    def test_what_is_written(self, tmp_path):
        made = publish(tmp_path / "published")
        out = convert_skip_thoughts(tmp_path / "published", tmp_path / "model", splitting="blanks", normalise=False)
        config = json.loads((out / "config.json").read_text())
        assert {key: config[key] for key in ("model_type", "use_eos", "normalise", "vocab_size")} == {
            "model_type": "skip-thoughts", "use_eos": False, "normalise": False, "vocab_size": 11
        }  # fmt: skip
        sizes = ("uni_word_size", "bi_word_size", "uni_size", "bi_size")
        assert [config[key] for key in sizes] == [6, 6, 5, 4]
        assert json.loads((out / "tokenizer_config.json").read_text()) == {"words": "blanks"}
        assert (out / "vocab.txt").read_text().split("\n")[:-1] == list(WORDS)
        tensors = written(out)
        np.testing.assert_array_equal(tensors["uni_words"], made["tables"]["utable"])
        np.testing.assert_array_equal(tensors["bi_words"], made["tables"]["btable"])
        np.testing.assert_array_equal(tensors["blocks.0.back.input.weight"][:8], made["bi"]["encoder_r_W"].T)
        index = json.loads((out / "model.safetensors.index.json").read_text())
        assert index["metadata"]["total_size"] == sum(x.nbytes for x in tensors.values())
        assert set(index["weight_map"]) == set(tensors)
        assert sorted(file.name for file in tmp_path.iterdir()) == ["model", "published"]

    def test_tables_of_other_layouts(self, tmp_path):
        """float64, big-endian, and column after column: the same numbers."""
        made = publish(tmp_path / "published")["tables"]
        np.save(tmp_path / "published/utable.npy", made["utable"].astype(">f8"))
        np.save(tmp_path / "published/btable.npy", np.asfortranarray(made["btable"]))
        tensors = written(convert_skip_thoughts(tmp_path / "published", tmp_path / "model"))
        np.testing.assert_array_equal(tensors["uni_words"], made["utable"])
        np.testing.assert_array_equal(tensors["bi_words"], made["btable"])

    @pytest.mark.parametrize("more", [False, True])
    def test_a_single_table_is_in_memory(self, tmp_path, more):
        """One where rows are added; otherwise none, as the files are mapped."""
        words = ("UNK", *(f"w{i}" for i in range(4000)))
        publish(tmp_path / "published", words, width=620)
        vectors = tmp_path / "vectors.txt"
        vectors.write_text("".join(f"{w} {i % 7} {i % 11}\n" for i, w in enumerate([*words[1:100], "new", "newer"])))
        table = len(words) * 620 * 4
        tracemalloc.start()
        convert_skip_thoughts(tmp_path / "published", tmp_path / "model", vectors=vectors if more else None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < (1.6 if more else 0.6) * table

    def test_a_folder_that_is_there_stays(self, tmp_path):
        publish(tmp_path / "published")
        (tmp_path / "model").mkdir()
        with pytest.raises(UsageError, match="exists"):
            convert_skip_thoughts(tmp_path / "published", tmp_path / "model")


def change(file, **arrays):
    with np.load(file, allow_pickle=True) as old:
        kept = {name: x for name, x in old.items() if name not in arrays}
    np.savez(file, **kept, **{name: x for name, x in arrays.items() if x is not None})


def bad_table(f):
    table = np.load(f / "utable.npy")
    table[3, 2] = np.nan
    np.save(f / "utable.npy", table)


NOT = {
    "no file": (
        lambda f: (f / "btable.npy").unlink(),
        "btable.npy does not exist; expected a folder with uni_skip.npz",
    ),
    "no archive": (lambda f: (f / "uni_skip.npz").write_bytes(b"PK no"), "uni_skip.npz cannot be read"),
    "no arrays": (lambda f: (f / "uni_skip.npz").write_bytes(b""), "uni_skip.npz cannot be read"),
    "one array": (lambda f: (f / "utable.npy").replace(f / "uni_skip.npz"), "uni_skip.npz cannot be read"),
    "missing": (
        lambda f: change(f / "bi_skip.npz", encoder_r_Ux=None, encoder_r_b=None),
        "bi_skip.npz lacks encoder_r_Ux, encoder_r_b",
    ),
    "object": (
        lambda f: change(f / "uni_skip.npz", encoder_b=np.array([{}] * 10)),
        "uni_skip.npz cannot be read .* without pickled objects",
    ),
    "object table": (
        lambda f: np.save(f / "utable.npy", np.array([[None] * 6] * 11), allow_pickle=True),
        "utable.npy cannot be read .* without pickled objects",
    ),
    "whole numbers": (lambda f: np.save(f / "utable.npy", np.ones((11, 6), int)), r"utable.npy holds int64 \(11, 6\)"),
    "shape": (
        lambda f: change(f / "uni_skip.npz", encoder_U=np.ones((5, 9))),
        r"uni_skip.npz, encoder_U holds float64 \(5, 9\); expected floating-point numbers \(5, 10\)",
    ),
    "number": (lambda f: change(f / "uni_skip.npz", encoder_Ux=np.float32(1)), r"encoder_W holds float32 \(6, 10\)"),
    "directions": (
        lambda f: change(f / "bi_skip.npz", **gru("encoder_r", 6, 3, np.random.default_rng(0))),
        "its two directions differ",
    ),
    "rows": (
        lambda f: np.save(f / "btable.npy", np.ones((10, 6))),
        r"btable.npy holds float64 \(10, 6\); expected floating-point numbers \(11, 6\). Do dictionary, tables",
    ),
    "nan": (bad_table, "utable.npy holds nan in row 3"),
    "infinity": (lambda f: change(f / "uni_skip.npz", encoder_bx=np.full(5, np.inf)), "encoder_bx holds inf in row 0"),
    "bytes": (
        lambda f: (f / "dictionary.txt").write_bytes(b"UNK\n\xc3\xa9\n\xe9\n"),
        "dictionary.txt, line 3: byte 0xe9 is not UTF-8",
    ),
    "unknown": (
        lambda f: (f / "dictionary.txt").write_text("<eos>\n" * 11),
        "dictionary.txt lacks the line 'UNK', whose vector is needed",
    ),
    "end": (lambda f: (f / "dictionary.txt").write_text("UNK\n" * 11), "dictionary.txt lacks the line '<eos>'"),
}


@pytest.mark.parametrize(("damage", "message"), NOT.values(), ids=NOT)
def test_not_what_is_published(tmp_path, damage, message):
    publish(tmp_path / "published")
    convert_skip_thoughts(tmp_path / "published", tmp_path / "whole", use_eos=True)
    damage(tmp_path / "published")
    with pytest.raises(ModelError, match=message):
        convert_skip_thoughts(tmp_path / "published", tmp_path / "model", use_eos=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["published", "whole"]


def test_dictionary(tmp_path):
    """Lines end at \\n alone; what is blank round a word goes, as in the original."""
    (tmp_path / "d").write_bytes("UNK\r\n the \né\x85e\u2028x\n\nlast".encode())
    assert read_dictionary(tmp_path / "d") == ["UNK", "the", "é\x85e\u2028x", "", "last"]


class TestExpansion:
    @pytest.mark.parametrize("n", [50, 5])
    def test_linear_regression(self, n):
        """Also of fewer words than dimensions, where the smallest solution is taken."""
        rng = np.random.default_rng(0)
        x, y = rng.normal(3, 2, (n, 8)), rng.normal(size=(n, 6))
        slope, intercept = regress(x, y)
        theirs = LinearRegression().fit(x, y)
        np.testing.assert_allclose(slope, theirs.coef_.T, atol=1e-10)
        np.testing.assert_allclose(intercept, theirs.intercept_, atol=1e-10)

    @pytest.mark.parametrize("header", [False, True])
    def test_words_of_a_file(self, tmp_path, header):
        words = ("UNK", "<eos>", *(f"w{i}" for i in range(40)))
        made = publish(tmp_path / "published", words)["tables"]
        known, new = words[5:30], ["zebra", "New_York", ". .", "Zürich", "zebra"]
        x = np.random.default_rng(1).normal(size=(len(known) + len(new) + 1, 4)).astype(np.float32)
        # the unknown word is no word, whatever its vector in the file
        lines = [f"{w} {' '.join(map(str, row))}" for w, row in zip([*known, *new, "UNK"], x.tolist(), strict=True)]
        text = "\n".join([f"{len(lines)} 4", *lines] if header else lines)
        (tmp_path / "vectors.txt").write_text(text + " \n", encoding="utf-8")
        out = convert_skip_thoughts(tmp_path / "published", tmp_path / "model", vectors=tmp_path / "vectors.txt")
        assert (out / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1] == [*words, "zebra", "Zürich"]
        tensors = written(out)
        for ours, theirs in (("uni_words", "utable"), ("bi_words", "btable")):
            fitted = LinearRegression().fit(x[: len(known)].astype(float), made[theirs][5:30].astype(float))
            np.testing.assert_array_equal(tensors[ours][: len(words)], made[theirs])
            np.testing.assert_allclose(tensors[ours][len(words) :], fitted.predict(x[[25, 28]]), rtol=0, atol=1e-5)
        encoder = load_skip_thoughts(out, LoadOptions(device="cpu"))
        assert encoder.tokenize(["zebra Zürich zebras"]).token_ids.tolist() == [42, 43, 0]

    def test_no_word_in_common(self, tmp_path):
        publish(tmp_path / "published")
        (tmp_path / "vectors.txt").write_text("chat 1 2\nchien 2 3\n")
        with pytest.raises(ModelError, match="has no word in common with the dictionary"):
            convert_skip_thoughts(tmp_path / "published", tmp_path / "model", vectors=tmp_path / "vectors.txt")

    @pytest.mark.parametrize(
        ("content", "where", "message"),
        [
            (b"a 1 2\nb 1\n", (2, None), "2 columns, expected a word and 2 numbers"),
            (b"2 2\na 1 2\nb 1 2x\n", (3, 3), "'2x' is not a number"),
            (b"a 1 2\nb nan 2\n", (2, 2), "nan is not a finite number"),
            (b"1 2\na 1 1e39\n", (2, 3), "inf is not a finite number"),
            (b"a 1 2\n\xff 1 2\n", (2, None), "byte 0xff is not UTF-8. Is this word2vec's binary format?"),
            (b"3 2\na 1 2\nb 1 2\n", (None, None), "2 lines of vectors, expected 3 words"),
            (b"a\nb\n", (1, None), "1 columns, expected a word and its numbers"),
            (b"a 1\n\n", (2, None), "1 columns, expected a word and 1 numbers"),
            (b"", (None, None), "0 lines of vectors, expected words"),
        ],
    )
    def test_what_is_no_file_of_vectors(self, tmp_path, content, where, message):
        path = tmp_path / "vectors.txt"
        path.write_bytes(content)
        with pytest.raises(DataError, match=message) as caught:
            read_vectors(path)
        assert (caught.value.file, caught.value.line, caught.value.column) == (path, *where)

    def test_no_file_of_vectors(self, tmp_path):
        with pytest.raises(DataError, match=r"none.txt: does not exist"):
            read_vectors(tmp_path / "none.txt")
