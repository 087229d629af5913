"""Codes of what can be allowed or forbidden, as they stand in access rules and in metadata. Pure."""

from __future__ import annotations

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 10, 11, 12
EVERYTHING = 2
OPERATION_NAMES = {
    EVERYTHING: "All",
    READ: "Read",
    WRITE: "Write",
    CREATE: "Create",
    DELETE: "Delete",
    ALTER: "Alter",
    DESCRIBE: "Describe",
    DESCRIBE_CONFIGS: "DescribeConfigs",
    ALTER_CONFIGS: "AlterConfigs",
    IDEMPOTENT_WRITE: "IdempotentWrite",
}
