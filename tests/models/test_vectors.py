"""Word vectors as an encoder: what gensim reads in the files of word2vec and fastText, and what is refused."""

import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest

import probekit
from probekit.errors import DataError, ModelError, UsageError
from probekit.models.vectors.fasttext import bucket, ngrams
from probekit.models.vectors.files import convert_vectors

GOLDEN = Path(__file__).parents[1] / "golden" / "vectors"
GENSIM = json.loads((GOLDEN / "gensim.json").read_text(encoding="utf-8"))
GLOVE = "the 1.5 -2\n. . . 3 4e-1\ncat 0 1\n"


@pytest.fixture(autouse=True)
def apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def vectors_of(encoder, words):
    """The vector of each word."""
    tokens = encoder.tokenize([(tuple(words),)])
    found = []
    batch = probekit.models.encoder.Batch(tokens.token_ids, tokens.type_ids, tokens.length, tokens.characters)
    encoder.encode(batch, lambda _, rows: found.append(rows))
    return found[0].numpy()


@pytest.mark.parametrize("name", GENSIM)
def test_vectors_are_those_that_gensim_reads(name):
    encoder = probekit.load_encoder(f"vectors:{GOLDEN / name}", device="cpu")
    found = vectors_of(encoder, GENSIM[name])
    np.testing.assert_allclose(found, list(GENSIM[name].values()), rtol=0, atol=1e-7)
    assert encoder.widths == (6,)
    assert [str(site) for site in encoder.sites] == ["0"]
    assert encoder.name == name
    unknown = encoder.tokenizer.unknown
    zeros = vectors_of(encoder, ["q"])  # no vector, and too short for an n-gram of 3 with its marks but one
    assert (not zeros.any()) == ("word2vec" in name)
    vectors_of(encoder, ["CAT"])  # read in lower case, but by its sub-words as it is written
    assert encoder.tokenizer.unknown == (1 if "word2vec" in name else 2) + unknown
    drawn = probekit.load_encoder(f"vectors:{GOLDEN / name}", device="cpu", random_weights=1)
    one, other = vectors_of(drawn, ["cat", "dog"]), vectors_of(drawn, ["dog", "cat", "cat"])
    assert (one[0] == other[1]).all()
    assert (one != found[1:3]).any()


def test_n_grams_are_those_of_fasttext():
    assert [gram.decode() for gram in ngrams(b"cat", 2, 3)] == ["<c", "<ca", "ca", "cat", "at", "at>", "t>"]
    assert [gram.decode() for gram in ngrams("猫".encode(), 1, 2)] == ["<猫", "猫", "猫>"]
    assert bucket(b"a", 1 << 32) == 0xE40C292C  # FNV-1a
    assert bucket(b"\xe7", 1 << 32) != (2166136261 ^ 0xE7) * 16777619 % (1 << 32)  # fastText's bytes have signs


def test_glove_has_no_header_and_words_with_spaces(tmp_path, caplog):
    (tmp_path / "glove.txt").write_text(GLOVE)
    encoder = probekit.load_encoder("vectors:glove.txt", device="cpu")
    with caplog.at_level(logging.WARNING):
        found = vectors_of(encoder, ["The", ". . .", "cat", "unknown"])
    np.testing.assert_array_equal(found, np.float32([[1.5, -2], [3, 0.4], [0, 1], [0, 0]]))
    assert "1 of 4 words are not among the vectors (unknown): their vectors are zeros." in caplog.text
    how = {"split": "dev", "limit": 6, "device": "cpu"}
    with probekit.cache_activations("vectors:glove.txt", "grammar:sentiment", tokens=True, **how) as cache:
        assert cache.layers == ("0",)
        assert "of 50 words are not among" in caplog.text
        assert cache.spec["certificate"]["passed"]
        assert set(map(tuple, np.concatenate([*cache.tokens(0)]).tolist())) <= {(1.5, -2.0), (0.0, 0.0), (0.0, 1.0)}
    with pytest.raises(ModelError, match="--regime feature-extraction"):
        probekit.train("grammar:sentiment", "vectors:glove.txt", tmp_path / "run", limit=8)


