"""Readers of statements, personas, places and dates: counts of the real files, small files, and bad input."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from probekit.errors import DataError, UsageError
from probekit.tasks import Task, load_task

DATA = Path(__file__).parents[3] / "shared" / "data"
real = pytest.mark.skipif(not DATA.is_dir(), reason="the shared data are not here")

CITIES = "statement,label,city,country,correct_country\n" + "".join(
    f"The city of {c} is in {x}.,{int(x == y)},{c},{x},{y}\n"
    for i, c in enumerate("Lodz Turin Osaka Leeds Quito Accra Hanoi Delhi".split())
    for x, y in ((f"Land {i}", f"Land {i}"), (f"Land {i + 1}", f"Land {i}"))
)


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def everyone(task: Task) -> list:
    return [e for split in task.splits.values() for e in split]


def groups(task: Task, split: str) -> set[str | None]:
    return {e.group for e in task.split(split)}


@pytest.mark.shared
@real
def test_the_real_sets_have_the_published_counts() -> None:
    counts = {"cities": 1496, "neg_cities": 1496, "sp_en_trans": 354, "neg_sp_en_trans": 354, "larger_than": 1980,
              "smaller_than": 1980, "companies_true_false": 1200, "cities_cities_conj": 1498,
              "cities_cities_disj": 1498, "common_claim_true_false": 4450}  # fmt: skip
    whole = Counter(e.domain for e in everyone(load_task("truth", DATA)))
    assert {name: whole[name] for name in counts} == counts
    labels = Counter(e.label for e in everyone(load_task("truth:cities_cities_conj", DATA)))
    assert labels == {1: 750, 0: 748}
    persona = load_task("persona:openness", DATA)
    assert Counter(e.label for e in everyone(persona)) == {1: 500, 0: 500}
    for name in ("world-places:latitude", "us-places:longitude", "art-dates"):
        task = load_task(name, DATA)
        tests = {"world-places:latitude": 1226, "us-places:longitude": 1197, "art-dates": 1223}[name]
        assert {s: len(split) for s, split in task.splits.items()} == {"train": 6000 - tests, "test": tests}


@pytest.mark.shared
@real
@pytest.mark.slow
def test_a_subject_is_in_the_same_split_of_all_sets() -> None:
    for pair in (("cities", "neg_cities"), ("sp_en_trans", "neg_sp_en_trans"), ("larger_than", "smaller_than")):
        tasks = [load_task(f"truth:{name}", DATA) for name in pair]
        for split, other in (("train", "dev"), ("dev", "train")):
            assert not groups(tasks[0], split) & groups(tasks[1], other)
        assert groups(tasks[0], "dev") == groups(tasks[1], "dev")
    cities = load_task("truth:cities", DATA)
    twins = Counter((e.group, e.label) for e in everyone(cities))
    assert set(twins.values()) == {1}
    companies = load_task("truth:companies_true_false", DATA)
    assert len({e.group for e in everyone(companies)}) == 292


def test_a_small_file_in_the_authors_layout(tmp_path: Path) -> None:
    task = load_task("truth:cities", write(tmp_path, {"cities.csv": CITIES}))
    found = everyone(task)
    assert len(found) == 16
    assert {e.group for e in found} >= {"city Lodz", "city Delhi"}
    assert task.label_names == ("false", "true")
    with pytest.raises(UsageError, match="has no domain 'neg_cities'"):
        load_task("truth:neg_cities", tmp_path)
    with pytest.raises(DataError, match=r"cities.csv, line 2, column 'label': label '2'"):
        load_task("truth", write(tmp_path, {"cities.csv": CITIES.replace(",1,", ",2,", 1)}))
    with pytest.raises(DataError, match="truth is read from a folder"):
        load_task("truth")


def test_statements_of_personas(tmp_path: Path) -> None:
    rows = [
        {"question": "q", "statement": f"I like {i}", "answer_matching_behavior": (" Yes", " No")[i % 2]}
        for i in range(10)
    ]
    text = "\n".join(map(json.dumps, rows))
    task = load_task("persona:openness", write(tmp_path, {"persona/openness.jsonl": text}))
    assert {e.text: e.label for e in everyone(task)} == {f"I like {i}": int(i % 2 == 0) for i in range(10)}
    bad = text.replace('" Yes"', '" Maybe"', 1)
    with pytest.raises(DataError, match=r"openness.jsonl, line 1, .*: label 'Maybe', expected one of 'No', 'Yes'"):
        load_task("persona", write(tmp_path, {"persona/openness.jsonl": bad}))


PLACES = """name,latitude,longitude,entity_type,is_test
Lodz,51.77,19.45,populated_place,False
"Paris, Texas",33.66,-95.55,populated_place,True
"""
ART = """title,creator,release_date,entity_type,is_test
It,Stephen King,1986-09-15,book,True
Carrie,Stephen King,1974-04-05,book,False
"""


def test_places_have_two_tasks_of_the_same_texts(tmp_path: Path) -> None:
    write(tmp_path, {"world_place.csv": PLACES, "art.csv": ART})
    latitude, longitude = (load_task(f"world-places:{part}", tmp_path) for part in ("latitude", "longitude"))
    assert [e.label for e in latitude.split("test")] == [33.66]
    assert [e.label for e in longitude.split("test")] == [-95.55]
    assert [(e.id, e.text) for e in latitude.split("train")] == [(e.id, e.text) for e in longitude.split("train")]
    both = load_task("world-places:latitude+world-places:longitude", tmp_path)
    assert [len(both.split(split)) for split in ("train", "test")] == [1, 1]
    with pytest.raises(UsageError, match="world-places: choose world-places:latitude or world-places:longitude"):
        load_task("world-places", tmp_path)
    art = load_task("art-dates", tmp_path)
    assert [(e.text, e.label, e.group) for e in art.split("test")] == [("Stephen King's It", 1986.0, "Stephen King")]
    write(tmp_path, {"world_place.csv": PLACES.replace("51.77", "151.77")})
    with pytest.raises(DataError, match=r"line 2, column 'latitude': found '151.77', expected a number from -90 to 90"):
        load_task("world-places:latitude", tmp_path)
