"""An alarm: a rule that ends a text once a probe's scores of its pieces are too high, and how often it errs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import DataError, UsageError, reading
from probekit.files import FileKind, read_json, whole
from probekit.monitors.scoring import examples_of, load_model, scored
from probekit.probes.solvers.scores import Score
from probekit.runtime import Progress, no_progress
from probekit.statistics.detection import promised, rate_interval
from probekit.version import VERSION

if TYPE_CHECKING:
    from probekit.monitors.probe import Probe

FORMAT = "probekit-alarm/1"
MOST = 1 << 16
"""The most bytes of a saved alarm."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A rule with its threshold.

    Attributes
    ----------
    rule : str
        How the scores of the pieces read so far become one: "max", "mean", "ema:DECAY", "rolling:PIECES",
        "cusum:DRIFT"; see :class:`probekit.probes.solvers.scores.Score`.
    threshold : float
        A text is stopped once this score is above it.
    rate : float
        The share of harmless texts that it may stop.
    low, high : float
        The interval of that share among further texts like those that it was calibrated on.
    texts : int
        How many these were.
    on : str
        What they were.
    level : float
        Coverage of the interval.
    layer : str
        The layer of its probe.
    probe : str
        The digest of its probe; "" for an alarm that was made of scores alone.
    """

    rule: str
    threshold: float
    rate: float = np.nan
    low: float = np.nan
    high: float = np.nan
    texts: int = 0
    on: str = ""
    level: float = 0.95
    layer: str = ""
    probe: str = ""

    def __post_init__(self) -> None:
        if Score.parse(self.rule).name == "last":
            raise UsageError("the rule last looks at the end of a text alone and stops none; take max or rolling:10.")

    @classmethod
    def calibrated(
        cls, scores: np.ndarray, length: np.ndarray, *, rule: str = "rolling:10", rate: float = 0.01, on: str = "",
        groups: np.ndarray | None = None, level: float = 0.95, probe: Probe | None = None,
    ) -> Alarm:  # fmt: skip
        """The alarm that stops at most a share ``rate`` of further harmless texts, from the scores of pieces.

        A text is stopped if the rule's score of some beginning is above the threshold. The promise is one on average
        over samples of harmless texts; the interval says what may be the share for the one that this sample gives.

        Parameters
        ----------
        scores : np.ndarray
            Float (t,), the probe's scores of the pieces of harmless texts, one text after another.
        length : np.ndarray
            Int (n,), how many pieces each has, 1 or more.
        rule, rate, on
            As the attributes.
        groups : np.ndarray, optional
            (n,), texts that are not independent.
        level : float
            Coverage of the interval.
        probe : Probe, optional
            Whose scores they are: the alarm then belongs to it, and can be saved.

        Raises
        ------
        UsageError
            If there are fewer than about 1 / rate texts, or groups of them.

        Examples
        --------
        >>> alarm = Alarm.calibrated(np.arange(200.0), np.ones(200, int), rule="max", rate=0.05)
        >>> alarm.threshold, round(alarm.low, 3), round(alarm.high, 3)
        (190.0, 0.024, 0.084)
        """
        of_texts = highest(Score.parse(rule), np.asarray(scores), np.asarray(length))
        if (above := promised(of_texts, rate, groups)) < 0:
            of = "" if groups is None else f" in {len(np.unique(groups))} groups"
            raise UsageError(
                f"{len(length)} harmless texts{of} cannot resolve a rate of {rate:g}; {math.ceil(1 / rate - 1e-9)} "
                f"{'texts' if groups is None else 'groups of equal size'} can. Give more texts, or a higher rate."
            )
        at = float(np.sort(of_texts)[-1 - above])
        if np.isinf(at):
            raise UsageError(
                f"most texts are shorter than the {Score.parse(rule).pieces} pieces of {rule}; take fewer."
            )
        tied = of_texts == at
        if (equal := int(tied.sum()) if groups is None else len(np.unique(groups[tied]))) > above + 1:
            raise UsageError(
                f"{equal} of {len(length)} texts have the score {at:g} of the threshold under {rule}, so the share "
                f"above it is not near {rate:g}; take another rule, or another rate."
            )
        low, high = rate_interval(of_texts, above, groups, level)
        layer, digest = ("", "") if probe is None else (probe.layer, probe.digest)
        return cls(rule, at, rate, low, high, len(length), on, level, layer, digest)

    def check(self, probe: Probe) -> None:
        """Raise UsageError if it was calibrated on the scores of another probe."""
        if self.probe and self.probe != probe.digest:
            raise UsageError(
                f"the alarm was calibrated on the scores of another probe (layer {self.layer}, digest {self.probe}; "
                f"this one is of layer {probe.layer}, {probe.digest}), so its threshold says nothing here. Calibrate "
                "one on harmless texts: probe.alarm(texts), or --harmless."
            )

    def save(self, path: str | Path) -> Path:
        """Write it as JSON, for :func:`probekit.load_alarm` and ``probekit monitor --alarm``.

        Raises
        ------
        UsageError
            If it belongs to no probe, or the file exists and holds something else.
        """
        if not self.probe:
            raise UsageError("the alarm does not say whose it is; make it with probe.alarm(texts), or give probe=….")
        numbers = {f.name: getattr(self, f.name) for f in fields(self)}
        values = {name: None if value != value else value for name, value in numbers.items()}
        text = json.dumps({"format": FORMAT, "probekit": VERSION, **values}, ensure_ascii=False, indent=1)
        with whole(path, ALARM_FILE) as new:
            new.write_text(text + "\n", encoding="utf-8")
        return Path(path)

    def __str__(self) -> str:
        said = f"alarm {self.rule} above {self.threshold:.3g}"
        if self.texts:
            said += f": {self.rate:.3g} [{self.low:.3g}, {self.high:.3g}] of harmless texts ({self.texts:,} {self.on})"
        return said


def load_alarm(path: str | Path) -> Alarm:
    """An alarm that :meth:`Alarm.save` wrote.

    Raises
    ------
    DataError
        If the file holds no alarm.

    Examples
    --------
    >>> alarm = load_alarm("chats.alarm.json")  # doctest: +SKIP
    >>> with probe.attach(model, alarm=alarm) as watch:  # doctest: +SKIP
    ...     model.generate(**inputs, stopping_criteria=[watch])
    """
    path = Path(path)
    if not path.is_file():
        raise DataError("there is no such file; expected an alarm that probekit saved.", file=path)
    if path.stat().st_size > MOST:
        raise DataError(f"it has {path.stat().st_size:,} bytes; an alarm has at most {MOST:,}.", file=path)
    with reading(path, "JSON"):
        found = read_json(path)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        said = found.get("format") if isinstance(found, dict) else type(found).__name__
        raise DataError(f"wanted an alarm of the format {FORMAT}, found {said!r:.60}.", file=path)
    values, kinds = dict[str, Any](), dict[str, Any]({"float": int | float, "int": int, "str": str})
    for one in fields(Alarm):
        value = found.get(one.name)
        if one.type == "float" and value is None and one.name != "threshold":
            value = np.nan
        if not isinstance(value, kinds[str(one.type)]) or isinstance(value, bool) or value in (np.inf, -np.inf):
            raise DataError(f"{one.name}: wanted {one.type}, found {value!r:.60}.", file=path)
        values[one.name] = value
    try:
        return Alarm(**values)
    except UsageError as error:
        raise DataError(str(error), file=path) from None


def _is_alarm(path: Path) -> bool:
    with suppress(ValueError, OSError, AttributeError):
        return path.stat().st_size <= MOST and str(read_json(path).get("format")).startswith("probekit-alarm/")
    return False


ALARM_FILE = FileKind("an alarm that probekit saved", _is_alarm, "choose another file")


class Running:
    """The rule's score of each of n texts, piece by piece.

    A moving mean has a score from the piece that fills it on. The score of a whole text is the highest of these.

    Parameters
    ----------
    rule : Score
        The rule.
    texts : int
        n.
    """

    def __init__(self, rule: Score, texts: int) -> None:
        self.rule, self.count, self.value = rule, np.zeros(texts, dtype=np.int64), np.zeros(texts)
        self.window = np.zeros((texts, rule.pieces if rule.name == "rolling" else 0))

    def step(self, at: np.ndarray, new: np.ndarray) -> np.ndarray:
        """The scores of the texts ``at``, int (k,), after a further piece of each, whose scores are ``new`` (k,)."""
        new, rule = new.astype(np.float64), self.rule
        first = self.count[at] == 0
        self.count[at] += 1
        if rule.name == "rolling":
            self.window[at, (self.count[at] - 1) % rule.pieces] = new
            return np.where(self.count[at] >= rule.pieces, self.window[at].mean(1), -np.inf)
        before = self.value[at]
        if rule.name == "max":
            now = np.where(first, new, np.maximum(before, new))
        elif rule.name == "ema":
            now = np.where(first, new, rule.decay * before + (1 - rule.decay) * new)
        elif rule.name == "cusum":
            now = np.maximum(before + new - rule.drift, 0)
        else:
            now = before + new
        self.value[at] = now
        return now / self.count[at] if rule.name == "mean" else now


def highest(rule: Score, pieces: np.ndarray, length: np.ndarray) -> np.ndarray:
    """The highest score of any beginning of each text, float64 (n,); -inf of those that a moving mean never fills."""
    running, first = Running(rule, len(length)), np.cumsum(length) - length
    found = np.full(len(length), -np.inf)
    for k in range(int(length.max(initial=0))):
        at = np.flatnonzero(length > k)
        found[at] = np.maximum(found[at], running.step(at, pieces[first[at] + k]))
    return found


def alarm_of(
    probe: Probe, texts: Sequence[Any], *, rule: str | None = None, rate: float = 0.01, model: Any = None,
    on: str = "texts", groups: Sequence[Any] | None = None, device: str = "auto", anyway: bool = False,
    progress: Progress = no_progress,
) -> Alarm:  # fmt: skip
    """The alarm of a probe, calibrated on harmless texts; see :meth:`Probe.alarm`."""
    examples = examples_of(texts)
    encoder, _ = load_model(probe, model, device=device, anyway=anyway)
    found = scored(probe, encoder, examples, by_piece=True, progress=progress)
    length = np.bincount(found.example, minlength=len(examples))
    if (length == 0).any():
        raise UsageError(f"text {int((length == 0).argmax())} has no pieces; leave it out.")
    rule = rule or probe.weights.scores or "rolling:10"
    codes = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    return Alarm.calibrated(probe.scores(found.logits), length, rule=rule, rate=rate, on=on, groups=codes, probe=probe)
