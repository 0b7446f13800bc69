"""Options whose views are made once are the options that Beam knows."""

from __future__ import annotations

import pickle

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, SetupOptions

from pipelines.nightly.beam_options import Options

FLAGS = ["--direct_num_workers=3", "--save_main_session", "--budget=7"]


def test_views_have_the_values_of_beams_own() -> None:
    ours, theirs = Options(FLAGS), PipelineOptions(FLAGS)
    for view in (DirectOptions, SetupOptions):
        assert ours.view_as(view).get_all_options() == theirs.view_as(view).get_all_options()
    assert ours.get_all_options() == theirs.get_all_options()


def test_what_one_view_sets_all_see() -> None:
    options = Options(FLAGS)
    view = options.view_as(DirectOptions)
    view.direct_num_workers = 5
    assert options.view_as(DirectOptions) is view
    assert options.get_all_options()["direct_num_workers"] == 5
    assert view.view_as(DirectOptions).direct_num_workers == 5
    assert pickle.loads(pickle.dumps(options)).view_as(DirectOptions).direct_num_workers == 5
    assert Options([]).view_as(DirectOptions).direct_num_workers == 1
