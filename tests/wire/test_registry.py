"""The registry has every API that there is a module for, and its tables agree with each other."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from broker.wire import messages
from broker.wire.message import Message, Request, VersionedData
from broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from broker.wire.registry import API_VERSIONS, APIS, CONTROLLED_SHUTDOWN, Api, api_of
from broker.wire.runs import carried_fields
from broker.wire.source import minimum_size
from tests.wire.samples import STORED_VALUES, every_message_and_version

MODULES = [
    importlib.import_module(f"{messages.__name__}.{module.name}")
    for module in pkgutil.iter_modules(messages.__path__)
]


def test_every_message_that_is_declared_is_registered() -> None:
    declared = {
        value
        for module in MODULES
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Message) and value not in (Message, Request)
    }
    assert declared == {side for api in APIS.values() for side in (api.request, api.response)}


def test_every_stored_value_is_tested() -> None:
    declared = {
        value
        for module in MODULES
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, VersionedData) and value is not VersionedData
    }
    assert declared == set(STORED_VALUES)
    assert len(STORED_VALUES) == 24


def test_keys_are_those_of_the_protocol() -> None:
    assert set(APIS) == {*range(52), 56, 57, 60, 61, 65, 66, 67, 68, 69, 74, 75}
    assert APIS[API_VERSIONS].name == "ApiVersions"
    assert APIS[CONTROLLED_SHUTDOWN].name == "ControlledShutdown"


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_request_and_response_agree_with_their_api(api: Api) -> None:
    assert (api.request.__name__, api.response.__name__) == (f"{api.name}Request", f"{api.name}Response")
    assert api.request.api_key == api.response.api_key == api.key
    assert (api.response.min_version, api.response.max_version) == (api.min_version, api.max_version)
    assert api.supports(api.max_version)
    assert not api.supports(api.max_version + 1)
    assert api_of(api.request) is api_of(api.response()) is api


def test_the_api_of_a_message_is_found_by_class_and_by_instance() -> None:
    assert api_of(MetadataRequest).response is MetadataResponse
    assert api_of(MetadataRequest()) is APIS[3]
    assert api_of(MetadataResponse(brokers=[])).request is MetadataRequest


def test_the_least_size_of_a_message_is_a_bound() -> None:
    for message, version in every_message_and_version():
        least = minimum_size(message, version, flexible=message.is_flexible(version))
        arrays = [field for field in carried_fields(message, version) if version in field.nullable]
        nulls = {field.name: None for field in arrays}
        assert least <= len(message(**nulls).encode(version))
