"""The native side of orders, as other folders see it: which rows stand at which step."""

from millstream._core import Clock, Plan, order_version

__all__ = ["Clock", "Plan", "order_version"]
