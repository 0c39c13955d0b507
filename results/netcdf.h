// Writes a Grid as a netCDF-4 group: dimension scales for the axes, one array a variable, units and long_name
// attributes, NaN as _FillValue. xarray.open_dataset("results.h5", group="grid") reads it. Only for the .cc
// files of results/. Source: netCDF-4 format, "Creating netCDF-4 files with HDF5"
// (docs.unidata.ucar.edu/netcdf-c, file format specifications).
#pragma once

#include <string>

#include "results/grid.h"
#include "results/hdf5_handle.h"

namespace headsweep::hdf5 {

void WriteNetcdfGroup(hid_t file, const std::string& group, const Grid& grid, const std::string& title,
                      const std::string& path);

}  // namespace headsweep::hdf5
