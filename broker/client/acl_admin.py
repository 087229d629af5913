"""Access rules about topics and groups: read and add."""

from __future__ import annotations

from collections.abc import Sequence

from broker.client.access_rule import GROUP, TOPIC, AccessRule
from broker.client.admin_requests import AdminRequests, error_of
from broker.errors import ProtocolError
from broker.wire.messages.create_acls import AclCreation, CreateAclsRequest
from broker.wire.messages.describe_acls import DescribeAclsRequest

_ANY = 1


class AclAdmin(AdminRequests):
    """Operations on access rules. A node without an authoriser refuses them with SECURITY_DISABLED, or does
    not know them: ProtocolError either way.
    """

    async def rules(self) -> list[AccessRule]:
        """All rules about topics and groups, sorted. Raises ProtocolError."""
        request = DescribeAclsRequest(
            resource_type_filter=_ANY,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        )
        response = await (await self._cluster.any_connection()).request(request)
        if error := error_of(response.error_code, response.error_message, "access rules"):
            raise error
        return sorted(
            AccessRule(
                resource=resource.resource_type,
                name=resource.resource_name,
                pattern_type=resource.pattern_type,
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission=rule.permission_type,
            )
            for resource in response.resources
            for rule in resource.acls
            if resource.resource_type in (TOPIC, GROUP)
        )

    async def add_rules(self, rules: Sequence[AccessRule]) -> list[ProtocolError | None]:
        """Add rules; for each why it was refused, None where it holds now."""
        request = CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=rule.resource,
                    resource_name=rule.name,
                    resource_pattern_type=rule.pattern_type,
                    principal=rule.principal,
                    host=rule.host,
                    operation=rule.operation,
                    permission_type=rule.permission,
                )
                for rule in rules
            ]
        )
        response = await self._ask_controller(
            lambda _: request, lambda answer: [result.error_code for result in answer.results]
        )
        return [
            error_of(result.error_code, result.error_message, f"rule for {rule.name}")
            for rule, result in zip(rules, response.results, strict=True)
        ]
