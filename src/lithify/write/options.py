"""A table's options: setting them, in one commit to the changes log that says so, and the policy that they make."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from lithify.core.expiry import expiry_of
from lithify.core.schema import EXPIRY_FORMAT, FORMAT_PROPERTY, TableSchema, check_key_type
from lithify.delta.actions import LogChange
from lithify.errors import InvalidRequest
from lithify.files.parquet import can_have_bloom
from lithify.options.expiry_text import EXPIRES
from lithify.options.policy import MaintenancePolicy, policy_of
from lithify.options.table_options import DEFAULT, PREFIX, parse_all, shown, stored
from lithify.settings import Settings
from lithify.tables.handles import Handles

logger = logging.getLogger(__name__)


def parsed_options(values: Mapping[str, Any], schema: TableSchema, settings: Settings) -> dict[str, Any]:
    """Values that the table can have, or a refusal."""
    _check_mapping(values)
    parsed = parse_all(values)
    check_columns(parsed, schema)
    policy_of(settings, stored(parsed))  # tiers must fit the lake's
    return parsed


def check_columns(options: Mapping[str, Any], schema: TableSchema) -> None:
    for name in options.get("bloom_columns") or ():
        if name not in schema.names:
            raise InvalidRequest(f"option bloom_columns names {name!r}: the table has {', '.join(schema.names)}")
        kind = schema.columns.field(name).type
        if not can_have_bloom(kind):
            raise InvalidRequest(f"option bloom_columns names {name!r}, which is {kind}: name columns of plain values")

    for name in options.get("sort_by") or ():
        if name not in schema.names:
            raise InvalidRequest(f"option sort_by names {name!r}: the table has {', '.join(schema.names)}")
        check_key_type(schema.columns.field(name), "sort_by")
    if (expires := options.get(EXPIRES)) is not None:
        expiry_of(expires, schema.columns)
        if schema.rules:
            raise InvalidRequest(
                f"rows of a table with {schema.rules_name} do not expire: what is added to a row that has expired "
                "would depend on whether a fold has dropped it yet; leave expires or "
                f"{schema.rules_name.replace(' ', '_')} out, and delete by delete_where"
            )


def properties_of(parsed: Mapping[str, Any], format_known: int) -> dict[str, str]:
    """Options as properties of a log of this format, with the format that they need."""
    if parsed.get(EXPIRES) is None or format_known >= EXPIRY_FORMAT:
        return stored(parsed)
    # A program that does not know of expiry would show rows that are gone.
    return {**stored(parsed), FORMAT_PROPERTY: str(EXPIRY_FORMAT)}


def policy_for(settings: Settings, properties: Mapping[str, str], table: str) -> MaintenancePolicy:
    """The table's policy. Tiers of its own that do not fit the lake's any more are no reason to stop folding."""
    try:
        return policy_of(settings, properties)
    except InvalidRequest as error:
        logger.warning("table %s has tiers that do not fit the lake's and are left out: %s", table, error)
        return policy_of(settings, {name: value for name, value in properties.items() if name != f"{PREFIX}tiers"})


def _check_mapping(values: Mapping[str, Any]) -> None:
    if not isinstance(values, Mapping):
        raise InvalidRequest(f"options are given as a mapping of names to values, not {type(values).__name__}")


def set_options(handles: Handles, values: Mapping[str, Any]) -> None:
    _check_mapping(values)
    if not values:
        raise InvalidRequest(f"no option was given for table {handles.name}: give name and value")
    parsed = parse_all(values)
    runtime, changes = handles.runtime, handles.changes
    policy_of(runtime.settings, stored(parsed))
    texts = {name: DEFAULT if value is None else shown(value) for name, value in sorted(parsed.items())}
    detail = ", ".join(f"{name}={text}" for name, text in texts.items())
    info = {"operation": "set options", "detail": detail, "actor": runtime.settings.actor}

    def build() -> LogChange:
        check_columns(parsed, changes.schema)
        properties = properties_of(parsed, int(changes.log.properties.get(FORMAT_PROPERTY, "0")))
        return LogChange({**info, "seq": changes.seq}, properties=properties)

    handles.commit(changes.log, "setting options of", build, point="set_options")
