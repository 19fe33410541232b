"""The one error of certificates, keys and revocations: what is wrong, and what to do."""

from __future__ import annotations

__all__ = ["SecurityError"]


class SecurityError(ValueError):
    """Something about certificates that an operator must put right."""
