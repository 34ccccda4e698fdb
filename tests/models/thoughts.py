"""Skip-thoughts files as they are published, small and random; and the network written out once more, word by word."""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORDS = ("<eos>", "UNK", "the", "cat", "sat", "on", "mat", ".", "dog", "``", "''")
SIZES = {"uni": 5, "bi": 4, "width": 6}


def gru(prefix: str, width: int, size: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {"W": (width, 2 * size), "Wx": (width, size), "U": (size, 2 * size), "Ux": (size, size)}
    shapes |= {"b": (2 * size,), "bx": (size,)}
    return {f"{prefix}_{name}": rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def publish(
    folder: Path, words: tuple[str, ...] = WORDS, *, uni: int = 5, bi: int = 4, width: int = 6
) -> dict[str, dict[str, np.ndarray]]:
    """Write the five files; returns what is in them: the arrays of "uni" and "bi", and "tables"."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    made = {
        "uni": gru("encoder", width, uni, rng),
        "bi": gru("encoder", width, bi, rng) | gru("encoder_r", width, bi, rng),
        "tables": {name: rng.normal(size=(len(words), width)).astype(np.float32) for name in ("utable", "btable")},
    }
    np.savez(folder / "uni_skip.npz", Wemb=np.array([None]), **made["uni"])  # Wemb is not wanted, and not read
    np.savez(folder / "bi_skip.npz", **made["bi"])
    for name, table in made["tables"].items():
        np.save(folder / f"{name}.npy", table)
    (folder / "dictionary.txt").write_bytes("".join(f"{word}\n" for word in words).encode())
    return made


def states(arrays: dict[str, np.ndarray], prefix: str, x: np.ndarray) -> np.ndarray:
    """The state after each of the word vectors x (k, width): (k, size), in float64."""
    w, wx, u, ux, b, bx = (arrays[f"{prefix}_{name}"].astype(float) for name in ("W", "Wx", "U", "Ux", "b", "bx"))
    h, found = np.zeros(len(ux)), []
    for word in x.astype(float):
        r, z = np.split(1 / (1 + np.exp(-(word @ w + b + h @ u))), 2)
        h = z * h + (1 - z) * np.tanh(word @ wx + bx + r * (h @ ux))
        found.append(h)
    return np.array(found)


def thoughts(made: dict[str, dict[str, np.ndarray]], ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """uni and bi of a sentence after each word, of length 1; backward states are those after the last words."""
    uni, bi = (made["tables"][name][ids] for name in ("utable", "btable"))
    one = states(made["uni"], "encoder", uni)
    two = np.concatenate([states(made["bi"], "encoder", bi), states(made["bi"], "encoder_r", bi[::-1])], 1)
    return tuple(x / np.linalg.norm(x, axis=1, keepdims=True) for x in (one, two))  # type: ignore[return-value]
