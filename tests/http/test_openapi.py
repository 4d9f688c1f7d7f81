"""The OpenAPI document is complete, and the service keeps to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient

from lithify import Lake, Settings
from lithify.http.app import create_app
from lithify.http.tokens import Tokens
from support.folders import memory_folder
from support.shared_service import SharedService, shared_service

METHODS = ("get", "post", "put", "patch", "delete")
PUBLIC = ("/health/live", "/health/ready", "/v1/session")
EXAMPLES_MAX = 10
TABLES = ("shop.orders", "log.events", "shop.days")
ERROR = {"$ref": "#/components/schemas/Error"}
SHAPE = {"code", "message", "what_to_do", "id"}


def document_of_service() -> dict[str, Any]:
    """The same for every lake."""
    with memory_folder() as folder, Lake(folder / "lake", settings=Settings()) as lake:
        return dict(create_app(lake, Settings(), Tokens(lake.path)).openapi())


DOCUMENT = document_of_service()
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
    if method in METHODS
}
GUARDED = [name for name in OPERATIONS if name.split()[1] not in PUBLIC]


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedService]:
    with shared_service() as service:
        yield service


class TestDocument:
    @pytest.mark.parametrize("name", OPERATIONS)
    def test_every_operation_says_what_it_is(self, name: str) -> None:
        operation = OPERATIONS[name]
        for part in ("summary", "description", "tags"):
            assert operation.get(part), f"{name} has no {part}"

    @pytest.mark.parametrize("name", OPERATIONS)
    def test_every_parameter_is_described(self, name: str) -> None:
        for parameter in OPERATIONS[name].get("parameters", ()):
            assert parameter.get("description"), f"{name}: {parameter['name']}"

    @pytest.mark.parametrize("name", [name for name in OPERATIONS if "requestBody" in OPERATIONS[name]])
    def test_every_body_has_an_example(self, name: str) -> None:
        for kind, content in OPERATIONS[name]["requestBody"]["content"].items():
            binary = content.get("schema", {}).get("format") == "binary"
            assert binary or content.get("example") or content.get("examples"), f"{name}: {kind}"

    @pytest.mark.parametrize("name", OPERATIONS)
    def test_every_failure_has_the_one_shape(self, name: str) -> None:
        responses = OPERATIONS[name]["responses"]
        failures = {status: answer for status, answer in responses.items() if not status.startswith("2")}
        assert {"400", "401", "403", "404", "default"} <= failures.keys()
        for status, answer in failures.items():
            assert answer["description"], f"{name}: {status}"
            assert answer["content"]["application/json"]["schema"] == ERROR, f"{name}: {status}"

    @pytest.mark.parametrize("name", OPERATIONS)
    def test_every_success_has_a_schema(self, name: str) -> None:
        found = [answer for status, answer in OPERATIONS[name]["responses"].items() if status.startswith("2")]
        assert found
        for answer in found:
            assert all(content.get("schema") for content in answer["content"].values())

    @pytest.mark.parametrize("name", GUARDED)
    def test_every_operation_says_that_it_takes_a_token(self, name: str) -> None:
        assert OPERATIONS[name].get("security") == [{"HTTPBearer": []}]

    @pytest.mark.parametrize("name", sorted(set(OPERATIONS) - set(GUARDED)))
    def test_but_those_for_supervisors(self, name: str) -> None:
        assert not OPERATIONS[name].get("security")

    @pytest.mark.parametrize("name", DOCUMENT["components"]["schemas"])
    def test_every_field_is_described(self, name: str) -> None:
        for field, schema in DOCUMENT["components"]["schemas"][name].get("properties", {}).items():
            assert schema.get("description"), f"{name}.{field}"

    def test_operations_are_told_apart(self) -> None:
        ids = [operation["operationId"] for operation in OPERATIONS.values()]
        assert len(ids) == len(set(ids))

    def test_the_page_names_every_operation(self, shared: SharedService) -> None:
        page = shared.client().get("/docs").text
        for name in OPERATIONS:
            assert name.split()[1].replace("'", "&#x27;") in page


class TestErrorShape:
    """Every route, whatever is wrong with the request."""

    @pytest.fixture
    def client(self, shared: SharedService) -> TestClient:
        return shared.client("admin")

    @pytest.fixture
    def stranger(self, shared: SharedService) -> TestClient:
        return shared.client()

    @pytest.mark.parametrize("name", GUARDED)
    @pytest.mark.parametrize("headers", [{}, {"Content-Type": "application/json"}, {"Content-Encoding": "br"}])
    def test_a_body_of_garbage(self, client: TestClient, name: str, headers: dict[str, str]) -> None:
        method, path = name.split()
        path = path.replace("{name}", "no.such").replace("{id}", "none")
        answer = client.request(method, path, content=b"\x00{[garbage", headers=headers)
        if answer.status_code >= 400:
            check_shape(answer)
        else:
            assert method == "GET" or "trigger" in path or "cancel" in path

    @pytest.mark.parametrize("name", OPERATIONS)
    def test_a_method_that_is_not_taken(self, client: TestClient, name: str) -> None:
        path = name.split()[1].replace("{name}", "shop.orders").replace("{id}", "none")
        answer = client.request("PATCH", path)
        check_shape(answer, 405)
        assert answer.headers["Allow"]

    @pytest.mark.parametrize("name", GUARDED)
    def test_no_token(self, stranger: TestClient, name: str) -> None:
        method, path = name.split()
        check_shape(stranger.request(method, path.replace("{name}", "shop.orders").replace("{id}", "none")), 401)

    @pytest.mark.parametrize("name", OPERATIONS)
    def test_a_host_that_is_not_ours(self, client: TestClient, name: str) -> None:
        method, path = name.split()
        check_shape(client.request(method, path, headers={"Host": "evil.example"}), 421)

    @pytest.mark.parametrize(
        "path",
        [
            "/console",
            "/console/",
            "/console/../app.js",
            "/v1",
            "/v1/",
            "/v2/tables",
            "/v1/tables/",
            "/v1/tables//stats",
            "/%00",
        ],
    )
    def test_no_such_route(self, client: TestClient, path: str) -> None:
        assert client.get(path).status_code in (400, 404)
        check_shape(client.get(path))

    def test_a_bug(self, client: TestClient, shared: SharedService, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shared.lake, "tables", lambda: 1 // 0)
        answer = client.get("/v1/tables")
        check_shape(answer, 500)
        assert "ZeroDivision" not in answer.text


def check_shape(answer: Any, status: int | None = None) -> None:
    assert status is None or answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    document = answer.json()
    assert document.keys() - {"details"} == SHAPE
    assert all(isinstance(document[name], str) and document[name] for name in SHAPE)
    assert answer.headers["X-Request-Id"] == document["id"]
    assert "Traceback" not in answer.text


# -- requests made from the document


CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]


MADE_UP = [(name, GenerationMode.POSITIVE) for name in OPERATIONS] + [
    (name, GenerationMode.NEGATIVE)
    for name, operation in OPERATIONS.items()
    if "parameters" in operation or "requestBody" in operation
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), MADE_UP)
def test_made_up_requests(shared: SharedService, name: str, mode: GenerationMode) -> None:
    """What fits the document, and what does not, is answered as the document says, and never with a 5xx."""
    headers = {**shared.headers("admin"), "Host": "127.0.0.1"}
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    schema.app = shared.app
    method, path = name.split()
    strategy = schema[path][method].as_strategy(generation_mode=mode)

    @settings(
        max_examples=EXAMPLES_MAX,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],
    )
    @given(case=strategy)
    def run(case: schemathesis.Case) -> None:
        aim(case)
        answer = case.call(headers=headers)
        assert answer.status_code < 500, f"{case.as_curl_command()}\n{answer.text}"
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code >= 400:
            assert set(answer.json()) - {"details"} == SHAPE

    run()


def aim(case: schemathesis.Case) -> None:
    """At tables that are there, or every request would end at its first name; but drop none of them."""
    if "name" in (case.path_parameters or {}):
        name = str(case.path_parameters["name"])
        if case.method != "DELETE":
            case.path_parameters["name"] = TABLES[len(name) % len(TABLES)]
        elif name in TABLES:
            case.path_parameters["name"] = "made.up"
