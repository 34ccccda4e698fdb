"""Where places are and when works appeared, from their names (Gurnee & Tegmark 2023)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from probekit.errors import DataError, UsageError
from probekit.tasks.datasets.dataset import Dataset
from probekit.tasks.datasets.sources import class_labels, local_file, numbers
from probekit.tasks.files.readers import Table, read_csv
from probekit.tasks.task import Example, Task, TaskKind

__all__ = ["LOADERS", "PLACES", "art_dates", "places"]

SOURCE = "Gurnee and Tegmark 2023, https://github.com/wesg52/world-models"
METRICS = ("r2", "mean-absolute-error", "spearman")
LIMITS = {"latitude": 90.0, "longitude": 180.0}


def _dataset(name: str, title: str, train: int, test: int, shown: str) -> Dataset:
    sizes = {"train": train, "test": test}
    return Dataset(name, title, TaskKind.REGRESSION, sizes, METRICS, SOURCE, "MIT", folder="space_time", shown=shown)


WORLD = _dataset("world-places", "Places of the world by name: their latitude or longitude", 31_668, 7_917, "World")
US = _dataset("us-places", "Places of the United States by name: their latitude or longitude", 23_997, 6_000, "US")
ART = _dataset("art-dates", "Songs, films and books by creator and title: the year of release", 25_056, 6_265, "Art")
PLACES = ("world-places", "us-places")
"""The tasks that have a latitude and a longitude."""


def places(dataset: Dataset, files: Sequence[str], root: str | Path | None = None, part: str | None = None) -> Task:
    """The latitude or the longitude of places, in degrees; ``part`` says which.

    Both have the same texts and ids, so ``world-places:latitude+world-places:longitude`` is one cache for both. The
    splits are those of the authors (``is_test``), the domain is the type of the place.
    """
    path = local_file(dataset, root, *files)
    if part not in LIMITS:
        asked = f"{dataset.name}:{part}" if part else dataset.name
        raise UsageError(f"{asked}: choose {dataset.name}:latitude or {dataset.name}:longitude.")
    table = read_csv(path, required=("name", "latitude", "longitude", "is_test"))
    labels = numbers(table, part, -LIMITS[part], LIMITS[part])
    return _task(dataset, table, table.column("name"), labels, name=f"{dataset.name}:{part}")


def art_dates(root: str | Path | None = None) -> Task:
    """The year in which a song, film or book was released, from its creator and title, such as "Stephen King's It".

    Works of one creator are a group. The splits are those of the authors (``is_test``), which do not keep groups whole;
    the domain is the type of the work.
    """
    table = read_csv(
        local_file(ART, root, "art.csv", "art_sample.csv"), required=("title", "creator", "release_date", "is_test")
    )
    creators = table.column("creator")
    texts = [f"{who}'s {title}" if who else title for who, title in zip(creators, table.column("title"), strict=True)]
    years = []
    for day, line in zip(table.column("release_date"), table.lines, strict=True):
        if not day[:4].isdecimal() or day[4:5] not in ("", "-"):
            raise DataError(f"found {day!r}, expected a date.", file=table.path, line=line, column="release_date")
        years.append(float(day[:4]))
    return _task(ART, table, texts, years, groups=[who or None for who in creators])


def _task(
    dataset: Dataset,
    table: Table,
    texts: Sequence[str],
    labels: Sequence[float],
    *,
    groups: Sequence[str | None] | None = None,
    name: str = "",
) -> Task:
    tests = class_labels(table, "is_test", {"False": 0, "True": 1})
    kinds = table.column("entity_type")
    splits: dict[str, list[Example]] = {"train": [], "test": []}
    for i, (text, label, test) in enumerate(zip(texts, labels, tests, strict=True)):
        if not text.strip():
            raise DataError("is empty; expected a name.", file=table.path, line=table.lines[i])
        group = groups[i] if groups else None
        splits["test" if test else "train"].append(Example(f"row-{i}", text, label, domain=kinds[i], group=group))
    return dataset.task(splits, name=name)


def _of(dataset: Dataset, *files: str) -> Callable[..., Task]:
    return partial(places, dataset, files)


LOADERS: dict[Dataset, Callable[..., Task]] = {
    WORLD: _of(WORLD, "world_place.csv", "world_place_sample.csv"),
    US: _of(US, "us_place.csv", "us_place_sample.csv"),
    ART: art_dates,
}
