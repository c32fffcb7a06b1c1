import pytest

from node.core import hub_trouble


@pytest.mark.parametrize(
    ("status", "error_code", "has_token", "code", "passes"),
    [
        (401, "", False, "hub_unauthorised", False),
        (401, "", True, "hub_unauthorised", False),
        (403, "", False, "hub_unauthorised", False),
        (403, "GatedRepo", True, "hub_gated", False),
        (403, "", True, "hub_forbidden", False),
        (404, "", False, "hub_not_found", False),
        (404, "", True, "hub_not_found", False),
        (429, "", False, "hub_rate_limited", True),
        (503, "", False, "hub_error", True),
        (418, "", False, "hub_answer", False),
    ],
)
def test_every_status_has_a_cause_and_a_remedy(
    status: int, error_code: str, has_token: bool, code: str, passes: bool
) -> None:
    found = hub_trouble.of_status(status, "acme/m", error_code=error_code, has_token=has_token)
    assert (found.failure.code, found.is_passing) == (code, passes)
    assert "acme/m" in found.failure.message
    assert found.failure.remedy


def test_a_wait_that_was_asked_for_is_told() -> None:
    found = hub_trouble.of_status(429, "acme/m", after=90.0)
    assert found.retry_after_seconds == 90.0
    assert "90 s" in found.failure.message


def test_a_full_disk_is_told_with_its_numbers() -> None:
    found = hub_trouble.disk_full("models", 3_200_000_000, 500_000)
    assert "3.2 GB" in found.failure.message
    assert "500 kB" in found.failure.message
    assert "2.5 TB" in hub_trouble.disk_full("models", 2_500_000_000_000, 1).failure.message


def test_troubles_of_the_way_pass_and_settings_do_not() -> None:
    assert hub_trouble.unreachable("m", "no route").is_passing
    assert hub_trouble.interrupted("m", "cut").is_passing
    assert hub_trouble.changed("m", "other size").is_passing
    assert hub_trouble.wrong_hash("m", "a" * 64, "b" * 64).is_passing
    assert hub_trouble.disk_fails("m", "I/O error").is_passing
    assert not hub_trouble.offline("m", "HF_HUB_OFFLINE is set").is_passing
