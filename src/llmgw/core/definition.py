"""Decides how a model definition is read from YAML or JSON: one way for files, admin API and store (C10).

Laws: unknown keys are refused; a key of a later version is named as such and binds to nothing.
"""

from llmgw.core.catalog import CatalogError, ModelDefinition
from llmgw.core.shape import Shape, Wrong

MODEL_LATER = frozenset(
    {
        "pin",
        "prices",
        "scaling.target",
        "scaling.up_after",
        "scaling.down_after",
        "profiles[].rdma",
        "profiles[].disk_gb",
        "profiles[].fetch_timeout",
        "profiles[].stall_timeout",
        "profiles[].container",
    }
)
"""Keys of a model whose feature this version does not have yet."""

_SHAPE = Shape(ModelDefinition, MODEL_LATER)


def definition_from_mapping(data: object, path: str = "") -> ModelDefinition | CatalogError:
    """A definition as written, or every problem of its shape; what it means is `build_catalog`'s to judge.

    `path` is where it stands in the document, such as `models[3]`; problems are named below it.
    """
    read = _SHAPE.read(data, path)
    return CatalogError(read.problems) if isinstance(read, Wrong) else read
