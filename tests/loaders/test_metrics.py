"""The numbers of a loader, served to Prometheus while it trains."""

from __future__ import annotations

import json
import socket
import urllib.request
from typing import Any

import pytest

from loaders.kinds import KINDS
from loaders.samples import follows_its_hint
from millstream import LoaderError, PretrainDataLoader, TrainingBatch
from millstream.loaders import example_loader
from millstream.stages import serve_metrics


def asked(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_of_every_loader_are_served_until_it_is_closed(kind: str) -> None:
    with KINDS[kind](batch_size=2) as loader:
        server = serve_metrics(loader)
        before = asked(server.url)
        loader.next()
        text, statistics = asked(server.url), json.loads(asked(server.url.replace("metrics", "statistics")))
        assert "millstream_stage_items_out_total" in before or kind == "self-play"
        assert {"seconds", "window_s", "stages", "queues"} == set(statistics)
        if kind != "self-play":
            assert 'millstream_stage_items_out_total{stage="loader"} 1\n' in text
            assert 'millstream_stage_gauge{stage="loader",name="wait_fraction"}' in text
            assert statistics["stages"]["loader"]["counters"]["drops"] == loader.losses
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=1):
        pass
    loader.close()


@pytest.mark.parametrize("wrong", [PretrainDataLoader, {}, None, 7, TrainingBatch.empty(1, 1)])
def test_what_has_no_numbers_is_refused_with_a_hint(wrong: Any) -> None:
    with pytest.raises(LoaderError, match="has no numbers to serve") as caught:
        serve_metrics(wrong)
    assert "loader" in follows_its_hint(caught.value)


def test_being_looked_at_keeps_no_loader_alive() -> None:
    server = serve_metrics(example_loader(batch_size=2))
    try:
        assert asked(server.url) == ""
    finally:
        server.close()
