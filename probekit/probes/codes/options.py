"""Options of minimum description length: how labels are transmitted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from probekit.constraint import Checked, Draws, MinLen, Positive, Seed, Size
from probekit.recipe import option


class Code(StrEnum):
    """The code that transmits the labels (Voita & Titov 2020, sections 2.2.1 and 2.2.2)."""

    ONLINE = "online"
    VARIATIONAL = "variational"


@dataclass(frozen=True, slots=True)
class CodeOptions(Checked):
    """How the labels are transmitted, and which controls are transmitted beside them.

    Raises
    ------
    UsageError
        For a value out of range.
    """

    code: Code = option(Code.ONLINE, "online (a probe learns as labels arrive) or variational.")
    controls: Draws = option(
        3, "Number of shuffled label sets to transmit as controls; for words, of control tasks too."
    )
    penalties: Annotated[tuple[Positive, ...], MinLen(1)] | None = option(
        None, "C of the online code's logistic regressions (inverse), which are mixed; separated by commas."
    )
    fractions: tuple[float, ...] | None = option(
        None, "Ends of the portions of the online code, as shares of train, separated by commas; the last is 1."
    )
    orders: Size = option(
        3,
        "Random orders in which the online code transmits the gold labels; the row is their mean. With two or more, it "
        "has a 95 % interval for new examples in new orders, and a one-sided p against the code that knows only the "
        "class frequencies.",
    )
    seed: Seed = option(0, "Seed of the order of the labels and of the controls.")
