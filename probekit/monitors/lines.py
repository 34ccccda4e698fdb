"""Scores of texts as they come, a line at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.calls import checked
from probekit.constraint import Share
from probekit.errors import DataError, ProbekitError, UsageError, first_line, reading
from probekit.files import parse_json
from probekit.monitors.alarm import ALARM_FILE, Alarm, alarm_of, highest, load_alarm
from probekit.monitors.folder import load_probe
from probekit.monitors.probe import OF_RATE, Probe
from probekit.monitors.scoring import load_model, scored
from probekit.probes.solvers.scores import Score
from probekit.tasks.files.records import opened, scan
from probekit.tasks.files.stream import is_json_lines, is_stream
from probekit.tasks.task import Example

if TYPE_CHECKING:
    from probekit.models.encoder import Encoder


@checked
def monitor(
    probe: str | Path | Probe,
    lines: Any = "-",
    /,
    *,
    layer: int | str | None = None,
    model: str | Path | Encoder | None = None,
    rate: Share | None = None,
    alarm: str | Path | Alarm | None = None,
    harmless: Path | None = None,
    rule: str | None = None,
    groups: str | None = None,
    save_alarm: Path | None = None,
    device: str = "auto",
    anyway: bool = False,
) -> Iterator[dict[str, Any]]:
    """Score texts with a kept probe as they come: a line in, a line out.

    Parameters
    ----------
    probe : path or Probe
        A folder that ``probekit probe --keep`` wrote.
    lines : str, path or iterable of str
        A file (also .gz), "-" for standard input, or lines: JSON objects (in Python also dicts) with the field
        ``text`` (or ``words``, a list) and, if you like, ``id`` and ``pair``; other lines are texts, and so is each
        line of a .txt file. Blank lines have no answer, but count in the numbers of lines.
    layer : int or str, optional
        The probe's layer, if the folder keeps several (default: the best on dev).
    model : str, path or Encoder, optional
        The model that reads texts (default: the name in the probe's card).
    rate : float, optional
        Without an alarm: a rate of false positives of which the probe's card has a threshold (0.01, 0.05, 0.1); each
        answer then says whether the score of the whole text is above it. With ``harmless``: the share of harmless texts
        that the alarm may end (default: 0.01).
    alarm : path or Alarm, optional
        An alarm of this probe: each answer then says whether it would have ended the text.
    harmless : path, optional
        A file of harmless texts (.txt, a text a line; .jsonl), on which an alarm is calibrated.
    rule : str, optional
        The alarm's rule: max, mean, ema:DECAY, rolling:PIECES or cusum:DRIFT (default: that of a monitor, rolling:10).
    groups : str, optional
        The field of the harmless texts (.jsonl) that names the group of each: texts of one author, template or
        conversation, which are not independent.
    save_alarm : path, optional
        Keep the alarm that is calibrated on ``harmless`` in this file.
    device : str
        auto, cpu, cuda, cuda:N or mps.
    anyway : bool
        Apply the probe to another model, tokenizer or precision than its own.

    Yields
    ------
    dict
        For each line: ``id`` (default: its number, from 1), ``score`` or the probability of each class, ``class``, and
        ``truncated`` if the text is longer than the model reads. With an alarm also ``highest``, the rule's highest
        score, and ``alarm``; with ``rate`` alone ``above``,
        ``threshold``, and ``rate`` with its interval in the card, ``rate_low`` and ``rate_high``, and ``seen_in_train``
        if it was measured on examples that train held, too. A line that cannot be
        read gives its number and ``error``.

    Raises
    ------
    UsageError
        If the probe cannot score texts, its card has no threshold for the rate, the alarm is another probe's, or the
        harmless texts are too few.

    Examples
    --------
    >>> for answer in probekit.monitor("kept/sst2", ["A fine film.", "A dull film."]):  # doctest: +SKIP
    ...     print(answer["id"], answer["score"])

    On the command line::

        probekit monitor kept/sst2 chats.jsonl --model ./my-llama
        probekit monitor kept/sst2 chats.jsonl --rate 0.05
        probekit monitor kept/sst2 --harmless benign.txt --rule max --rate 0.001 --save-alarm chats.alarm.json
        probekit monitor kept/sst2 --harmless benign.jsonl --groups author
        probekit monitor kept/sst2 --alarm chats.alarm.json
    """
    kept = probe if isinstance(probe, Probe) else load_probe(probe, layer)
    above = _above(kept, rate, alarm=alarm is not None, harmless=harmless is not None)
    if harmless is None and (rule, groups, save_alarm) != (None, None, None):
        raise UsageError(
            "rule, groups and save_alarm are for an alarm that harmless texts calibrate; give them with harmless."
        )
    held = alarm if alarm is None or isinstance(alarm, Alarm) else load_alarm(alarm)
    if held is not None:
        held.check(kept)
    if save_alarm is not None:
        ALARM_FILE.check(save_alarm)
    encoder, _ = load_model(kept, model, device=device, anyway=anyway)
    if harmless is not None:
        texts, _ = read_texts(harmless, groups)
        share, of = 0.01 if rate is None else rate, None if groups is None else [e.group for e in texts]
        held = alarm_of(kept, texts, rule=rule, rate=share, model=encoder, on=harmless.name, groups=of, anyway=anyway)
        if save_alarm is not None:
            held.save(save_alarm)
    plain = isinstance(lines, str | Path) and is_stream(str(lines)) and not is_json_lines(str(lines))
    return (
        _answer(kept, encoder, line, i, held, above, plain=plain)
        for i, line in enumerate(_lines(lines), 1)
        if not isinstance(line, str | bytes) or line.strip()
    )


def _above(probe: Probe, rate: float | None, *, alarm: bool, harmless: bool) -> dict[str, Any]:
    """The threshold of the card for a rate, with the rate's interval; {} if none is asked for."""
    if alarm and (harmless or rate is not None):
        raise UsageError("an alarm has its own rate; leave out harmless and rate, or alarm.")
    if rate is None or harmless:
        return {}
    point = probe.operating_point(rate)
    return {name: point.get(name) for name in OF_RATE if name != "seen_in_train" or point[name]}


def _lines(given: str | Path | Iterable[Any]) -> Iterator[Any]:
    if not isinstance(given, str | Path):
        yield from given
    elif str(given) == "-":
        yield from sys.stdin.buffer
    else:
        path = Path(given)
        pipe = path.exists() and not path.is_file()  # which can be opened once
        with reading(given, "a file of texts"), path.open("rb") if pipe else opened(path) as file:
            yield from file


def _answer(
    probe: Probe, encoder: Encoder, line: Any, i: int, alarm: Alarm | None, above: Mapping[str, Any], *, plain: bool
) -> dict[str, Any]:
    """What is said of one line."""
    name = str(i)
    try:
        example = _example(line, i, plain=plain)
        name, whole = example.id, scored(probe, encoder, [example])
        if not len(whole.logits):
            raise ValueError("the model reads no piece of the text.")
        found: dict[Any, Any] = probe.table(whole.logits).iloc[0].to_dict()
        answer = {"id": name, **{k: v.item() if hasattr(v, "item") else v for k, v in found.items()}}
        if whole.truncated[0]:
            answer["truncated"] = True
        if above:
            answer |= {"above": bool(answer["score"] > above["threshold"]), **above}
        if alarm is not None:
            pieces = probe.scores(scored(probe, encoder, [example], by_piece=True).logits)
            top = float(highest(Score.parse(alarm.rule), pieces, np.array([len(pieces)]))[0])
            answer |= {"highest": top, "alarm": top > alarm.threshold}
    except (ProbekitError, ValueError, IndexError) as error:
        return {"id": name, "error": first_line(error)}
    return answer


def _example(line: Any, number: int, *, plain: bool) -> Example:
    """The text of a line: bytes, a str or a dict; ``plain`` if no line is JSON."""
    if isinstance(line, bytes):
        line = line.decode()
    if isinstance(line, str):
        line = line.removeprefix("\ufeff" if number == 1 else "").rstrip("\r\n")
        line = parse_json(line) if not plain and line.lstrip().startswith("{") else {"text": line}
    if not isinstance(line, Mapping):
        raise ValueError(f'wanted a text, or an object with the field "text"; found {type(line).__name__}.')
    return example_of(line, number)


def example_of(record: Mapping[str, Any], number: int) -> Example:
    """The text of a line, by the fields ``text`` or ``words``, ``pair`` and ``id`` (default: the line's number).

    Raises
    ------
    ValueError
        If there is no text, or a field is of another type.
    """
    words: Any
    words, pair, name = record.get("words"), record.get("pair"), record.get("id")
    is_words = isinstance(words, list) and len(words) > 0 and all(isinstance(word, str) for word in words)
    text = " ".join(words) if is_words and "text" not in record else record.get("text")
    if not isinstance(text, str) or not (pair is None or isinstance(pair, str)) or not (words is None or is_words):
        raise ValueError(
            'wanted an object with the field "text", a string, or "words", a list of strings, and perhaps "pair", a '
            f"string; found {', '.join(f'{key} ({type(value).__name__})' for key, value in record.items()) or 'none'}."
        )
    return Example(str(number if name is None else name), text, pair=pair, words=tuple(words) if words else None)


def read_texts(path: str | Path, groups: str | None = None) -> tuple[list[Example], str]:
    """The texts of a file (.txt, a text a line; .jsonl; also .gz), and the digest of its bytes.

    Their ids are those of the file, or the numbers of their lines, from 1. Blank lines are left out, but count in the
    numbers. ``groups`` is the field that names their groups.

    Raises
    ------
    DataError
        If it cannot be read; the message names the line.
    """
    records = scan(Path(path), plain=not is_json_lines(str(path)))
    found = []
    for number, record in records.read(0, records.count):
        try:
            if groups is not None and record.get(groups) is None:
                raise ValueError(f"wanted the group of the text in the field {groups!r}; found {', '.join(record)}.")
            example = example_of(record, number)
            found.append(example if groups is None else replace(example, group=str(record[groups])))
        except ValueError as error:
            raise DataError(str(error), file=path, line=number) from None
    if not found:
        raise DataError("it holds no text: all its lines are blank.", file=path)
    return found, records.identity
