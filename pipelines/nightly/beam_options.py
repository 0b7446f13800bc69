"""Beam's options, with views that are made once.

Beam asks for a view of the options at every transform and type check, and each time builds and runs a parser:
a third of the processor time of a small night.
"""

from __future__ import annotations

import copy
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

    def __deepcopy__(self, memo: dict[int, Any]) -> Options:
        """A copy that has the views, too: Beam copies the options of each pipeline."""
        values = copy.deepcopy(self.__getstate__()["_all_options"], memo)
        copied = _sharing(self, values)
        copied.__dict__["_views"] = {cls: _sharing(view, values) for cls, view in self._views.items()}
        return copied


def _sharing(view: View, values: dict[str, Any]) -> View:
    """The same view of other values."""
    copied = object.__new__(type(view))
    copied.__dict__.update(view.__dict__, _all_options=values)
    return copied
