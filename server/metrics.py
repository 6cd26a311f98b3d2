"""Prometheus metrics, in a registry of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from antiphon.server.turn_events import TurnReport

_FIRST_PACKET_BUCKETS = (0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0)
_RTF_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 3.0)

_CACHED_IDS_BUCKETS = (0, 16, 32, 64, 128, 192, 256, 384, 512, 1024, 2048)


class Metrics:
    """What the server counts. One object a server, so that two in one process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.connections = Gauge("antiphon_connections", "Open WebSockets.", registry=self.registry)
        self.sessions = Gauge(
            "antiphon_sessions",
            "Turns that hold an engine session.",
            ["model"],
            registry=self.registry,
        )
        self.calls = Gauge("antiphon_calls", "Calls.", ["peer"], registry=self.registry)
        self.text_queue = Gauge(
            "antiphon_text_queue_characters",
            "Text received and not yet spoken.",
            registry=self.registry,
        )
        self.turns = Counter(
            "antiphon_turns",
            "Turns by how they ended.",
            ["model", "finish_reason"],
            registry=self.registry,
        )
        self.cancels = Counter(
            "antiphon_cancels",
            "Turns stopped by the client, by message or by a closed socket.",
            registry=self.registry,
        )
        self.first_packet = Histogram(
            "antiphon_first_packet_seconds",
            "From the first text of a turn reaching the server to its first audio leaving it.",
            ["model"],
            buckets=_FIRST_PACKET_BUCKETS,
            registry=self.registry,
        )
        self.rtf = Histogram(
            "antiphon_real_time_factor",
            "Seconds of synthesis for a second of audio, by turn.",
            ["model"],
            buckets=_RTF_BUCKETS,
            registry=self.registry,
        )
        self.gaps = Counter(
            "antiphon_gaps",
            "Moments at which a listener at normal speed had run dry.",
            registry=self.registry,
        )
        self.gap_seconds = Counter(
            "antiphon_gap_seconds",
            "How long listeners at normal speed had run dry.",
            registry=self.registry,
        )
        self.audio_seconds = Counter(
            "antiphon_audio_seconds",
            "Audio handed to clients.",
            ["model"],
            registry=self.registry,
        )
        self.speech_tokens = Counter(
            "antiphon_speech_tokens", "Speech tokens made.", ["model"], registry=self.registry
        )
        self.cached_ids = Histogram(
            "antiphon_lm_cached_ids",
            "Ids of a request to the speech LM whose keys and values were in the prefix cache.",
            ["model"],
            buckets=_CACHED_IDS_BUCKETS,
            registry=self.registry,
        )
        self.stage_seconds = Counter(
            "antiphon_stage_seconds",
            "Time in each stage of synthesis.",
            ["model", "stage"],
            registry=self.registry,
        )
        self.errors = Counter(
            "antiphon_errors", "Errors reported to clients.", ["code"], registry=self.registry
        )

    def watch_text_queue(self, characters: Callable[[], int]) -> None:
        """Read the queue depth when the metrics are read."""
        self.text_queue.set_function(characters)

    def turn_dropped(self, model: str) -> None:
        """Count a turn whose listener has gone without a word."""
        self.turns.labels(model, "cancelled").inc()
        self.cancels.inc()

    def turn_done(self, report: TurnReport) -> None:
        """Count a turn that ended."""
        model = report.settings.model
        self.turns.labels(model, report.finish_reason).inc()
        if report.finish_reason == "cancelled":
            self.cancels.inc()
        if report.first_packet_s is not None:
            self.first_packet.labels(model).observe(report.first_packet_s)
        if report.rtf is not None:
            self.rtf.labels(model).observe(report.rtf)
        self.gaps.inc(report.gaps)
        self.gap_seconds.inc(report.gap_s)
        self.audio_seconds.labels(model).inc(report.samples / report.settings.sample_rate)

    def stages(self, model: str, timings: Mapping[str, float]) -> None:
        """Count the time that stages took."""
        for stage, seconds in timings.items():
            self.stage_seconds.labels(model, stage).inc(max(0.0, seconds))

    def exposition(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)
