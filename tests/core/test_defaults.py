"""Defaults are promises to those who wrote no value: changing one is a release note."""

from llmgw.core import defaults

PROMISED = {
    "HEARTBEAT_S": 5,
    "UNREACHABLE_AFTER_S": 15,
    "LOST_AFTER_S": 120,
    "SETTLING_S": 60,
    "SETTLING_UP_S": 2,
    "TICK_S": 1,
    "STARTUP_TIMEOUT_S": 600,
    "STALL_TIMEOUT_S": 120,
    "STALL_MIN_BYTES": 1024 * 1024,
    "BACKOFF_FIRST_S": 5,
    "BACKOFF_CAP_S": 300,
    "BACKOFF_JITTER": 0.25,
    "BACKOFF_RESET_AFTER_READY_S": 600,
    "DRAIN_GRACE_S": 600,
    "IDLE_TIMEOUT_S": 900,
    "EVICT_AFTER_S": 120,
    "MIN_SERVING_S": 300,
    "TARGET_WAITING": 4,
    "KV_CEILING": 0.9,
    "QUEUE_LENGTH": 512,
    "QUEUE_WAIT_S": 30,
    "LOAD_WAIT_S": 30,
    "LEASE_S": 10,
    "CONNECT_TIMEOUT_S": 2,
    "FIRST_BYTE_TIMEOUT_S": 600,
    "IDLE_BYTE_TIMEOUT_S": 300,
    "TOTAL_TIMEOUT_S": 3600,
    "MAX_BODY_MB": 32,
    "RECONNECT_FIRST_S": 1,
    "RECONNECT_CAP_S": 30,
    "PORT_FIRST": 20000,
    "PORT_LAST": 29999,
    "WITHDRAWAL_ACK_S": 2,
    "ROUTER_DRAIN_S": 30,
    "ROUTER_DRAIN_UP_S": 3,
    "RETRIES": 2,
    "RETRY_BUDGET": 0.2,
    "BREAKER_IN_ROW": 5,
    "BREAKER_WINDOW": 20,
    "BREAKER_SHARE": 0.5,
    "BREAKER_OPEN_FIRST_S": 5,
    "BREAKER_OPEN_CAP_S": 60,
    "USAGE_FLUSH_S": 2,
    "USAGE_RETENTION_DAYS": 400,
    "FREEZE_FRACTION": 0.5,
    "FREEZE_MIN_NODES": 3,
    "CLIENT_LISTEN": "0.0.0.0:8080",
    "ADMIN_LISTEN": "127.0.0.1:8081",
    "AGENT_LISTEN_TLS": "0.0.0.0:8443",
    "AGENT_LISTEN_PLAIN": "127.0.0.1:8443",
}


def test_the_promised_defaults_are_kept() -> None:
    assert {name: getattr(defaults, name) for name in PROMISED} == PROMISED


def test_times_that_wait_for_each_other_are_in_order() -> None:
    assert defaults.HEARTBEAT_S < defaults.UNREACHABLE_AFTER_S < defaults.LOST_AFTER_S
    assert defaults.RECONNECT_CAP_S < defaults.SETTLING_S  # an agent is back before anything new is placed
    assert defaults.WITHDRAWAL_ACK_S < defaults.DRAIN_GRACE_S
    assert defaults.CONNECT_TIMEOUT_S < defaults.FIRST_BYTE_TIMEOUT_S < defaults.TOTAL_TIMEOUT_S
