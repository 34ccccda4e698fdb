"""The published files of Skip-thoughts (Kiros et al. 2015) as a model folder; no pickle is read.

They are read like ``skipthoughts.py`` from github.com/ryankiros/skip-thoughts does: row i of both tables belongs to
line i of the dictionary. Sizes come from the arrays, so the pickled options are not needed.
"""

from __future__ import annotations

import json
import math
import zipfile
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from probekit.errors import DataError, ModelError
from probekit.files import new_folder
from probekit.models.folder import save_tensors
from probekit.models.words import Splitting

UNKNOWN, END = "UNK", "<eos>"
"""The lines of the dictionary for a word that is not in it, and for the end of a sentence."""

GRUS = {"uni": ("uni_skip.npz", "encoder"), "ahead": ("bi_skip.npz", "encoder"), "back": ("bi_skip.npz", "encoder_r")}
"""The three recurrent networks: their files, and the prefixes of their arrays' names."""

FILES = ("uni_skip.npz", "bi_skip.npz", "utable.npy", "btable.npy", "dictionary.txt")

_CHUNK = 1 << 15
"""Rows of a table that are processed at a time."""


def convert_skip_thoughts(
    folder: str | Path,
    out: str | Path,
    *,
    splitting: Splitting | str = Splitting.TREEBANK,
    use_eos: bool = False,
    normalise: bool = True,
    vectors: str | Path | None = None,
) -> Path:
    """Write the model folder ``out``, which appears when complete; at most one of the tables is in memory at a time.

    Parameters
    ----------
    folder : str | Path
        A folder with uni_skip.npz, bi_skip.npz, utable.npy, btable.npy and dictionary.txt.
    splitting : Splitting | str, default Splitting.TREEBANK
        How to split plain text into words.
    use_eos : bool, default False
        End each sentence with the vector of ``<eos>``, like the original's ``use_eos``.
    normalise : bool, default True
        Scale vectors to length 1, uni and bi separately, like the original's ``use_norm``.
    vectors : str | Path, optional
        A text file of word vectors (word2vec or GloVe). Its words that the dictionary lacks get rows by linear
        regression fitted to the words that both have (Kiros et al. 2015, section 2.2). As in the original, words with
        "_" (word2vec's phrases) are left out.

    Raises
    ------
    ModelError
        If a file is missing or differs from the published format.
    DataError
        If ``vectors`` is not valid; the message names file, line and column.
    UsageError
        If ``out`` exists.
    """
    folder = Path(folder)
    words = read_dictionary(folder / "dictionary.txt")
    for special in (UNKNOWN, *([END] if use_eos else [])):
        if special not in words:
            raise ModelError(
                f"{folder / 'dictionary.txt'} lacks the line {special!r}, whose vector is needed; "
                "download the file again."
            )
    grus = {name: _read_gru(folder / file, prefix) for name, (file, prefix) in GRUS.items()}
    for part in ("input.weight", "recurrent.weight"):
        if (ahead := grus["ahead"][part].shape) != (back := grus["back"][part].shape):
            raise ModelError(
                f"{folder / 'bi_skip.npz'}: its two directions differ: {part} has the shapes {ahead} and {back}."
            )
    sizes = {name: gru["input.weight"].shape for name, gru in grus.items()}
    more = None if vectors is None else _Expansion(words, *read_vectors(vectors), vectors)
    weights = {f"blocks.0.{name}.{part}": x for name, gru in grus.items() for part, x in gru.items()}
    shards: dict[str, int] = {}
    names: dict[str, str] = {}
    with new_folder(Path(out)) as new_files:

        def save(tensors: Mapping[str, np.ndarray]) -> None:
            file = f"model-{len(shards) + 1:05d}-of-00003.safetensors"
            save_tensors(tensors, new_files / file, format="pt")
            shards[file] = sum(x.nbytes for x in tensors.values())
            names.update(dict.fromkeys(tensors, file))

        save(weights)
        for name, file, gru in (("uni_words", "utable.npy", "uni"), ("bi_words", "btable.npy", "ahead")):
            table = _read_table(folder / file, (len(words), sizes[gru][1]))
            save({name: table if more is None else more.of(table)})
            del table
        words = words if more is None else [*words, *more.words]
        config = {
            "model_type": "skip-thoughts",
            "architectures": ["SkipThoughtsModel"],
            "vocab_size": len(words),
            "uni_word_size": sizes["uni"][1],
            "bi_word_size": sizes["ahead"][1],
            "uni_size": sizes["uni"][0] // 3,
            "bi_size": sizes["ahead"][0] // 3,
            "use_eos": use_eos,
            "normalise": normalise,
            "dtype": "float32",
        }
        index = {"metadata": {"total_size": sum(shards.values())}, "weight_map": names}
        for file, content in (
            ("config.json", config),
            ("tokenizer_config.json", {"words": Splitting(splitting)}),
            ("model.safetensors.index.json", index),
        ):
            (new_files / file).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        (new_files / "vocab.txt").write_bytes("".join(f"{word}\n" for word in words).encode())
    return Path(out)


