"""Stored runs: valid ones, one for each situation, and broken ones, one for each rule."""
