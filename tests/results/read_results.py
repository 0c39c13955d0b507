"""Reads results.h5 with h5py, pandas and xarray, the way a user would, and compares it with what the test put in.

Usage: read_results.py results.h5 expected.json
expected.json: {"trials": n, "tables": {name: rows}, "dimensions": [axis names], "axes": {name: [values]},
                "cells": [{"at": {axis: index}, "variable": name, "value": number or null}]}
"""
import json
import math
import sys

import h5py
import pandas as pd
import xarray as xr


def read_table(file, name):
    table = pd.DataFrame(file[name][:])
    for column in table.select_dtypes(object):
        table[column] = table[column].str.decode("utf-8")
    return table


def check(condition, message):
    if not condition:
        sys.exit(f"read_results.py: {message}")


def same(read, put):
    return math.isnan(read) if put is None else read == put


def check_tables(path, expected):
    with h5py.File(path) as file:
        check(file.attrs["format"] == "headsweep-results", "format attribute")
        for name, rows in expected["tables"].items():
            table = read_table(file, name)
            check(len(table) == rows, f"/{name} has {len(table)} rows, not {rows}")
            check(len(file[name].attrs["units"]) == len(table.columns), f"units of /{name}")
        trials = read_table(file, "trials").set_index("stage")
        check(len(trials) == expected["trials"], "number of trials")
        steps = read_table(file, "steps")
        check(set(steps.trial) <= set(trials.index), "trials of /steps")
        # Which job of the batch system made it, beside the host.
        provenance = read_table(file, "provenance")
        check(set(provenance.job) == {"123_4"} and set(provenance.job_restart) == {1}, "jobs of /provenance")
        check(set(read_table(file, "attempts").job) <= {"123_4"}, "jobs of /attempts")
        # Joining a long table with the trials is what they are for.
        losses = steps.groupby("trial").loss.last().to_frame().join(trials.heads)
        check(losses.heads.notna().all(), "joining /steps with /trials")


def check_grid(path, expected, **options):
    grid = xr.open_dataset(path, group="grid", **options)
    for name, values in expected["axes"].items():
        read = grid[name].values.tolist()
        check(read == values, f"axis {name} is {read}, not {values}")
    for cell in expected["cells"]:
        value = float(grid[cell["variable"]].isel(cell["at"]))
        check(same(value, cell["value"]), f"{cell} reads {value}")
    check(grid.test_nll.attrs["units"] == "nat/piece", "units")
    check(grid.test_nll.attrs["long_name"] != "", "long_name")
    if "order" in grid.dims:
        check(grid.pruning_nll.dims == tuple(expected["dimensions"]) + ("order", "fraction"), "dimensions of pruning")
        curve = grid.pruning_nll.sel(order="random", fraction=0.5)  # by label
        check(curve.notnull().any(), "selecting by label")
    grid.close()


def main():
    path, expected_path = sys.argv[1:]
    with open(expected_path, encoding="utf-8") as file:
        expected = json.load(file)
    check_tables(path, expected)
    check_grid(path, expected)
    check_grid(path, expected, engine="h5netcdf")
    print("read_results.py: all as expected")


main()