def read_dictionary(path: Path) -> list[str]:
    """The words, one per line, without surrounding white space; raises ModelError for a line that is not UTF-8."""
    words = []
    for number, line in enumerate(_there(path).read_bytes().split(b"\n"), start=1):
        try:
            words.append(line.decode().strip())
        except UnicodeDecodeError as error:
            raise ModelError(
                f"{path}, line {number}: byte 0x{line[error.start]:02x} is not UTF-8, the encoding of the published "
                "dictionary; download it again."
            ) from error
    if not words[-1]:
        words.pop()  # after the last newline
    return words


def read_vectors(path: str | Path) -> tuple[list[str], np.ndarray]:
    """Words and their vectors, float32 (words, d), from a text file: GloVe's, or word2vec's, which begins with sizes.

    A word may contain spaces, as in GloVe: the last d columns are the numbers.

    Raises
    ------
    DataError
        If a line is not UTF-8 or has too few columns, or a number is not valid or finite; the message names line and
        column.
    """
    words: list[str] = []
    numbers = array("f")
    rows, d, header = None, None, 0
    if not Path(path).is_file():
        raise DataError("does not exist; expected a text file of word vectors.", file=path)
    with Path(path).open("rb") as stream:
        for number, raw in enumerate(stream, start=1):
            try:
                line = raw.decode().rstrip(" \r\n")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"byte 0x{raw[error.start]:02x} is not UTF-8. Is this word2vec's binary format? Save it as text.",
                    file=path, line=number,
                ) from error  # fmt: skip
            if number == 1:
                columns = line.split(" ")
                if len(columns) == 2 and all(x.isdecimal() for x in columns):
                    rows, d, header = int(columns[0]), int(columns[1]), 1
                    continue
                d = len(columns) - 1
            word, *cells = line.rsplit(" ", d or 0)
            if not d or len(cells) != d:
                raise DataError(
                    f"found {len(cells) + 1} columns, expected a word and {d or 'its'} numbers. Is the file truncated?",
                    file=path, line=number,
                )  # fmt: skip
            try:
                numbers.extend(map(float, cells))
            except ValueError:
                raise _no_number(path, number, cells) from None
            words.append(word)
    if not words or (rows is not None and rows != len(words)):
        expected = "words and their vectors" if rows is None else f"{rows} words, as its first line says,"
        raise DataError(f"found {len(words)} lines of vectors, expected {expected}. Is the file truncated?", file=path)
    vectors = np.frombuffer(numbers, np.float32).reshape(len(words), -1)
    for start in range(0, len(vectors), _CHUNK):
        if not (fine := np.isfinite(vectors[start : start + _CHUNK])).all():
            row, column = (int(x[0]) for x in np.nonzero(~fine))
            raise DataError(
                f"{vectors[start + row, column]} is not a finite number.",
                file=path, line=start + row + 1 + header, column=column + 2,
            )  # fmt: skip
    return words, vectors


