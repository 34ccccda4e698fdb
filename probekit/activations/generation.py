"""Generation: how a model continues the texts of a cache, as it is written on a command line."""

from __future__ import annotations

from dataclasses import dataclass, fields

from probekit.errors import UsageError

EXPECTED = (
    "expected max_new_tokens=N, for sampling temperature=T and seed=S, and for the most texts that are written in step "
    "together=N, such as max_new_tokens=64"
)


@dataclass(frozen=True, slots=True)
class Generation:
    """How a model writes.

    Attributes
    ----------
    max_new_tokens : int
        The most pieces that it writes for a text; it stops at the end that it writes itself.
    temperature : float
        0: always the likeliest piece; otherwise draw from its probabilities at this temperature.
    seed : int
        Seed of the draws; those for an example depend on the seed and its id only.
    together : int
        The most texts that are written in step; 0: as many as the device does well.

    Examples
    --------
    >>> str(Generation.parse("temperature=.8, max_new_tokens=64"))
    'max_new_tokens=64,temperature=0.8,seed=0'
    """

    max_new_tokens: int
    temperature: float = 0.0
    seed: int = 0
    together: int = 0

    @classmethod
    def parse(cls, text: str | None) -> Generation | None:
        """The generation as written on a command line, None for none; raises UsageError if it is wrong."""
        if text is None:
            return None
        given: dict[str, str] = {}
        for part in text.split(","):
            name, equals, value = (x.strip() for x in part.partition("="))
            if not equals or name not in {f.name for f in fields(cls)} or name in given:
                raise UsageError(f"generate is {text!r}; {EXPECTED}.")
            given[name] = value
        try:
            new, seed = int(given["max_new_tokens"]), int(given.get("seed", 0))
            together = int(given.get("together", 0))
            temperature = float(given.get("temperature", 0))
        except (KeyError, ValueError):
            raise UsageError(f"generate is {text!r}; {EXPECTED}.") from None
        if new < 1 or min(seed, together) < 0 or not 0 <= temperature < float("inf"):
            raise UsageError(f"generate is {text!r}; expected max_new_tokens of 1 or more, and no negative numbers.")
        if "seed" in given and not temperature:
            raise UsageError("generate has a seed, but without temperature=T nothing is drawn; add it or leave it out.")
        return cls(new, temperature, seed, together)

    def __str__(self) -> str:
        drawn = f",temperature={self.temperature:g},seed={self.seed}" if self.temperature else ""
        together = f",together={self.together}" if self.together else ""
        return f"max_new_tokens={self.max_new_tokens}{drawn}{together}"
