#include "results/hdf5_handle.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "cluster/base/errors.h"

namespace headsweep::hdf5 {
namespace {

constexpr std::size_t kCacheBytes = 1 << 20;

struct StackText {
  std::string text;
  int error_number = 0;
};

herr_t AppendEntry(unsigned, const H5E_error2_t* entry, void* data) {
  auto* stack = static_cast<StackText*>(data);
  std::string description = entry->desc == nullptr ? "" : entry->desc;
  std::replace(description.begin(), description.end(), '\n', ' ');
  if (description.empty()) return 0;
  // Of the eight or so levels of a failure the innermost say what happened; the outer ones repeat "can't open
  // file".
  if (stack->text.size() < 300) stack->text += (stack->text.empty() ? "" : " < ") + description;
  const auto at = description.find("errno = ");
  if (at != std::string::npos && stack->error_number == 0) {
    stack->error_number = std::atoi(description.c_str() + at + 8);
  }
  return 0;
}

// Access properties shared by every file: locks where the file system has them, none where it does not
// (Lustre without flock).
Handle FileAccess(const std::string& path) {
  Initialize();
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "prepare", path);
  Check(H5Pset_file_locking(access.get(), true, true), "prepare", path);
  return access;
}

Handle FileCreation(const std::string& path, hsize_t userblock_bytes) {
  Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "prepare", path);
  if (userblock_bytes > 0) Check(H5Pset_userblock(creation.get(), userblock_bytes), "prepare", path);
  Check(H5Pset_obj_track_times(creation.get(), false), "prepare", path);  // same content, same bytes
  // netCDF-4 asks for links in the order of their creation.
  Check(H5Pset_link_creation_order(creation.get(), H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED), "prepare",
        path);
  return creation;
}

// A scalar attribute of file_type, written from value in memory_type.
void WriteScalar(hid_t object, const std::string& name, hid_t file_type, hid_t memory_type, const void* value,
                 const std::string& path) {
  Handle space(H5Screate(H5S_SCALAR), H5Sclose, "write attribute of", path);
  Handle attribute(H5Acreate2(object, name.c_str(), file_type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                   H5Aclose, "write attribute of", path);
  Check(H5Awrite(attribute.get(), memory_type, value), "write attribute of", path);
  attribute.Close();
}

// HDF5 lets its cache of metadata (of a table with texts, all of these) grow to 32 MiB with the file; nothing here is read twice.
void KeepCacheSmall(const Handle& access, const std::string& path) {
  H5AC_cache_config_t cache{};
  cache.version = H5AC__CURR_CACHE_CONFIG_VERSION;
  Check(H5Pget_mdc_config(access.get(), &cache), "prepare", path);
  cache.set_initial_size = true;
  cache.initial_size = cache.max_size = cache.min_size = kCacheBytes;
  cache.incr_mode = H5C_incr__off;
  cache.flash_incr_mode = H5C_flash_incr__off;
  cache.decr_mode = H5C_decr__off;
  Check(H5Pset_mdc_config(access.get(), &cache), "prepare", path);
}

// HDF5 takes 600 KiB for every file that it opens and gives them back at its end. By default the allocator hands them on to the
// system, and thousands of files are spent on clearing fresh pages.
void KeepMemoryBetweenFiles() {
  static const bool done = ::mallopt(M_MMAP_THRESHOLD, 1 << 25) == 1 && ::mallopt(M_TRIM_THRESHOLD, 1 << 25) == 1;
  static_cast<void>(done);
}

// HDF5 locks what it opens, and gives up on a file system without locks (NFS without its lock service). There it is done without:
// who writes a file is settled elsewhere (launcher/trial_lock.h, launcher/LEASES.md), and complete files have a checksum.
template <class Open>
Handle LockedIfPossible(const Handle& access, const std::string& path, const Open& open) {
  try {
    return open();
  } catch (const IoError& error) {
    const int number = error.error_number();
    if (number != ENOLCK && number != EOPNOTSUPP && number != ENOSYS) throw;
  }
  Check(H5Pset_file_locking(access.get(), /*use_file_locking=*/false, /*ignore_when_disabled=*/true), "prepare", path);
  return open();
}

}  // namespace

void Initialize() {
  static const bool done = [] {
    H5dont_atexit();  // fails only when called twice
    H5open();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    return true;
  }();
  static_cast<void>(done);
}

void ThrowLastError(std::string_view operation, const std::string& path) {
  StackText stack;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, AppendEntry, &stack);
  H5Eclear2(H5E_DEFAULT);
  throw IoError(std::string(operation), path, stack.error_number,
                stack.text.empty() ? "HDF5 failed without a message" : "HDF5: " + stack.text);
}

Handle::Handle(hid_t id, CloseFunction close, std::string_view operation, const std::string& path)
    : id_(id), close_(close), path_(path) {
  if (id < 0) ThrowLastError(operation, path);
}

Handle::~Handle() { CloseQuietly(); }

Handle::Handle(Handle&& other) noexcept
    : id_(std::exchange(other.id_, -1)), close_(other.close_), path_(std::move(other.path_)) {}

Handle& Handle::operator=(Handle&& other) noexcept {
  if (this != &other) {
    CloseQuietly();
    id_ = std::exchange(other.id_, -1);
    close_ = other.close_;
    path_ = std::move(other.path_);
  }
  return *this;
}

