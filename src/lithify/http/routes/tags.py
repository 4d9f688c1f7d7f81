"""Names for versions of a table: put, list, take away."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from lithify.core.results import Tag
from lithify.http.auth import Maintainer, Reader
from lithify.http.documents.maintenance import TagOrder, TagsDocument, UntaggedDocument
from lithify.http.json_route import JsonRoute
from lithify.http.openapi import NO_JSON, body_like, failing
from lithify.http.routes.table_maintenance import JsonIfAny
from lithify.http.routes.tables import DAMAGED, TablePath
from lithify.http.service import LakeDep

TagName = Annotated[
    str, Path(description="The tag's name: a letter, then letters, digits, _, . and -.", max_length=64, examples=["v1"])
]

router = APIRouter(prefix="/tables/{name}/tags", tags=["tables"], route_class=JsonRoute)


@router.get("", summary="The tags of a table", responses=failing(_424=DAMAGED))
def list_tags(name: TablePath, lake: LakeDep, _: Reader) -> TagsDocument:
    """`as_of` takes their names wherever it takes a seq or a time."""
    return TagsDocument(table=name, tags=lake.table(name).tags())


@router.put(
    "/{tag}",
    summary="Give a version a name",
    responses=failing(_409="There is a tag of that name.", _415=NO_JSON, _424=DAMAGED),
    dependencies=[JsonIfAny],
)
def put_tag(
    name: TablePath,
    tag: TagName,
    lake: LakeDep,
    _: Maintainer,
    order: Annotated[TagOrder | None, body_like({"An earlier version": {"as_of": 42}})] = None,
) -> Tag:
    """It stays readable under that name, and no vacuum takes its files, until the tag is deleted."""
    as_of = order.as_of if order is not None else None
    return lake.table(name).tag(tag, as_of)


@router.delete("/{tag}", summary="Take a name away", responses=failing(_424=DAMAGED))
def delete_tag(name: TablePath, tag: TagName, lake: LakeDep, _: Maintainer) -> UntaggedDocument:
    """The next vacuum may take what only that version needed."""
    lake.table(name).untag(tag)
    return UntaggedDocument(table=name, tag=tag, untagged=True)
