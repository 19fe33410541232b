"""The parameters of the XML workload, with the values that the field settled on.

Chand and Felber ("Semantic peer-to-peer overlays for publish/subscribe networks", Euro-Par 2005)
say only that documents are of real-life types and subscriptions XPath. The defaults are those known
from the same group's other papers: documents of about 100 tag pairs and at most ten levels; tree
patterns of height up to ten, in which each step is `*`, hangs by `//`, or has a second branch with
probability 0.1, and tags are chosen by Zipf's law with exponent 1.

What these leave open was settled once, by a number of the paper (§5): 75 % of the peers are not
interested in a document on average, however many there are. With the NITF schema that comes out if
a pattern has at least two steps, its height is drawn evenly, ranks follow the alphabet, and a
document uses half of what is optional and repeats up to five times. Nothing was chosen by how an
overlay fares.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DocumentSettings", "PatternSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSettings:
    """How documents are drawn.

    Args:
        tags_mean: tag pairs of a document on average; a document has half as many to half as many
            again, evenly. The schema may ask for more, or not allow as many.
        levels_max: levels of the deepest element, the root being on the first.
        optional_share: how many of the optional parts a document makes use of, as long as that is
            enough for its tags.
        repeats_max: how often a part occurs that is used and may be repeated: evenly from 1 on.
        attribute_share: how many of the elements that may have optional attributes carry one.
        seed: another seed gives other documents.
    """

    tags_mean: int = 100
    levels_max: int = 10
    optional_share: float = 0.5
    repeats_max: int = 5
    attribute_share: float = 0.3
    seed: int = 1

    def __post_init__(self) -> None:
        _check_least("tags_mean", self.tags_mean, 1)
        _check_least("levels_max", self.levels_max, 1)
        _check_share("optional_share", self.optional_share)
        _check_least("repeats_max", self.repeats_max, 1)
        _check_share("attribute_share", self.attribute_share)
        _check_least("seed", self.seed, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternSettings:
    """How tree patterns are drawn.

    Args:
        height_min, height_max: each pattern draws evenly from these how many steps its longest path
            has at most; a path ends before where an element has no children.
        wildcard_share: how many steps are `*`.
        descendant_share: how many steps hang by `//`.
        branch_share: how many steps have a second branch.
        zipf_exponent: the exponent of Zipf's law by which the next tag is chosen; 0 is evenly.
        condition_share: how many steps have a condition on an attribute, if it may have one.
        levels_max: levels of the documents; a pattern asks for none that is deeper.
        seed: another seed gives other patterns.
    """

    height_min: int = 2
    height_max: int = 10
    wildcard_share: float = 0.1
    descendant_share: float = 0.1
    branch_share: float = 0.1
    zipf_exponent: float = 1.0
    condition_share: float = 0.0
    levels_max: int = 10
    seed: int = 1

    def __post_init__(self) -> None:
        _check_least("height_min", self.height_min, 1)
        if self.height_max < self.height_min:
            raise ValueError(
                f"height_max is at least height_min, {self.height_min}, not {self.height_max}"
            )
        for name in ("wildcard_share", "descendant_share", "branch_share", "condition_share"):
            _check_share(name, getattr(self, name))
        if not 0 <= self.zipf_exponent <= 10:
            raise ValueError(f"zipf_exponent is from 0 to 10, not {self.zipf_exponent}")
        _check_least("levels_max", self.levels_max, 1)
        _check_least("seed", self.seed, 0)


def _check_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} is at least {least}, not {value}")


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is a share from 0 to 1, not {value}")
