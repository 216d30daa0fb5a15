"""The same fixtures as the tests of the driver: they are what is tested here."""

from tests.kubernetes.conftest import cluster, control, proxy, unique

__all__ = ["cluster", "control", "proxy", "unique"]
