"""An alarm: a rule that ends a text once a probe's scores of its pieces are too high, and how often it errs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from probekit.constraint import Checked, Ge, Le, Natural, Share, check
from probekit.errors import DataError, UsageError, reading
from probekit.files import FileKind, read_json, whole
from probekit.monitors.scoring import examples_of, load_model, scored
from probekit.probes.solvers.attention import Sequences
from probekit.probes.solvers.scores import Score
from probekit.runtime import Progress, no_progress
from probekit.statistics.detection import promised, rate_interval
from probekit.version import VERSION

if TYPE_CHECKING:
    from probekit.monitors.probe import Probe

FORMAT = "probekit-alarm/1"
MOST = 1 << 16
"""The most bytes of a saved alarm."""
End = Annotated[float, Ge(0), Le(1)]
"""Of the interval of a share."""


@dataclass(frozen=True, slots=True)
class Alarm(Checked):
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

    Raises
    ------
    UsageError
        If the rule is none that stops a text, the threshold no finite number, or a share not between 0 and 1.
    """

    rule: str
    threshold: float
    rate: Share = np.nan
    low: End = np.nan
    high: End = np.nan
    texts: Natural = 0
    on: str = ""
    level: Share = 0.95
    layer: str = ""
    probe: str = ""

    def together(self) -> None:
        if Score.parse(self.rule).name == "last":
            raise UsageError("the rule last looks at the end of a text alone and stops none; take max or rolling:10.")

    @classmethod
    def calibrated(
        cls, scores: np.ndarray, length: np.ndarray, *, rule: str = "rolling:10", rate: float = 0.01, on: str = "",
        groups: np.ndarray | None = None, level: float = 0.95, probe: Probe | None = None,
    ) -> Alarm:  # fmt: skip
        """The alarm that stops at most a share ``rate`` of further harmless texts, from the scores of pieces.

        A text is stopped if the rule's score after some piece is above the threshold. The promise is one on average
        over samples of harmless texts; the interval says what may be the share for the one that this sample gives. A
        text that never fills a moving mean counts with the mean of its pieces.

        Parameters
        ----------
        scores : np.ndarray
            Float (t,), the probe's scores of the pieces of harmless texts, one text after another; finite.
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
            If there are fewer than 1 / rate - 1 texts, or groups of them, or the arrays do not fit each other.

        Examples
        --------
        >>> alarm = Alarm.calibrated(np.arange(200.0), np.ones(200, int), rule="max", rate=0.05)
        >>> alarm.threshold, round(alarm.low, 3), round(alarm.high, 3)
        (190.0, 0.024, 0.084)
        """
        rate, level = check("rate", Share, rate), check("level", Share, level)
        groups = None if groups is None else np.asarray(groups)
        of_texts = highest(Score.parse(rule), *_pieces(scores, length, groups))
        if (above := promised(of_texts, rate, groups)) < 0:
            of = "" if groups is None else f" in {len(np.unique(groups))} groups"
            raise UsageError(
                f"{len(length)} harmless texts{of} cannot resolve a rate of {rate:g}; {math.ceil(1 / rate - 1e-9) - 1} "
                f"{'texts' if groups is None else 'groups of equal size'} can. Give more texts, or a higher rate."
            )
        at = float(np.sort(of_texts)[-1 - above])
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
            said += f": {self.rate:.3g} [{self.low:.3g}, {self.high:.3g}] of harmless texts ({self.texts:,}"
            said += f" {self.on})" if self.on else ")"
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
    defaults, values = Alarm("max", 0.0), dict[str, Any]()
    for one in fields(Alarm):
        value = found.get(one.name)
        if value is None and isinstance(old := getattr(defaults, one.name), float) and old != old:
            value = old
        if value is None:
            raise DataError(f"it does not say the {one.name}.", file=path)
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


def _pieces(scores: Any, length: Any, groups: Any) -> tuple[np.ndarray, np.ndarray]:
    """The scores (t,) and lengths (n,) as arrays; UsageError if they are no such, or do not fit each other."""
    scores = np.asarray(scores)
    if scores.ndim != 1 or scores.dtype.kind not in "fiu" or not np.isfinite(scores).all():
        raise UsageError(f"scores must be finite numbers (t,), a piece each; they are {scores.dtype} {scores.shape}.")
    length = Sequences.of(scores[:, None], length).length
    if groups is not None and np.shape(groups) != length.shape:
        raise UsageError(f"groups must name the group of each of the {len(length):,} texts; it is {np.shape(groups)}.")
    return scores, length


def highest(rule: Score, pieces: np.ndarray, length: np.ndarray) -> np.ndarray:
    """The highest score after any piece of each text, float64 (n,), of the scores of their pieces (t,)."""
    found: np.ndarray = rule.highest(pieces[:, None], length)[:, 0]
    return found


def alarm_of(
    probe: Probe, texts: Sequence[Any], *, rule: str | None = None, rate: float = 0.01, model: Any = None,
    on: str = "texts", groups: Sequence[Any] | None = None, device: str = "auto", anyway: bool = False,
    progress: Progress = no_progress,
) -> Alarm:  # fmt: skip
    """The alarm of a probe, calibrated on harmless texts; see :meth:`Probe.alarm`."""
    rate, rule = check("rate", Share, rate), rule or probe.weights.scores or "rolling:10"
    examples = examples_of(texts)
    Alarm(rule, 0.0)  # before the model runs
    encoder, _ = load_model(probe, model, device=device, anyway=anyway)
    found = scored(probe, encoder, examples, by_piece=True, progress=progress)
    length = np.bincount(found.example, minlength=len(examples))
    if (length == 0).any():
        raise UsageError(f"text {int((length == 0).argmax())} has no pieces; leave it out.")
    codes = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    return Alarm.calibrated(probe.scores(found.logits), length, rule=rule, rate=rate, on=on, groups=codes, probe=probe)
