"""Options of similarity: which measures, and how their chance level and uncertainty are estimated."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from probekit.constraint import MOST_DRAWS, Checked, Count, Ge, Gt, Le, Most, OrZero, Seed, Share, Threads
from probekit.errors import UsageError, did_you_mean
from probekit.recipe import option

DISTANCES = ("relative-distance", "cosine-distance", "aligned-distance")
"""How far vectors move, in the order of :attr:`probekit.similarity.movement.Movement.distance`."""


class Similarity(StrEnum):
    """Measures of two layers X (n, d) and Y (n, e) of the same n examples; columns are centred.

    - ``cka``: linear centred kernel alignment, debiased: 0 in the mean for unrelated layers, sometimes below 0 (Song et
      al. 2012; Murphy et al. 2024). Not clipped.
    - ``cka-biased``: as first published (Kornblith et al. 2019); far above 0 for unrelated layers with many columns.
    - ``cka-rbf``: debiased, with a Gaussian kernel as wide as the median distance.
    - ``cca``: mean canonical correlation; ``cca-r2``: mean squared one (Kornblith et al. 2019, R²_CCA).
    - ``eigenspace-overlap``: the same sum, over the larger rank: below 1 if a layer spans less (May et al. 2019).
    - ``svcca``: mean canonical correlation of the principal components with 99 % of the variance (Raghu et al. 2017).
    - ``pwcca``: canonical correlations weighted by what they explain of X (Morcos et al. 2018).
    - ``procrustes``: ``Σ σ(XᵀY) / |X||Y|``, the cosine after the best rotation; ``procrustes-angle``: its arc cosine in
      radians, 0 for equal layers, the only measure here that is small for similar layers (Williams et al. 2021).
    - ``rsa-pearson``, ``rsa-spearman``, ``rsa-cosine``: correlation, rank correlation and cosine of the squared
      Euclidean distances of all pairs of examples (Kriegeskorte et al. 2008).
    - ``mutual-knn``: mean share of common examples among the k nearest (cosine) of an example (Huh et al. 2024).
    - ``knn-jaccard``: mean of common over all different ones among the k nearest in either layer.
    - ``knn-rank``: how well the ranks of the common ones agree, near ones first (Wang et al. 2020).
    - ``linear-predictivity``: R² of ridge regressions of all columns of Y on X, of examples left out, and of their
      leave-one-out mean; below 0 if X predicts worse than the mean. ``linear-predictivity-reverse``: of X on Y.
    """

    CKA = "cka"
    CKA_BIASED = "cka-biased"
    CKA_RBF = "cka-rbf"
    CCA = "cca"
    CCA_R2 = "cca-r2"
    EIGENSPACE_OVERLAP = "eigenspace-overlap"
    SVCCA = "svcca"
    PWCCA = "pwcca"
    PROCRUSTES = "procrustes"
    PROCRUSTES_ANGLE = "procrustes-angle"
    RSA_PEARSON = "rsa-pearson"
    RSA_SPEARMAN = "rsa-spearman"
    RSA_COSINE = "rsa-cosine"
    MUTUAL_KNN = "mutual-knn"
    KNN_JACCARD = "knn-jaccard"
    KNN_RANK = "knn-rank"
    PREDICTIVITY = "linear-predictivity"
    PREDICTIVITY_REVERSE = "linear-predictivity-reverse"

    @classmethod
    def named(cls, name: str) -> Similarity:
        """The measure of this name; for an unknown name UsageError with the closest one."""
        try:
            return cls(name)
        except ValueError:
            raise UsageError(f"unknown measure {name!r}; {did_you_mean(str(name), list(cls))}") from None


@dataclass(frozen=True, slots=True)
class SimilarityOptions(Checked):
    """Measures of similarity, their chance level and uncertainty.

    Raises
    ------
    UsageError
        For an unknown measure and a number out of range.
    """

    measures: tuple[str, ...] = option(
        (Similarity.CKA.value,),
        "Measures, separated by commas: cka (linear, debiased), cka-biased, cka-rbf, cca, cca-r2, eigenspace-overlap, "
        "svcca, pwcca, procrustes, procrustes-angle, rsa-pearson, rsa-spearman, rsa-cosine, mutual-knn, knn-jaccard, "
        "knn-rank, linear-predictivity, linear-predictivity-reverse.",
    )
    draws: Annotated[int, OrZero(19, "none"), Most(MOST_DRAWS)] | None = option(
        None,
        "Permutations of the examples of one side, for p, the chance level and calibrated values; 0 for none (default: "
        "1000, or 100 for cca, svcca, pwcca and procrustes, which need a decomposition for each).",
    )
    resamples: Annotated[int, OrZero(100, "none"), Most(MOST_DRAWS)] = option(
        1000, "Bootstrap resamples of the examples for the intervals; 0 for none."
    )
    level: Share = option(0.95, "Coverage of the intervals.")
    neighbours: Count = option(10, "Number k of nearest neighbours.")
    variance: Annotated[float, Gt(0), Le(1)] = option(0.99, "Share of the variance that svcca keeps.")
    max_examples: Annotated[int, Ge(4)] | None = option(
        10_000, "Number of examples to draw if there are more (none: use all)."
    )
    seed: Seed = option(0, "Seed for all random draws.")
    threads: Threads | None = option(
        None, "Number of threads (default: one per core). The numbers do not depend on it."
    )

    def together(self) -> None:
        names = tuple(dict.fromkeys(Similarity.named(name).value for name in self.measures))
        if not names:
            raise UsageError("no measure was given.")
        object.__setattr__(self, "measures", names)
