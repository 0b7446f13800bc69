"""Beam's options, with views that are made once.

Beam asks for a view of the options at every transform and type check, and each time builds and runs a parser:
a third of the processor time of a small night.
"""

from __future__ import annotations

from typing import Any, TypeVar

from apache_beam.options.pipeline_options import PipelineOptions

View = TypeVar("View", bound=PipelineOptions)


class Options(PipelineOptions):
    """`PipelineOptions` that keep their views: all views share the values, so one of each class does."""

    def __init__(self, flags: list[str] | None = None, **kwargs: Any) -> None:
        super().__init__(flags, **kwargs)
        self.__dict__["_views"] = {}

    def view_as(self, cls: type[View]) -> View:
        """The view of a class, always the same one."""
        view = self.__dict__["_views"].get(cls)
        if view is None:
            view = self.__dict__["_views"][cls] = super().view_as(cls)
        return view
