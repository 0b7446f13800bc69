"""Tests of pipelines.webpage."""
