"""Scores of texts as they come, a line at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.calls import checked
from probekit.constraint import Share
from probekit.errors import ProbekitError, first_line, reading
from probekit.files import parse_json, read_lines
from probekit.monitors.alarm import Alarm, alarm_of, highest
from probekit.monitors.folder import load_probe
from probekit.monitors.probe import Probe
from probekit.monitors.scoring import load_model, scored
from probekit.probes.solvers.scores import Score
from probekit.tasks.task import Example

if TYPE_CHECKING:
    from probekit.models.encoder import Encoder


@checked
def monitor(
    probe: str | Path | Probe,
    lines: Any = "-",
    /,
    *,
    layer: str | None = None,
    model: str | Path | Encoder | None = None,
    harmless: Path | None = None,
    rule: str | None = None,
    rate: Share = 0.01,
    device: str = "auto",
    anyway: bool = False,
) -> Iterator[dict[str, Any]]:
    """Score texts with a kept probe as they come: a line in, a line out.

    Parameters
    ----------
    probe : path or Probe
        A folder that ``probekit probe --keep`` wrote.
    lines : str, path or iterable of str
        A file, "-" for standard input, or lines: JSON objects with the field ``text`` and, if you like, ``id`` and
        ``pair``; other lines are texts.
    layer : str, optional
        The probe's layer, if the folder keeps several (default: the best on dev).
    model : str, path or Encoder, optional
        The model that reads texts (default: the name in the probe's card).
    harmless : path, optional
        A file of harmless texts (a text a line), on which an alarm is calibrated: each answer then says whether the
        alarm would have ended the text.
    rule : str, optional
        The alarm's rule: max, mean, ema:DECAY, rolling:PIECES or cusum:DRIFT (default: that of a monitor, rolling:10).
    rate : float
        The share of harmless texts that the alarm may end.
    device : str
        auto, cpu, cuda, cuda:N or mps.
    anyway : bool
        Apply the probe to another model, tokenizer or precision than its own.

    Yields
    ------
    dict
        For each line: ``id`` (default: its number), ``score`` or the probability of each class, ``class``, and
        ``truncated`` if the text is longer than the model reads; with ``harmless`` also ``highest``, the rule's highest
        score (None for texts that are shorter than its moving mean), and ``alarm``. A line that cannot be read gives
        its number and ``error``.

    Raises
    ------
    UsageError
        If the probe cannot score texts, or the harmless texts are too few.

    Examples
    --------
    >>> for answer in probekit.monitor("kept/sst2", ["A fine film.", "A dull film."]):  # doctest: +SKIP
    ...     print(answer["id"], answer["score"])

    On the command line::

        probekit monitor kept/sst2 chats.jsonl --model ./my-llama
        probekit monitor kept/sst2 --harmless benign.txt --rule max --rate 0.001
    """
    kept = probe if isinstance(probe, Probe) else load_probe(probe, layer)
    encoder, _ = load_model(kept, model, device=device, anyway=anyway)
    alarm = None
    if harmless is not None:
        texts = [_example(line, i) for i, line in enumerate(read_lines(harmless)) if line.strip()]
        alarm = alarm_of(kept, texts, rule=rule, rate=rate, model=encoder, on=harmless.name, anyway=anyway)
    return (_answer(kept, encoder, line, i, alarm) for i, line in enumerate(_lines(lines)) if line.strip())


def _lines(given: str | Path | Iterable[str]) -> Iterator[str | bytes]:
    if not isinstance(given, str | Path):
        yield from given
    elif str(given) == "-":
        yield from sys.stdin.buffer
    else:
        with reading(given, "a file of texts"), Path(given).open("rb") as file:
            yield from file


def _answer(probe: Probe, encoder: Encoder, line: str | bytes, i: int, alarm: Alarm | None) -> dict[str, Any]:
    """What is said of one line."""
    name = str(i)
    try:
        example = _example((line.decode() if isinstance(line, bytes) else line).rstrip("\r\n"), i)
        name, whole = example.id, scored(probe, encoder, [example])
        found: dict[Any, Any] = probe.table(whole.logits).iloc[0].to_dict()
        answer = {"id": name, **{k: v.item() if hasattr(v, "item") else v for k, v in found.items()}}
        if whole.truncated[0]:
            answer["truncated"] = True
        if alarm is not None:
            pieces = probe.scores(scored(probe, encoder, [example], by_piece=True).logits)
            top = float(highest(Score.parse(alarm.rule), pieces, np.array([len(pieces)]))[0])
            answer |= {"highest": top if np.isfinite(top) else None, "alarm": top > alarm.threshold}
    except (ProbekitError, ValueError, IndexError) as error:
        return {"id": name, "error": first_line(error)}
    return answer


def _example(line: str, i: int) -> Example:
    if not line.lstrip().startswith("{"):
        return Example(str(i), line)
    given = parse_json(line)
    text, pair = given.get("text"), given.get("pair")
    if not isinstance(text, str) or not (pair is None or isinstance(pair, str)):
        raise ValueError('wanted an object with the field "text", a string.')
    return Example(str(given.get("id", i)), text, pair=pair)
