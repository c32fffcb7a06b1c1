"""GET /openapi.json: OpenAPI 3.1, made from the operations and their types."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from node.api.operation import Operation
from node.api.people import OMITTED, is_time
from node.wire.surface import API_VERSION, EXACT

EXACT_TEMPLATE = "#/components/schemas/{name}"
PEOPLE_TEMPLATE = "#/components/schemas/{name}ForPeople"
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")

Json = dict[str, Any]


def build_document(operations: Sequence[Operation], version: str) -> Json:
    """The whole document."""
    exact = [
        each
        for operation in operations
        for each in (operation.body, None if operation.page else operation.answer)
        if each is not None
    ]
    people = [operation.answer for operation in operations if operation.page]
    faults = {operation.dialect.fault_type for operation in operations}
    plain, plain_parts = msgspec.json.schema_components(
        [*exact, *sorted(faults, key=lambda each: each.__name__)],
        schema_hook=_any,
        ref_template=EXACT_TEMPLATE,
    )
    shown, shown_parts = msgspec.json.schema_components(
        people, schema_hook=_any, ref_template=PEOPLE_TEMPLATE
    )
    schemas = iter(plain)
    pages = iter(shown)
    paths: Json = {}
    for operation in operations:
        path = _PARAMETER.sub(r"{\1}", operation.path)
        entry = _describe(operation, schemas, pages)
        paths.setdefault(path, {})[operation.method.lower()] = entry
    parts = {f"{name}ForPeople": for_people(name, part) for name, part in shown_parts.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "exoctl", "version": version},
        "paths": paths,
        "components": {
            "schemas": {**plain_parts, **parts},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _any(kind: type) -> Json:
    if kind is object:
        return {"description": "any value"}
    raise NotImplementedError


def _describe(operation: Operation, schemas: Iterator[Json], pages: Iterator[Json]) -> Json:
    entry: Json = {"summary": operation.summary, "parameters": _parameters(operation)}
    if operation.body is not None:
        schema = next(schemas)
        entry["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    answer: Json = {"description": operation.summary}
    if operation.page:
        answer["content"] = {"application/json": {"schema": _page(operation, next(pages))}}
    elif operation.answer is not None:
        answer["content"] = {operation.content_type: {"schema": next(schemas)}}
    else:
        answer["content"] = {operation.content_type: {}}
    schema = {"$ref": EXACT_TEMPLATE.format(name=operation.dialect.fault_type.__name__)}
    failure = {
        "description": "It failed, and why",
        "content": {"application/json": {"schema": schema}},
    }
    entry["responses"] = {str(operation.status): answer, "4XX": failure, "5XX": failure}
    return entry


def _page(operation: Operation, item: Json) -> Json:
    return {
        "type": "object",
        "required": ["apiVersion", "kind", "index", "items"],
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": operation.page},
            "index": {"type": "integer"},
            "items": {"type": "array", "items": item},
        },
    }


def _parameters(operation: Operation) -> list[Json]:
    path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(operation.path)
    ]
    query: list[Json] = [
        {
            "name": each.name,
            "in": "query",
            "description": each.summary,
            "schema": {"type": each.kind},
        }
        for each in operation.query
    ]
    if operation.page:
        summary = "1: plain values, with times as seconds since 1970"
        query.append(
            {"name": EXACT, "in": "query", "description": summary, "schema": {"type": "boolean"}}
        )
    return [*path, *query]


def for_people(name: str, schema: Json) -> Json:
    """A type's schema in the form that `people.to_people` gives it."""
    if name == "Address":
        return {"type": "string", "description": "host:port"}
    schema = _as_object(name, schema)
    properties: Json = schema.get("properties", {})
    kept = {
        key: {"type": ["string", "null"], "format": "date-time"}
        if is_time(key) and each.get("type") == "number"
        else each
        for key, each in properties.items()
        if key not in OMITTED
    }
    return {**schema, "properties": kept} if kept else schema


def _as_object(name: str, schema: Json) -> Json:
    """An object in place of the array that a compact type is on the wire."""
    fields = _compact_types().get(name)
    if fields is None:
        return schema
    properties = dict(zip(fields, schema["prefixItems"], strict=True))
    return {"type": "object", "title": schema.get("title", name), "properties": properties}


def _compact_types() -> dict[str, tuple[str, ...]]:
    return {
        each.__name__: each.__struct_fields__
        for each in msgspec.Struct.__subclasses__()
        if each.__module__.startswith("node.model.") and each.__struct_config__.array_like
    }
