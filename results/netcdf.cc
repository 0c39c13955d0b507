#include "results/netcdf.h"

#include <hdf5_hl.h>

#include <limits>
#include <variant>

#include "results/rows.h"

namespace headsweep::hdf5 {
namespace {

constexpr std::string_view kOperation = "write the grid of";

Handle MakeSpace(const std::vector<hsize_t>& extent, const std::string& path) {
  return extent.empty() ? Handle(H5Screate(H5S_SCALAR), H5Sclose, kOperation, path)
                        : Handle(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr),
                                 H5Sclose, kOperation, path);
}

Handle MakeDataset(hid_t group, const std::string& name, hid_t file_type, const std::vector<hsize_t>& extent,
                   const std::string& path) {
  const Handle space = MakeSpace(extent, path);
  const Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, kOperation, path);
  Check(H5Pset_obj_track_times(creation.get(), false), kOperation, path);
  // netCDF-4 numbers attributes in the order of their creation.
  Check(H5Pset_attr_creation_order(creation.get(), H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED), kOperation,
        path);
  return Handle(
      H5Dcreate2(group, name.c_str(), file_type, space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
      H5Dclose, kOperation, path);
}

void Write(const Handle& dataset, hid_t memory_type, const void* values, const std::string& path) {
  Check(H5Dwrite(dataset.get(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), kOperation, path);
}

struct WriteValues {
  hid_t group;
  const std::string& name;
  const std::vector<hsize_t>& extent;
  const std::string& path;

  Handle operator()(const std::vector<std::int64_t>& values) const {
    Handle dataset = MakeDataset(group, name, H5T_STD_I64LE, extent, path);
    Write(dataset, H5T_NATIVE_INT64, values.data(), path);
    return dataset;
  }
  Handle operator()(const std::vector<double>& values) const {
    Handle dataset = MakeDataset(group, name, H5T_IEEE_F64LE, extent, path);
    Write(dataset, H5T_NATIVE_DOUBLE, values.data(), path);
    return dataset;
  }
  Handle operator()(const std::vector<std::string>& values) const {
    GridTexts texts(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) texts.Set(i, ValidUtf8(values[i]));
    return (*this)(texts);
  }
  Handle operator()(const GridTexts& values) const {
    // Variable-length: xarray gives fixed-length coordinates as bytes.
    const Handle type = TextType();
    std::vector<const char*> texts(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) texts[i] = values[i];
    Handle dataset = MakeDataset(group, name, type.get(), extent, path);
    Write(dataset, type.get(), texts.data(), path);
    return dataset;
  }
};

void WriteFillValue(const Handle& dataset, const std::string& path) {
  const double fill = std::numeric_limits<double>::quiet_NaN();
  const hsize_t one = 1;
  Handle space(H5Screate_simple(1, &one, nullptr), H5Sclose, kOperation, path);
  Handle attribute(
      H5Acreate2(dataset.get(), "_FillValue", H5T_IEEE_F64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT),
      H5Aclose, kOperation, path);
  Check(H5Awrite(attribute.get(), H5T_NATIVE_DOUBLE, &fill), kOperation, path);
  attribute.Close();
}

void Describe(const Handle& dataset, const std::string& unit, const std::string& long_name,
              const std::string& path) {
  WriteAttribute(dataset.get(), "long_name", ValidUtf8(long_name), path);
  if (!unit.empty()) WriteAttribute(dataset.get(), "units", unit, path);
}

}  // namespace

void WriteNetcdfGroup(hid_t file, const std::string& group_name, const Grid& grid, const std::string& title,
                      const std::string& path) {
  const Handle creation(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, kOperation, path);
  Check(H5Pset_link_creation_order(creation.get(), H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED), kOperation,
        path);
  Check(H5Pset_obj_track_times(creation.get(), false), kOperation, path);
  Handle group(H5Gcreate2(file, group_name.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT), H5Gclose,
               kOperation, path);
  WriteAttribute(group.get(), "title", ValidUtf8(title), path);
  std::vector<Handle> scales;
  for (std::size_t d = 0; d < grid.dimensions.size(); ++d) {
    const GridDimension& dimension = grid.dimensions[d];
    const std::vector<hsize_t> extent = {dimension.size()};
    Handle scale = std::visit(WriteValues{group.get(), dimension.name, extent, path}, dimension.values);
    Check(H5DSset_scale(scale.get(), dimension.name.c_str()), kOperation, path);
    WriteAttribute(scale.get(), "_Netcdf4Dimid", static_cast<std::int64_t>(d), path);
    Describe(scale, "", dimension.long_name, path);
    scales.push_back(std::move(scale));
  }
  for (const GridVariable& variable : grid.variables) {
    std::vector<hsize_t> extent;
    for (const int d : variable.dimensions)
      extent.push_back(grid.dimensions[static_cast<std::size_t>(d)].size());
    Handle dataset = std::visit(WriteValues{group.get(), variable.name, extent, path}, variable.values());
    for (std::size_t i = 0; i < variable.dimensions.size(); ++i) {
      const Handle& scale = scales[static_cast<std::size_t>(variable.dimensions[i])];
      Check(H5DSattach_scale(dataset.get(), scale.get(), static_cast<unsigned>(i)), kOperation, path);
    }
    if (!variable.is_text) WriteFillValue(dataset, path);
    Describe(dataset, variable.unit, variable.long_name, path);
    dataset.Close();
  }
  for (Handle& scale : scales) scale.Close();
  group.Close();
}

}  // namespace headsweep::hdf5
