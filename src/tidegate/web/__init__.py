"""The service: streams at work in one process, their releases over HTTP, and a page that people look at."""

from tidegate.web.service import Service, Settings, serve

__all__ = ["Service", "Settings", "serve"]
