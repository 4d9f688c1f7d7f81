"""Errors as Flight tells them: what HTTP would answer, by the kinds that gRPC has."""

from __future__ import annotations

import logging
from pathlib import PurePath
from typing import Any

from pyarrow import flight

from lithify.errors import LithifyError
from lithify.http.errors import INTERNAL, Failure, Refusal, failure_of, frames_of, refused

logger = logging.getLogger("lithify.flight")


def failure_told(error: Exception, root: PurePath, method: str) -> Failure:
    if isinstance(error, LithifyError):
        return failure_of(error, root)
    if isinstance(error, Refusal):
        return refused(error.status_code, str(error.detail))
    facts = {"error": type(error).__name__, "where": frames_of(error), "method": method}
    logger.error("a call failed because of a bug", extra={"lithify_facts": facts})
    return INTERNAL


def flight_error(failure: Failure) -> Any:
    """Flight's own kinds travel as they are. Of any other exception pyarrow sends the traceback along, with paths of
    this machine and the errors behind it, so all that is no kind of Flight is the plain one.
    """
    said = f"{failure.code}: {failure.message}. {failure.what_to_do}"
    match failure.status:
        case 401:
            return flight.FlightUnauthenticatedError(said)
        case 403:
            return flight.FlightUnauthorizedError(said)
        case 409 if failure.code == "cancelled":
            return flight.FlightCancelledError(said)
        case 500:
            return flight.FlightInternalError(said)
        case 503 | 507:
            return flight.FlightUnavailableError(said)
    return flight.FlightServerError(said)
