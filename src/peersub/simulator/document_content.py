"""XML documents and the tree patterns that ask for them, drawn from a schema, by number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.settings import SettingsError
from peersub.workloads.xml import (
    DocumentGenerator,
    DocumentSettings,
    PatternGenerator,
    PatternSettings,
    Schema,
    SchemaError,
    news_schema,
)

if TYPE_CHECKING:
    from peersub.simulator.content import WorkloadChoice

__all__ = ["DocumentContent"]


class DocumentContent:
    """Patterns to subscribe to and documents to publish; an event is a document and nothing else.

    Args:
        seed: of the scenario.
        choice: the parameters.
        schema: that of the project's own news by default.

    Raises:
        SettingsError: a parameter is not allowed, or the schema cannot be used with it.
    """

    def __init__(self, seed: int, choice: WorkloadChoice, schema: Schema | None = None) -> None:
        schema = schema or news_schema()
        try:
            self._documents = DocumentGenerator(
                schema,
                DocumentSettings(
                    tags_mean=choice.tags_mean,
                    levels_max=choice.levels_max,
                    optional_share=choice.optional_share,
                    repeats_max=choice.repeats_max,
                    attribute_share=choice.attribute_share,
                    seed=seed,
                ),
            )
            self._patterns = PatternGenerator(
                schema,
                PatternSettings(
                    height_min=choice.height_min,
                    height_max=choice.height_max,
                    wildcard_share=choice.wildcard_share,
                    descendant_share=choice.descendant_share,
                    branch_share=choice.branch_share,
                    zipf_exponent=choice.zipf_exponent,
                    condition_share=choice.condition_share,
                    levels_max=choice.levels_max,
                    seed=seed,
                ),
            )
        except (SchemaError, ValueError) as error:
            raise SettingsError(str(error)) from None

    def subscription(self, number: int) -> tuple[str, Filter]:
        """A tree pattern."""
        return f"s{number}", self._patterns.filter(number)

    def event(self, number: int) -> Event:
        """A document."""
        return Event(f"e{number}", {}, self._documents.text(number).encode())
