"""Decides whether a set of model definitions is a valid catalog, and resolves it (C1-C4, C6, C15).

Laws: every problem is found and named with its path and value, not only the first; a catalog is
returned only when there is none.
"""

from collections.abc import Mapping, Sequence

from llmgw.core.catalog import Catalog, CatalogError, EngineTraits, ModelDefinition


def build_catalog(
    models: Sequence[ModelDefinition],
    aliases: Mapping[str, str | Mapping[str, float]],
    engines: Mapping[str, EngineTraits],
) -> Catalog | CatalogError:
    """The resolved catalog, or every problem with its path and value (C1)."""
    raise NotImplementedError
