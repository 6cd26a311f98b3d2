"""Structured logs on standard error. Neither text nor audio nor keys are ever logged."""

from __future__ import annotations

import logging
import sys

import structlog

from antiphon.server.config import LogSection

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def set_up_logs(section: LogSection) -> None:
    """Configure structlog, and keep uvicorn quiet: its lines hold request URLs, and so keys."""
    renderer = (
        structlog.processors.JSONRenderer()
        if section.form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[section.level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.ERROR)