def regress(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slope (p, q) and intercept (q,), float64, of the linear regression of y (n, q) on x (n, p).

    The least-squares solution of smallest norm, as scikit-learn's LinearRegression, which the original calls; solved by
    the normal equations, to avoid a copy of y.
    """
    mean_x, mean_y = x.mean(0, dtype=np.float64), y.mean(0, dtype=np.float64)
    gram, moment = np.zeros((x.shape[1],) * 2), np.zeros((x.shape[1], y.shape[1]))
    for start in range(0, len(x), _CHUNK):
        rows = slice(start, start + _CHUNK)
        centred = x[rows] - mean_x
        gram += centred.T @ centred
        moment += centred.T @ (y[rows] - mean_y)
    slope = np.linalg.lstsq(gram, moment, rcond=None)[0]
    return slope, mean_y - mean_x @ slope


class _Expansion:
    """Rows for words in a file of vectors that the dictionary lacks.

    words : these words; known, shared : rows of the words that both have, in the tables and in the file
    """

    def __init__(self, dictionary: Sequence[str], words: Sequence[str], vectors: np.ndarray, path: str | Path) -> None:
        rows = {
            word: row for row, word in enumerate(dictionary)
        }  # the last row of a word that occurs twice, as in the original
        first: dict[str, int] = {}
        for row, word in enumerate(words):
            first.setdefault(word, row)
        both = [word for word in first if word in rows and word not in (UNKNOWN, END)]
        if not both:
            raise ModelError(f"{path} has no word in common with the dictionary; are they for the same language?")
        self.words = [
            word for word in first if word not in rows and "_" not in word and not any(map(str.isspace, word))
        ]
        self.known, self.shared = np.array([rows[w] for w in both]), vectors[[first[w] for w in both]]
        self.new = vectors[[first[w] for w in self.words]]

    def of(self, table: np.ndarray) -> np.ndarray:
        """A table (n, d) with the rows of the new words appended, float32."""
        slope, intercept = regress(self.shared, table[self.known])
        extended = np.empty((len(table) + len(self.new), table.shape[1]), np.float32)
        extended[: len(table)] = table
        for start in range(0, len(self.new), _CHUNK):
            rows = self.new[start : start + _CHUNK]
            extended[len(table) + start :][: len(rows)] = rows @ slope + intercept
        return extended


def _read_gru(path: Path, prefix: str) -> dict[str, np.ndarray]:
    """One recurrent network under probekit's names, with gates r, u and the new state stacked, float32.

    The original multiplies from the left, so matrices are transposed.
    """
    try:
        with np.load(_there(path), allow_pickle=False) as file:
            names = [f"{prefix}_{x}" for x in ("W", "Wx", "U", "Ux", "b", "bx")]
            if missing := [name for name in names if name not in file]:
                raise ModelError(
                    f"{path} lacks {', '.join(missing)}; expected the arrays of the published {path.name}."
                )
            with zipfile.ZipFile(path) as archive:
                for name in names:
                    _check_member(archive, f"{name}.npy")
            w, wx, u, ux, b, bx = arrays = [file[name] for name in names]
    except ModelError:
        raise
    except Exception as error:  # from zipfile, and from Python's tokenizer, with which NumPy reads headers
        raise _unread(path, error) from error
    size, width = len(np.atleast_1d(ux)), len(np.atleast_1d(wx))
    shapes = [(width, 2 * size), (width, size), (size, 2 * size), (size, size), (2 * size,), (size,)]
    for name, x, shape in zip(names, arrays, shapes, strict=True):
        _check(f"{path}, {name}", x, shape)
    parts = {
        "input.weight": np.concatenate([w, wx], 1).T,
        "input.bias": np.concatenate([b, bx]),
        "recurrent.weight": np.concatenate([u, ux], 1).T,
    }
    return {name: np.ascontiguousarray(x, np.float32) for name, x in parts.items()}


def _check_member(archive: zipfile.ZipFile, name: str) -> None:
    """Raise ValueError if an array declares more bytes than its part of the archive holds or can hold."""
    info = archive.getinfo(name)
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
    declared = math.prod(shape) * dtype.itemsize
    if declared > info.file_size or info.file_size > max(SMALL, DENSEST * info.compress_size):
        raise ValueError(f"{name} declares {declared} bytes, but only {info.compress_size} are stored")


SMALL, DENSEST = 1 << 26, 100
"""Bytes that an array may have at any compression ratio, and the maximum ratio above that: weights hardly compress."""


def _read_table(path: Path, shape: tuple[int, int]) -> np.ndarray:
    """A table of word vectors, float32, mapped rather than read."""
    try:
        table = np.load(_there(path), mmap_mode="r", allow_pickle=False)
        _check(str(path), table, shape)
    except ModelError:
        raise
    except Exception as error:
        raise _unread(path, error) from error
    return np.ascontiguousarray(table, np.float32)


def _check(where: str, x: np.ndarray, shape: tuple[int, ...]) -> None:
    if x.dtype.kind != "f" or x.shape != shape or not x.size:
        raise ModelError(
            f"{where} holds {x.dtype} {x.shape}; expected floating-point numbers {shape}. Do dictionary, tables and "
            "models belong together?"
        )
    for start in range(0, len(x), _CHUNK):
        if not (fine := np.isfinite(x[start : start + _CHUNK])).all():
            row = start + int(np.argwhere(~fine)[0, 0])
            raise ModelError(
                f"{where} holds {x[row][~np.isfinite(x[row])].flat[0]} in row {row}; download the file again."
            )


def _unread(path: Path, error: Exception) -> ModelError:
    return ModelError(
        f"{path} cannot be read ({error}); expected plain arrays of numbers, as NumPy saves them, without pickled "
        "objects."
    )


def _there(path: Path) -> Path:
    if not path.is_file():
        raise ModelError(f"{path} does not exist; expected a folder with {', '.join(FILES)}.")
    return path


def _no_number(path: str | Path, line: int, cells: Sequence[str]) -> DataError:
    for column, cell in enumerate(cells, start=2):
        try:
            float(cell)
        except ValueError:
            return DataError(f"{cell!r:.40} is not a number.", file=path, line=line, column=column)
    raise AssertionError("one of them is not a number")