def test_sub_words_are_read_in_caches(tmp_path):
    how = {"split": "dev", "limit": 12, "device": "cpu", "tokens": True}
    name = f"vectors:{GOLDEN / 'fasttext.bin'}"
    with probekit.cache_activations(name, "grammar:sentiment", out=tmp_path / "c.h5", **how) as cache:
        texts = [*cache.tokens(0)]
        pooled = cache.layer(0)
    assert (np.concatenate(texts) != 0).any(1).mean() > 0.9
    np.testing.assert_allclose(pooled, [rows.mean(0) for rows in texts], rtol=0, atol=1e-6)


def binary(count, width, kind="<f4"):
    """Two words of two numbers, in a file that says something else."""
    rows = [word + b" " + np.array(row, kind).tobytes() for word, row in ((b"the", [1, 2]), (b"dog", [3, 4]))]
    return f"{count} {width}\n".encode() + b"\n".join(rows) + b"\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"2 3\nthe 1 2 3\ncat 1 2\n", "line 3: found 3 columns, expected a word and 3 numbers"),
        (b"3 2\nthe 1 2\ncat 1 2\n", "holds 2 vectors; 3 were expected"),
        (b"1 2\nthe 1 2\ncat 1 2\n", "line 3: its first line says 1 words, but there are more"),
        (b"the 1 2\ncat 1 x\n", "line 2: not a number: 'x'"),
        (b"the 1 2\ncat 1 nan\n", "the vector in row 2 is not finite"),
        (b"the 1 2\nc\xe9t 1 2\n", "line 2: byte 0xe9 is not UTF-8"),
        (b"2 2\nthe 1 2\ncat 1 inf\n", "line 3: the vector in row 2 is not finite"),
        (b"2 3\nthe 1 2 3 4\ndog 5 6 7 8\n", "line 2: found 5 columns, expected a word and 3 numbers"),
        (b"the 1 2 3\ndog 5 -6e-1 7 8\n", "line 2: found 5 columns, expected a word and 3 numbers"),
        (b"the 1 2\ncat 1_0 2\n", "line 2: not a number: '1_0'"),
        (b"the 1 2\n" * 700 + b"c\x01t 1 2\n", "line 701: the word in row 701 ('c\\x01t') has a control character"),
        (b"the 1 2\ncat 1e-40 2\n", "line 2: the vector in row 2 has numbers such as 1e-40"),
        (binary(1, 2), "line 1: its first line says 1 words, but there is more after them"),
        (binary(2, 1), "the word in row 2 ('\\x00\\x00\\x00@ dog') has a control character"),
        (binary(2, 3), "ends in word 2 of 2; it is truncated"),
        (binary(2, 2, ">f4"), "the vector in row 1 has numbers such as 5e-41. Is it big-endian?"),
        (b"the\n", "holds 1 vectors of 0 numbers"),
        (b"9 99999999\nthe 1\n", "holds 9 vectors of 99999999 numbers"),
        (b"\x1f\x8bxx", "is packed; unpack it first"),
        (b"\x00\x01\x02", "neither text nor a binary file"),
        ("word2vec.bin", "ends in word 12 of 12; it is truncated"),
        ("fasttext.bin", "truncated"),
    ],
)
def test_files_that_are_damaged_are_named(tmp_path, content, said):
    path = tmp_path / "v.bin"
    data = (GOLDEN / content).read_bytes() if isinstance(content, str) else content
    path.write_bytes(data[: 1500 if content == "fasttext.bin" else -9] if isinstance(content, str) else data)
    with pytest.raises(DataError) as caught:
        convert_vectors(path, tmp_path / "out")
    assert said in str(caught.value)
    assert "v.bin" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_names_and_folders_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(ModelError, match="does not exist; expected vectors:FILE"):
        probekit.load_encoder("vectors:nothing.txt")
    (tmp_path / "glove.txt").write_text(GLOVE)
    folder = probekit.convert("vectors:glove.txt", tmp_path / "m", words="blanks")
    with pytest.raises(UsageError, match="for Skip-thoughts"):
        probekit.convert("vectors:glove.txt", tmp_path / "n", eos=True)
    with pytest.raises(UsageError, match="sites are those of transformers"):
        probekit.load_encoder(folder, sites="attn_out")
    shutil.copy(folder / "config.json", tmp_path / "vocab.txt")
    (folder / "vocab.txt").write_text("the\ncat\n")
    with pytest.raises(ModelError, match=r"it has 2 words, config\.json says 3"):
        probekit.load_encoder(folder)
