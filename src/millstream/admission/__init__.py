"""Arrivals -> what a step trains on: groups that are complete, fresh and worth it, in an order that is written down."""
