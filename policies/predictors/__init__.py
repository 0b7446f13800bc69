"""Learned predictors of change: from features of a page and a time to a factor on its cumulative hazard.

A predictor is fitted on `rows.Rows` beside an offset, the log cumulative hazard that is known without it, and
says by what the hazard is to be multiplied. Uses `numerics` and `judging`. Start with `predictor`. `hazard`
is the default, on top of the estimator of change rates; the others are the models of Han et al. 2019.
"""
