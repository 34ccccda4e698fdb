"""Files of a scene for other tools: Parquet for Embedding Atlas, and the folder of TensorBoard's projector."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analyses.exploration.selection import examples
from probekit.errors import UsageError
from probekit.files import FileKind, check_folder, new_folder, whole
from probekit.projection.plane import blocks
from probekit.runtime import blas_thread

if TYPE_CHECKING:
    from probekit.analyses.exploration.data import SceneData

FORMAT = b"probekit-scene/1"


def to_parquet(
    scene: SceneData,
    path: str | Path,
    *,
    side: int = 0,
    layer: int | str = -1,
    method: str = "pca",
    neighbours: int = 15,
) -> Path:
    """Write one map as Parquet: x, y, text, label …, and ``neighbors`` in the format of Embedding Atlas.

    ``embedding-atlas FILE.parquet --text text --x x --y y --neighbors neighbors`` opens it.
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    path = Path(path)
    if path.suffix != ".parquet":
        raise UsageError(f"the file must end in .parquet; {path} does not.")
    at = scene.position(layer)
    shown = scene.sides[side]
    if method not in shown.maps:
        raise UsageError(f"the scene has no {method} map; it has {', '.join(shown.maps)}.")
    table = examples(scene, scene.ids.tolist(), layer)
    xy = shown.maps[method].xy[at]
    table["x"], table["y"] = xy[:, 0], xy[:, 1]
    if shown.clusters is not None:
        table["cluster"] = shown.clusters[at]
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    if neighbours and scene.sources is not None:
        near, distance = nearest(scene.sources.vectors(side, at), neighbours)
        column = pa.StructArray.from_arrays(
            [pa.array(near.tolist(), pa.list_(pa.int64())), pa.array(distance.tolist(), pa.list_(pa.float32()))],
            ["ids", "distances"],
        )
        arrow = arrow.append_column("neighbors", column)
    about = {b"probekit": FORMAT, b"note": shown.maps[method].note.encode()}
    check_folder(path.parent)
    with whole(path, FileKind("a scene's Parquet file", _is_ours, "choose another name")) as new:
        parquet.write_table(arrow.replace_schema_metadata({**(arrow.schema.metadata or {}), **about}), new)
    return path


def _is_ours(path: Path) -> bool:
    from pyarrow.parquet import read_schema

    return (read_schema(path).metadata or {}).get(b"probekit") == FORMAT


def nearest(x: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest other rows by cosine distance, int64 and float32 (n, k), nearest first."""
    n = x.shape[0]
    k = min(k, n - 1)
    unit = np.concatenate(list(blocks(x))).astype(np.float32)
    unit /= np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-30)
    found, distance = np.empty((n, k), dtype=np.int64), np.empty((n, k), dtype=np.float32)
    step = max(1, (1 << 23) // n)
    with blas_thread():
        for start in range(0, n, step):
            part = 1 - unit[start : start + step] @ unit.T
            part[np.arange(len(part)), np.arange(start, start + len(part))] = np.inf
            near = np.argpartition(part, k - 1, axis=1)[:, :k]
            near = np.take_along_axis(near, np.lexsort((near, np.take_along_axis(part, near, 1)), axis=1), 1)
            found[start : start + step] = near
            distance[start : start + step] = np.maximum(np.take_along_axis(part, near, 1), 0)
    return found, distance


def to_projector(
    scene: SceneData, folder: str | Path, *, layers: Iterable[int | str] | None = None, side: int = 0
) -> Path:
    """Write vectors and metadata as a folder of TensorBoard's projector (``tensorboard --logdir FOLDER``)."""
    folder = Path(folder)
    at = [scene.position(layer) for layer in (scene.layers if layers is None else layers)]
    table = examples(scene, scene.ids.tolist())
    metadata = [_line(table.columns), *(_line(row) for row in table.itertuples(index=False, name=None))]
    with new_folder(folder) as new:
        (new / "metadata.tsv").write_text("\n".join(metadata) + "\n", encoding="utf-8", newline="\n")
        config = []
        for layer in at:
            name = scene.sides[side].layers[layer]
            file = f"vectors-{name}.tsv"
            with (new / file).open("w", encoding="utf-8", newline="\n") as out:
                for part in blocks(scene.open_sources.vectors(side, layer)):
                    np.savetxt(out, part, fmt="%.6g", delimiter="\t")
            config.append(
                f'embeddings {{\n  tensor_name: "layer {name}"\n  tensor_path: "{file}"\n'
                '  metadata_path: "metadata.tsv"\n}\n'
            )
        (new / "projector_config.pbtxt").write_text("".join(config), encoding="utf-8", newline="\n")
    return folder


def _line(values: Any) -> str:
    """Cells of a table separated by tabs; tabs and line ends within cells become blanks."""
    return "\t".join("" if v is None else " ".join(str(v).split()) for v in values)