void Handle::Close() {
  if (id_ < 0) return;
  Check(close_(std::exchange(id_, -1)), "close", path_);
}

void Handle::CloseQuietly() noexcept {
  if (id_ < 0) return;
  if (close_(std::exchange(id_, -1)) < 0) H5Eclear2(H5E_DEFAULT);
}

Handle CreateFile(const std::string& path, hsize_t userblock_bytes) {
  const Handle access = FileAccess(path);
  KeepCacheSmall(access, path);
  const Handle creation = FileCreation(path, userblock_bytes);
  return LockedIfPossible(access, path, [&] {
    return Handle(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose, "create", path);
  });
}

Handle CreateInMemory(const std::string& path) {
  const Handle access = FileAccess(path);
  const Handle creation = FileCreation(path, 0);
  constexpr std::size_t kIncrementBytes = 1 << 16;  // HDF5 clears what it adds, and fresh pages are slow
  Check(H5Pset_fapl_core(access.get(), kIncrementBytes, /*backing_store=*/false), "prepare", path);
  return Handle(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose, "create",
                path);
}

std::string Image(const Handle& file, const std::string& path) {
  Check(H5Fflush(file.get(), H5F_SCOPE_LOCAL), "flush", path);
  const ssize_t size = Check(H5Fget_file_image(file.get(), nullptr, 0), "copy", path);
  std::string bytes(static_cast<std::size_t>(size), '\0');
  Check(H5Fget_file_image(file.get(), bytes.data(), bytes.size()), "copy", path);
  return bytes;
}

Handle OpenFile(const std::string& path) {
  const Handle access = FileAccess(path);
  return LockedIfPossible(access, path, [&] {
    return Handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose, "open", path);
  });
}

Handle OpenImage(std::string_view bytes, const std::string& path) {
  KeepMemoryBetweenFiles();
  const Handle access = FileAccess(path);
  Check(H5Pset_fapl_core(access.get(), 1 << 16, /*backing_store=*/false), "prepare", path);
  // HDF5 copies the buffer; the const_cast is its interface's.
  Check(H5Pset_file_image(access.get(), const_cast<char*>(bytes.data()), bytes.size()), "read", path);
  // HDF5 insists that no file of the image's name exists; below a file none can.
  const std::string name = path + "/image";
  return Handle(H5Fopen(name.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose, "open", path);
}

Handle TextType() {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "prepare", "a text type");
  Check(H5Tset_size(type.get(), H5T_VARIABLE), "prepare", "a text type");
  Check(H5Tset_cset(type.get(), H5T_CSET_UTF8), "prepare", "a text type");
  return type;
}

Handle FixedTextType(std::size_t bytes) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "prepare", "a text type");
  Check(H5Tset_size(type.get(), bytes), "prepare", "a text type");
  Check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), "prepare", "a text type");
  Check(H5Tset_cset(type.get(), H5T_CSET_UTF8), "prepare", "a text type");
  return type;
}

void WriteAttribute(hid_t object, const std::string& name, const std::string& value,
                    const std::string& path) {
  const char* text =
      value.c_str();  // variable length: h5py and xarray give fixed-length texts as bytes, not str
  WriteScalar(object, name, TextType().get(), TextType().get(), &text, path);
}

void WriteAttribute(hid_t object, const std::string& name, const std::vector<std::string>& values,
                    const std::string& path) {
  std::vector<const char*> texts;
  for (const std::string& value : values) texts.push_back(value.c_str());
  const hsize_t count = texts.size();
  const Handle type = TextType();
  Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose, "write attribute of", path);
  Handle attribute(H5Acreate2(object, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                   H5Aclose, "write attribute of", path);
  Check(H5Awrite(attribute.get(), type.get(), texts.data()), "write attribute of", path);
  attribute.Close();
}

void WriteAttribute(hid_t object, const std::string& name, std::int64_t value, const std::string& path) {
  WriteScalar(object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value, path);
}

void WriteAttribute(hid_t object, const std::string& name, double value, const std::string& path) {
  WriteScalar(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value, path);
}

std::string ReadTextAttribute(hid_t object, const std::string& name, const std::string& path) {
  Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, "read attribute of", path);
  Handle type(H5Aget_type(attribute.get()), H5Tclose, "read attribute of", path);
  Handle space(H5Aget_space(attribute.get()), H5Sclose, "read attribute of", path);
  if (H5Tget_class(type.get()) != H5T_STRING || Check(H5Tis_variable_str(type.get()), "read", path) == 0 ||
      H5Sget_simple_extent_type(space.get()) != H5S_SCALAR) {
    throw IoError("read", path, 0, fmt::format("attribute {} is not a text", name));
  }
  char* text = nullptr;
  Check(H5Aread(attribute.get(), TextType().get(), &text), "read attribute of", path);
  std::string value = text == nullptr ? "" : text;
  H5free_memory(text);
  return value;
}

std::int64_t ReadIntAttribute(hid_t object, const std::string& name, const std::string& path) {
  Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, "read attribute of", path);
  std::int64_t value = 0;
  Check(H5Aread(attribute.get(), H5T_NATIVE_INT64, &value), "read attribute of", path);
  return value;
}

}  // namespace headsweep::hdf5
