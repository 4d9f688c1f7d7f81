"""What the fields of a result mean, said where the class declares them: `seq: Annotated[Count, "The write counter."]`.

The service's OpenAPI document is made from it, without a second class: pydantic asks a class, and every part of an
annotation, for its share of a JSON schema. Nothing here imports pydantic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

JsonSchema = dict[str, Any]


@dataclass(frozen=True)
class Example:
    value: Any


@dataclass(frozen=True)
class AtLeast:
    bound: int

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], JsonSchema]) -> JsonSchema:
        return {**handler(schema), "minimum": self.bound}


Count = Annotated[int, AtLeast(0)]
Bytes = Annotated[int, AtLeast(0)]
Seconds = Annotated[float, AtLeast(0)]
OfTable = Annotated[str, "The table's name.", Example("shop.orders")]


def texts_of(kind: type) -> Mapping[str, tuple[Any, ...]]:
    """By field, what stands beside its type: a text, and perhaps an example."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}


class Documented:
    """A dataclass whose fields say what they mean. As an answer it has all of them, also those with a default."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> JsonSchema:
        found: JsonSchema = handler(schema)
        document = handler.resolve_ref_schema(found)
        document["required"] = list(document["properties"])
        for name, said in texts_of(cls).items():
            if (field := document["properties"].get(name)) is not None:
                field.pop("default", None)
                for part in said:
                    if isinstance(part, str):
                        field["description"] = part
                    elif isinstance(part, Example):
                        field["examples"] = [part.value]
        return found
